"""The arguments of the classes in :mod:`.controllers`, as far as a program has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from remuda.access.clusters import ServerSettings
    from remuda.access.downstreams import Agents, Downstreams
    from remuda.access.health.downstream_caches import DownstreamCaches
    from remuda.access.roles.role_caches import Views
    from remuda.capi.controller_context import ControllerOptions, Core
    from remuda.capi.drain_count import DrainCount
    from remuda.capi.workload_clusters import Connector, Workloads
    from remuda.client.interface import Client
    from remuda.gateway.gateway import Gateway
    from remuda.gateway.gateway import GatewayDependencies as GatewayGround
    from remuda.gateway.provisioning_port import ProvisioningPort
    from remuda.kube.clock import Clock, Entropy
    from remuda.kube.network.outbound_http import Current
    from remuda.machines.nodedrivers.flag_sources import Sources
    from remuda.machines.runner.controller import RunnerConfig
    from remuda.provisioning.bootstrap.rkebootstrap import Scripts
    from remuda.provisioning.etcd.members import DistributionsMembers
    from remuda.provisioning.etcd.s3.copies import Open
    from remuda.provisioning.releases.release_data import Fetch
    from remuda.runtime import Informers, Manager, Watch

Obj = dict[str, Any]

# Where the Jobs that make machines run: as processes of this server, or as pods of the Kubernetes underneath.
LOCAL, CLUSTER = "local", "cluster"
# The settings that install scripts contain.
_IN_SCRIPTS = frozenset({"server-url", "cacerts", "agent-tls-mode"})


@dataclass(frozen=True, slots=True)
class Jobs:
    """Options of the Jobs that make machines. `runner` is LOCAL or CLUSTER; `ground` the surroundings of their processes.
    `drivers` is the directory of downloaded drivers; without it they are downloaded again when this process restarts."""

    ground: RunnerConfig
    runner: str = LOCAL
    drivers: Path | None = None


class Parts:
    """The arguments of controllers on one manager, each made when a row first asks for it.

    A program gives what it has. Without `downstreams` and `agents`, clusters are reached through the gateway's tunnels; without
    `connector` and `workloads`, through the gateway, too. `machines` tells whether Cluster API's kinds are served there,
    `provisions` whether our own providers' are. Without `buckets`, real ones are opened. `namespace` is that of the
    program. Without `entropy`, it is the gateway's.
    """

    manager: Manager

    def __init__(
        self,
        manager: Manager,
        gateway: Gateway | None = None,
        *,
        connector: Connector | None = None,
        workloads: Workloads | None = None,
        options: ControllerOptions | None = None,
        downstreams: Downstreams | None = None,
        agents: Agents | None = None,
        scripts: Scripts | None = None,
        jobs: Jobs | None = None,
        buckets: Open | None = None,
        machines: bool = True,
        provisions: bool = False,
        namespace: str = "remuda-system",
        entropy: Entropy | None = None,
    ) -> None:
        self.manager = manager
        self.namespace = namespace
        self._entropy = entropy
        self._gateway = gateway
        self._connector = connector
        self._workloads = workloads
        self._options = options
        self._downstreams = downstreams
        self._agents = agents
        self._scripts = scripts
        self._jobs = jobs
        self._buckets = buckets
        self._machines = machines
        self._provisions = provisions

    @property
    def client(self) -> Client:
        return self.manager.client

    @property
    def informers(self) -> Informers:
        return self.manager.informers

    @property
    def clock(self) -> Clock:
        return self.manager.clock

    @property
    def entropy(self) -> Entropy:
        return self._entropy or self.ground.entropy

    # --- the gateway -----------------------------------------------------------------------------------------------------------

    @property
    def gateway(self) -> Gateway:
        return _given(self._gateway, "gateway")

    @property
    def ground(self) -> GatewayGround:
        return self.gateway.ground

    @property
    def environment(self) -> Mapping[str, str]:
        return {} if self._gateway is None else self._gateway.ground.environment

    @property
    def downstreams(self) -> Downstreams:
        return self._downstreams or self.gateway.downstreams

    @property
    def agents(self) -> Agents:
        return self._agents or self.gateway.agents

    # --- Cluster API -----------------------------------------------------------------------------------------------------------

    @cached_property
    def options(self) -> ControllerOptions:
        from remuda.capi.controller_context import ControllerOptions

        return self._options or ControllerOptions()

    @cached_property
    def core(self) -> Core:
        from remuda.capi.controller_context import Core

        return Core(self.manager, self.workloads, self.options, self.drains)

    @cached_property
    def drains(self) -> DrainCount:
        """The drains of all controllers of this program, one count for change budgets."""
        from remuda.capi.drain_count import DrainCount

        return DrainCount(self.clock)

    @cached_property
    def workloads(self) -> Workloads:
        """The connections to the clusters themselves, one set for the core and for provisioning."""
        if self._workloads is not None:
            return self._workloads
        from remuda.capi.clustercache import CacheOptions, ClusterCache, HttpsConnector

        connector = self._connector or self.gateway.connector(HttpsConnector(self.clock, policy=self.gateway.outbound))
        cache = ClusterCache(
            self.manager, connector, CacheOptions(namespace=self.options.namespace, watch_filter=self.options.watch_filter)
        )
        self.manager.beside(cache.run)
        return cache

    # --- access ----------------------------------------------------------------------------------------------------------------

    @cached_property
    def server(self) -> ServerSettings:
        from remuda.access.clusters import ServerSettings

        return ServerSettings(self.informers, self.environment, lambda: self.ground.authority.ca)

    @cached_property
    def views(self) -> Views:
        from remuda.access.roles.role_caches import Views

        return Views(self.informers, machines=self._machines, provisions=self._provisions)

    @cached_property
    def followings(self) -> DownstreamCaches:
        from remuda.access.health.downstream_caches import DownstreamCaches

        return DownstreamCaches(self.manager, self.downstreams)

    # --- provisioning and machines ---------------------------------------------------------------------------------------------

    @cached_property
    def provisioning_port(self) -> ProvisioningPort:
        from remuda.gateway.provisioning_port import ProvisioningPort

        return ProvisioningPort(self.gateway, self.informers)

    @property
    def scripts(self) -> Scripts:
        return self._scripts or self.provisioning_port.script

    @property
    def script_watches(self) -> tuple[Watch, ...]:
        """The watches of what install scripts contain, besides the machine."""
        return () if self._gateway is None else (_script_watch(self.informers),)

    @property
    def ca_checksum(self) -> Callable[[], str]:
        """Gives the checksum of the CA that hosts should trust; empty when there is none."""
        return str if self._gateway is None else self.provisioning_port.ca_checksum

    @cached_property
    def etcd_members(self) -> DistributionsMembers:
        from remuda.provisioning.etcd.members import DistributionsMembers

        return DistributionsMembers(self.workloads, self.clock)

    @cached_property
    def buckets(self) -> Open:
        """Connects to the buckets that tenants name for snapshots of etcd."""
        from remuda.provisioning.etcd.bucket_looks import opener

        return self._buckets or opener(self.clock, self.manager.rng, self.environment, self.gateway.outbound)

    @cached_property
    def release_fetch(self) -> Fetch:
        from remuda.provisioning.releases.release_data import fetcher

        return fetcher(self.clock, self.environment, self._administrators_outbound(self.environment))

    @property
    def jobs(self) -> Jobs:
        return _given(self._jobs, "Jobs")

    @cached_property
    def driver_sources(self) -> Sources:
        from remuda.machines.nodedrivers.flag_sources import Sources

        environment = self.jobs.ground.environment
        return Sources(self.clock, environment, self.jobs.drivers, policy=self._administrators_outbound(environment))

    def _administrators_outbound(self, environment: Mapping[str, str]) -> Current:
        """The policy in force now for connections to addresses that only administrators name."""
        from remuda.access.settings.settings import Settings
        from remuda.api.management_cattle_io import SETTINGS

        settings = self.informers.of(SETTINGS)
        return lambda: Settings(settings.objects(), environment).administrators_outbound()


_Part = TypeVar("_Part")


def _given(part: _Part | None, name: str) -> _Part:
    if part is None:
        raise TypeError(f"a controller needs the {name}, which this program does not have")
    return part


def _script_watch(informers: Informers) -> Watch:
    from remuda.api.management_cattle_io import SETTINGS
    from remuda.api.rke_cattle_io import RKE_BOOTSTRAPS
    from remuda.runtime import Watch, changed

    bootstraps = informers.of(RKE_BOOTSTRAPS)
    return Watch(SETTINGS, lambda _: list(bootstraps.keys()), changed("value", names=_IN_SCRIPTS))
