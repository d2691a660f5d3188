"""`remuda support-bundle`: the information for support, without secrets. :mod:`.collector` collects it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..exit_codes import Code, Failure
from ..options.locations import Listen, data_dir_option, listen_option
from ..remote.login_file import complete_names

if TYPE_CHECKING:
    from remuda.client.kubeconfig import KubeTarget

    from .collector import Collector

_MIB = 1 << 20


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="The kubeconfig of the server's administrator."
)
@click.option("--login", default="", metavar="NAME", shell_complete=complete_names, help="The login to use.")
@data_dir_option
@listen_option
@click.option(
    "--unit", metavar="NAME", default="remuda", show_default=True, help="The service of systemd whose journal is taken."
)
@click.option(
    "--log-file",
    "log_files",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="A log file instead of the journal; may be given several times.",
)
@click.option(
    "--hours",
    metavar="COUNT",
    type=click.IntRange(1, 24 * 365),
    default=24,
    show_default=True,
    help="The age up to which the journal is included.",
)
@click.option(
    "--max-size",
    metavar="COUNT",
    type=click.IntRange(1, 4096),
    default=256,
    show_default=True,
    help="The maximum size in MiB, uncompressed.",
)
def command(
    file: Path | None,
    kubeconfig: Path | None,
    login: str,
    data_dir: Path,
    listen: Listen,
    unit: str,
    log_files: tuple[Path, ...],
    hours: int,
    max_size: int,
) -> None:
    """Write diagnostic data into FILE.tar.gz, without secrets.

    Versions, options, logs, how many objects there are and how they are, events, settings, metrics, certificates' ends, and what
    remuda doctor says. Where the server does not answer it has what is on disk, and says what is missing.
    """
    from remuda.client.kubeconfig import ConfigError
    from remuda.kube.clock import SYSTEM_CLOCK, rfc3339

    from .collector import Collector, opened
    from .scrubbing import Scrubber

    now = SYSTEM_CLOCK.time()
    path = file or Path(f"remuda-support-{rfc3339(now).replace(':', '')}.tar.gz")
    data_dir = data_dir.absolute()
    target: KubeTarget | None = None
    why = ""
    try:
        target = _target(kubeconfig, login, data_dir)
    except (Failure, ConfigError) as error:
        if kubeconfig is not None or login:
            raise
        why = str(error)
    try:
        with opened(path, max_size * _MIB, now) as archive:
            collector = Collector(archive, Scrubber(), SYSTEM_CLOCK, _say)
            if target is None:
                collector.lacks("everything of the server", why)
            asyncio.run(_collect(collector, target, data_dir, listen, unit, hours, log_files))
            collector.finish()
    except FileExistsError:
        raise Failure(f"{path} exists: name another file, or remove it", Code.CONFLICT) from None
    for line in collector.missing:
        click.echo(f"remuda: missing: {line}", err=True)
    click.echo(f"{path} ({max(path.stat().st_size // 1024, 1)} KiB)")


async def _collect(
    collector: Collector,
    target: KubeTarget | None,
    data_dir: Path,
    listen: Listen,
    unit: str,
    hours: int,
    log_files: tuple[Path, ...],
) -> None:
    from remuda.client.https import HttpsClient
    from remuda.kube.clock import SYSTEM_CLOCK

    from ..commands import doctor

    collector.learn_files(data_dir)
    if target is not None:
        async with HttpsClient(target) as client:
            if await collector.learn_secrets(client):
                await collector.of_server(client)
    collector.of_machine(data_dir, unit)
    found = doctor.run(doctor.Subject(data_dir, listen, SYSTEM_CLOCK))
    collector.archive.document("doctor.json", collector.scrubber.value([each.document() for each in found]))
    collector.logs(unit, hours, log_files)


def _target(kubeconfig: Path | None, login: str, data_dir: Path) -> KubeTarget:
    """The server and the user: the options, else the administrator of the data directory, else the current login."""
    from remuda.client.kubeconfig import load, select

    from ..remote.connection import remote_of

    own = data_dir / "kubeconfig"
    if kubeconfig is None and not login and os.access(own, os.R_OK):
        return select(load([own]))
    return remote_of(kubeconfig, login).target


def _say(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(text, err=True)
