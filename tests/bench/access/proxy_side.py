"""The processes of the proxy's measurements, each a program: an upstream that costs next to nothing, and a gateway before it.

`… proxy_side upstream DIRECTORY` serves `/small`, `/bulk?<bytes>` and `/watch` over TLS and knows as much of a Kubernetes API as
accounts for users need; `… proxy_side gateway DIRECTORY PORT` is the part of a gateway that requests to that cluster go through,
and with the port of another gateway the latter reaches the cluster, too. Both print their port. The agent in between is
:mod:`.tunnel_side`'s client, its key the cluster's name.
"""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import uvloop
from aiohttp import web

from remuda import kcm
from remuda.api import crds
from remuda.api.management_cattle_io import CLUSTERS, GROUP
from remuda.apiserver.http import responses
from remuda.apiserver.http.listener import Listener, server_context
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.server import Config, Server
from remuda.cli.programs.event_loop import raise_file_limit
from remuda.gateway.auth.access_review import LocalAccess
from remuda.gateway.proxy.cluster_proxy import Proxy
from remuda.gateway.proxy.impersonation import Impersonation
from remuda.gateway.proxy.tunnel_downstreams import SECRETS, TunnelDownstreams
from remuda.gateway.server.dependencies import Services
from remuda.gateway.server.path_validation import judge
from remuda.gateway.server.routing import Caller, RequestContext
from remuda.kube.authorization.users import SYSTEM, User
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource
from remuda.runtime import Informers
from remuda.tunnel import Announcer, Session, Stream, TunnelClient, TunnelServer, serve_relayed
from remuda.tunnel import Server as Endpoint
from tests.waiting import until

CLUSTER = "c-m-bench"
TOKEN = "token-bench:secret"
CALLER = User("u-bench", "u-bench", (*SYSTEM.groups, "system:cattle:authenticated"), {"username": ["bench"]})
SMALL = json.dumps({"kind": "ConfigMap", "apiVersion": "v1", "data": {"text": "x" * 1000}}).encode()
_CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
_PIECE = bytes(64 * 1024)


def pki(directory: Path) -> Pki:
    return Pki.ensure(directory / "pki", ["127.0.0.1"], SYSTEM_CLOCK, Entropy())


# --- the upstream -------------------------------------------------------------------------------------------------------


class Upstream(asyncio.Protocol):
    """HTTP/1.1 with just enough understanding of it to answer quickly. A POST to `/ring` reaches every watch."""

    watches: set[asyncio.Transport] = set()

    def __init__(self) -> None:
        self._received = b""
        self._room = asyncio.Event()
        self._room.set()
        self._sending: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end].decode("latin-1")
            length = next((int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0)
            if len(self._received) < end + 4 + length:
                return
            self._received = self._received[end + 4 + length :]
            method, path, _ = head.partition("\r\n")[0].split(" ")
            self._answer(method, path)

    def _answer(self, method: str, path: str) -> None:
        if path == "/small":
            self._say(SMALL)
        elif path.startswith("/bulk?"):
            size = int(path[6:])
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % size)
            self._sending = asyncio.ensure_future(self._send(size))
        elif path == "/watch":
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            self.watches.add(self._transport)
        elif path == "/ring":
            event = b'{"type":"ADDED","object":%s}\n' % SMALL
            for watch in self.watches:
                watch.write(b"%x\r\n%s\r\n" % (len(event), event))
            self._say(b"{}")
        elif path.endswith("/token"):
            self._say(b'{"kind":"TokenRequest","status":{"token":"t"},"spec":{"expirationSeconds":3600}}', 201)
        elif "subjectaccessreviews" in path:
            self._say(b'{"kind":"SubjectAccessReview","status":{"allowed":true}}', 201)
        elif method == "GET":
            self._say(b'{"kind":"List","items":[]}')
        else:
            self._say(b'{"kind":"Status","status":"Success"}')

    def _say(self, body: bytes, status: int = 200) -> None:
        head = b"HTTP/1.1 %d OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        self._transport.write(head + body)

    async def _send(self, size: int) -> None:
        while size and not self._transport.is_closing():
            await self._room.wait()
            piece = _PIECE if size >= len(_PIECE) else _PIECE[:size]
            self._transport.write(piece)
            size -= len(piece)
            await asyncio.sleep(0)

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.watches.discard(self._transport)
        if self._sending is not None:
            self._sending.cancel()


async def upstream(directory: Path) -> None:
    made = pki(directory)
    context = server_context(made.serving_certificate, made.serving_key, None)
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0, ssl=context, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# --- the gateway --------------------------------------------------------------------------------------------------------


class Ours:
    ca = ""


async def tunnel_key(request: web.Request) -> str | None:
    return request.headers.get("X-Key")


def handler(services: Services) -> Callable[[web.BaseRequest], Any]:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/connect":
            return await services.tunnels.handle(cast(web.Request, request))
        if request.path == "/peer":
            return await services.tunnels.accept_server(request, "another")
        asked = RequestContext(request, judge(request.raw_path), "127.0.0.1")
        found = services.routes.find(request.method, asked.target)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}" or not isinstance(found, tuple):
            return web.Response(status=401)
        asked.caller = Caller(CALLER)
        asked.parameters = found[1]
        try:
            return await found[0].answer(asked)
        except ApiError as error:
            return responses.error(error, request)

    return handle


async def gateway(directory: Path, port: str, other: str = "") -> None:
    made = pki(directory)
    server = await Server.open(Config(data_dir=None))
    client, rng = InProcessClient(server, manager="bench"), Rng()
    keeper = asyncio.ensure_future(kcm.run(InProcessClient(server), SYSTEM_CLOCK, rng))
    for crd in crds([GROUP]):
        await client.create(_CRDS, crd)
    await until(lambda: server.api.registry.find(GROUP, "v3", "clusters") is not None, "the definitions")
    services = Services(
        client=client,
        informers=Informers(client, SYSTEM_CLOCK, rng),
        clock=SYSTEM_CLOCK,
        rng=rng,
        entropy=Entropy(),
        access=LocalAccess(server.api.authorizer),
        authority=Ours(),
        tunnels=TunnelServer(tunnel_key, SYSTEM_CLOCK, rng),
        environment={},
    )
    downstreams = TunnelDownstreams(services)
    Proxy(services, downstreams, Impersonation(services, downstreams))
    await stock(client, f"https://127.0.0.1:{port}", made)
    # Plain on this side for the agent, TLS for people; the same handler behind both.
    handle = handler(services)
    plain = Listener(handle, None)
    await plain.open("127.0.0.1", 0)
    secured = Listener(handle, server_context(made.serving_certificate, made.serving_key, None))
    await secured.open("127.0.0.1", 0)
    print(plain.port, flush=True)
    print(secured.port, flush=True)
    calling = [call(services, made, other)] if other else []
    await asyncio.gather(keeper, services.informers.run(), *(run() for run in services.beside), *calling)


async def call(services: Services, made: Pki, port: str) -> None:
    """Announce the agents of this gateway to another one, which listens with TLS at this port."""

    async def connected(session: Session) -> None:
        services.tunnels.add_own_listener(Announcer(session))

    async def serve(stream: Stream) -> None:
        await serve_relayed(stream, services.tunnels.own, services.others.answer)

    there = Endpoint(f"wss://127.0.0.1:{port}/peer", ca=made.ca_pem, proxy="")
    client = TunnelClient(there, dict, lambda *_: True, SYSTEM_CLOCK, services.rng, serve=serve, connected=connected)
    await client.run()


async def stock(client: InProcessClient, endpoint: str, made: Pki) -> None:
    namespace = "cattle-global-data"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    data = {"credential": base64.b64encode(b"agent").decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bench", "namespace": namespace}, "data": data}
    await client.create(SECRETS, secret, namespace)
    await client.create(CLUSTERS, {"apiVersion": f"{GROUP}/v3", "kind": "Cluster", "metadata": {"name": CLUSTER}, "spec": {}})
    status = {
        "conditions": [{"type": "Provisioned", "status": "True"}],
        "apiEndpoint": endpoint,
        "caCert": base64.b64encode(made.ca_pem).decode(),
        "serviceAccountTokenSecret": "bench",
    }
    await client.patch(CLUSTERS, CLUSTER, {"status": status})


def trusting(directory: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=pki(directory).ca_pem.decode())


def main(arguments: list[str]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    raise_file_limit()
    match arguments:
        case ["upstream", directory]:
            uvloop.run(upstream(Path(directory)))
        case ["gateway", directory, port, *other]:
            uvloop.run(gateway(Path(directory), port, *other))
        case _:
            sys.exit("upstream DIRECTORY | gateway DIRECTORY PORT [PORT OF ANOTHER GATEWAY]")


if __name__ == "__main__":
    main(sys.argv[1:])
