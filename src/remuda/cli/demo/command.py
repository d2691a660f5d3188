"""`remuda demo`: what Remuda does, on this machine and within minutes. The steps are in :mod:`.tour`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..exit_codes import Code, Failure
from ..options.locations import parse_interval
from ..views.output import is_terminal

if TYPE_CHECKING:
    from .cluster import Declared
    from .stage import Stage
    from .tour import Tour

_MOST = 9


@click.command()
@click.option("--servers", type=click.IntRange(1, _MOST), metavar="COUNT", help="Servers of the cluster.  [default: 3]")
@click.option("--workers", type=click.IntRange(1, _MOST), metavar="COUNT", help="Workers at the start.  [default: 2]")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="The directory of its files: new or empty, removed at the end.  [default: a temporary one]",
)
@click.option(
    "--exit/--stay",
    "leave",
    default=None,
    help="Remove everything after the tour, or keep it until Ctrl-C.  [default: keep it on a terminal]",
)
@click.option(
    "--timeout",
    type=parse_interval,
    metavar="DURATION",
    default="10m",
    show_default=True,
    help="The time limit of one step.",
)
def command(servers: int | None, workers: int | None, data_dir: Path | None, leave: bool | None, timeout: float) -> None:
    """Show what Remuda does, on this machine and within minutes.

    It starts a server, makes a cluster of hosts on this machine (no root needed), adds a worker, upgrades Kubernetes, kills a
    worker and has it replaced. The cluster's nodes are simulated: its control plane is real, but its pods start no containers.
    Ctrl-C removes everything, at any time. Linux only.
    """
    from . import cluster

    if not sys.platform.startswith("linux"):
        raise Failure("the demo makes hosts on this machine, which needs Linux")
    wanted = cluster.packaged()
    for pool, quantity in ((cluster.SERVERS, servers), (cluster.WORKERS, workers)):
        wanted = wanted if quantity is None else wanted.with_quantity(pool, quantity)
    staying = not leave if leave is not None else is_terminal(sys.stdout) and sys.stdin.isatty()
    code = asyncio.run(_show(wanted, _directory(data_dir), timeout, staying=staying))
    if code is not Code.OK:
        sys.exit(code)


def _directory(told: Path | None) -> Path:
    if told is None:
        return Path(tempfile.mkdtemp(prefix="remuda-demo-"))
    with contextlib.suppress(FileNotFoundError):
        if any(told.iterdir()):
            raise Failure(f"{told} is not empty: the demo needs a directory of its own, which it removes at the end")
    told.mkdir(mode=0o700, parents=True, exist_ok=True)
    return told.absolute()


async def _show(wanted: Declared, directory: Path, timeout: float, *, staying: bool) -> Code:
    """Runs the tour until it ends or a signal stops it, then removes everything."""
    from remuda.hosts import processes
    from remuda.kube.clock import SYSTEM_CLOCK

    from .stage import Stage
    from .tour import Tour

    # All processes that are started from here stay below this one, and can be counted at the end.
    processes.become_subreaper()
    stop, hurry = asyncio.Event(), asyncio.Event()
    _on_signals(stop, hurry)
    stage = Stage(sys.stdout, SYSTEM_CLOCK, lambda: _alone(stop))
    tour = Tour(stage, directory, wanted, SYSTEM_CLOCK, timeout, dict(os.environ))
    code = await _toured(tour, stage, stop, staying=staying)
    # A signal from now on means hurry.
    stop.set()
    problems = await tour.tear_down(hurry)
    for problem in problems:
        stage.say(f"remuda: {problem}", "red")
    return Code.FAILURE if problems else code


async def _toured(tour: Tour, stage: Stage, stop: asyncio.Event, *, staying: bool) -> Code:
    from ..exit_codes import explain

    touring, stopping = asyncio.create_task(tour.run()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([touring, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not touring.done():
            return Code.INTERRUPTED
        touring.result()
        stage.say()
        stage.say("Look around, in another terminal:", "bold")
        stage.block(tour.how_to_look_around(), "")
        if staying:
            stage.say()
            stage.say("The demo keeps running until Ctrl-C, which removes everything.", "bold")
            await stop.wait()
        return Code.OK
    except Exception as error:
        if os.environ.get("REMUDA_DEBUG") == "1":
            traceback.print_exc()
        message, code = explain(error)
        stage.say(f"remuda: {message}", "red")
        await tour.explain()
        return code
    finally:
        for task in (touring, stopping):
            task.cancel()
        await asyncio.gather(touring, stopping, return_exceptions=True)


def _alone(stop: asyncio.Event) -> None:
    """Ends the demo when its reader is gone. Python would complain once more when it flushes at its own end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    stop.set()


def _on_signals(stop: asyncio.Event, hurry: asyncio.Event) -> None:
    """The first signal ends the tour, the second one the orderly removal."""

    def told() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, told)
