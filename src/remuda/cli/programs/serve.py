"""`remuda serve`: the server in the foreground, until it is told to stop.

The server itself is :mod:`remuda.app.embedded`; here are the options, the signals, and the sentences for what goes wrong.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda import __version__

from ..exit_codes import Failure
from ..options.controllers import chosen_by, core_options, leader_options
from ..options.etcd import Sharing, etcd_options
from ..options.locations import Listen, data_dir_option, listen_option, parse_duration, parse_interval
from ..options.serving import advertise_option, connections_option, job_runner_option, room, tls_options, tls_san_option
from .event_loop import collect_seldom, collecting_nothing_yet, loop_factory, raise_file_limit, stop_on_signals
from .logs import log_options

if TYPE_CHECKING:
    from remuda.apiserver.server import Config, Server
    from remuda.capi.controller_context import ControllerOptions
    from remuda.gateway.server.serving_certificate import Files
    from remuda.runtime import LeaseTerm
    from remuda.runtime.controller_table import ControllerChoice

ROLES = ("api",)


@click.command()
@collecting_nothing_yet
@data_dir_option
@listen_option
@tls_san_option("server")
@advertise_option("etcd")
@tls_options
@etcd_options
@click.option("--only", type=click.Choice(ROLES), help="Serve the API alone, without controllers.")
@click.option(
    "--controllers",
    "wanted",
    metavar="LIST",
    default="*",
    show_default=True,
    help="Controllers to run: * for all, a for one, -a for all but one; -capi leaves out Cluster API, -access the gateway.",
)
@click.option(
    "--history",
    type=parse_duration,
    metavar="DURATION",
    default="7d",
    show_default=True,
    help="The time that past states of objects stay readable: 12h, 7d.",
)
@click.option(
    "--watch-window",
    type=parse_duration,
    metavar="DURATION",
    default="5m",
    show_default=True,
    help="The age up to which watches and paged lists may continue.",
)
@click.option(
    "--shutdown-delay-duration",
    type=parse_interval,
    metavar="DURATION",
    default="0s",
    show_default=True,
    help="The time to continue serving after a stop signal, while /readyz already fails.",
)
@connections_option
@job_runner_option("local")
@leader_options
@core_options
@log_options
def command(
    data_dir: Path,
    listen: Listen,
    tls_san: tuple[str, ...],
    advertise_address: str,
    tls: Files | None,
    sharing: Sharing,
    only: str | None,
    wanted: str,
    options: ControllerOptions,
    term: LeaseTerm,
    history: int,
    watch_window: int,
    shutdown_delay_duration: float,
    connections_per_address: int | None,
    job_runner: str,
    log_format: str,
    verbose: int,
) -> None:
    """Run the server.

    The first start makes a certificate authority, certificates, keys and the administrator's kubeconfig in the data
    directory. With --etcd the state is there instead, and several servers may share it: the controllers of one of them work at
    a time. SIGTERM or Ctrl-C ends watches, lets requests finish and stops; a second Ctrl-C stops at once.
    """
    from remuda.app.embedded import chosen

    from . import logs

    logs.set_up(log_format, verbose)
    choice = chosen_by(chosen, wanted)
    _check_history(sharing)
    from remuda.apiserver.server import Config

    config = Config(
        data_dir=data_dir.absolute(),
        host=listen.host,
        port=listen.port,
        names=tls_san,
        advertise=advertise_address,
        history_seconds=history,
        window_seconds=max(watch_window, 1),
        etcd=sharing.etcd,
        pki_dir=sharing.pki_dir,
        token=sharing.token,
        shutdown_delay=shutdown_delay_duration,
        room=room(connections_per_address),
    )
    raise_file_limit()
    collect_seldom()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        _check(runner, data_dir, listen, tls)
        runner.run(_serve(config, listen, choice, options, term, tls, job_runner, controllers=only != "api"))


def _check_history(sharing: Sharing) -> None:
    given = click.get_current_context().get_parameter_source("history")
    if sharing.etcd is not None and given is click.core.ParameterSource.COMMANDLINE:
        raise click.BadParameter("is not for --etcd, which forgets what is older than --watch-window", param_hint="--history")


def _check(runner: asyncio.Runner, data_dir: Path, listen: Listen, tls: Files | None) -> None:
    """Checks that the options name existing things, before anything is made for them."""
    from remuda.apiserver.http.listener import check_address

    if tls is not None:
        from remuda.gateway.server.serving_certificate import CertificateError, check_files

        try:
            check_files(tls)
        except CertificateError as error:
            raise Failure(str(error)) from error
    try:
        runner.run(check_address(listen.host, listen.port))
    except OSError as error:
        # Where there is a server already, its data directory can tell more about it.
        if error.errno != errno.EADDRINUSE or not data_dir.exists():
            raise Failure(_explain(error, listen, data_dir)) from error


async def _serve(
    config: Config,
    listen: Listen,
    choice: ControllerChoice,
    options: ControllerOptions,
    term: LeaseTerm,
    tls: Files | None,
    job_runner: str,
    *,
    controllers: bool,
) -> None:
    from remuda.apiserver.keys.encryption import EncryptionError
    from remuda.apiserver.server import PartFailed
    from remuda.apiserver.storage.store import StoreError
    from remuda.app.controllers import ACCESS, names
    from remuda.app.embedded import running
    from remuda.gateway.server.serving_certificate import CertificateError
    from remuda.kube.certificates import PkiError

    from .event_loop import tell
    from .logs import say

    assert config.data_dir is not None
    stop = asyncio.Event()
    stop_on_signals(stop)
    try:
        async with AsyncExitStack() as stack:
            opening = running(
                config,
                controllers=controllers,
                choice=choice,
                options=options,
                term=term,
                tls=tls,
                say=say,
                job_runner=job_runner,
            )
            server = await _unless(stop, stack.enter_async_context(opening))
            if server is None:
                return
            _announce(server, config.data_dir, with_gateway=controllers and bool(choice.of(names(ACCESS))))
            tell(f"READY=1\nSTATUS=serving at {server.url}")
            await server.serve_forever(stop)
            tell("STOPPING=1")
    except (StoreError, PkiError, EncryptionError, CertificateError, PartFailed) as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(_explain(error, listen, config.data_dir)) from error


async def _unless(stop: asyncio.Event, opening: Coroutine[Any, Any, Server]) -> Server | None:
    """The server when it is open; None when it is told to stop before, as it may have to wait for etcd."""
    task = asyncio.create_task(opening)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([task, stopping], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return None if task.cancelled() else task.result()
    finally:
        stopping.cancel()


def _announce(server: Server, data_dir: Path, *, with_gateway: bool) -> None:
    from .logs import say

    assert server.pki is not None
    login = f"Or:   remuda login {server.url}\n" if with_gateway else ""
    page = f"  page        {server.url}/dashboard/\n" if with_gateway else ""
    etcd = server.config.etcd
    state = "" if etcd is None else f"  etcd        {', '.join(etcd.endpoints)}\n"
    say(
        f"Remuda {__version__} serves the Kubernetes API at {server.url}\n"
        f"{page}"
        f"{state}"
        f"  data        {data_dir}\n"
        f"  CA          {server.pki.ca_certificate}\n"
        f"  kubeconfig  {server.kubeconfig_path}\n"
        f"Try:  kubectl --kubeconfig {server.kubeconfig_path} get namespaces\n"
        f"{login}"
        "Ctrl-C stops."
    )


def _explain(error: OSError, listen: Listen, data_dir: Path) -> str:
    if isinstance(error, socket.gaierror):
        return f"the address {listen.host} is not known: choose another with --listen"
    if error.errno == errno.EADDRINUSE:
        return f"{listen} is in use: stop what listens there, or choose another address with --listen"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{listen.host} is not an address of this machine: choose another with --listen"
    if error.errno in (errno.EACCES, errno.EPERM) and not error.filename:
        return f"this user may not listen on {listen}: ports below 1024 are root's, choose another with --listen"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of the data directory {data_dir} is full: free some space and start again"
    if error.errno == errno.EROFS:
        return f"the disk of the data directory {data_dir} is read-only: look for errors of it in the kernel's log"
    if error.filename:
        return f"the data directory {data_dir} can't be used: {error.filename}: {error.strerror}; choose another with --data-dir"
    return f"the server failed: {error}"
