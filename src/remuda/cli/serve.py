"""`remuda serve`: the server in the foreground, until it is told to stop.

The server itself is :mod:`remuda.embedded`; here are the options, the signals, and the sentences for what goes wrong.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda import __version__

from .core_options import core_options
from .exits import Failure
from .loops import collect_seldom, loop_factory, raise_file_limit
from .places import Listen, data_dir_option, listen_option, parse_duration
from .signals import stop_on_signals

if TYPE_CHECKING:
    from remuda.apiserver.server import Server
    from remuda.capi.core import Options
    from remuda.runtime.choice import Choice

ROLES = ("api",)


@click.command()
@data_dir_option
@listen_option
@click.option("--only", type=click.Choice(ROLES), help="Serve the API alone, without controllers.")
@click.option(
    "--controllers",
    "wanted",
    metavar="LIST",
    default="*",
    show_default=True,
    help="Controllers to run: * for all, a for one, -a for all but one; -capi leaves Cluster API to somebody else.",
)
@click.option(
    "--history",
    type=parse_duration,
    metavar="DURATION",
    default="7d",
    show_default=True,
    help="How long past states of objects stay readable: 12h, 7d.",
)
@click.option(
    "--watch-window",
    type=parse_duration,
    metavar="DURATION",
    default="5m",
    show_default=True,
    help="How far back watches and paged lists may go on from.",
)
@core_options
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Form of log lines.")
@click.option("-v", "--verbose", count=True, help="Log more; twice for even more.")
def command(
    data_dir: Path,
    listen: Listen,
    only: str | None,
    wanted: str,
    options: Options,
    history: int,
    watch_window: int,
    log_format: str,
    verbose: int,
) -> None:
    """Run the server.

    The first start makes a certificate authority, certificates, keys and the administrator's kubeconfig in the data
    directory. SIGTERM or Ctrl-C ends watches, lets requests finish and stops; a second Ctrl-C stops at once.
    """
    from . import logs

    logs.set_up(log_format, verbose)
    choice = _choice(wanted)
    raise_file_limit()
    collect_seldom()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(
            _serve(data_dir.absolute(), listen, choice, options, controllers=only != "api", history=history, window=watch_window)
        )


def _choice(wanted: str) -> Choice:
    from remuda.embedded import chosen
    from remuda.runtime.choice import UnknownController

    try:
        return chosen(wanted)
    except UnknownController as error:
        raise click.BadParameter(str(error), param_hint="--controllers") from error


async def _serve(
    data_dir: Path, listen: Listen, choice: Choice, options: Options, *, controllers: bool, history: int, window: int
) -> None:
    from remuda.apiserver.pki import PkiError
    from remuda.apiserver.server import Config, PartFailed
    from remuda.apiserver.store import StoreError
    from remuda.embedded import running

    from .notify import tell

    stop = asyncio.Event()
    stop_on_signals(stop)
    config = Config(data_dir=data_dir, host=listen.host, port=listen.port, history_seconds=history, window_seconds=max(window, 1))
    try:
        async with running(config, controllers=controllers, choice=choice, options=options) as server:
            _announce(server, data_dir)
            tell(f"READY=1\nSTATUS=serving at {server.url}")
            await server.serve_forever(stop)
            tell("STOPPING=1")
    except (StoreError, PkiError, PartFailed) as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(_explain(error, listen, data_dir)) from error


def _announce(server: Server, data_dir: Path) -> None:
    assert server.pki is not None
    click.echo(
        f"Remuda {__version__} serves the Kubernetes API at {server.url}\n"
        f"  data        {data_dir}\n"
        f"  CA          {server.pki.ca_certificate}\n"
        f"  kubeconfig  {server.kubeconfig_path}\n"
        f"Try:  kubectl --kubeconfig {server.kubeconfig_path} get namespaces\n"
        "Ctrl-C stops."
    )


def _explain(error: OSError, listen: Listen, data_dir: Path) -> str:
    if isinstance(error, socket.gaierror):
        return f"the address {listen.host} is not known: say another with --listen"
    if error.errno == errno.EADDRINUSE:
        return f"{listen} is in use: stop what listens there, or say another address with --listen"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{listen.host} is no address of this machine: say another with --listen"
    if error.errno in (errno.EACCES, errno.EPERM) and not error.filename:
        return f"this user may not listen on {listen}: ports below 1024 are root's, say another with --listen"
    if error.filename:
        return f"the data directory {data_dir} can't be used: {error.filename}: {error.strerror}; say another with --data-dir"
    return f"the server failed: {error}"
