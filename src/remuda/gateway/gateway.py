"""The complete gateway: the request handler with its routes, their caches, the tunnels.

Every server has a :class:`Gateway`. It is made before anything listens and runs as long as the server does. The controllers that
go with it are in :mod:`remuda.app.controllers`; one server at a time runs them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from remuda.access.roles.holdings import Holdings
from remuda.access.users.first_user import FirstUser
from remuda.access.users.passwords import STRONG, Hashing, ScryptCost
from remuda.apiserver.auth.authenticator import Authenticator
from remuda.apiserver.http.connection_limits import DEFAULT_MAX_CONNECTIONS, ConnectionLimits, MaxConnections
from remuda.capi.workload_clusters import Connector
from remuda.client.interface import Client
from remuda.kube.clock import Clock, Entropy, Rng
from remuda.kube.network.outbound import Policy
from remuda.provisioning.etcd.uploaded_files import UploadedFiles
from remuda.provisioning.nodes.host_registration import HostRegistrations
from remuda.runtime import Informers, Pauses, Registry
from remuda.tunnel import TunnelServer

from .agents.tunnels import TunnelAgents, Tunnels
from .auth.authenticator import Callers, TokenAuthenticator
from .auth.kubeconfigs import ACTION, CLUSTER_TYPE, Kubeconfigs
from .auth.login import Login
from .auth.login_providers import LocalProvider, Providers
from .auth.tokens import Sessions, TokenApi
from .auth.users_api import UserApi
from .explain.explanations import Explanations
from .handler import Auditing, GatewayHandler, Unaudited
from .peers.peering import HEALTH_PATH, Peering, PeerSetup
from .proxy.cluster_connector import DownstreamConnector
from .proxy.cluster_proxy import Proxy
from .proxy.impersonation import Impersonation
from .proxy.machine_access import MACHINE_TYPE, MachineAccessApi
from .proxy.tunnel_downstreams import TunnelDownstreams
from .rancher.kubeconfig_objects import KubeconfigObjects
from .rancher.norman.routes import Norman
from .rancher.releases import ReleaseApi
from .rancher.requests import Facade
from .rancher.steve import Steve
from .registration.agent_downloads import AgentFiles
from .registration.clusterctl_repository import ClusterctlRepository
from .registration.departed_tokens import DepartedTokens
from .registration.import_manifest import Importing
from .registration.node_progress import NodeProgress
from .registration.node_registration import Joining, WrongTokens
from .registration.public_endpoints import Facts
from .registration.registration_tokens import RegistrationApi, Registrations
from .registration.snapshot_uploads import SnapshotUploads
from .server.audit_log import AuditLog
from .server.dashboard import Dashboard
from .server.dependencies import Access, Acting, Authority, Live, Services
from .server.image_registry import ImageRegistry
from .server.rate_limit import LoginThrottle
from .server.remuda_api import Snapshots, Versions, Waits
from .server.routing import Access as RouteAccess
from .server.routing import Backend

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 5.0
# The kinds may be defined a moment after the caches are requested.
_PAUSES = Pauses(first=0.05, longest=5.0)


@dataclass(frozen=True, slots=True)
class GatewayDependencies:
    """The dependencies of a gateway. `client` acts as the gateway itself; with `data_dir` None nothing is stored: no audit log.

    `names` returns the names of the certificate that is served now; `former` is what `authority` has replaced.
    `certificates` authenticates client certificates. `acting` gives clients that act for users; without it there is no façade.
    `healthz`: the gateway itself answers that path. `peers`: where other servers of the same state may be.
    """

    client: Client
    clock: Clock
    rng: Rng
    entropy: Entropy
    access: Access
    authority: Authority
    environment: Mapping[str, str]
    acting: Acting | None = None
    holdings: Holdings | None = None
    data_dir: Path | None = None
    names: Callable[[], Iterable[str]] = tuple
    former: Callable[[], Sequence[str]] = tuple
    certificates: Authenticator | None = None
    healthz: bool = False
    peers: PeerSetup | None = None
    room: MaxConnections = DEFAULT_MAX_CONNECTIONS
    say: Callable[[str], None] = lambda text: None


async def _nobody(request: web.Request) -> str | None:
    """Refuses every caller: :mod:`.agents.tunnels` authorizes tunnels, not the tunnel server itself."""
    return None


class Gateway:
    def __init__(self, ground: GatewayDependencies) -> None:
        self.ground = ground
        clock, rng = ground.clock, ground.rng
        self.registry = Registry()
        informers = Informers(ground.client, clock, rng, registry=self.registry, pauses=_PAUSES)
        live = Live(informers, ground.environment)
        self.services = Services(
            client=ground.client,
            informers=informers,
            clock=clock,
            rng=rng,
            entropy=ground.entropy,
            access=ground.access,
            authority=ground.authority,
            tunnels=TunnelServer(_nobody, clock, rng),
            environment=ground.environment,
            acting=ground.acting,
            holdings=ground.holdings,
            settings=live.settings,
            features=live.features,
            data_dir=ground.data_dir,
            former=ground.former,
            say=ground.say,
        )
        self.lines = ConnectionLimits(clock, room=ground.room)
        self.audit = AuditLog(ground.data_dir / "audit" / "audit.log", clock) if ground.data_dir is not None else None
        self.callers = Callers(self.services, ground.certificates)
        self.authenticator = TokenAuthenticator(self.callers)
        self._add_parts()

    def _add_parts(self) -> None:
        services = self.services
        self.registrations = Registrations(services)
        departed = DepartedTokens(services, self.registrations)
        Facts(services, self.registrations, healthz=self.ground.healthz)
        self.identity = Identity(services)
        Importing(services, self.registrations)
        RegistrationApi(services, self.registrations)
        ImageRegistry(services)
        AgentFiles(services)
        Dashboard(services)
        ClusterctlRepository(services)
        hosts = HostRegistrations(services.client, services.informers, services.clock, services.environment)
        wrong = WrongTokens(services.clock)
        Joining(services, self.registrations, hosts, wrong)
        self.progress = NodeProgress(services, hosts, wrong, departed)
        self.uploads = SnapshotUploads(services, hosts, wrong, self._uploaded_files())
        machines = MachineAccessApi(services)
        self.waits = Waits(services)
        Explanations(services, self.waits, self.progress)
        Snapshots(services)
        Versions(services)
        self.tunnels = Tunnels(services, self.registrations, departed)
        self.peering = Peering(services, self.ground.peers, self.registry) if self.ground.peers is not None else None
        self.tunnels.peering = self.peering
        if self.peering is not None and self.ground.healthz:
            services.routes.add("GET", HEALTH_PATH, self.peering.show, RouteAccess.USER, largest=0, quiet=True)
        self.agents = TunnelAgents(services)
        self.downstreams = TunnelDownstreams(services)
        self.impersonation = Impersonation(services, self.downstreams)
        # Before Steve, whose paths are for all types.
        KubeconfigObjects(services, self.identity.kubeconfigs)
        # Before the proxy: its paths begin like those of clusters.
        facade = Facade(services)
        self.steve = Steve(facade)
        self.steve.more_links[MACHINE_TYPE] = machines.links
        machines.otherwise = lambda asked: self.steve.one(asked, MACHINE_TYPE)
        self.norman = Norman(facade)
        ReleaseApi(services)
        self.steve.actions[CLUSTER_TYPE, ACTION] = self.identity.kubeconfigs.for_one
        self.identity.kubeconfigs.otherwise = self.norman.create_cluster
        self.proxy = Proxy(services, self.downstreams, self.impersonation)

    def _uploaded_files(self) -> UploadedFiles | None:
        """None without a disk, and where hosts may ask another server than the one that has the files."""
        ground = self.ground
        if ground.data_dir is None or ground.peers is not None:
            return None
        return UploadedFiles(ground.data_dir / "snapshots", ground.clock)

    def outbound(self) -> Policy:
        """The current policy for connections to addresses that tenants name."""
        return self.services.settings().outbound()

    def connector(self, otherwise: Connector) -> Connector:
        """The connector by which Cluster API's controllers reach clusters behind tunnels."""
        return DownstreamConnector(self.services, self.downstreams, self.impersonation, self.callers.of_token, otherwise)

    def handler(self, behind: Backend) -> GatewayHandler:
        """The listener's handler; :attr:`lines` watches its connections."""
        self.proxy.behind = behind
        auditing: Auditing = self.audit if self.audit is not None else Unaudited()
        return GatewayHandler(self.services, self.callers, behind, auditing, self.lines, self.ground.names)

    async def run(self) -> None:
        """Run until cancelled. Tunnels are cut and the audit log is closed at the end."""
        beside = [self.lines.watch]
        if self.audit is not None:
            beside.append(self.audit.keep_forced)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.services.informers.run(), name="the gateway's caches")
                for run in beside:
                    group.create_task(self._kept(run))
                # The rest needs kinds that may not be served yet.
                await self.callers.ready()
                for run in self.services.beside:
                    group.create_task(self._kept(run))
        finally:
            self.services.tunnels.close()
            if self.audit is not None:
                self.audit.close()

    async def _kept(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Restart a part that fails, so that its failure does not stop the others."""
        while True:
            try:
                await run()
                return
            except Exception:
                log.exception("a part of the gateway failed; it starts again in %.0fs", _AGAIN_SECONDS)
                await self.ground.clock.sleep(_AGAIN_SECONDS)


# --- identity -------------------------------------------------------------------------------------------------------------
#
# Users, logins and tokens of the gateway, put together: one call for the code that assembles a gateway.
#
# Every server also makes the first user (:mod:`remuda.access.users.first_user`): it is made only once, however many servers
# there are.


class Identity:
    """`cost` is that of a password's hash."""

    def __init__(self, services: Services, cost: ScryptCost = STRONG) -> None:
        hashing = Hashing(services.entropy, cost)
        self.first = FirstUser(
            services.client,
            services.clock,
            services.entropy,
            services.environment,
            hashing.hashed,
            services.say,
            services.data_dir,
        )
        self.sessions = Sessions(services)
        self.local = LocalProvider(services, hashing, LoginThrottle(services.clock))
        self.providers = Providers(self.local)
        self.login = Login(services, self.sessions, self.providers)
        self.tokens = TokenApi(services, self.sessions)
        self.users = UserApi(services, self.sessions, self.local, hashing, self.first)
        self.kubeconfigs = Kubeconfigs(services, self.tokens, self.sessions)
        services.beside.append(self.first.run)
