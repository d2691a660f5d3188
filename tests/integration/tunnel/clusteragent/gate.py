"""A server for agents in this process, with real TLS, that can be taken away; and an agent of a cluster in memory."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from remuda import kcm
from remuda.apiserver.http.listener import server_context
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.server import Config, Server
from remuda.client.kubeconfig import KubeTarget
from remuda.gateway.server.serving_certificate import ca_checksum
from remuda.kube.clock import SYSTEM_CLOCK, Clock, Rng, VirtualClock
from remuda.tunnel import DEPARTED_HEADER, Refused, Stream, TunnelServer
from remuda.tunnel.clusteragent.agent import Agent
from remuda.tunnel.clusteragent.connections import ConnectionContext
from remuda.tunnel.clusteragent.own_cluster import OwnCluster
from remuda.tunnel.clusteragent.settings import AgentOptions, Source
from remuda.tunnel.session import PING_EVERY
from tests.integration.tunnel.pair import stopped
from tests.real.ports import free_port
from tests.waiting import until

TOKEN, OTHER_TOKEN = "t" * 54, "n" * 54
ROOT_CA = "-----BEGIN CERTIFICATE-----\nnot a real one\n-----END CERTIFICATE-----\n"
CLUSTER = "c-m-abcdefgh"


@dataclass
class Contact:
    """One try to open a tunnel."""

    path: str
    token: str
    introduction: dict[str, str]
    trusts: list[str] | None = None


class Gate:
    """`/ping`, `/v3/settings/cacerts`, `/cacerts/former` and both tunnels."""

    def __init__(self, pki: Pki) -> None:
        self.pki = pki
        self.tokens = {TOKEN}
        # Of clusters that were deleted.
        self.departed: set[str] = set()
        self.contacts: list[Contact] = []
        self.ca = pki.ca_pem.decode()
        self.former: list[str] = []
        self.ping = "pong"
        # Nobody else is given it while the gate is closed.
        self.port = free_port()
        self.asked: list[str] = []
        self._runner: web.AppRunner | None = None
        self.tunnels = TunnelServer(self._authorize, SYSTEM_CLOCK, Rng(1))

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def checksum(self) -> str:
        return ca_checksum(self.ca)

    async def open(self) -> None:
        application = web.Application()
        application.router.add_get("/v3/connect", self._connect)
        application.router.add_get("/v3/connect/register", self._connect)
        application.router.add_get("/v3/settings/cacerts", self._cacerts)
        application.router.add_get("/cacerts/former", self._former)
        application.router.add_get("/ping", self._ping)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        context = server_context(self.pki.serving_certificate, self.pki.serving_key, self.pki.ca_certificate)
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=context, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Nobody listens any more; whoever is connected is cut off."""
        self.tunnels.close()
        assert self._runner is not None
        await self._runner.cleanup()
        self.tunnels = TunnelServer(self._authorize, SYSTEM_CLOCK, Rng(1))

    def connected(self, sessions: int = 1) -> bool:
        return len(self.main) == sessions and len(self.tunnels.sessions(f"stv-cluster-{CLUSTER}")) == sessions

    @property
    def main(self) -> list[Any]:
        return list(self.tunnels.sessions(CLUSTER))

    async def dial(self, address: str, network: str = "tcp") -> Stream:
        return await self.tunnels.dial(CLUSTER, network, address)

    async def _authorize(self, request: web.Request) -> str | None:
        if token := request.headers.get("X-API-Tunnel-Token"):
            told = json.loads(base64.b64decode(request.headers["X-API-Tunnel-Params"]))
            self.contacts.append(Contact(request.path, token, told["cluster"], told["trusts"]))
            return self._known(token, CLUSTER)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme == "Bearer" and token.startswith("stv-cluster-"):
            self.contacts.append(Contact(request.path, token, {}))
            return self._known(token.removeprefix("stv-cluster-"), f"stv-cluster-{CLUSTER}")
        return None

    def _known(self, token: str, key: str) -> str:
        if token not in self.tokens:
            raise Refused("cluster not found")
        return key

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer stv-cluster-")
        if {request.headers.get("X-API-Tunnel-Token"), bearer} & self.departed:
            return web.Response(status=410, headers={DEPARTED_HEADER: "cluster"})
        return await self.tunnels.handle(request)

    async def _former(self, request: web.Request) -> web.Response:
        return web.json_response({"bundles": self.former})

    async def _cacerts(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        return web.json_response({"id": "cacerts", "value": self.ca})

    async def _ping(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        return web.Response(text=self.ping)


@dataclass
class Life:
    """An agent that runs, on a clock that the test moves."""

    agent: Agent
    clock: VirtualClock
    said: list[str] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    work: asyncio.Task[None] | None = None

    def ended(self) -> bool:
        assert self.work is not None
        return self.work.done()

    async def connected(self, gate: Gate) -> None:
        """Both tunnels stand, and both sides know it: the server does a moment before the agent."""
        await until(gate.connected)
        await until(lambda: self.said)

    async def pass_time_until(self, predicate: Callable[[], bool], most: float = 300, step: float = 1.0) -> None:
        """Time passes, and what happens in between gets real time to happen."""
        for _ in range(int(most / step)):
            if predicate():
                return
            await self.clock.advance(step)
            await asyncio.sleep(0.02)
        await until(predicate)

    async def pass_time_connected(self, gate: Gate, seconds: int) -> None:
        """The same for tunnels that stand. Their pings are answered in real time, which the agent's clock knows nothing of: so it
        goes on when the server has heard of each."""
        for _ in range(seconds // int(PING_EVERY)):
            sessions = [*gate.main, *gate.tunnels.sessions(f"stv-cluster-{CLUSTER}")]
            heard = [session.heard_at for session in sessions]
            await self.clock.advance(PING_EVERY)
            await until(lambda: all(one.heard_at > at for one, at in zip(sessions, heard, strict=True)))  # noqa: B023


@asynccontextmanager
async def cluster() -> AsyncIterator[Server]:
    """A whole API server in memory, with the controllers that every cluster has."""
    server = await Server.open(Config(None, default_roles=False))
    client = InProcessClient(server)
    work = asyncio.create_task(kcm.run(client, SYSTEM_CLOCK, Rng(1), root_ca=ROOT_CA, tokens=server.issuer))
    try:
        yield server
    finally:
        await stopped(work)
        await server.close()


def entered(
    server: Server, clock: Clock = SYSTEM_CLOCK, *, prepared: bool = False, target: KubeTarget | None = None
) -> OwnCluster:
    where = target or KubeTarget("https://10.43.0.1", ca=b"the cluster's CA")
    return OwnCluster(InProcessClient(server), where, clock, prepared=prepared)


@asynccontextmanager
async def living(
    gate: Gate,
    server: Server,
    source: Source | None = None,
    *,
    target: Callable[[], KubeTarget] = lambda: KubeTarget("https://10.43.0.1", ca=b"the cluster's CA"),
    enter: Callable[[KubeTarget], OwnCluster] | None = None,
    seed: int = 3,
    **around: Any,
) -> AsyncIterator[Life]:
    clock = VirtualClock()
    source = source or AgentOptions(gate.url, TOKEN, ca_checksum=gate.checksum, strict=True)

    # Its Secret is filled in real time.
    entering = enter or (lambda where: entered(server, SYSTEM_CLOCK, target=where))
    said: list[str] = []
    surroundings = ConnectionContext(clock, Rng(seed), **{"proxy": "", **around})
    life = Life(Agent(source, target, entering, surroundings, said.append), clock, said)
    work = life.work = asyncio.create_task(life.agent.run(life.stop))
    try:
        yield life
    finally:
        life.stop.set()
        await asyncio.wait_for(work, 60)
