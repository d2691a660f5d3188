"""A management cluster and its workload clusters, all in memory and on the virtual clock, for tests of single controllers.

Providers are played by the test: `world.provision(machine)` writes what an infrastructure provider would. `remuda.lab.sim` has
providers that play themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from remuda import kcm
from remuda.api import crds
from remuda.api.cluster_x_k8s_io import API_VERSION, CLUSTERS, MACHINES
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.capi.controller_context import ControllerOptions, Core
from remuda.capi.workload_clusters import PROVIDER_ID, Health
from remuda.client.interface import Client
from remuda.kube.builtin_resources import NODES
from remuda.kube.clock import Entropy, Rng, VirtualClock
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, dig, namespace_of
from remuda.lab.sim.workload_clusters import BARE, Beginning
from remuda.runtime import Informer, Informers, Manager, Reconciler, Watch

Obj = dict[str, Any]

INFRA, BOOTSTRAP, CONTROL = "infrastructure.test.io", "bootstrap.test.io", "controlplane.test.io"
TEST_CLUSTERS = GroupVersionResource(INFRA, "v1", "testclusters")
TEST_MACHINES = GroupVersionResource(INFRA, "v1", "testmachines")
TEST_MACHINE_TEMPLATES = GroupVersionResource(INFRA, "v1", "testmachinetemplates")
TEST_CONFIGS = GroupVersionResource(BOOTSTRAP, "v1", "testconfigs")
TEST_CONFIG_TEMPLATES = GroupVersionResource(BOOTSTRAP, "v1", "testconfigtemplates")
TEST_CONTROL_PLANES = GroupVersionResource(CONTROL, "v1", "testcontrolplanes")
PROVIDER_KINDS = {
    "TestCluster": INFRA,
    "TestMachine": INFRA,
    "TestMachineTemplate": INFRA,
    "TestConfig": BOOTSTRAP,
    "TestConfigTemplate": BOOTSTRAP,
    "TestControlPlane": CONTROL,
    "TestRemediation": INFRA,
    "TestRemediationTemplate": INFRA,
}
NAMESPACE = "herd"


def provider_crd(group: str, kind: str, contract: str = "v1beta2") -> Obj:
    """A provider's kind that takes anything, with the label of a contract."""
    plural = kind.lower() + "s"
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "labels": {f"cluster.x-k8s.io/{contract}": "v1"}},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": loose, "status": loose}}},
                }
            ],
        },
    }


class MemoryWorkload:
    """One workload cluster: a real API in memory, with a cache of its nodes."""

    def __init__(self, server: Server, informers: Informers, client: Client) -> None:
        self.server = server
        self.client = client
        self.informers = informers
        self.nodes: Informer = informers.of(NODES)
        self.nodes.add_index(PROVIDER_ID, lambda node: filter(None, (dig(node, "spec", "providerID"),)))


class MemoryWorkloads:
    """The port `Workloads` on clusters that the test connects and cuts by hand."""

    def __init__(self, clock: VirtualClock, rng: Rng) -> None:
        self._clock = clock
        self._rng = rng
        self.manager: Manager | None = None
        self.clusters: dict[Key, MemoryWorkload] = {}
        self.connected: set[Key] = set()
        self._healths: dict[Key, Health] = {}
        self._handlers: list[Callable[[Key], None]] = []
        self._followers: list[tuple[str, Callable[[Key, Obj], Iterable[Key]]]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def get(self, cluster: Key) -> MemoryWorkload | None:
        return self.clusters.get(cluster) if cluster in self.connected else None

    def health(self, cluster: Key) -> Health:
        if cluster in self.connected:
            self._healths[cluster] = Health(self._clock.time(), self._clock.time(), 0)
        return self._healths.get(cluster, Health())

    def on_change(self, handler: Callable[[Key], None]) -> Callable[[], None]:
        self._handlers.append(handler)
        return lambda: self._handlers.remove(handler)

    def follow_nodes(self, controller: str, to: Callable[[Key, Obj], Iterable[Key]]) -> None:
        self._followers.append((controller, to))

    async def connect(self, name: str, namespace: str = NAMESPACE) -> MemoryWorkload:
        """Make the cluster if it isn't there, and connect it."""
        key = Key(namespace, name)
        found = self.clusters.get(key)
        if found is None:
            server = await Server.open(
                Config(
                    data_dir=None,
                    base=await BARE.base(),
                    clock=self._clock,
                    rng=self._rng,
                    entropy=Entropy(len(self.clusters)),
                )
            )
            client = InProcessClient(server, manager="workload")
            found = self.clusters[key] = MemoryWorkload(server, Informers(client, self._clock, self._rng), client)
            self._tasks.append(asyncio.create_task(found.informers.run()))
            await found.nodes.synced.wait()
            assert self.manager is not None
            for controller, to in self._followers:
                self.manager.follow(controller, Watch(NODES, lambda node, to=to, key=key: to(key, node)), found.nodes)  # type: ignore[misc]
        self.connected.add(key)
        self._tell(key)
        return found

    def cut(self, name: str, namespace: str = NAMESPACE) -> None:
        key = Key(namespace, name)
        self.health(key)
        self.connected.discard(key)
        self._tell(key)

    def _tell(self, key: Key) -> None:
        for handler in list(self._handlers):
            handler(key)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for workload in self.clusters.values():
            await workload.server.close()


class World:
    """The management cluster. Make objects, let time pass with `settle`, look at what came of it."""

    def __init__(self, server: Server, clock: VirtualClock, rng: Rng, options: ControllerOptions) -> None:
        self.server = server
        self.clock = clock
        self.client = InProcessClient(server, manager="kubectl")
        self.workloads = MemoryWorkloads(clock, rng)
        self.manager = Manager(InProcessClient(server, manager="manager"), clock, rng)
        self.workloads.manager = self.manager
        self.core = Core(self.manager, self.workloads, options)

    async def settle(self, seconds: float = 1.0) -> None:
        await self.clock.advance(seconds)

    async def create(self, resource: GroupVersionResource, obj: Obj) -> Obj:
        return await self.client.create(resource, obj, namespace_of(obj))

    async def get(self, resource: GroupVersionResource, name: str, namespace: str = NAMESPACE) -> Obj:
        return await self.client.get(resource, name, namespace)

    async def find(self, resource: GroupVersionResource, name: str, namespace: str = NAMESPACE) -> Obj | None:
        try:
            return await self.get(resource, name, namespace)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def list(self, resource: GroupVersionResource, labels: str = "") -> list[Obj]:
        found: list[Obj] = (await self.client.list(resource, NAMESPACE, labels=labels))["items"]
        return found

    async def patch(self, resource: GroupVersionResource, name: str, patch: Obj, subresource: str = "") -> Obj:
        return await self.client.patch(resource, name, patch, NAMESPACE, subresource=subresource)

    async def delete(self, resource: GroupVersionResource, name: str) -> None:
        await self.client.delete(resource, name, NAMESPACE)

    async def events(self) -> list[tuple[str, str, str]]:
        found = await self.list(GroupVersionResource("", "v1", "events"))
        return [(event["involvedObject"]["kind"], event["reason"], event["message"]) for event in found]

    # --- what providers do ------------------------------------------------------------------------------------------------

    async def provision(self, name: str, provider_id: str = "") -> None:
        """An InfraMachine is there."""
        await self.patch(TEST_MACHINES, name, {"spec": {"providerID": provider_id or f"test:///{name}"}})
        status = {"initialization": {"provisioned": True}, "addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}
        await self.patch(TEST_MACHINES, name, {"status": status}, "status")

    async def bootstrap(self, name: str) -> None:
        """A BootstrapConfig has its data."""
        status = {"initialization": {"dataSecretCreated": True}, "dataSecretName": name}
        await self.patch(TEST_CONFIGS, name, {"status": status}, "status")

    async def provision_cluster(self, name: str) -> None:
        await self.patch(TEST_CLUSTERS, name, {"spec": {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443}}})
        await self.patch(TEST_CLUSTERS, name, {"status": {"initialization": {"provisioned": True}}}, "status")

    async def initialize_control_plane(self, name: str, version: str = "v1.36.3") -> None:
        status = {"initialization": {"controlPlaneInitialized": True}, "versions": [{"version": version}]}
        await self.patch(TEST_CONTROL_PLANES, name, {"status": status}, "status")

    # --- objects ----------------------------------------------------------------------------------------------------------

    async def cluster(self, name: str = "c1", *, control_plane: bool = True, **spec: Any) -> Obj:
        """A Cluster with an InfraCluster and, if asked, a control plane object."""
        made: Obj = {"infrastructureRef": {"apiGroup": INFRA, "kind": "TestCluster", "name": name}}
        await self.create(TEST_CLUSTERS, thing(INFRA, "TestCluster", name))
        if control_plane:
            made["controlPlaneRef"] = {"apiGroup": CONTROL, "kind": "TestControlPlane", "name": name}
            await self.create(TEST_CONTROL_PLANES, thing(CONTROL, "TestControlPlane", name))
        return await self.create(CLUSTERS, core_object("Cluster", name, {**made, **spec}))

    async def templates(self, name: str) -> None:
        for group, kind, resource in (
            (INFRA, "TestMachineTemplate", TEST_MACHINE_TEMPLATES),
            (BOOTSTRAP, "TestConfigTemplate", TEST_CONFIG_TEMPLATES),
        ):
            await self.create(resource, thing(group, kind, name, {"template": {"spec": {"size": "small"}}}))

    async def machine(self, name: str, cluster: str = "c1", labels: dict[str, str] | None = None, **spec: Any) -> Obj:
        """A standalone Machine with its InfraMachine and BootstrapConfig."""
        await self.create(TEST_MACHINES, thing(INFRA, "TestMachine", name))
        await self.create(TEST_CONFIGS, thing(BOOTSTRAP, "TestConfig", name))
        made = core_object("Machine", name, {**machine_spec(name, cluster, template=False), **spec})
        made["metadata"]["labels"] = {"cluster.x-k8s.io/cluster-name": cluster, **(labels or {})}
        return await self.create(MACHINES, made)


def thing(group: str, kind: str, name: str, spec: Obj | None = None) -> Obj:
    """An object of a provider."""
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec or {}}


def core_object(kind: str, name: str, spec: Obj) -> Obj:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def machine_spec(name: str, cluster: str = "c1", *, template: bool = True, version: str = "v1.36.3") -> Obj:
    """What a Machine (or, with `template`, a MachineSet's template) refers to."""
    suffix = "Template" if template else ""
    return {
        "clusterName": cluster,
        "version": version,
        "bootstrap": {"configRef": {"apiGroup": BOOTSTRAP, "kind": f"TestConfig{suffix}", "name": name}},
        "infrastructureRef": {"apiGroup": INFRA, "kind": f"TestMachine{suffix}", "name": name},
    }


_BEGINNING = Beginning(lambda: (*crds(), *(provider_crd(group, kind) for kind, group in PROVIDER_KINDS.items())), (NAMESPACE,))


@contextlib.asynccontextmanager
async def world(
    *make: Callable[[Core], Reconciler],
    options: ControllerOptions = ControllerOptions(),  # noqa: B008 - a constant
    seed: int = 1,
) -> AsyncIterator[World]:
    """A world in which the given controllers (each made from the Core) and kube-controller-manager's run."""
    clock, rng = VirtualClock(), Rng(seed)
    base = await _BEGINNING.base()
    server = await Server.open(Config(data_dir=None, base=base, clock=clock, rng=rng, entropy=Entropy(seed)))
    made = World(server, clock, rng, options)
    keeper = asyncio.create_task(kcm.run(InProcessClient(server, manager="kube-controller-manager"), clock, rng))
    try:
        await made.settle(1)
        for each in make:
            made.manager.add(each(made.core))
        running = asyncio.create_task(made.manager.run())
        try:
            await made.settle(1)
            yield made
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await made.workloads.close()
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await server.close()
