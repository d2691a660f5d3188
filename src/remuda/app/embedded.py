"""The embedded management server: the API and the controllers it needs, in one process. This is what `remuda serve` runs.

Besides the parts of every Kubernetes it has Cluster API's core (its definitions, its rules in-process, and its controllers, on
the same API); access: the gateway in front of the API on the same port (:mod:`remuda.gateway.gateway`) and the controllers for
users and clusters; and provisioning, which makes clusters of hosts and needs the gateway. On an existing Kubernetes
:mod:`remuda.app.attached` and :mod:`remuda.app.attached_gateway` run them.

If several servers share a store, only the one that holds a Lease runs controllers, behind a fence in the store, so that no late
write arrives from an earlier holder (:mod:`remuda.apiserver.replicas.leadership`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from remuda import api, kcm
from remuda.api import (
    addons_cluster_x_k8s_io,
    cert_manager_io,
    clusterctl_cluster_x_k8s_io,
    management_cattle_io,
    plan_cattle_io,
    provisioning_cattle_io,
    rke_cattle_io,
)
from remuda.api.cluster_x_k8s_io import GROUP, MACHINES
from remuda.api.crd_installation import InstallError, established, install, install_missing, migrate
from remuda.apiserver.admission.chain import install as install_admission
from remuda.apiserver.inprocess import InProcessClient, replica_of
from remuda.apiserver.replicas import leadership
from remuda.apiserver.replicas.leadership import Wrap
from remuda.apiserver.server import Config, Front, Server
from remuda.capi.contracts import Contracts
from remuda.capi.controller_context import ControllerOptions
from remuda.certmanager.well_known import is_served_by_us
from remuda.client.interface import Client
from remuda.kcm.serviceaccounts import RootCa
from remuda.kube.builtin_resources import CRDS
from remuda.kube.clock import Clock, deadline, yield_to_loop
from remuda.kube.errors import ApiError
from remuda.kube.objects import name_of
from remuda.runtime import Informers, LeaseTerm, Manager, Registry
from remuda.runtime.controller_table import ControllerChoice

from . import controllers as table
from .controllers import ACCESS, ADDONS, CAPI, CERT_MANAGER, KUBERNETES, PROVISIONING, Program, names
from .parts import LOCAL, Jobs, Parts

if TYPE_CHECKING:
    from remuda.apiserver.keys.ca_followers import Follower
    from remuda.gateway.server.serving_certificate import Files

    from .embedded_gateway import Embedded

log = logging.getLogger(__name__)

ACCESS_GROUPS = (management_cattle_io.GROUP, provisioning_cattle_io.GROUP)
PROVISIONING_GROUPS = (plan_cattle_io.GROUP, rke_cattle_io.GROUP)
_START_SECONDS = 30.0
# How often one looks whether there is a Cluster API, where it is not ours.
_LOOK_SECONDS = 3.0
# Answers of a server or a store that is temporarily unavailable.
_PASSING = (429, 500, 503, 504)
_AGAIN_SECONDS = 5.0


def chosen(text: str) -> ControllerChoice:
    """The controllers that `--controllers` selects. Raises UnknownController."""
    return table.chosen(Program.SERVE, text)


WITHOUT_CORE = chosen(f"-{CAPI},-{ACCESS}")


@asynccontextmanager
async def running(
    config: Config,
    *,
    controllers: bool = True,
    listen: bool = True,
    choice: ControllerChoice = WITHOUT_CORE,
    options: ControllerOptions = ControllerOptions(),  # noqa: B008 - a constant
    term: LeaseTerm = LeaseTerm(),  # noqa: B008 - a constant
    tls: Files | None = None,
    say: Callable[[str], None] = lambda text: None,
    on_gateway: Callable[[Embedded], None] = lambda gateway: None,
    job_runner: str = LOCAL,
) -> AsyncIterator[Server]:
    """A server that runs as long as the block; controllers stop before the server.

    On a shared store they run while this server leads; `term` is the duration of the lease without renewal.

    The rules of Cluster API's kinds (not their definitions) are there also without controllers, unless the choice leaves all of
    the core out: objects that were written under them must not be read without them. The same holds for access, whose gateway
    runs only with controllers. The block should wait in :meth:`Server.serve_forever`, which raises when the controllers die.

    `tls` replaces the certificate that the server's own CA signs. `say` takes lines only for the user who starts the server: they
    may hold a secret. `on_gateway` gets the gateway as soon as there is one. `job_runner` says where the Jobs that make machines
    run: in this process, or in the cluster, as pods.
    """
    async with AsyncExitStack() as stack:
        server = await Server.open(config)
        stack.push_async_callback(server.close)
        server.followers.append(lambda: _known_clients(server))
        if choice.of(names(CAPI)):
            await stack.enter_async_context(_admission(server))
        gateway = None
        if choice.of(names(ACCESS)):
            from . import embedded_gateway

            embedded_gateway.install_rules(server)
            if controllers:
                gateway = await stack.enter_async_context(embedded_gateway.beside(server, tls, say))
                on_gateway(gateway)
        if listen:
            await _listen(stack, server, gateway, tls)
        if gateway is not None:
            jobs = embedded_gateway.jobs_of(server, gateway, job_runner)
            powering = asyncio.create_task(table.power_on(jobs, choice.of(table.MACHINES)), name="hosts of this machine")
            stack.push_async_callback(_ended, powering)
        if controllers:
            alone = not server.store.shared
            starting = Starting()
            work = (
                run_controllers(server, choice, options, gateway=gateway, starting=starting, job_runner=job_runner)
                if alone
                else take_turns(server, choice, options, term, gateway, job_runner)
            )
            task = asyncio.create_task(work, name="the controllers")
            server.vital.append(task)
            stack.push_async_callback(_ended, task)
            if alone and listen:
                await starting.over(task, config.clock)
        yield server


class Starting:
    """The preconditions for a server to be called ready: the definitions of its controllers' kinds, and the objects that the
    controllers create at first (settings, built-in roles, namespaces, the first user).

    A client that connects earlier is served all the same; but one that waits until the server is ready should find them.
    """

    def __init__(self) -> None:
        self._missing: set[str] = set()
        self._changed = asyncio.Event()

    def expect(self, part: str) -> None:
        self._missing.add(part)

    def done(self, part: str) -> None:
        self._missing.discard(part)
        self._changed.set()

    async def over(self, work: asyncio.Task[None], clock: Clock) -> None:
        """Wait until all is there, the work has ended, or the deadline is over; failures are reported elsewhere."""
        waiting = asyncio.create_task(self._all())
        try:
            async with deadline(clock, _START_SECONDS):
                await asyncio.wait([waiting, work], return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            log.warning("the controllers take long to start")
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    async def _all(self) -> None:
        # The controllers declare their preconditions when they begin.
        await yield_to_loop()
        while self._missing:
            self._changed.clear()
            await self._changed.wait()


async def _listen(stack: AsyncExitStack, server: Server, embedded: Embedded | None, tls: Files | None) -> None:
    if embedded is not None:
        await server.listen(embedded.front)
        embedded.listens_at(server.config.host, server.url)
        return
    if tls is None:
        await server.listen()
        return
    from .embedded_gateway import given_certificate, trust_of

    certificate = given_certificate(server, tls)
    following = asyncio.create_task(certificate.follow(), name="the certificate")
    stack.push_async_callback(_ended, following)
    await server.listen(Front(server.handler, certificate.context, trust=trust_of(certificate, "127.0.0.1")))


async def _known_clients(server: Server) -> list[Follower]:
    """Hosts and cluster agents, also of a server without a gateway: other servers on its store may have one."""
    from remuda.gateway.agents.ca_trust_report import KnownClients

    client = InProcessClient(server, manager="remuda")
    return await KnownClients(client, server.certificate_is_given, os.environ).all()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    # `serve_forever` has reported its failure if it ended by itself.
    await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def _admission(server: Server) -> AsyncIterator[None]:
    """The rules of the core's kinds, before the first request; conversion knows the kinds of providers by their definitions."""
    from remuda.capi.admission import admitted
    from remuda.capi.admission.resource_sets import admitted_resource_sets
    from remuda.capi.conversion import converter

    config = server.config
    informers = Informers(InProcessClient(server, manager="remuda"), config.clock, config.rng)
    contracts = Contracts(informers)
    following = asyncio.create_task(informers.run(), name="definitions")
    try:
        await contracts.crds.synced.wait()
        install_admission((*admitted(converter(contracts)), *admitted_resource_sets()), server.hooks, server.converters)
        yield
    finally:
        await _ended(following)


def _as_it_is(client: Client) -> Client:
    return client


async def run_controllers(
    server: Server,
    choice: ControllerChoice = WITHOUT_CORE,
    options: ControllerOptions = ControllerOptions(),  # noqa: B008 - a constant
    wrap: Wrap = _as_it_is,
    gateway: Embedded | None = None,
    starting: Starting | None = None,
    job_runner: str = LOCAL,
) -> None:
    """The work of kube-controller-manager for this server's API, of Cluster API's core, access, and provisioning. All their
    writes pass `wrap`."""
    jobs = _jobs(server, gateway, job_runner)
    client = wrap(InProcessClient(server, manager="remuda"))
    ours = _Ours(server, choice, options, client, gateway, jobs, starting or Starting())
    config = server.config
    kubernetes = wrap(InProcessClient(server, manager=kcm.MANAGER))
    root_ca = RootCa(server.trusted.decode())

    def trusted() -> None:
        root_ca.use(server.trusted.decode())

    registry = Registry()
    server.metrics.others.append(registry.text)
    server.on_trust.append(trusted)
    try:
        kcm_parts = kcm.Parts(kubernetes, config.clock, config.rng, root_ca=root_ca, tokens=server.issuer, registry=registry)
        optional = names(KUBERNETES, required=False)
        wanted = [name for name in names(KUBERNETES) if name not in optional or name in choice]
        async with asyncio.TaskGroup() as group:
            group.create_task(kcm.run_all(kcm.controllers(kcm_parts, wanted)), name=kcm.MANAGER)
            if ours.parts:
                group.create_task(ours.run(registry), name="remuda")
    finally:
        server.on_trust.remove(trusted)
        server.metrics.others.remove(registry.text)


def _jobs(server: Server, embedded: Embedded | None, job_runner: str) -> Jobs | None:
    if embedded is None:
        return None
    from .embedded_gateway import jobs_of

    return jobs_of(server, embedded, job_runner)


class _Ours:
    """The controllers that Kubernetes does not have, on one manager: they share informers."""

    def __init__(
        self,
        server: Server,
        choice: ControllerChoice,
        options: ControllerOptions,
        client: Client,
        embedded: Embedded | None,
        jobs: Jobs | None,
        starting: Starting,
    ) -> None:
        self._config = server.config
        self._options = options
        self._client = client
        self._gateway = embedded.gateway if embedded is not None else None
        self._jobs = jobs
        self._starting = starting
        self._core = choice.of(names(CAPI))
        self._access = choice.of(names(ACCESS)) if embedded is not None else ()
        # Registration of hosts needs a gateway.
        self._provisioning = choice.of(names(PROVISIONING)) if embedded is not None else ()
        self._inventory = table.inventory(choice, core=bool(self._core), providers=bool(self._core and self._provisioning))
        self._addons = choice.of(names(ADDONS)) if self._core else ()
        self._certificates = choice.of(names(CERT_MANAGER)) if self._core or embedded is not None else ()
        self.parts = [part for part, there in ((CAPI, bool(self._core)), (ACCESS, embedded is not None)) if there]
        for part in self.parts:
            starting.expect(part)

    async def run(self, registry: Registry) -> None:
        await asyncio.gather(*(self._insist(self._install_core if part == CAPI else self._install_access) for part in self.parts))
        await self._insist(self._install_cert_manager)
        manager = Manager(self._client, self._config.clock, self._config.rng, registry=registry)
        parts = self._parts(manager, machines=bool(self._core) or self._gateway is None or await self._has_machines())
        others = (*self._addons, *self._inventory, *self._certificates)
        table.add(parts, (*self._core, *others, *self._access, *(self._provisioning if self._core else ())))
        if self._gateway is not None:
            table.tell_waits(parts)
        async with asyncio.TaskGroup() as group:
            group.create_task(manager.run(), name="controllers")
            if self._gateway is not None:
                group.create_task(self._furnish(parts), name="the first start")
            if not self._core and self._provisioning:
                group.create_task(self._provision_with_another_core(registry), name=PROVISIONING)

    def _parts(self, manager: Manager, *, machines: bool = True) -> Parts:
        connector = None
        if self._gateway is None:
            from remuda.access.settings.settings import Settings
            from remuda.capi.clustercache import HttpsConnector

            # There are no settings without access; the environment says the same.
            connector = HttpsConnector(self._config.clock, policy=Settings(environment=os.environ).outbound)
        return Parts(
            manager,
            self._gateway,
            connector=connector,
            options=self._options,
            jobs=self._jobs,
            machines=machines,
            provisions=bool(self._provisioning),
            entropy=self._config.entropy,
        )

    async def _furnish(self, parts: Parts) -> None:
        from .embedded_gateway import furnished

        await furnished(parts, self._access)
        self._starting.done(ACCESS)

    async def _provision_with_another_core(self, registry: Registry) -> None:
        """Wait for another Cluster API, which may be installed at any time, or never."""
        while not await self._has_machines():
            await self._config.clock.sleep(_LOOK_SECONDS)
        manager = Manager(self._client, self._config.clock, self._config.rng, registry=registry)
        parts = self._parts(manager)
        table.add(parts, self._provisioning)
        table.tell_waits(parts)
        await manager.run()

    async def _has_machines(self) -> bool:
        try:
            return bool((await self._client.list(MACHINES, limit=1)).get("kind"))
        except ApiError as error:
            # Not served, or not yet: its storage or conversion is not ready.
            if error.code == 404 or error.code in _PASSING:
                return False
            raise

    async def _insist(self, install: Callable[[], Awaitable[None]]) -> None:
        """A store that can't take writes (a full disk, no quorum) will again: the API that is served meanwhile must not end."""
        while True:
            try:
                return await install()
            except (ApiError, TimeoutError) as error:
                if isinstance(error, ApiError) and error.code not in _PASSING:
                    raise
                log.warning("the definitions can't be installed: %s; again in %.0fs", error, _AGAIN_SECONDS)
            await self._config.clock.sleep(_AGAIN_SECONDS)

    async def _install_core(self) -> None:
        client, clock = self._client, self._config.clock
        names = list(await install(client, clock, api.crds([GROUP, addons_cluster_x_k8s_io.GROUP]), in_process=True))
        await install_missing(client, api.placeholders(GROUP))
        await install_missing(client, api.crds([clusterctl_cluster_x_k8s_io.GROUP]))
        await established(client, clock, names)
        for name in names:
            await migrate(client, clock, name, in_process=True)
        self._starting.done(CAPI)

    async def _install_cert_manager(self) -> None:
        """Where cert-manager's own definitions are, it works itself."""
        if not self._certificates:
            return
        definitions = api.crds([cert_manager_io.GROUP])
        await install_missing(self._client, definitions)
        if not all([is_served_by_us(await self._client.get(CRDS, name_of(each))) for each in definitions]):
            self._certificates = ()
            return
        await established(self._client, self._config.clock, map(name_of, definitions))

    async def _install_access(self) -> None:
        groups = (*ACCESS_GROUPS, *(PROVISIONING_GROUPS if self._provisioning else ()))
        made = await install(self._client, self._config.clock, api.crds(groups), in_process=True)
        await established(self._client, self._config.clock, made)
        if self._provisioning and not self._core:
            from .manifests import ensure_manager_role

            await ensure_manager_role(self._client)


# --- one of several ---------------------------------------------------------------------------------------------------------


async def take_turns(
    server: Server,
    choice: ControllerChoice,
    options: ControllerOptions,
    term: LeaseTerm,
    gateway: Embedded | None = None,
    job_runner: str = LOCAL,
) -> None:
    """Run the controllers whenever this server leads; give the Lease back when cancelled."""

    async def run(wrap: Wrap) -> None:
        await run_controllers(server, choice, options, wrap, gateway, job_runner=job_runner)

    await leadership.run_as_leader(replica_of(server), run, term, passing=(InstallError,))
