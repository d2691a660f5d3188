"""A management API in memory and on the virtual clock, with the controllers that a test names."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from remuda import kcm
from remuda.access.clusters.server_settings import ServerSettings as KnownServer
from remuda.api import crds
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.apiserver.admission.chain import install
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.client.interface import Client
from remuda.kube.clock import Entropy, Rng, VirtualClock
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig, namespace_of
from remuda.lab.sim.workload_clusters import Beginning
from remuda.runtime import Manager, Reconciler
from remuda.runtime.admitted_types import AdmittedType

Obj = dict[str, Any]

SECRETS = GroupVersionResource("", "v1", "secrets")
EVENTS = GroupVersionResource("", "v1", "events")
URL, CA = "https://remuda.test:8443", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
ENVIRONMENT = {"REMUDA_SERVER_URL": URL}


class Parts:
    """One life of the controllers: what they are made from."""

    def __init__(self, client: Client, clock: VirtualClock, seed: int) -> None:
        self.manager = Manager(client, clock, Rng(seed))
        self.entropy = Entropy(seed)
        self.server = KnownServer(self.manager.informers, ENVIRONMENT, lambda: CA)
        self._task: asyncio.Task[None] | None = None

    def start(self, make: Iterable[Callable[[Parts], Iterable[Reconciler]]]) -> None:
        for each in make:
            for reconciler in each(self):
                self.manager.add(reconciler)
        self._task = asyncio.create_task(self.manager.run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class World:
    def __init__(self, server: Server, clock: VirtualClock, make: tuple[Callable[[Parts], Iterable[Reconciler]], ...]) -> None:
        self.server = server
        self.clock = clock
        self.client = InProcessClient(server, manager="kubectl")
        self.make = make
        self.lives: list[Parts] = []

    def begin(self, wrap: Callable[[Client], Client] = lambda client: client) -> Parts:
        """Start the controllers, once more if they run already."""
        parts = Parts(wrap(InProcessClient(self.server, manager="manager")), self.clock, len(self.lives) + 1)
        self.lives.append(parts)
        parts.start(self.make)
        return parts

    async def end(self) -> None:
        for parts in self.lives:
            await parts.stop()

    async def settle(self, seconds: float = 1.0) -> None:
        await self.clock.advance(seconds)

    async def create(self, resource: GroupVersionResource, obj: Obj) -> Obj:
        return await self.client.create(resource, obj, namespace_of(obj))

    async def get(self, resource: GroupVersionResource, name: str, namespace: str = "") -> Obj:
        return await self.client.get(resource, name, namespace)

    async def find(self, resource: GroupVersionResource, name: str, namespace: str = "") -> Obj | None:
        try:
            return await self.get(resource, name, namespace)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def list(self, resource: GroupVersionResource, namespace: str = "") -> list[Obj]:
        found: list[Obj] = (await self.client.list(resource, namespace))["items"]
        return found

    async def patch(
        self, resource: GroupVersionResource, name: str, patch: Obj, namespace: str = "", subresource: str = ""
    ) -> Obj:
        return await self.client.patch(resource, name, patch, namespace, subresource=subresource)

    async def delete(self, resource: GroupVersionResource, name: str, namespace: str = "") -> None:
        await self.client.delete(resource, name, namespace)

    async def cluster(self, name: str = "c-m-bcdfg245", **spec: Any) -> Obj:
        """A management Cluster."""
        made = {"apiVersion": management.API_VERSION, "kind": "Cluster", "metadata": {"name": name}, "spec": spec}
        return await self.create(management.CLUSTERS, made)

    async def wanted(
        self, name: str = "demo", namespace: str = "fleet-default", annotations: Obj | None = None, **spec: Any
    ) -> Obj:
        """A clusters.provisioning.cattle.io."""
        metadata = {"name": name, "namespace": namespace, "annotations": annotations or {}}
        made = {"apiVersion": provisioning.API_VERSION, "kind": "Cluster", "metadata": metadata, "spec": spec}
        return await self.create(provisioning.CLUSTERS, made)

    async def setting(self, name: str, value: str) -> None:
        if await self.find(management.SETTINGS, name) is None:
            obj = {"apiVersion": management.API_VERSION, "kind": "Setting", "metadata": {"name": name}, "value": value}
            await self.create(management.SETTINGS, obj)
        else:
            await self.patch(management.SETTINGS, name, {"value": value})

    async def secret_text(self, name: str, namespace: str, key: str) -> str:
        secret = await self.get(SECRETS, name, namespace)
        return base64.b64decode(dig(secret, "data", key) or "").decode()


_BEGINNING = Beginning(lambda: crds([management.GROUP, provisioning.GROUP]), ("fleet-default",))


@contextlib.asynccontextmanager
async def world(
    *make: Callable[[Parts], Iterable[Reconciler]], admitted: Iterable[AdmittedType] = (), begin: bool = True
) -> AsyncIterator[World]:
    """`make` gives the reconcilers of one life of the controllers."""
    clock = VirtualClock()
    server = await Server.open(Config(data_dir=None, base=await _BEGINNING.base(), clock=clock, rng=Rng(1), entropy=Entropy(1)))
    made = World(server, clock, make)
    keeper = asyncio.create_task(kcm.run(InProcessClient(server, manager="kube-controller-manager"), clock, Rng(2)))
    try:
        await made.settle()
        install(admitted, server.hooks, server.converters)
        if begin:
            made.begin()
            await made.settle()
        yield made
    finally:
        await made.end()
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await server.close()
