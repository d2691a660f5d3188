"""A management API in memory with the gateway's services on it, for tests of how clusters come in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from remuda import kcm
from remuda.access.settings.settings import Settings
from remuda.api import crds
from remuda.api.management_cattle_io import GROUP
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.gateway.server.dependencies import Services
from remuda.gateway.server.routing import RequestContext
from remuda.kube.authorization.actions import Action
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.clock import Clock, Entropy, Rng, VirtualClock
from remuda.lab.sim.workload_clusters import Beginning
from remuda.runtime import Informers
from remuda.tunnel import TunnelServer

Obj = dict[str, Any]


class Everybody:
    async def allowed(self, action: Action) -> bool:
        return True


class Ours:
    def __init__(self, ca: str) -> None:
        self.ca = ca


async def nobody(request: object) -> str | None:
    return None


class Management:
    def __init__(self, server: Server, clock: Clock, rng: Rng, environment: Mapping[str, str], ca: str) -> None:
        self.server = server
        self.clock = clock
        self.client = InProcessClient(server, manager="test")
        self.informers = Informers(self.client, clock, rng)
        self.services = Services(
            client=self.client,
            informers=self.informers,
            clock=clock,
            rng=rng,
            entropy=Entropy(7),
            access=Everybody(),
            authority=Ours(ca),
            tunnels=TunnelServer(nobody, clock, rng),
            environment=environment,
        )
        self.services.settings = lambda: Settings((), environment)
        # What was asked where its routes listen.
        self.asked: list[RequestContext] = []

    async def settle(self, seconds: float = 1.0) -> None:
        """Let time pass; on the system's clock a moment has to do."""
        if isinstance(self.clock, VirtualClock):
            await self.clock.advance(seconds)
        else:
            await self.clock.sleep(0.05)

    async def namespace(self, name: str) -> None:
        await self.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def _served(made: Management, definitions: list[Obj]) -> None:
    """On the system's clock they take a moment."""
    kinds = [each["spec"]["names"]["plural"] for each in definitions]

    def missing() -> list[str]:
        return [kind for kind in kinds if made.server.registry.find(GROUP, "v3", kind) is None]

    for _ in range(1200):
        await made.settle()
        if not missing():
            return
    raise AssertionError(f"not served: {missing()}")


_BEGINNING = Beginning(lambda: crds([GROUP]))


@contextlib.asynccontextmanager
async def management(
    environment: Mapping[str, str] | None = None, ca: str = "", clock: Clock | None = None
) -> AsyncIterator[Management]:
    clock, rng = clock or VirtualClock(), Rng(1)
    server = await Server.open(Config(data_dir=None, base=await _BEGINNING.base(), clock=clock, rng=rng, entropy=Entropy(1)))
    made = Management(server, clock, rng, environment or {}, ca)
    keeper = asyncio.create_task(kcm.run(InProcessClient(server, manager="kube-controller-manager"), clock, rng))
    running = asyncio.create_task(made.informers.run())
    try:
        definitions = crds([GROUP])
        await _served(made, definitions)
        yield made
    finally:
        for task in (running, keeper):
            task.cancel()
        await asyncio.gather(running, keeper, return_exceptions=True)
        await server.close()
