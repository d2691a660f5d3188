"""`remuda gateway`: the door to a Kubernetes that is not ours, until it is told to stop.

What runs is :mod:`remuda.fronting`; here are the options, and the sentences for what goes wrong. The webhooks' options are those
of `remuda controllers`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .controllers import _NAMESPACE, _address, _first, _pod_namespace, _socket
from .exits import Failure
from .leader_options import leader_options
from .places import Listen, data_dir_option, listen_option
from .signals import stop_on_signals
from .tls_options import tls_options

if TYPE_CHECKING:
    from remuda.attached import Settings
    from remuda.client.https import HttpsClient
    from remuda.fronting import Front
    from remuda.gateway.certificates import Files
    from remuda.runtime import Term


@click.command()
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The cluster's kubeconfig.  [default: what kubectl would use, else the pod's own cluster]",
)
@data_dir_option
@listen_option
@click.option(
    "--tls-san",
    multiple=True,
    metavar="NAME[,NAME…]",
    envvar="REMUDA_TLS_SAN",
    help="More names and addresses by which clients reach this gateway, for its certificate.",
)
@tls_options
@click.option(
    "--controllers",
    "wanted",
    metavar="LIST",
    default="*",
    show_default=True,
    help="Controllers to run: * for all, a for one, -a for all but one.",
)
@click.option("--leader-elect/--no-leader-elect", default=True, show_default=True, help="Run them only while holding the Lease.")
@leader_options
@click.option(
    "--system-namespace",
    default="",
    help=f"Where the Lease and the webhooks' certificates are; made if missing.  [default: the pod's own, else {_NAMESPACE}]",
)
@click.option("--webhook-host", default="", help="Address for the webhooks to listen on.  [default: all]")
@click.option("--webhook-port", type=click.IntRange(1, 65535), default=9444, show_default=True, help="Port for the webhooks.")
@click.option("--webhook-url", default="", metavar="URL", help="How the API server reaches the webhooks.")
@click.option("--webhook-service", default="", metavar="NAMESPACE/NAME", help="The Service by which it does, at port 443.")
@click.option(
    "--health-probe-bind-address",
    default=":9441",
    show_default=True,
    metavar="HOST:PORT",
    help="Where /healthz and /readyz are served; 0 nowhere.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Form of log lines.")
@click.option("-v", "--verbose", count=True, help="Log more; twice for even more.")
def command(
    kubeconfig: Path | None,
    data_dir: Path,
    listen: Listen,
    tls_san: tuple[str, ...],
    tls: Files | None,
    wanted: str,
    leader_elect: bool,
    term: Term,
    system_namespace: str,
    webhook_host: str,
    webhook_port: int,
    webhook_url: str,
    webhook_service: str,
    health_probe_bind_address: str,
    log_format: str,
    verbose: int,
) -> None:
    """Run the gateway before any Kubernetes.

    Users, tokens, roles and clusters are objects of that Kubernetes; its API is served at / as whoever asks. The kubeconfig must
    be an administrator's. SIGTERM or Ctrl-C ends tunnels, lets requests finish and stops.
    """
    from remuda.attached import Settings, Socket
    from remuda.client.https import HttpsClient
    from remuda.fronting import Front, chosen
    from remuda.runtime.choice import UnknownController

    from . import logs
    from .loops import collect_seldom, loop_factory, raise_file_limit

    logs.set_up(log_format, verbose)
    try:
        choice = chosen(wanted)
    except UnknownController as error:
        raise click.BadParameter(str(error), param_hint="--controllers") from error
    client = HttpsClient.from_kubeconfig(kubeconfig)
    settings = Settings(
        address=_address(webhook_url, webhook_service, webhook_port, client),
        webhooks=Socket(webhook_host, webhook_port),
        choice=choice,
        namespace=system_namespace or _pod_namespace(client) or _NAMESPACE,
        term=term if leader_elect else None,
        health=_socket(health_probe_bind_address, "--health-probe-bind-address"),
    )
    names = tuple(name.strip() for text in tls_san for name in text.split(",") if name.strip())
    front = Front(Socket(listen.host, listen.port), data_dir.absolute(), names, tls, click.echo)
    raise_file_limit()
    collect_seldom()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(client, settings, front))


async def _run(client: HttpsClient, settings: Settings, front: Front) -> None:
    from remuda.api.installation import InstallError
    from remuda.apiserver.pki import PkiError
    from remuda.attached import CantListen
    from remuda.client.kubeconfig import ConfigError
    from remuda.fronting import AttachedGateway
    from remuda.gateway.certificates import CertificateError
    from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng

    from .notify import tell

    stop = asyncio.Event()
    stop_on_signals(stop)

    def told(line: str) -> None:
        click.echo(line)
        tell(f"READY=1\nSTATUS={line}" if line.startswith("webhooks") else f"STATUS={line}")

    async with client:
        try:
            await AttachedGateway(client, settings, front, SYSTEM_CLOCK, Rng(), Entropy()).run(stop, told)
        except ExceptionGroup as group:
            raise _first(group) from group
        except (InstallError, CantListen, CertificateError, PkiError, ConfigError) as error:
            raise Failure(str(error)) from error
        tell("STOPPING=1")
