"""Our controllers on an existing Kubernetes, run by `remuda controllers`.

Webhooks start first, which default, check and convert, then the definitions are installed, then the controllers run, on one
replica at a time. Every replica serves webhooks as long as it runs. All replicas register them if the API server reaches them
through a Service, and only the leader if by URL, since then each has an address of its own. The leader rewrites objects in older
stored versions, once the webhooks that convert them answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiohttp import web

from remuda import api
from remuda.api import addons_cluster_x_k8s_io, clusterctl_cluster_x_k8s_io
from remuda.api.cluster_x_k8s_io import GROUP
from remuda.api.crd_installation import InstallError, NotConverted, Outcome, established, install, install_missing, migrate
from remuda.capi.admission import admitted
from remuda.capi.admission.resource_sets import admitted_resource_sets
from remuda.capi.clustercache import HttpsConnector
from remuda.capi.contracts import Contracts
from remuda.capi.controller_context import ControllerOptions
from remuda.capi.conversion import converter
from remuda.client.interface import Client
from remuda.kube.builtin_resources import CRDS, NAMESPACES
from remuda.kube.clock import Clock, Entropy, Rng
from remuda.kube.errors import ApiError
from remuda.kube.network.outbound import Policy
from remuda.kube.network.unreadable import Runner
from remuda.kube.objects import dig, name_of
from remuda.runtime import Elector, Informers, LeaseTerm, Manager, Registry
from remuda.runtime.admitted_types import AdmittedType
from remuda.runtime.controller_table import ControllerChoice
from remuda.runtime.webhook_certificates import SharedCertificates
from remuda.runtime.webhook_server import Registration, WebhookAddress, WebhookServer, conversion_of

from . import controllers as table
from .controllers import ADDONS, CAPI, Program
from .parts import Parts

log = logging.getLogger(__name__)

LEASE = "remuda-controllers"
CERTIFICATES = "remuda-webhook-certificates"
REGISTRATION = "remuda-controllers"

_AGAIN_SECONDS, _SOON_SECONDS = 60.0, 2.0


def chosen(text: str) -> ControllerChoice:
    """The controllers that `--controllers` selects. Raises UnknownController."""
    return table.chosen(Program.CONTROLLERS, text)


@dataclass(frozen=True, slots=True)
class Socket:
    """The address to listen on; an empty host is every address of the machine."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host or '*'}:{self.port}"


@dataclass(frozen=True, slots=True)
class Settings:
    """`namespace` is where the Lease and the certificates are. `term` None: no election, this is the only replica.

    `address` is how the API server reaches the webhooks that listen at `webhooks`; certificates and registration are looked at
    every `look` seconds. `outbound` says at which addresses workload clusters may be.
    """

    address: WebhookAddress
    webhooks: Socket
    choice: ControllerChoice = field(default_factory=lambda: chosen("*"))
    options: ControllerOptions = ControllerOptions()  # noqa: RUF009 - a constant
    namespace: str = "remuda-system"
    term: LeaseTerm | None = LeaseTerm()  # noqa: RUF009 - a constant
    metrics: Socket | None = None
    health: Socket | None = None
    look: float = 60.0
    outbound: Policy = field(default_factory=Policy.of)


class _Webhooks(NamedTuple):
    certificates: SharedCertificates
    registration: Registration


class CantListen(Exception):
    """An address that is asked for can't be had."""


class Attached:
    """One replica. :meth:`run` runs it until it is stopped. The class' attributes and `_rules` and `_begin` define its content,
    Cluster API's core; a gateway is another such replica.
    """

    groups: tuple[str, ...] = (GROUP, addons_cluster_x_k8s_io.GROUP)
    placeholders: tuple[str, ...] = (GROUP,)
    # Those of other programs, which are installed only where they are missing.
    foreign: tuple[str, ...] = (clusterctl_cluster_x_k8s_io.GROUP,)
    lease, certificates, registration = LEASE, CERTIFICATES, REGISTRATION

    def __init__(self, client: Client, settings: Settings, clock: Clock, rng: Rng, entropy: Entropy) -> None:
        self.settings = settings
        self._client = client
        self._clock = clock
        self._rng = rng
        self._entropy = entropy
        self._registry = Registry()
        self._elector = self._made_elector()
        self._manager = Manager(client, clock, rng, registry=self._registry, elector=self._elector)
        self._serving = False

    @property
    def leading(self) -> bool:
        return self._elector is None or self._elector.leading

    @property
    def ready(self) -> bool:
        """Its webhooks answer and its caches are filled; it need not lead."""
        return self._serving and all(informer.synced.is_set() for informer in self._manager.informers)

    async def run(self, stop: asyncio.Event, told: Callable[[str], None] = log.info) -> None:
        """Raises InstallError, CantListen, ApiError and TimeoutError. `told` gets a line for the user at each step; the last says
        that it is ready."""
        async with AsyncExitStack() as stack:
            await self._open_endpoints(stack)
            await self._ensure_namespace()
            types = await stack.enter_async_context(self._rules())
            # Before the definitions: as soon as they have a new version, the webhook must convert to it.
            webhooks = await stack.enter_async_context(self._webhooks(types))
            definitions = await self._install(webhooks)
            told(_installed(definitions))
            await self._begin(stack, list(definitions), told)
            where = self.settings.address
            told(f"webhooks listen at {self.settings.webhooks}, as {where.url or f'Service {where.namespace}/{where.service}'}")
            await self._manager.run(stop)

    async def _begin(self, stack: AsyncExitStack, definitions: list[str], told: Callable[[str], None]) -> None:
        """Everything is there that the controllers need."""
        self._manager.beside(lambda: self._migrate(definitions))
        connector = HttpsConnector(self._clock, policy=lambda: self.settings.outbound)
        namespace, choice = self.settings.namespace, self.settings.choice
        parts = Parts(self._manager, connector=connector, options=self.settings.options, namespace=namespace)
        wanted = (*choice.of(table.names(CAPI)), *choice.of(table.names(ADDONS)), *table.inventory(choice, core=True))
        table.add(parts, wanted)

    async def _install(self, webhooks: _Webhooks) -> dict[str, Outcome]:
        definitions = api.crds(self.groups)
        bundle = (await webhooks.certificates.current()).bundle
        for definition in definitions:
            # A kind with one version needs no conversion.
            if len(definition["spec"]["versions"]) > 1:
                await self._ensure_some_conversion(name_of(definition), bundle)
        outcomes = await install(self._client, self._clock, definitions)
        for group in self.placeholders:
            await install_missing(self._client, api.placeholders(group))
        await install_missing(self._client, api.crds(self.foreign))
        await established(self._client, self._clock, outcomes)
        await webhooks.registration.ensure(bundle)
        return outcomes

    async def _ensure_some_conversion(self, name: str, bundle: bytes) -> None:
        """Register our webhook for a definition without one, on any replica: other replicas' webhooks are as good as ours."""
        try:
            crd = await self._client.get(CRDS, name)
        except ApiError as error:
            if error.is_not_found:
                return
            raise
        if dig(crd, "spec", "conversion", "strategy") != "Webhook":
            patch = {"spec": {"conversion": conversion_of(self.settings.address, bundle)}}
            await self._client.patch(CRDS, name, patch, field_manager=self.registration)

    # --- preconditions --------------------------------------------------------------------------------------------------

    def _made_elector(self) -> Elector | None:
        if self.settings.term is None:
            return None
        return Elector(
            self._client,
            self._clock,
            self._rng,
            namespace=self.settings.namespace,
            name=self.lease,
            # Unlike any other's, also of an earlier life of the same machine.
            identity=f"{socket.gethostname()}_{self._entropy.uuid()}",
            term=self.settings.term,
            registry=self._registry,
        )

    async def _ensure_namespace(self) -> None:
        namespace = self.settings.namespace
        try:
            await self._client.get(NAMESPACES, namespace)
        except ApiError as error:
            if not error.is_not_found:
                raise
            try:
                await self._client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            except ApiError as refused:
                if not refused.is_already_exists:
                    raise

    @asynccontextmanager
    async def _rules(self) -> AsyncIterator[tuple[AdmittedType, ...]]:
        """The types that webhooks default, check and convert. Conversion needs providers' kinds; their informers are apart from
        the manager, since webhooks start before it."""
        informers = Informers(self._client, self._clock, self._rng)
        contracts = Contracts(informers)
        async with beside(informers.run()):
            await contracts.crds.synced.wait()
            yield (*admitted(converter(contracts)), *admitted_resource_sets())

    async def _migrate(self, names: list[str]) -> None:
        """Runs while this replica leads. Failures are retried: a version that stays stored for longer does no harm."""
        left = list(names)
        while left:
            try:
                await migrate(self._manager.client, self._clock, left[0])
                left.pop(0)
            except NotConverted:
                # By us, in a moment.
                await self._clock.sleep(_SOON_SECONDS)
            except (ApiError, InstallError) as error:
                log.warning("stored versions of %s: %s; again in %.0fs", left[0], error, _AGAIN_SECONDS)
                await self._clock.sleep(_AGAIN_SECONDS)
        await asyncio.get_running_loop().create_future()

    # --- listeners ------------------------------------------------------------------------------------------------------

    async def _open_endpoints(self, stack: AsyncExitStack) -> None:
        alive = {
            "/healthz": lambda: (200, "ok"),
            "/readyz": lambda: (200, "ok") if self.ready else (503, "not ready yet"),
        }
        told = {"/metrics": lambda: (200, self._registry.text())}
        for where, answers in ((self.settings.health, alive), (self.settings.metrics, told)):
            if where is not None:
                endpoints = Endpoints(answers)
                stack.push_async_callback(endpoints.close)
                await _listening(endpoints.open(where.host, where.port), where)

    @asynccontextmanager
    async def _webhooks(self, types: tuple[AdmittedType, ...]) -> AsyncIterator[_Webhooks]:
        address = self.settings.address
        certificates = SharedCertificates(
            self._client,
            self._clock,
            self._entropy,
            namespace=self.settings.namespace,
            name=self.certificates,
            names=address.names(),
        )
        registration = Registration(self._client, self.registration, types, address)
        if address.url:
            registration = _LeadersRegistration(self._client, self.registration, types, address, self)

            self._manager.beside(lambda: self._take_over(registration, certificates))
        server = WebhookServer(types, certificates, registration, self._clock, self._rng, every=self.settings.look)
        try:
            await _listening(server.open(self.settings.webhooks.host, self.settings.webhooks.port), self.settings.webhooks)
            async with beside(server.run()):
                self._serving = True
                yield _Webhooks(certificates, registration)
        finally:
            self._serving = False
            await server.close()

    async def _take_over(self, registration: Registration, certificates: SharedCertificates) -> None:
        """Register the webhooks when a term begins: the address of the last leader is dead."""
        while True:
            try:
                await registration.ensure((await certificates.current()).bundle)
            except (ApiError, OSError) as error:
                log.warning("the webhooks can't be registered: %s", error)
                await self._clock.sleep(_SOON_SECONDS)
                continue
            await asyncio.get_running_loop().create_future()


class _LeadersRegistration(Registration):
    """Only the leader registers the webhooks, if each replica has an address of its own."""

    def __init__(
        self, client: Client, name: str, types: tuple[AdmittedType, ...], address: WebhookAddress, replica: Attached
    ) -> None:
        super().__init__(client, name, types, address)
        self._replica = replica

    async def ensure(self, bundle: bytes) -> None:
        if self._replica.leading:
            await super().ensure(bundle)


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _listening(opening: Awaitable[None], where: Socket) -> None:
    try:
        await opening
    except OSError as error:
        raise CantListen(f"{where} can't be listened on: {error.strerror or error}") from error


def _installed(outcomes: dict[str, Outcome]) -> str:
    found = ", ".join(f"{list(outcomes.values()).count(kind)} {kind}" for kind in Outcome if kind in outcomes.values())
    return f"definitions: {found}"


# --- metrics for a scraper, health for a kubelet ------------------------------------------------------------------------

# The status code and the text of an answer.
Answer = Callable[[], tuple[int, str]]


class Endpoints:
    """Answers by path. `open`, then `close`."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._answers = answers
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        app = web.Application()
        app.add_routes([web.get(path, _handler(answer)) for path, answer in self._answers.items()])
        self._runner = Runner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, host or None, port).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


def _handler(answer: Answer) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(_request: web.Request) -> web.StreamResponse:
        status, text = answer()
        return web.Response(status=status, text=text)

    return handle
