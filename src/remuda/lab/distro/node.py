"""The node of a host: its identity in the cluster, and its connection. :mod:`.nodes` simulates it.

A server with an API is its own client. All others use a proxy on their own host to any server that answers
(:class:`Balancer`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

from remuda.apiserver.http.listener import Listener, server_context
from remuda.client.https import HttpsClient
from remuda.client.interface import Client
from remuda.client.kubeconfig import KubeTarget
from remuda.kube.clock import Clock, Entropy, Rng, deadline
from remuda.kube.errors import ApiError

from . import nodes
from .cluster import node_passwords
from .cluster.etcd_member_removal import MEMBER_ADDRESS, MEMBER_NAME
from .config.settings import KUBELET_PORT, Settings

# Every server's certificate is valid for this name, at any of its addresses.
SERVED_AS = "kubernetes"
_PAUSE = 1.0


def config_of(settings: Settings, client: Client, api_server: str, *, is_server: bool, member: str = "") -> nodes.NodeConfig:
    roles = nodes.role_labels(control_plane=is_server and settings.has_api, etcd=is_server and settings.has_etcd)
    annotations: Mapping[str, str] = {}
    if member:
        annotations = {MEMBER_NAME: member, MEMBER_ADDRESS: settings.node_ips[0]}
    return nodes.NodeConfig(
        name=settings.node_name,
        client=client,
        version=settings.release,
        labels={**roles, **dict(nodes.parse_label(text) for text in settings.labels)},
        annotations=annotations,
        taints=tuple(nodes.Taint.parse(text) for text in settings.taints),
        internal_ip=settings.node_ips[0],
        external_ip=settings.external_ips[0] if settings.external_ips else "",
        hostname=settings.node_name,
        provider_id=str(settings.values.get("provider-id") or ""),
        root=settings.paths.agent / "pods",
        report_seconds=settings.node_report_seconds,
        api_server=api_server,
    )


def remote_client(balancer: Balancer, ca: bytes, certificate: Path, clock: Clock) -> HttpsClient:
    """A client of any server that answers."""
    target = KubeTarget(
        balancer.url,
        ca=ca,
        tls_server_name=SERVED_AS,
        client_certificate=certificate.read_bytes(),
        client_key=certificate.with_suffix(".key").read_bytes(),
    )
    return HttpsClient(target, clock)


async def claim(settings: Settings, client: Client, clock: Clock, entropy: Entropy) -> None:
    """Claim the node's name, for a server, which signs its own certificates. Raises NotThatNode."""
    password = node_passwords.own(settings.paths.node_password, entropy)
    while True:
        try:
            await node_passwords.ensure(client, settings.node_name, password, entropy)
            return
        except ApiError as error:
            log.info("waiting for the API: %s", error)
        await clock.sleep(_PAUSE)


async def run(settings: Settings, config: nodes.NodeConfig, clock: Clock, rng: Rng) -> None:
    """Run the node, with its health port, until cancelled."""
    health = HealthPort(lambda: True)
    await health.open(settings.loopback, KUBELET_PORT)
    try:
        await nodes.run_node(config, clock, rng)
    finally:
        await health.close()


# --- health ports ---------------------------------------------------------------------------------------------------------
#
# Health endpoints for the parts of a host, on the ports of Kubernetes' own components, for probes.

_PATHS = ("/healthz", "/livez", "/readyz")


class HealthPort:
    """Answers `ok` or 503, by the current value of `is_well`."""

    def __init__(self, is_well: Callable[[], bool], certificate: Path | None = None) -> None:
        self._is_well = is_well
        context: ssl.SSLContext | None = None
        if certificate is not None:
            context = server_context(certificate, certificate.with_suffix(".key"), None)
        self._listener = Listener(self._answer, context)

    async def open(self, host: str, port: int) -> None:
        await self._listener.open(host, port)

    async def close(self) -> None:
        await self._listener.close(0.0)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path not in _PATHS:
            return web.Response(status=404, text="not found\n")
        return web.Response(text="ok") if self._is_well() else web.Response(status=503, text="not well\n")


# --- api balancer ----------------------------------------------------------------------------------------------------------
#
# A local TCP proxy to any server of the API that answers, for hosts without an API: as k3s' agents have it.
#
# It copies bytes without reading them; TLS is between the client and the server. New connections go to the first server that
# accepts, beginning with the last that did; the client reconnects after a failure.

log = logging.getLogger(__name__)

PORT = 6444
_CONNECT_SECONDS = 3.0
_PIECE = 64 * 1024


class Balancer:
    def __init__(self, host: str, clock: Clock, port: int = PORT) -> None:
        self._host = host
        self._port = port
        self._clock = clock
        self._servers: list[tuple[str, int]] = []
        self._listening: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"https://{self._host}:{self._port}"

    @property
    def is_usable(self) -> bool:
        return bool(self._servers)

    def use(self, urls: Sequence[str]) -> None:
        found = [(parts.hostname or "", parts.port or 443) for parts in map(urlsplit, urls)]
        known = [server for server in self._servers if server in found]
        self._servers = [*known, *(server for server in found if server not in known)]

    async def open(self) -> None:
        self._listening = await asyncio.start_server(self._serve, self._host, self._port, reuse_address=True)

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            theirs = await self._connect()
            if theirs is None:
                return
            try:
                await asyncio.gather(_move(reader, theirs[1]), _move(theirs[0], writer))
            finally:
                theirs[1].close()
        except asyncio.CancelledError:
            # The loop ends; the error needs no report.
            return
        finally:
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for server in list(self._servers):
            try:
                async with deadline(self._clock, _CONNECT_SECONDS):
                    made = await asyncio.open_connection(*server)
            except (OSError, TimeoutError):
                continue
            if server in self._servers:
                self._servers.remove(server)
                self._servers.insert(0, server)
            return made
        log.debug("no server of the API accepts connections")
        return None


async def _move(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy until one side ends; then end the other."""
    with contextlib.suppress(OSError):
        while piece := await source.read(_PIECE):
            target.write(piece)
            await target.drain()
    with contextlib.suppress(OSError, RuntimeError):
        target.write_eof() if target.can_write_eof() else target.close()
