"""The embedded management server: the API and the controllers it needs, in one process. This is what `remuda serve` runs.

Besides what every Kubernetes has, that is Cluster API's core (its definitions, its rules in-process, and its controllers, on the
same API) and access: the gateway's door before the API on the same port (:mod:`remuda.gateway.assembly`) and the controllers of
who and what there is to be reached. On somebody else's Kubernetes they run by :mod:`remuda.attached`.

Where several servers share a store, the controllers of one of them work at a time: of the one that holds a Lease, and behind a
fence in the store, so that nothing arrives late from one that held it before (:mod:`remuda.apiserver.fencing`).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from remuda import api, kcm
from remuda.api import management_cattle_io, provisioning_cattle_io
from remuda.api.cluster_x_k8s_io import GROUP
from remuda.api.installation import InstallError, established, install, install_missing, migrate
from remuda.apiserver import fencing
from remuda.apiserver.fencing import Fence
from remuda.apiserver.server import Config, Front, Server
from remuda.apiserver.store import StoreError
from remuda.capi import CAPI, CONTROLLERS
from remuda.capi.contracts import Contracts
from remuda.capi.core import Options
from remuda.client.api import Client
from remuda.client.inprocess import InProcessClient
from remuda.kube.clock import Clock, deadline, yield_to_loop
from remuda.kube.errors import ApiError
from remuda.kube.objects import dig
from remuda.management import ACCESS
from remuda.management import CONTROLLERS as ACCESS_CONTROLLERS
from remuda.runtime import Elector, Informers, Manager, NotLeading, Registry, Term
from remuda.runtime.admission import install as install_admission
from remuda.runtime.choice import Choice, choose
from remuda.runtime.guard import GuardedClient
from remuda.runtime.leader import LEASES, lead

if TYPE_CHECKING:
    from remuda.capi.workloads import Connector
    from remuda.gateway.certificates import Files
    from remuda.gateway.embedding import Embedded

log = logging.getLogger(__name__)

ACCESS_GROUPS = (management_cattle_io.GROUP, provisioning_cattle_io.GROUP)
# What may be left out of what kube-controller-manager does; the rest is what makes the API work at all.
KUBERNETES = (
    "clusterrole-aggregation-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
)
GROUPS = {CAPI: CONTROLLERS, ACCESS: ACCESS_CONTROLLERS}
LEASE_NAMESPACE, LEASE = "kube-system", "remuda-controllers"
_START_SECONDS = 30.0
WITHOUT_CORE = choose(f"-{CAPI},-{ACCESS}", groups=GROUPS)


def chosen(text: str) -> Choice:
    """What `--controllers` says. Raises UnknownController."""
    return choose(text, KUBERNETES, GROUPS)


@asynccontextmanager
async def running(
    config: Config,
    *,
    controllers: bool = True,
    listen: bool = True,
    choice: Choice = WITHOUT_CORE,
    options: Options = Options(),  # noqa: B008 - a constant
    term: Term = Term(),  # noqa: B008 - a constant
    tls: Files | None = None,
    say: Callable[[str], None] = lambda text: None,
    on_gateway: Callable[[Embedded], None] = lambda gateway: None,
) -> AsyncIterator[Server]:
    """A server that is up for as long as the block runs; controllers stop before it does.

    On a store that others share, too, they work while this server leads; `term` says how long that lasts without being renewed.

    The rules of Cluster API's kinds (not their definitions) are there also without controllers, unless the choice leaves all of
    the core out: objects that were written under them must not be read without. The same holds for access, whose door is there
    only with controllers. The block should wait in :meth:`Server.serve_forever`, which raises when the controllers die.

    `tls` is another certificate than the one that the server's own CA signs. `say` tells whoever watches it start, and nobody
    else: it may be a secret. `on_gateway` is handed the gateway as soon as there is one.
    """
    async with AsyncExitStack() as stack:
        server = await Server.open(config)
        stack.push_async_callback(server.close)
        if choice.of(CONTROLLERS):
            await stack.enter_async_context(_admission(server))
        gateway = None
        if choice.of(ACCESS_CONTROLLERS):
            from remuda.gateway import embedding

            embedding.install_rules(server)
            if controllers:
                gateway = await stack.enter_async_context(embedding.beside(server, tls, say))
                on_gateway(gateway)
        if listen:
            await _listen(stack, server, gateway, tls)
        if controllers:
            alone = not server.store.shared
            starting = Starting()
            work = (
                run_controllers(server, choice, options, gateway=gateway, starting=starting)
                if alone
                else take_turns(server, choice, options, term, gateway)
            )
            task = asyncio.create_task(work, name="the controllers")
            server.vital.append(task)
            stack.push_async_callback(_ended, task)
            if alone and listen:
                await starting.over(task, config.clock)
        yield server


class Starting:
    """What has to be there before a server is called ready: the definitions of the kinds that its controllers are about, and
    what they make of them before anybody asks (settings, built-in roles, namespaces, the first user).

    A client that comes earlier is served all the same; but whoever waits for the server to say that it is ready should find them.
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
        """Until all is there, or the work has ended, or it takes too long; whatever is wrong is told by others."""
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
        # What there is to wait for is said when the controllers begin.
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
    from remuda.gateway.embedding import given_certificate, trust_of

    certificate = given_certificate(server, tls)
    following = asyncio.create_task(certificate.follow(), name="the certificate")
    stack.push_async_callback(_ended, following)
    await server.listen(Front(server.handler, certificate.context, trust=trust_of(certificate, "127.0.0.1")))


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    # What it ended with, if it did so by itself, `serve_forever` has told.
    await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def _admission(server: Server) -> AsyncIterator[None]:
    """The rules of the core's kinds, before anybody can ask; conversion knows the kinds of providers by their definitions."""
    from remuda.capi.assembly import admitted_types

    config = server.config
    informers = Informers(InProcessClient(server, manager="remuda"), config.clock, config.rng)
    contracts = Contracts(informers)
    following = asyncio.create_task(informers.run(), name="definitions")
    try:
        await contracts.crds.synced.wait()
        install_admission(admitted_types(contracts), server.hooks, server.converters)
        yield
    finally:
        await _ended(following)


Wrap = Callable[[Client], Client]


def _as_it_is(client: Client) -> Client:
    return client


async def run_controllers(
    server: Server,
    choice: Choice = WITHOUT_CORE,
    options: Options = Options(),  # noqa: B008 - a constant
    wrap: Wrap = _as_it_is,
    gateway: Embedded | None = None,
    starting: Starting | None = None,
) -> None:
    """What kube-controller-manager does for this server's API, Cluster API's core, and access. All they write passes `wrap`."""
    starting = starting or Starting()
    for part, wanted_at_all in ((CAPI, bool(choice.of(CONTROLLERS))), (ACCESS, gateway is not None)):
        if wanted_at_all:
            starting.expect(part)
    config = server.config
    client = wrap(InProcessClient(server, manager=kcm.MANAGER))
    root_ca = "" if server.pki is None else server.pki.ca_pem.decode()
    registry = Registry()
    server.metrics.others.append(registry.text)
    try:
        found = kcm.controllers(client, config.clock, config.rng, root_ca=root_ca, tokens=server.issuer, registry=registry)
        async with asyncio.TaskGroup() as group:
            wanted = [each for each in found if each.name not in KUBERNETES or each.name in choice]
            group.create_task(kcm.run_all(wanted), name=kcm.MANAGER)
            if choice.of(CONTROLLERS):
                group.create_task(_run_core(server, choice, options, registry, wrap, gateway, starting), name=CAPI)
            if gateway is not None:
                group.create_task(_run_access(server, choice, registry, wrap, gateway, starting), name=ACCESS)
    finally:
        server.metrics.others.remove(registry.text)


async def _run_core(
    server: Server,
    choice: Choice,
    options: Options,
    registry: Registry,
    wrap: Wrap,
    embedded: Embedded | None,
    starting: Starting,
) -> None:
    from remuda.capi.assembly import CoreControllers
    from remuda.capi.clustercache import HttpsConnector

    clock, rng = server.config.clock, server.config.rng
    client = wrap(InProcessClient(server, manager="remuda"))
    names = list(await install(client, clock, api.crds([GROUP]), in_process=True))
    await install_missing(client, api.placeholders(GROUP))
    await established(client, clock, names)
    for name in names:
        await migrate(client, clock, name, in_process=True)
    starting.done(CAPI)
    manager = Manager(client, clock, rng, registry=registry)
    connector: Connector = HttpsConnector(clock)
    if embedded is not None:
        connector = embedded.gateway.connector(connector)
    CoreControllers(manager, connector, options, choice.of(CONTROLLERS))
    await manager.run()


async def _run_access(
    server: Server, choice: Choice, registry: Registry, wrap: Wrap, embedded: Embedded, starting: Starting
) -> None:
    from remuda.gateway.assembly import AccessControllers

    clock, rng = server.config.clock, server.config.rng
    client = wrap(InProcessClient(server, manager="remuda"))
    await established(client, clock, await install(client, clock, api.crds(ACCESS_GROUPS), in_process=True))
    manager = Manager(client, clock, rng, registry=registry)
    access = AccessControllers(manager, embedded.gateway, choice.of(ACCESS_CONTROLLERS), machines=bool(choice.of(CONTROLLERS)))

    async def begin() -> None:
        await access.furnished()
        starting.done(ACCESS)

    async with asyncio.TaskGroup() as group:
        group.create_task(begin(), name="the first start")
        await manager.run()


# --- one of several ---------------------------------------------------------------------------------------------------------


async def take_turns(server: Server, choice: Choice, options: Options, term: Term, gateway: Embedded | None = None) -> None:
    """Run the controllers whenever this server leads; give the Lease back when cancelled."""
    config = server.config
    client = InProcessClient(server, manager="remuda")
    registry = Registry()
    elector = Elector(
        client,
        config.clock,
        config.rng,
        namespace=LEASE_NAMESPACE,
        name=LEASE,
        # Unlike any other's, also of an earlier life of the same machine.
        identity=f"{socket.gethostname()}_{config.entropy.uuid()}",
        term=term,
        registry=registry,
    )

    async def prepare() -> Fence:
        try:
            async with deadline(config.clock, term.renew_deadline):
                return await _fenced(server, elector)
        except (ApiError, StoreError, TimeoutError) as error:
            log.warning("leadership could not begin: %s", error)
            raise NotLeading(LEASE) from error

    async def work(fence: Fence) -> None:
        def wrap(inner: Client) -> Client:
            return GuardedClient(inner, elector, fence.standing)

        await _until_broken(fence, run_controllers(server, choice, options, wrap, gateway))

    server.metrics.others.append(registry.text)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_follow_lease(server, client, elector), name="lease informer")
            await lead(elector, prepare, work, config.clock)
    finally:
        server.metrics.others.remove(registry.text)


async def _follow_lease(server: Server, client: Client, elector: Elector) -> None:
    """A Lease that is given back need not be waited for."""
    informers = Informers(client, server.config.clock, server.config.rng)
    lease = informers.of(LEASES, LEASE_NAMESPACE, fields=f"metadata.name={LEASE}")

    def changed(new: dict[str, Any] | None, old: dict[str, Any] | None) -> None:
        if new is None or not dig(new, "spec", "holderIdentity"):
            elector.nudge()

    lease.on_change(changed)
    await informers.run()


async def _fenced(server: Server, elector: Elector) -> Fence:
    leases = server.registry.resource(LEASES.group, LEASES.resource)
    assert leases is not None
    key = leases.key(LEASE_NAMESPACE, LEASE)
    fence = await fencing.put_up(server.store, LEASE, elector.identity, key, elector.revision)
    # What the last leader wrote, it wrote before the fence; nothing is decided without having seen it.
    await server.cache.consistent()
    return fence


async def _until_broken(fence: Fence, work: Coroutine[Any, Any, None]) -> None:
    """Raises NotLeading when the store refuses what the leader writes, and when what failed may go better next time."""
    working = asyncio.create_task(work, name="the leader's controllers")
    broken = asyncio.create_task(fence.broken.wait())
    try:
        await asyncio.wait([working, broken], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise NotLeading(LEASE)
        error = working.exception()
        if error is None:
            return
        if not all(isinstance(each, ApiError | InstallError | OSError) for each in _innermost(error)):
            raise error
        log.warning("the controllers ended and begin anew: %s", "; ".join(str(each) for each in _innermost(error)))
        raise NotLeading(LEASE) from error
    finally:
        for task in (working, broken):
            task.cancel()
        await asyncio.gather(working, broken, return_exceptions=True)


def _innermost(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in _innermost(each)]
