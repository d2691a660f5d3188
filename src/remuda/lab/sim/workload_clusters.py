"""Simulated workload clusters: each a real API server in memory, reached in process or, when it listens, by anybody.

A cluster answers from the moment its first control-plane machine is there (:meth:`SimulatedCluster.power_on`) and while its
line is not cut. :class:`SimulatedClusters` is the :class:`~remuda.capi.workload_clusters.Connector` of the core in a simulation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from remuda import kcm
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.server import Config, Server
from remuda.client.interface import Client, WatchEvent
from remuda.client.wrapper import Send, WrappedClient
from remuda.kube.clock import Clock, Entropy, Rng
from remuda.kube.encoding import yamlio
from remuda.kube.objects import GroupVersionResource, Key

from .beginning import EMPTY
from .kubelet import Kubelet

Obj = dict[str, Any]


class Line(WrappedClient):
    """A `Client` over a line that can be cut: calls fail as on a broken connection, watches end."""

    def __init__(self, client: Client, up: Callable[[], bool]) -> None:
        super().__init__(client)
        self._up = up

    def _check(self) -> None:
        if not self._up():
            raise ConnectionError("the simulated line is cut")

    async def _call(self, send: Send, *, write: bool) -> Any:
        self._check()
        return await send()

    async def watch(self, resource: GroupVersionResource, namespace: str = "", **options: Any) -> AsyncIterator[WatchEvent]:
        self._check()
        async for event in super().watch(resource, namespace, **options):
            self._check()
            yield event


class SimulatedCluster:
    def __init__(self, key: Key, server: Server) -> None:
        self.key = key
        self.server = server
        # As nodes and kubelets reach it, whatever happens to the line.
        self.client = InProcessClient(server, manager="kubelet")
        self.on = False
        self.cut = False
        self.tasks: list[asyncio.Task[None]] = []

    @property
    def answers(self) -> bool:
        return self.on and not self.cut

    def power_on(self) -> None:
        """The first machine of the control plane is up."""
        self.on = True


class SimulatedClusters:
    def __init__(
        self, clock: Clock, rng: Rng, entropy: Entropy, *, pki: Pki | None = None, pods: bool = False, host: str = "127.0.0.1"
    ) -> None:
        """With `pki` they listen on ports of `host`. With `pods` they have the controllers and kubelets that pods need."""
        self._clock = clock
        self._rng = rng
        self._entropy = entropy
        self._pki = pki
        self._pods = pods
        self._host = host
        self._clusters: dict[Key, SimulatedCluster] = {}
        self._making: dict[Key, asyncio.Lock] = {}

    def get(self, key: Key) -> SimulatedCluster | None:
        return self._clusters.get(key)

    async def ensure(self, key: Key) -> SimulatedCluster:
        """The cluster, made if it isn't there."""
        async with self._making.setdefault(key, asyncio.Lock()):
            found = self._clusters.get(key)
            if found is None:
                found = self._clusters[key] = await self._make(key)
        return found

    async def _make(self, key: Key) -> SimulatedCluster:
        server = await Server.open(
            Config(
                data_dir=None,
                base=await EMPTY.base(),
                host=self._host,
                port=0,
                clock=self._clock,
                rng=self._rng,
                entropy=self._entropy,
                default_roles=False,
                pki=self._pki,
            )
        )
        if self._pki is not None:
            await server.listen()
        made = SimulatedCluster(key, server)
        if self._pods:
            keeper = InProcessClient(server, manager="kube-controller-manager")
            made.tasks.append(asyncio.create_task(kcm.run(keeper, self._clock, self._rng)))
            made.tasks.append(asyncio.create_task(Kubelet(made.client, self._clock, self._rng).run()))
        return made

    async def remove(self, key: Key) -> None:
        found = self._clusters.pop(key, None)
        self._making.pop(key, None)
        if found is None:
            return
        found.on = False
        for task in found.tasks:
            task.cancel()
        await asyncio.gather(*found.tasks, return_exceptions=True)
        # Its power is cut: whoever is connected notices.
        await found.server.close(grace=0.0)

    async def close(self) -> None:
        for key in list(self._clusters):
            await self.remove(key)

    def endpoint(self, key: Key) -> tuple[str, int]:
        """Host and port of its API; nobody listens there unless it was given certificates."""
        server = self._clusters[key].server
        return (self._host, int(server.url.rpartition(":")[2])) if self._pki is not None else (self._host, 6443)

    def kubeconfig(self, key: Key) -> bytes:
        """For the secret that everybody reaches the cluster with."""
        host, port = self.endpoint(key)
        if self._pki is not None:
            return yamlio.dumps(self._pki.kubeconfig(f"https://{host}:{port}")).encode()
        shown = {"name": key.name, "cluster": {"server": f"https://{host}:{port}"}}
        return yamlio.dumps({"apiVersion": "v1", "kind": "Config", "clusters": [shown]}).encode()

    async def connect(self, cluster: Key, kubeconfig: bytes) -> Client:
        """The core's connector: straight into the server in memory."""
        found = self._clusters.get(cluster)
        if found is None or not found.answers:
            raise ConnectionError(f"the simulated cluster {cluster} does not answer")
        return Line(InProcessClient(found.server, manager="manager"), lambda: found.answers)
