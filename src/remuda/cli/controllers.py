"""`remuda controllers`: our controllers on any Kubernetes, until they are told to stop.

What runs is :mod:`remuda.attached`; here are the options, and the sentences for what goes wrong.
"""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from .core_options import core_options
from .exits import Code, Failure
from .leader_options import leader_options
from .signals import stop_on_signals

if TYPE_CHECKING:
    from remuda.attached import Settings, Socket
    from remuda.capi.core import Options
    from remuda.client.https import HttpsClient
    from remuda.runtime import Term
    from remuda.runtime.webhooks import Address

_NAMESPACE = "remuda-system"
_SERVICE = "remuda-webhook-service"


@click.command()
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The cluster's kubeconfig.  [default: what kubectl would use, else the pod's own cluster]",
)
@click.option(
    "--controllers",
    "wanted",
    metavar="LIST",
    default="*",
    show_default=True,
    help="Controllers to run: * for all, a for one, -a for all but one.",
)
@core_options
@click.option("--leader-elect/--no-leader-elect", default=True, show_default=True, help="Work only while holding the Lease.")
@leader_options
@click.option(
    "--system-namespace",
    default="",
    help=f"Where the Lease and the certificates are; made if missing.  [default: the pod's own, else {_NAMESPACE}]",
)
@click.option("--webhook-host", default="", help="Address for the webhooks to listen on.  [default: all]")
@click.option("--webhook-port", type=click.IntRange(1, 65535), default=9443, show_default=True, help="Port for the webhooks.")
@click.option(
    "--webhook-url",
    default="",
    metavar="URL",
    help="How the API server reaches the webhooks.  [default: by the address that this machine has on the way there]",
)
@click.option(
    "--webhook-service",
    default="",
    metavar="NAMESPACE/NAME",
    help=f"The Service by which it does, at port 443.  [default in a pod: {_SERVICE} in its namespace]",
)
@click.option(
    "--metrics-bind-address",
    default="127.0.0.1:8080",
    show_default=True,
    metavar="HOST:PORT",
    help="Where metrics are served, without TLS; 0 nowhere.",
)
@click.option(
    "--health-probe-bind-address",
    default=":9440",
    show_default=True,
    metavar="HOST:PORT",
    help="Where /healthz and /readyz are served; 0 nowhere.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Form of log lines.")
@click.option("-v", "--verbose", count=True, help="Log more; twice for even more.")
def command(
    kubeconfig: Path | None,
    wanted: str,
    options: Options,
    leader_elect: bool,
    term: Term,
    system_namespace: str,
    webhook_host: str,
    webhook_port: int,
    webhook_url: str,
    webhook_service: str,
    metrics_bind_address: str,
    health_probe_bind_address: str,
    log_format: str,
    verbose: int,
) -> None:
    """Run the controllers on any Kubernetes.

    Installs the definitions of their kinds, serves the webhooks that default, check and convert them, and works while no other
    replica does. SIGTERM or Ctrl-C finishes what is in hand, gives the Lease back and stops; a second Ctrl-C stops at once.
    """
    from remuda.attached import Settings, Socket, chosen
    from remuda.capi import CONTROLLERS
    from remuda.client.https import HttpsClient
    from remuda.runtime.choice import UnknownController

    from . import logs
    from .loops import collect_seldom, loop_factory, raise_file_limit

    logs.set_up(log_format, verbose)
    try:
        choice = chosen(wanted)
    except UnknownController as error:
        raise click.BadParameter(str(error), param_hint="--controllers") from error
    if not choice.of(CONTROLLERS):
        raise click.BadParameter("nothing is left to run", param_hint="--controllers")
    client = HttpsClient.from_kubeconfig(kubeconfig)
    settings = Settings(
        address=_address(webhook_url, webhook_service, webhook_port, client),
        webhooks=Socket(webhook_host, webhook_port),
        choice=choice,
        options=options,
        namespace=system_namespace or _pod_namespace(client) or _NAMESPACE,
        term=term if leader_elect else None,
        metrics=_socket(metrics_bind_address, "--metrics-bind-address"),
        health=_socket(health_probe_bind_address, "--health-probe-bind-address"),
    )
    raise_file_limit()
    collect_seldom()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(client, settings))


async def _run(client: HttpsClient, settings: Settings) -> None:
    from remuda.api.installation import InstallError
    from remuda.attached import Attached, CantListen
    from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng

    from .notify import tell

    stop = asyncio.Event()
    stop_on_signals(stop)

    def told(line: str) -> None:
        click.echo(line)
        tell(f"READY=1\nSTATUS={line}" if line.startswith("webhooks") else f"STATUS={line}")

    async with client:
        version = await client.raw("GET", "/version")
        told(f"controllers of {client.target.server} (Kubernetes {version.get('gitVersion', 'of an unknown version')})")
        try:
            await Attached(client, settings, SYSTEM_CLOCK, Rng(), Entropy()).run(stop, told)
        except ExceptionGroup as group:
            raise _first(group) from group
        except (InstallError, CantListen) as error:
            raise Failure(str(error)) from error
        tell("STOPPING=1")


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _socket(text: str, option: str) -> Socket | None:
    """HOST:PORT, or :PORT for every address; None for 0."""
    from remuda.attached import Socket

    if text == "0":
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT, and not 0", param_hint=option)
    return Socket(host.strip("[]"), int(port))


def _in_pod(client: HttpsClient) -> bool:
    return client.target.token_file is not None and bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def _pod_namespace(client: HttpsClient) -> str:
    return client.target.namespace if _in_pod(client) else ""


def _address(url: str, service: str, port: int, client: HttpsClient) -> Address:
    from remuda.runtime.webhooks import Address

    if url and service:
        raise click.UsageError("--webhook-url and --webhook-service exclude each other")
    if url:
        if not url.startswith("https://") or urlsplit(url).port is None:
            raise click.BadParameter(f"{url!r} is not https://HOST:PORT", param_hint="--webhook-url")
        return Address(url=url.rstrip("/"))
    if service or _in_pod(client):
        namespace, slash, name = (service or f"{client.target.namespace}/{_SERVICE}").partition("/")
        if not (namespace and slash and name):
            raise click.BadParameter(f"{service!r} is not NAMESPACE/NAME", param_hint="--webhook-service")
        return Address(namespace=namespace, service=name)
    host = _own_address(client.target.server)
    return Address(url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")


def _own_address(server: str) -> str:
    """The address of this machine from which the API server is reached: the one to try for the way back."""
    parts = urlsplit(server)
    try:
        family, kind, _, _, address = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            # Sends nothing: a datagram socket is only told where it would go.
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise Failure(f"{server} can't be reached: {error.strerror or error}", Code.FAILURE) from error
