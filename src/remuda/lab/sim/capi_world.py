"""A whole simulated world: a management API, the simulated providers, and methods for operations on clusters.

    async with embedded(seed=7, weather=Weather(machine=(30, 90))) as world:
        await world.add_cluster("c1", control_plane=1, workers=3)
        await world.until("all machines run", lambda: world.running("c1", 4))

:func:`remuda.app.rehearsal.embedded` has everything in memory on the virtual clock, Cluster API's core included. A
:class:`World` itself needs only a client: the management API may as well be a real Kubernetes, and the core another
implementation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Protocol, TypeVar

from remuda.api.cluster_x_k8s_io import API_VERSION, CLUSTERS, MACHINE_DEPLOYMENTS, MACHINES
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Server
from remuda.capi.controller_context import Core
from remuda.capi.well_known import CLUSTER_NAME
from remuda.capi.workload_clusters import Connector
from remuda.client.interface import Client
from remuda.kube.builtin_resources import CRDS, NAMESPACES
from remuda.kube.clock import Clock, Rng, VirtualClock
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, dig, namespace_of
from remuda.runtime import Manager

from .control_plane_provider import Configs, ControlPlanes
from .delays_and_faults import Weather
from .infrastructure_provider import Clusters, Machines
from .providers import (
    BOOTSTRAP,
    CONTROL_PLANE,
    INFRASTRUCTURE,
    SIM_CLUSTERS,
    SIM_CONFIG_TEMPLATES,
    SIM_CONTROL_PLANES,
    SIM_MACHINE_TEMPLATES,
    VERSION,
    Land,
    ref,
)
from .workload_clusters import SimulatedClusters

Obj = dict[str, Any]
T = TypeVar("T")
NAMESPACE = "herd"

DEFAULT_VERSION = "v1.36.3"


class NeverHappened(Exception):
    """The expected result did not occur within the given time."""


class World:
    """The providers running on one management API. `client` is the user's, `providers` the simulated providers' own."""

    def __init__(
        self,
        client: Client,
        providers: Client,
        clock: Clock,
        clusters: SimulatedClusters,
        *,
        weather: Weather = Weather(),  # noqa: B008 - a constant
        seed: int = 1,
        namespace: str = NAMESPACE,
    ) -> None:
        self.client = client
        self.clock = clock
        self.clusters = clusters
        self.namespace = namespace
        self.manager = Manager(providers, clock, Rng(seed))
        self.land = Land(self.manager, clusters, weather, seed)
        for each in (Clusters(self.land), Machines(self.land), Configs(self.land), ControlPlanes(self.land)):
            self.manager.add(each)

    # --- time ---------------------------------------------------------------------------------------------------------------

    async def settle(self, seconds: float = 1.0) -> None:
        """Let time pass."""
        if isinstance(self.clock, VirtualClock):
            await self.clock.advance(seconds)
        else:
            await self.clock.sleep(seconds)

    async def until(self, what: str, check: Callable[[], Awaitable[T]], seconds: float = 600.0, step: float = 0.0) -> T:
        """Let time pass until `check` returns a true value, and return that. `step` is the interval of checks."""
        step = step or (1.0 if isinstance(self.clock, VirtualClock) else 0.1)
        end = self.clock.monotonic() + seconds
        while True:
            if found := await check():
                return found
            if self.clock.monotonic() >= end:
                raise NeverHappened(f"{what} did not happen within {seconds:.0f} s")
            await self.settle(step)

    # --- objects ------------------------------------------------------------------------------------------------------------

    async def create(self, resource: GroupVersionResource, obj: Obj) -> Obj:
        return await self.client.create(resource, obj, namespace_of(obj))

    async def get(self, resource: GroupVersionResource, name: str) -> Obj:
        return await self.client.get(resource, name, self.namespace)

    async def find(self, resource: GroupVersionResource, name: str) -> Obj | None:
        try:
            return await self.get(resource, name)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def all(self, resource: GroupVersionResource, labels: str = "") -> list[Obj]:
        found: list[Obj] = (await self.client.list(resource, self.namespace, labels=labels))["items"]
        return found

    async def patch(self, resource: GroupVersionResource, name: str, patch: Obj, subresource: str = "") -> Obj:
        return await self.client.patch(resource, name, patch, self.namespace, subresource=subresource)

    async def delete(self, resource: GroupVersionResource, name: str) -> None:
        await self.client.delete(resource, name, self.namespace)

    async def machines(self, cluster: str) -> list[Obj]:
        return await self.all(MACHINES, f"{CLUSTER_NAME}={cluster}")

    async def running(self, cluster: str, count: int) -> bool:
        """Tells whether the cluster has so many Machines, and all of them are Running."""
        found = await self.machines(cluster)
        return len(found) == count and all(dig(machine, "status", "phase") == "Running" for machine in found)

    async def gone(self, resource: GroupVersionResource, name: str) -> bool:
        return await self.find(resource, name) is None

    # --- clusters -----------------------------------------------------------------------------------------------------------

    async def prepare(self, definitions: Iterable[Obj]) -> None:
        """Create CRDs and the namespace, if they are missing; afterwards all are served."""
        definitions = list(definitions)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        for resource, obj in (*((CRDS, crd) for crd in definitions), (NAMESPACES, namespace)):
            try:
                await self.client.create(resource, obj)
            except ApiError as error:
                if not error.is_already_exists:
                    raise
        for crd in definitions:
            await self.until(f"{crd['metadata']['name']} is served", partial(self._served, crd), 60)

    async def _served(self, crd: Obj) -> bool:
        spec = crd["spec"]
        try:
            for version in spec["versions"]:
                await self.client.list(GroupVersionResource(spec["group"], version["name"], spec["names"]["plural"]), limit=1)
        except ApiError as error:
            # A real server may also need a moment for its storage, or for a conversion webhook.
            if error.code in (404, 429, 500, 503):
                return False
            raise
        return True

    async def add_cluster(
        self,
        name: str,
        *,
        control_plane: int = 1,
        workers: int = 0,
        version: str = DEFAULT_VERSION,
        deployment: Obj | None = None,
    ) -> Obj:
        """A Cluster, its control plane, and a MachineDeployment `<name>-md` if there are workers."""
        spec: Obj = {"infrastructureRef": ref(INFRASTRUCTURE, "SimCluster", name)}
        await self.create(SIM_CLUSTERS, self.thing(INFRASTRUCTURE, "SimCluster", name))
        await self.add_templates(name)
        if control_plane:
            spec["controlPlaneRef"] = ref(CONTROL_PLANE, "SimControlPlane", name)
            template = {"spec": {"infrastructureRef": ref(INFRASTRUCTURE, "SimMachineTemplate", name)}}
            plane = {"replicas": control_plane, "version": version, "machineTemplate": template}
            await self.create(SIM_CONTROL_PLANES, self.thing(CONTROL_PLANE, "SimControlPlane", name, plane))
        made = await self.create(CLUSTERS, self.core_object("Cluster", name, spec))
        if workers or deployment is not None:
            await self.add_workers(name, workers, version=version, **(deployment or {}))
        return made

    async def add_templates(self, name: str) -> None:
        template: Obj = {"template": {"spec": {}}}
        await self.create(SIM_MACHINE_TEMPLATES, self.thing(INFRASTRUCTURE, "SimMachineTemplate", name, template))
        await self.create(SIM_CONFIG_TEMPLATES, self.thing(BOOTSTRAP, "SimConfigTemplate", name, template))

    async def add_workers(
        self, cluster: str, replicas: int, *, version: str = DEFAULT_VERSION, name: str = "", **spec: Any
    ) -> Obj:
        """A MachineDeployment that uses the cluster's templates."""
        name = name or f"{cluster}-md"
        body = {
            "clusterName": cluster,
            "replicas": replicas,
            "selector": {},
            "template": {"spec": self.machine_spec(cluster, version)},
            **spec,
        }
        return await self.create(MACHINE_DEPLOYMENTS, self.core_object("MachineDeployment", name, body))

    def machine_spec(self, cluster: str, version: str = DEFAULT_VERSION, template: str = "") -> Obj:
        """The spec of Machines in the template of a MachineSet or MachineDeployment."""
        return {
            "clusterName": cluster,
            "version": version,
            "bootstrap": {"configRef": ref(BOOTSTRAP, "SimConfigTemplate", template or cluster)},
            "infrastructureRef": ref(INFRASTRUCTURE, "SimMachineTemplate", template or cluster),
        }

    def thing(self, group: str, kind: str, name: str, spec: Obj | None = None) -> Obj:
        """An object of a simulated provider."""
        meta = {"name": name, "namespace": self.namespace}
        return {"apiVersion": f"{group}/{VERSION}", "kind": kind, "metadata": meta, "spec": spec or {}}

    def core_object(self, kind: str, name: str, spec: Obj) -> Obj:
        return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, "namespace": self.namespace}, "spec": spec}


class RunningCore(Protocol):
    """Cluster API's controllers, added to a manager."""

    @property
    def core(self) -> Core: ...


# The creator of the world chooses these controllers.
StartCore = Callable[[Manager, Connector], RunningCore]


class EmbeddedWorld(World):
    """Everything in one process: management API in memory, and a core that can be killed and started again."""

    def __init__(self, server: Server, clusters: SimulatedClusters, *, weather: Weather, seed: int, core: StartCore) -> None:
        super().__init__(
            InProcessClient(server, manager="kubectl"),
            InProcessClient(server, manager="sim"),
            server.config.clock,
            clusters,
            weather=weather,
            seed=seed,
        )
        self.server = server
        self._seed = seed
        self._core_of = core
        self._starts = 0
        self._core: asyncio.Task[None] | None = None
        self.core: RunningCore | None = None
        # Revision, key, and whether it was deleted.
        self.journal: list[tuple[int, str, bool]] = []
        # The revision that the journal follows.
        self.begins = server.store.revision

    def start_core(self, through: Callable[[Client], Client] = lambda client: client) -> None:
        """`through` wraps the core's client of its API."""
        self._starts += 1
        client = through(InProcessClient(self.server, manager="manager"))
        manager = Manager(client, self.clock, Rng(self._seed * 1000 + self._starts))
        self.core = self._core_of(manager, self.clusters)
        self._core = asyncio.create_task(manager.run(), name="the core")

    async def kill_core(self) -> None:
        """Stop the core as kill -9 would: it is interrupted where it waits."""
        if self._core is not None:
            self._core.cancel()
            await asyncio.gather(self._core, return_exceptions=True)
            self._core = self.core = None

    async def keep_journal(self) -> None:
        """Record every write to the management API, in order, until cancelled: the same seed gives the same journal."""
        async with self.server.store.watch(self.begins) as batches:
            async for batch in batches:
                self.journal += [(event.revision, event.key, event.kv is None) for event in batch]


def key(name: str, namespace: str = NAMESPACE) -> Key:
    return Key(namespace, name)
