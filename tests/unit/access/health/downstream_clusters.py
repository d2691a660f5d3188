"""Clusters behind the management API of a test: servers in memory that it connects, cuts and makes ill."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from remuda import kcm
from remuda.api.management_cattle_io import CLUSTERS
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.app import controllers as table
from remuda.app import parts as app_parts
from remuda.client.interface import Client, WatchEvent, WrappedClient
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.clock import Clock, Entropy, Rng
from remuda.kube.errors import ApiError, unavailable
from remuda.kube.objects import GroupVersionResource
from remuda.lab.sim.workload_clusters import FURNISHED
from tests.unit.access.management_api import Parts, World, world

Obj = dict[str, Any]
ID = "c-m-bcdfg245"
DEPLOYED = {"apiEndpoint": "https://10.43.0.1:443", "caCert": "x", "serviceAccountTokenSecret": "s", "driver": "imported"}


class Sick(WrappedClient):
    """An API that can be made to fail."""

    ill = ""
    watching = 0

    async def watch(self, resource: GroupVersionResource, namespace: str = "", **options: Any) -> AsyncIterator[WatchEvent]:
        self.watching += 1
        try:
            async for event in super().watch(resource, namespace, **options):
                yield event
        finally:
            self.watching -= 1

    async def raw(self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None) -> Any:
        if self.ill:
            raise unavailable(self.ill)
        return await super().raw(method, path, query=query, body=body)


class Reached:
    def __init__(self, client: Client) -> None:
        self.client = client


class Clusters:
    """Both ports of the room, Downstreams and Agents, on servers in memory."""

    def __init__(self) -> None:
        self.reached: dict[str, Reached] = {}
        self.silent = ""
        self._handlers: list[Callable[[str], None]] = []

    def get(self, cluster: str) -> Reached | None:
        return self.reached.get(cluster)

    def is_connected(self, cluster: str) -> bool:
        return cluster in self.reached

    async def ping(self, cluster: str) -> str:
        return self.silent if cluster in self.reached else "Cluster agent is not connected"

    def on_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        self._handlers.append(handler)
        return lambda: self._handlers.remove(handler)

    def connect(self, cluster: str, client: Client) -> None:
        self.reached[cluster] = Reached(client)
        self._tell(cluster)

    def cut(self, cluster: str) -> None:
        self.reached.pop(cluster, None)
        self._tell(cluster)

    def _tell(self, cluster: str) -> None:
        for handler in list(self._handlers):
            handler(cluster)


class Place:
    """A management API with this room's controllers, one cluster that is registered there, and that cluster itself."""

    def __init__(self, up: World, clusters: Clusters, below: Server) -> None:
        self.up = up
        self.clusters = clusters
        self.below = InProcessClient(below, manager="kubectl")
        self.sick = Sick(InProcessClient(below, manager="cattle"))

    async def cluster(self) -> Obj:
        return await self.up.get(CLUSTERS, ID)

    async def connect(self) -> None:
        self.clusters.connect(ID, self.sick)
        await self.up.settle(2)

    async def condition(self, kind: str) -> tuple[str, str, str]:
        for each in (await self.cluster())["status"]["conditions"]:
            if each["type"] == kind:
                return each["status"], each.get("reason", ""), each.get("message", "")
        return "", "", ""


@contextlib.asynccontextmanager
async def below(clock: Clock) -> AsyncIterator[Server]:
    server = await Server.open(Config(data_dir=None, base=await FURNISHED.base(), clock=clock, rng=Rng(5), entropy=Entropy(5)))
    keeper = asyncio.create_task(kcm.run(InProcessClient(server, manager="kube-controller-manager"), clock, Rng(6)))
    try:
        yield server
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await server.close()


@contextlib.asynccontextmanager
async def place(**spec: Any) -> AsyncIterator[Place]:
    clusters = Clusters()

    def make(parts: Parts) -> Any:
        found = app_parts.Parts(parts.manager, downstreams=clusters, agents=clusters)
        return table.reconcilers(found, ("cluster-health", "node-sync", "cluster-removal"))

    async with world(make) as up, below(up.clock) as server:
        with contextlib.suppress(ApiError):
            await up.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ID}})
        await up.cluster(ID, **spec)
        await up.settle()
        yield Place(up, clusters, server)
