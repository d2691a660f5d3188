"""The options of `controllers` and `gateway` on another Kubernetes, and their use.

Where the two differ they say so: each has ports of its own, so that both can run on one machine.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from ..exit_codes import Code, Failure
from ..options.controllers import leader_options
from .event_loop import stop_on_signals

if TYPE_CHECKING:
    from remuda.app.attached import Settings, Socket
    from remuda.client.https import HttpsClient
    from remuda.runtime import LeaseTerm
    from remuda.runtime.controller_table import ControllerChoice
    from remuda.runtime.webhook_server import WebhookAddress

_Function = TypeVar("_Function", bound=Callable[..., Any])

_NAMESPACE = "remuda-system"
_SERVICE = "remuda-webhook-service"

kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The cluster's kubeconfig.  [default: what kubectl would use, else the pod's own cluster]",
)


@dataclass(frozen=True, slots=True)
class Attachment:
    """The values of the options; nothing is read before it is needed."""

    leader_elect: bool
    term: LeaseTerm
    system_namespace: str
    webhook_host: str
    webhook_port: int
    webhook_url: str
    webhook_service: str
    health_probe_bind_address: str

    def settings(self, client: HttpsClient, choice: ControllerChoice, **more: Any) -> Settings:
        """The options of both attached programs; `more` are those of only one."""
        from remuda.app.attached import Settings, Socket

        return Settings(
            address=_address(self.webhook_url, self.webhook_service, self.webhook_port, client),
            webhooks=Socket(self.webhook_host, self.webhook_port),
            choice=choice,
            namespace=self.system_namespace or (client.target.namespace if _in_pod(client) else "") or _NAMESPACE,
            term=self.term if self.leader_elect else None,
            health=parse_socket(self.health_probe_bind_address, "--health-probe-bind-address"),
            **more,
        )


def attached_options(*, webhook_port: int, health_port: int) -> Callable[[_Function], Callable[..., Any]]:
    """Adds them; the function gets one `attachment`."""
    options = (
        click.option(
            "--leader-elect/--no-leader-elect", default=True, show_default=True, help="Work only while holding the Lease."
        ),
        leader_options,
        click.option(
            "--system-namespace",
            metavar="NAMESPACE",
            default="",
            help=f"The namespace of the Lease and certificates; made if missing.  [default: the pod's own, else {_NAMESPACE}]",
        ),
        click.option("--webhook-host", metavar="HOST", default="", help="Address for the webhooks to listen on.  [default: all]"),
        click.option(
            "--webhook-port",
            metavar="PORT",
            type=click.IntRange(1, 65535),
            default=webhook_port,
            show_default=True,
            help="Port for the webhooks.",
        ),
        click.option(
            "--webhook-url",
            default="",
            metavar="URL",
            help="The URL of the webhooks for the API server.  [default: by this machine's address on the way there]",
        ),
        click.option(
            "--webhook-service",
            default="",
            metavar="NAMESPACE/NAME",
            help=f"The webhooks' Service, at port 443, for the API server.  [default in a pod: {_SERVICE} in its namespace]",
        ),
        click.option(
            "--health-probe-bind-address",
            default=f":{health_port}",
            show_default=True,
            metavar="HOST:PORT",
            help="The address of /healthz and /readyz; 0 for none.",
        ),
    )
    names = Attachment.__dataclass_fields__

    def decorate(function: _Function) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_options(*args: Any, **named: Any) -> Any:
            attachment = Attachment(**{name: named.pop(name) for name in names})
            return function(*args, attachment=attachment, **named)

        found: Callable[..., Any] = with_options
        for option in reversed(options):
            found = option(found)
        return found

    return decorate


Told = Callable[[str], None]
Work = Callable[[asyncio.Event, Told], Awaitable[None]]


async def until_stopped(client: HttpsClient, work: Work, *failures: type[Exception]) -> None:
    """Run it until a signal comes. What it says goes to the terminal and the service manager; `failures` become one sentence."""
    from .event_loop import tell

    stop = asyncio.Event()
    stop_on_signals(stop)

    def told(line: str) -> None:
        click.echo(line)
        tell(f"READY=1\nSTATUS={line}" if line.startswith("webhooks") else f"STATUS={line}")

    async with client:
        try:
            await work(stop, told)
        except ExceptionGroup as group:
            raise _first(group) from group
        except failures as error:
            raise Failure(str(error)) from error
        tell("STOPPING=1")


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def parse_socket(text: str, option: str) -> Socket | None:
    """HOST:PORT, or :PORT for every address; None for 0."""
    from remuda.app.attached import Socket

    if text == "0":
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT, and not 0", param_hint=option)
    return Socket(host.strip("[]"), int(port))


def _in_pod(client: HttpsClient) -> bool:
    return client.target.token_file is not None and bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def _address(url: str, service: str, port: int, client: HttpsClient) -> WebhookAddress:
    from remuda.runtime.webhook_server import WebhookAddress

    if url and service:
        raise click.UsageError("--webhook-url and --webhook-service exclude each other")
    if url:
        if not url.startswith("https://") or urlsplit(url).port is None:
            raise click.BadParameter(f"{url!r} is not https://HOST:PORT", param_hint="--webhook-url")
        return WebhookAddress(url=url.rstrip("/"))
    if service or _in_pod(client):
        namespace, slash, name = (service or f"{client.target.namespace}/{_SERVICE}").partition("/")
        if not (namespace and slash and name):
            raise click.BadParameter(f"{service!r} is not NAMESPACE/NAME", param_hint="--webhook-service")
        return WebhookAddress(namespace=namespace, service=name)
    host = _own_address(client.target.server)
    return WebhookAddress(url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")


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
