"""The API server as a whole: store, cache, registry, access control, admission, and the HTTPS listener.

:class:`Server` serves the API alone; the controllers that a Kubernetes needs besides (garbage collection, namespaces, …) are
added by :mod:`remuda.app.embedded`, which is what `remuda serve` runs.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from remuda.kube.authorization.rbac import Rbac
from remuda.kube.certificates import new_key_pem

from . import startup
from .admission.chain import Chain as AdmissionChain
from .admission.chain import Hooks
from .admission.default_plugins import (
    DefaultIngressClass,
    DefaultStorageClass,
    DefaultTolerationSeconds,
    Escalation,
    NamespaceLifecycle,
    PersistentVolumeClaimResize,
    PodTopologyLabels,
    Priority,
    RuntimeClass,
    StorageObjectInUseProtection,
    TaintNodesByCondition,
)
from .admission.limit_ranger import LimitRanger
from .admission.pod_security import PodSecurity
from .admission.service_account import ServiceAccounts
from .admission.webhooks import MutatingWebhooks, ValidatingWebhooks
from .auth.authenticator import Chain
from .auth.client_certificates import CertificateAuthenticator, RetiredAuthorities
from .auth.escalation import EscalationGuard
from .auth.reviews import Services
from .auth.service_accounts import LastUsed, ServiceAccountAuthenticator
from .auth.token_issuer import TokenIssuer
from .auth.token_keys import TokenKeys
from .background import BackgroundTasks
from .builtin import registration
from .builtin.core.service_addresses import ServiceLedger, guards_of
from .cache.watch_cache import ValueTransformer, WatchCache
from .config import Config
from .crd.conversion import Converter, InProcess, WebhookConverter
from .crd.custom_resources import CustomResources
from .history.history_handler import HistoryHandler
from .http.connection_limits import ConnectionLimits
from .http.handler import Handler
from .http.listener import ConnectionObserver, Listener, reload_certificate, server_context
from .http.metrics import Metrics
from .http.nonresource_paths import NonResourcePaths
from .http.rotation_paths import RotationPaths
from .keys.ca_followers import Followers
from .keys.encryption import Envelope
from .keys.key_places import KeyStorage
from .keys.pki import Pki
from .keys.rotation import Rotations
from .limits.flow_control import Flow
from .registry.resources import Registry
from .replicas import allocation_locks
from .replicas.server_leases import ServerLease
from .storage import key_layout
from .storage.memory import MemoryStore
from .storage.sqlite import SqliteStore
from .storage.store import HistoryStore, Store
from .verbs import patch
from .verbs.bodies import RegistryKinds
from .verbs.context import MANAGER, Api, Call, Source
from .verbs.subresources import Subresources
from .watch.watchers import Feeds
from .webhook_client import ServiceAddresses, WebhookClient

logger = logging.getLogger(__name__)
Obj = dict[str, Any]

__all__ = ["ISSUER", "Config", "Front", "PartFailed", "Server"]

ISSUER = "https://kubernetes.default.svc.cluster.local"


@dataclass(frozen=True, slots=True)
class Front:
    """The front of the API on its port: handler, certificate, and the observer of connections (None: the server's
    own).

    `trust` are a kubeconfig's fields for a certificate that our own CA did not sign.
    """

    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
    context: ssl.SSLContext | None = None
    observer: ConnectionObserver | None = None
    trust: Obj | None = None


class PartFailed(Exception):
    """A part of the server has ended without which it can't go on; the log has the details."""

    def __init__(self, part: str, error: BaseException | None) -> None:
        why = f": {_innermost(error)}" if error is not None else " by itself"
        super().__init__(f"{part} ended{why}; start the server again, and report this if it comes back")


def _innermost(error: BaseException) -> str:
    """The first error in the group of tasks that it ended."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return str(error) or type(error).__name__


class _Sealed(ValueTransformer):
    """Secrets at rest: encrypted in the store, plain in the cache."""

    def __init__(self, envelope: Envelope, prefix: str) -> None:
        self._envelope = envelope
        # The store's prefix of every key: kube-apiserver binds a value to its whole key.
        self._prefix = prefix

    def open(self, key: str, value: bytes) -> tuple[bytes, bool]:
        return self._envelope.open(self._prefix + key, value)

    def seal(self, key: str, value: bytes) -> bytes:
        return self._envelope.seal(self._prefix + key, value)

    def knows(self, value: bytes) -> bool:
        return self._envelope.knows(value)


class Server:
    """Open it, serve, close it. Everything public here is for the in-process client and the packages above."""

    def __init__(self, config: Config, store: Store, envelope: Envelope | None, pki: Pki | None) -> None:
        self.config = config
        self.pki = pki
        self.envelope = envelope
        self.store = store
        # The past states, for stores that keep them.
        self.history: HistoryStore | None = store if isinstance(store, SqliteStore | MemoryStore) else None
        clock = config.clock
        self.metrics = Metrics()
        self.flow = Flow()
        self.registry = Registry()
        prefix = config.etcd.prefix if config.etcd is not None else ""
        sealed = _Sealed(envelope, prefix) if envelope is not None else None
        secrets = key_layout.prefix_for("", "secrets", builtin=True)
        self.cache = WatchCache(store, lambda prefix: sealed if prefix == secrets else None, clock, config.entropy)
        self.feeds = Feeds(lambda: self.cache.revision)
        self.hooks = Hooks()
        self.converters = InProcess()
        self.source = Source(self.registry, self.cache)
        self.webhooks = WebhookClient(clock, ServiceAddresses(self.source))
        self.last_used = LastUsed(self._patch_secret)
        # Tasks besides the store's feed that must not end while the server runs; their starters add them.
        self.vital: list[asyncio.Task[None]] = []
        # A stop was requested; clients should use another server.
        self.draining = False
        # This server's record in a shared store.
        self.lease: ServerLease | None = None
        self._listener: Listener | None = None
        self._front: Front | None = None
        # The CAs that were dropped while this server ran, and the bundle that is trusted and published now.
        self.retired = RetiredAuthorities()
        self.trusted = b"" if pki is None else pki.ca_pem
        self.on_trust: list[Callable[[], None]] = []
        # The bundles of dropped CAs, for agents that know only the checksum of one of them.
        self.former: tuple[str, ...] = ()
        # Functions that list clients which have to trust the CA: packages above add theirs.
        self.followers: list[Followers] = []
        # The names that clients use; and the function that changes a listener's certificate. A front has its own.
        self.hosts: Callable[[], Iterable[str]] = lambda: (config.host, *config.names)
        self.reload: Callable[[], object] = lambda: None
        # A certificate from outside: it is replaced by its files.
        self.certificate_is_given = False
        self.rotations: Rotations | None = None
        self.token_keys = TokenKeys(self._service_account_key)
        self.api: Api
        # Authenticators: packages above may add their own.
        self.chain: Chain
        self.rbac: Rbac
        self.issuer: TokenIssuer
        self.subresources: Subresources
        self.handler: Handler
        self.background: BackgroundTasks
        self.nonresource_paths: NonResourcePaths

    # --- lifecycle -----------------------------------------------------------------------------------------------------

    @classmethod
    async def open(cls, config: Config) -> Server:
        """Start everything but the listener: state loaded, bootstrap objects created, in-process clients may call."""
        store = await startup.open_store(config)
        lease: ServerLease | None = None
        try:
            lease = await startup.announced(config, store)
            pki, envelope = await startup.open_keys(config, store)
            server = cls(config, store, envelope, pki)
            server.lease = lease
            place = startup.place_of_keys(config, store)
            try:
                await server._start(place)
            except BaseException:
                await server.cache.stop()
                raise
        except BaseException:
            if lease is not None:
                await lease.leave()
            await store.close()
            raise
        return server

    async def _start(self, place: KeyStorage | None = None) -> None:
        config, clock = self.config, self.config.clock
        if place is not None:
            self.rotations = Rotations(self, place, clock, config.entropy)
            self.cache.on_unknown_key = self.rotations.look_for_keys
            await self.rotations.start()
        await self.cache.start()
        registration.register(self.registry, self.cache, clock, config.no_kubelet)
        services_kind = self.registry.resource("", "services")
        assert services_kind is not None
        services_kind.reserve, services_kind.holds = ServiceLedger(self.source).reserve, guards_of
        services_kind.companion = self.registry.resource("", "endpoints")
        self.rbac = Rbac(self.source)
        token_keys = self.token_keys
        self.issuer = TokenIssuer(token_keys, self.source, clock, config.entropy, ISSUER, [ISSUER])
        chain = Chain(
            [
                CertificateAuthenticator(clock, retired=self.retired),
                ServiceAccountAuthenticator(
                    token_keys, self.source, clock, [ISSUER], [ISSUER], self.last_used.note, catch_up=self.cache.consistent
                ),
            ],
            [ISSUER],
        )
        self.api = Api(
            registry=self.registry,
            cache=self.cache,
            admission=self._admission(),
            authorizer=self.rbac,
            source=self.source,
            clock=clock,
            rng=config.rng,
            entropy=config.entropy,
        )
        services = Services(chain, self.rbac, clock)
        self.chain = chain
        self.subresources = Subresources(self.api, services, self.issuer)
        self.handler = Handler(self.api, self.feeds, chain, self.flow, self.subresources, self.metrics)
        self.nonresource_paths = NonResourcePaths(self, token_keys, ISSUER)
        self.nonresource_paths.register(self.handler)
        RotationPaths(self, clock).register(self.handler)
        custom = CustomResources(self.registry, self.cache, self.feeds, clock, self._converter)
        self.past = self.handler.past = HistoryHandler(self.api, self.rbac, self.history, custom, self.flow)
        self.source.subscribe("apiextensions.k8s.io", "customresourcedefinitions", custom.changed)
        if self.store.shared:
            await allocation_locks.repair(
                self.store, services_kind.bucket.prefix, lambda kv: self.cache.entry_of(kv).object(), guards_of
            )
        await startup.ensure(self.api, config.port, with_roles=config.default_roles)
        self.background = BackgroundTasks(self)
        self.background.start()

    def _service_account_key(self) -> bytes:
        if self.pki is not None:
            return self.pki.service_account_pem
        return new_key_pem(self.config.entropy)

    async def _patch_secret(self, namespace: str, name: str, body: Obj) -> object:
        version = self.registry.find("", "v1", "secrets")
        assert version is not None
        call = Call(version, "patch", namespace, name, manager=MANAGER, trusted=True)
        return await patch.patch(self.api, call, body, patch.MERGE_PATCH)

    def _admission(self) -> AdmissionChain:
        source, clock = self.source, self.config.clock
        kinds = RegistryKinds(self.registry)
        return AdmissionChain(
            [
                NamespaceLifecycle(source),
                LimitRanger(source),
                ServiceAccounts(source, clock, self.config.rng),
                TaintNodesByCondition(),
                PodSecurity(source),
                Priority(source),
                DefaultTolerationSeconds(),
                DefaultStorageClass(source),
                StorageObjectInUseProtection(),
                PersistentVolumeClaimResize(source),
                RuntimeClass(),
                DefaultIngressClass(source),
                PodTopologyLabels(source),
                self.hooks,
                MutatingWebhooks(source, kinds, self.webhooks, self.config.entropy, self.rbac),
                # After the webhooks: their changes to a role must be covered by its writer's rights too.
                Escalation(EscalationGuard(self.rbac)),
                ValidatingWebhooks(source, kinds, self.webhooks, self.config.entropy, self.rbac),
            ]
        )

    def _converter(self, crd: Obj) -> Converter | None:
        spec = crd["spec"]
        ours = self.converters.get(spec["group"], spec["names"]["plural"])
        if ours is not None:
            return ours
        conversion = spec.get("conversion") or {}
        if conversion.get("strategy") != "Webhook":
            return None
        return WebhookConverter(conversion.get("webhook") or {}, self.webhooks, self.config.entropy)

    async def listen(self, front: Front | None = None) -> None:
        """With `front`, clients connect to that; it passes requests for the API to :attr:`handler`."""
        assert self.pki is not None, "a server without a data directory has no certificates, unless it is given some"
        front = front or Front(self.handler)
        own = (self.pki.serving_certificate, self.pki.serving_key, self.pki.ca_certificate)
        context = front.context
        if context is None:
            context = server_context(*own)
            self.reload = functools.partial(reload_certificate, context, *own)
        self._front = front
        observer = front.observer
        if observer is None:
            limits = observer = ConnectionLimits(self.config.clock, room=self.config.room)
            self.background.run_beside(limits.watch)
        self._listener = Listener(front.handler, context, observer)
        await self._listener.open(self.config.host, self.config.port)
        self.background.start_serving()
        self._write_kubeconfig()

    def _write_kubeconfig(self) -> None:
        if self.config.data_dir is not None and self.pki is not None and self._front is not None:
            self.pki.write_kubeconfig(self.kubeconfig_path, self.url, self._front.trust)

    # --- key rotation ----------------------------------------------------------------------------------------------------

    async def renew(self, *, serving: bool = False) -> None:
        """Renew this server's own certificates if due (`serving`: in any case), for new connections.

        Existing connections keep theirs. Raises PkiError and OSError.
        """
        assert self.pki is not None
        work = self.pki.renew_serving if serving else self.pki.complete
        await asyncio.to_thread(work, list(self.hosts()))
        self.reload()
        self._write_kubeconfig()
        self._trust(self.pki.ca_pem)

    def _trust(self, bundle: bytes) -> None:
        """Trust these CAs, and publish them to clients."""
        if bundle == self.trusted:
            return
        self.trusted = bundle
        for callback in list(self.on_trust):
            callback()

    @property
    def past_seconds(self) -> int:
        """The oldest past that may be requested, in seconds before now."""
        kept = self.config.history_seconds if self.history is not None else 0
        return max(self.config.window_seconds, kept)

    @property
    def port(self) -> int:
        return self.config.port if self._listener is None else self._listener.port

    @property
    def listening(self) -> bool:
        return self._listener is not None

    @property
    def url(self) -> str:
        assert self._listener is not None
        # A wildcard is no address to connect to; the loopback address always works.
        local = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.config.host, self.config.host)
        host = f"[{local}]" if ":" in local else local
        return f"https://{host}:{self._listener.port}"

    @property
    def kubeconfig_path(self) -> Path:
        assert self.config.data_dir is not None
        return self.config.data_dir / "kubeconfig"

    async def serve_forever(self, stop: asyncio.Event) -> None:
        """Return on a stop request, or raise when a part has ended without which responses would be wrong."""
        await self._until(stop.wait())
        self.draining = True
        if self.config.shutdown_delay:
            logger.info("stopping in %.0f s; until then requests are served", self.config.shutdown_delay)
            await self._until(self.config.clock.sleep(self.config.shutdown_delay))

    async def _until(self, moment: Coroutine[Any, Any, object]) -> None:
        waiting = asyncio.create_task(moment)
        try:
            await asyncio.wait([waiting, self.cache.ended(), *self.vital], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self.cache.failed is not None:
            raise PartFailed("the watch cache", self.cache.failed) from self.cache.failed
        for task in self.vital:
            if task.done() and not task.cancelled():
                error = task.exception()
                logger.error("%s ended", task.get_name(), exc_info=error)
                raise PartFailed(task.get_name(), error) from error

    async def close(self, grace: float = 5.0) -> None:
        """End watches, let requests finish within `grace` seconds, then close the store."""
        self.draining = self.handler.stopping = True
        for stream in list(self.handler.streams):
            stream.end()
        if self._listener is not None:
            await self._listener.close(grace)
        await self.background.stop()
        self.feeds.close()
        await self.cache.stop()
        await self.webhooks.close()
        if self.rotations is not None:
            await self.rotations.leave()
        if self.lease is not None:
            await self.lease.leave()
        await self.store.close()
