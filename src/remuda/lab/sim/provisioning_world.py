"""A management server with everything that provisions clusters, in memory, and hosts that register with it (:mod:`.hosts`).

    async with provisioning(seed=7) as world:
        await world.want("demo", "v1.34.1+remuda1")
        await world.host("demo", "a", "ecw")
        await world.until("it is ready", lambda: world.is_ready("demo"))

All controllers of `remuda serve` run, Cluster API's core and access included; only the tunnels and the clusters behind them are
simulated. The controllers can be killed and started again (:meth:`ProvisioningWorld.begin`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from remuda.access.rancher_conditions import is_true
from remuda.access.roles.holdings import Holdings
from remuda.api import cluster_x_k8s_io, management_cattle_io, plan_cattle_io, provisioning_cattle_io, rke_cattle_io
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Server
from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.gateway.auth.access_review import LocalAccess
from remuda.gateway.auth.user_clients import LocalActing
from remuda.gateway.gateway import Gateway, GatewayDependencies
from remuda.kube.clock import Entropy, Rng, VirtualClock
from remuda.kube.objects import Key, dig, name_of
from remuda.kube.waits import Wait
from remuda.runtime import Manager

from .capi_world import NeverHappened
from .distribution import Distribution
from .hosts import SimulatedHost, SimulatedHosts, Times
from .machine_jobs import SimulatedJobs
from .workload_clusters import CutableClient, SimulatedClusters, SimulatedDownstreams

Obj = dict[str, Any]
T = TypeVar("T")

WORKSPACE = "fleet-default"
URL = "https://remuda.test:8443"
GROUPS = (
    cluster_x_k8s_io.GROUP,
    management_cattle_io.GROUP,
    plan_cattle_io.GROUP,
    provisioning_cattle_io.GROUP,
    rke_cattle_io.GROUP,
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts of a server besides its API: the CA of its certificate, and its environment."""

    ca: str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    environment: Mapping[str, str] = field(default_factory=lambda: {"CATTLE_SERVER_URL": URL})


# Adds the controllers of a world to a manager.
AddControllers = Callable[[Manager, "ProvisioningWorld"], None]


class ProvisioningWorld:
    def __init__(
        self,
        server: Server,
        clock: VirtualClock,
        seed: int,
        times: Times,
        controllers: AddControllers,
        pods: bool = False,
        surroundings: Surroundings = Surroundings(),
    ) -> None:
        """`controllers` adds those of one run to its manager."""
        self.server = server
        self.clock = clock
        self.client = InProcessClient(server, manager="kubectl")
        self.clusters = SimulatedClusters(clock, Rng(seed), Entropy(seed), pods=pods)
        self.downstreams = SimulatedDownstreams(self.client)
        self.hosts = SimulatedHosts(server, self.clusters, self.downstreams, Rng(seed), times)
        self.gateway = Gateway(
            GatewayDependencies(
                client=InProcessClient(server, manager="remuda"),
                clock=clock,
                rng=Rng(seed),
                entropy=Entropy(seed),
                access=LocalAccess(server.rbac),
                acting=LocalActing(server),
                holdings=Holdings(server.source, server.rbac),
                authority=surroundings,
                environment=surroundings.environment,
            )
        )
        # Hashing the first password costs more than most tests take.
        self.gateway.services.beside.remove(self.gateway.identity.first.run)
        # The replacement for Jobs, where machines come in pools.
        self.jobs: SimulatedJobs | None = None
        # Tasks besides controllers and hosts, for as long as the world exists.
        self.besides: list[asyncio.Task[None]] = []
        self._seed = seed
        self._controllers = controllers
        self._lives: list[asyncio.Task[None]] = []
        self._manager: Manager | None = None

    # --- controllers ------------------------------------------------------------------------------------------------------

    def begin(self, through: Callable[[Client], Client] = lambda client: client) -> asyncio.Task[None]:
        """Start the controllers, once more if they run already; `through` wraps their client of the API."""
        client = through(CutableClient(InProcessClient(self.server, manager="remuda"), lambda: not self.hosts.cut))
        manager = Manager(client, self.clock, Rng(self._seed * 1000 + len(self._lives)))
        self._controllers(manager, self)
        self._manager = manager
        life = asyncio.create_task(manager.run(), name="the controllers")
        self._lives.append(life)
        return life

    async def kill(self, life: asyncio.Task[None] | None = None) -> None:
        """Stop controllers as kill -9 would: they are interrupted where they wait. Without `life`: all of them."""
        gone = [each for each in self._lives if life is None or each is life]
        for each in gone:
            each.cancel()
        await asyncio.gather(*gone, return_exceptions=True)

    def waits(self) -> list[Wait]:
        """The waits of the controllers that were started last."""
        return [] if self._manager is None else list(self._manager.waits())

    def check(self) -> None:
        """Raises the exceptions of controllers, hosts or Jobs."""
        for task in (*self._lives, *self.besides):
            if task.done() and not task.cancelled():
                task.result()
        for host in self.hosts.hosts.values():
            self.hosts.is_running(host)

    # --- time -------------------------------------------------------------------------------------------------------------

    async def settle(self, seconds: float = 1.0) -> None:
        await self.clock.advance(seconds)

    async def until(self, what: str, check: Callable[[], Awaitable[T]], seconds: float = 900.0) -> T:
        end = self.clock.monotonic() + seconds
        while True:
            self.check()
            if found := await check():
                return found
            if self.clock.monotonic() >= end:
                raise NeverHappened(f"{what} did not happen within {seconds:.0f} s")
            await self.settle()

    # --- clusters ---------------------------------------------------------------------------------------------------------

    async def want(self, name: str, version: str, namespace: str = WORKSPACE, **config: Any) -> str:
        """Create a cluster for hosts that register by themselves; the name of its management Cluster."""
        made = {
            "apiVersion": provisioning_cattle_io.API_VERSION,
            "kind": "Cluster",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"kubernetesVersion": version, "rkeConfig": config},
        }
        await self.client.create(provisioning_cattle_io.CLUSTERS, made, namespace)
        return await self.until(f"{name} has an id", lambda: self.managed_name(name, namespace), 60)

    async def cluster(self, name: str, namespace: str = WORKSPACE) -> Obj:
        return await self.client.get(provisioning_cattle_io.CLUSTERS, name, namespace)

    async def managed_name(self, name: str, namespace: str = WORKSPACE) -> str:
        return str(dig(await self.cluster(name, namespace), "status", "clusterName") or "")

    async def control_plane(self, name: str, namespace: str = WORKSPACE) -> Obj:
        return await find(self.client, rke_cattle_io.RKE_CONTROL_PLANES, name, namespace) or {}

    async def host(
        self, cluster: str, name: str, roles: str, namespace: str = WORKSPACE, runtime: str = "remuda"
    ) -> SimulatedHost:
        managed = await self.managed_name(cluster, namespace)
        return await self.hosts.add(Key(namespace, cluster), managed, name, roles, runtime)

    def distribution(self, cluster: str, namespace: str = WORKSPACE) -> Distribution:
        return self.hosts.distributions[Key(namespace, cluster)]

    async def is_ready(self, name: str, namespace: str = WORKSPACE) -> bool:
        """Tells whether the current spec is applied, and the cluster and its control plane are Ready."""
        cluster, plane = await self.cluster(name, namespace), await self.control_plane(name, namespace)
        version = dig(cluster, "spec", "kubernetesVersion")
        if version != dig(plane, "status", "appliedSpec", "kubernetesVersion") or plane["status"]["appliedSpec"] != plane["spec"]:
            return False
        managed = await find(self.client, management_cattle_io.CLUSTERS, await self.managed_name(name, namespace)) or {}
        return all(is_true(each, "Ready") for each in (plane, cluster, managed))

    async def machines(self, cluster: str, namespace: str = WORKSPACE) -> list[Obj]:
        listed = await self.client.list(cluster_x_k8s_io.MACHINES, namespace)
        return sorted((each for each in listed["items"] if dig(each, "spec", "clusterName") == cluster), key=name_of)
