"""`remuda cluster-agent`: connects a cluster to its server, from a pod of that cluster or as a plain process beside it.

What runs is :mod:`remuda.tunnel.clusteragent`; here are the options, and how a token on the command line is hidden.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..exit_codes import Code, Failure
from .event_loop import stop_on_signals
from .logs import log_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.client.kubeconfig import KubeTarget
    from remuda.tunnel.clusteragent.agent import Agent
    from remuda.tunnel.clusteragent.connections import AllowedAddress
    from remuda.tunnel.clusteragent.settings import Source

_TOKEN_VARIABLE = "REMUDA_CLUSTER_AGENT_TOKEN"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def _place(text: str | AllowedAddress) -> AllowedAddress:
    from remuda.tunnel.clusteragent.connections import AllowedAddress

    if isinstance(text, AllowedAddress):
        return text
    try:
        return AllowedAddress.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


service_account_option = click.option(
    "--service-account",
    type=click.Path(file_okay=False, path_type=Path),
    default=SERVICE_ACCOUNT,
    show_default=True,
    help="Without --kubeconfig: the mounted token of the pod's account.",
)


@click.command("cluster-agent")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The kubeconfig of the cluster to connect, of its administrator.  [default: the pod's own cluster]",
)
@click.option("--context", metavar="NAME", default="", help="The context of the kubeconfig.  [default: the current one]")
@click.option("--server", envvar="CATTLE_SERVER", default="", metavar="URL", help="The server to connect to.")
@click.option(
    "--token",
    metavar="TOKEN",
    default="",
    help="The cluster's registration token. Better in a file, or in $REMUDA_CLUSTER_AGENT_TOKEN.",
)
@click.option("--token-file", type=click.Path(dir_okay=False, path_type=Path), help="A file with it; may change.")
@click.option("--ca-checksum", envvar="CATTLE_CA_CHECKSUM", default="", metavar="HEX", help="SHA-256 of the server's CA.")
@click.option(
    "--strict-verify/--no-strict-verify",
    envvar="STRICT_VERIFY",
    default=False,
    show_default=True,
    help="Trust only that CA, not the system's trusted CAs.",
)
@click.option(
    "--allow",
    "allowed",
    type=_place,
    multiple=True,
    metavar="HOST:PORT",
    help="Another destination that may be dialled, besides the cluster's API: a name, address, network or *, and a port or *.",
)
@click.option(
    "--credentials",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("/cattle-credentials"),
    show_default=True,
    help="Without --token: the mounted Secret that has server and token.",
)
@service_account_option
@log_options
def command(
    kubeconfig: Path | None,
    context: str,
    server: str,
    token: str,
    token_file: Path | None,
    ca_checksum: str,
    strict_verify: bool,
    allowed: tuple[AllowedAddress, ...],
    credentials: Path,
    service_account: Path,
    log_format: str,
    verbose: int,
) -> None:
    """Connect a cluster to its server.

    Dials out and keeps the connection; nothing needs to reach the cluster from outside. In a pod everything is found where the
    import manifest has put it. As a process it is told:

      remuda cluster-agent --kubeconfig F --server https://… --token-file T --ca-checksum …

    HTTPS_PROXY and NO_PROXY count. SIGTERM or Ctrl-C closes the connection and stops.
    """
    from remuda.tunnel.clusteragent.settings import AgentOptions, Mounted, SettingsError

    from . import logs
    from .event_loop import loop_factory, raise_file_limit

    _hide(token)
    # What is started from here on, a kubeconfig's plug-in perhaps, need not know it.
    os.environ.pop(_TOKEN_VARIABLE, None)
    if token and token_file is not None:
        raise click.UsageError("--token and --token-file exclude each other")
    if token or token_file is not None:
        if not server:
            raise click.UsageError("--server is missing")
        source: Source = AgentOptions(server, token, token_file, ca_checksum, strict_verify)
    elif credentials.is_dir():
        given = {"CATTLE_SERVER": server, "CATTLE_CA_CHECKSUM": ca_checksum, "STRICT_VERIFY": str(strict_verify)}
        source = Mounted(credentials, given)
    else:
        raise click.UsageError(f"there is no token: give --token-file, or mount a Secret with one at {credentials}")
    logs.set_up(log_format, verbose)
    try:
        source.read()
    except SettingsError as error:
        raise Failure(str(error)) from error
    found = targets(kubeconfig, context, service_account)
    raise_file_limit()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(source, found, allowed, prepared=kubeconfig is None))


async def _run(source: Source, targets: Callable[[], KubeTarget], allowed: tuple[AllowedAddress, ...], *, prepared: bool) -> None:
    from remuda.tunnel import Departed

    from .event_loop import tell

    def told(line: str) -> None:
        click.echo(line)
        tell(f"READY=1\nSTATUS={line}")

    stop = asyncio.Event()
    stop_on_signals(stop)
    try:
        await _agent(source, targets, allowed, told, prepared=prepared).run(stop)
    except Departed as departed:
        advice = "remove it with `kubectl delete namespace cattle-system`" if prepared else "import the cluster to use it again"
        click.echo(f"{departed}: this agent stops; {advice}")
    tell("STOPPING=1")


def _agent(
    source: Source,
    targets: Callable[[], KubeTarget],
    allowed: tuple[AllowedAddress, ...],
    told: Callable[[str], None],
    *,
    prepared: bool,
) -> Agent:
    from remuda.client.https import HttpsClient
    from remuda.kube.clock import SYSTEM_CLOCK, Rng
    from remuda.tunnel.clusteragent.agent import Agent
    from remuda.tunnel.clusteragent.connections import ConnectionContext
    from remuda.tunnel.clusteragent.own_cluster import OwnCluster

    def enter(target: KubeTarget) -> OwnCluster:
        return OwnCluster(HttpsClient(target, SYSTEM_CLOCK), target, SYSTEM_CLOCK, prepared=prepared)

    known = os.environ.get("CATTLE_AGENT_CONNECT", "").lower() == "true"
    credentials = os.environ.get("CATTLE_CREDENTIAL_NAME", "") if prepared else ""
    context = ConnectionContext(SYSTEM_CLOCK, Rng(), allowed, known=known, credentials=credentials)
    return Agent(source, targets, enter, context, told)


def targets(kubeconfig: Path | None, context: str, service_account: Path = SERVICE_ACCOUNT) -> Callable[[], KubeTarget]:
    """The address of the cluster's API, read again each time."""
    from remuda.client.kubeconfig import ConfigError, in_cluster, load, select

    if kubeconfig is not None:
        if not kubeconfig.exists():
            raise Failure(f"{kubeconfig} does not exist", Code.NOT_FOUND)
        return lambda: select(load([kubeconfig]), context)

    def own() -> KubeTarget:
        found = in_cluster(directory=service_account)
        if found is None:
            raise ConfigError("this is not a pod: name the cluster to connect with --kubeconfig")
        return found

    own()
    return own


def _hide(token: str) -> None:
    """Every user of the machine can read a command line: start again without the token on it, with the same process id."""
    rest = without_token(sys.orig_argv)
    if not token or rest == sys.orig_argv:
        return
    os.execve(sys.executable, rest, {**os.environ, _TOKEN_VARIABLE: token})


def without_token(arguments: Sequence[str]) -> list[str]:
    found: list[str] = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument == "--token":
            skip = True
        elif not argument.startswith("--token="):
            found.append(argument)
    return found
