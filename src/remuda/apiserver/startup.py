"""The start of a server: its store and its keys, which it needs before it can load anything, and the objects that it makes.

One server alone has both in its data directory. Servers that share a state have it in etcd, with the same keys
(:mod:`.keys.key_agreement`); a data directory then has each server's own files.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from remuda.kube.certificates import PkiError
from remuda.kube.clock import Clock
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionKind, name_of, namespace_of

from .auth import bootstrap_policy as roles
from .backup.restore_staging import complete
from .builtin.core.service_addresses import SERVICE_RANGE
from .config import Config
from .keys import key_agreement
from .keys.encryption import Envelope, load_or_create
from .keys.key_places import Directory, InStore, KeyStorage, OwnFiles
from .keys.pki import Pki
from .keys.shared_keys import KeyMaterial, ensure_directory
from .replicas.server_leases import ServerLease
from .storage.memory import MemoryStore
from .storage.revision_offset import as_noted
from .storage.sqlite import SqliteStore
from .storage.store import Store, StoreError, Unavailable
from .verbs import create, delete, update
from .verbs.context import MANAGER, Api, Call, DeleteOptions

logger = logging.getLogger(__name__)
T = TypeVar("T")

# After a power cut all machines start at once, etcd too.
PATIENCE = 60.0
_PAUSE = 3.0


async def open_store(config: Config) -> Store:
    """Raises StoreError."""
    if config.data_dir is not None:
        config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if config.etcd is not None:
        # Late: most servers have no etcd.
        from .storage.etcd import EtcdStore

        etcd = config.etcd
        opened = await patiently(config.clock, lambda: EtcdStore.open(etcd, config.clock, config.rng))
        try:
            return await patiently(config.clock, lambda: as_noted(opened))
        except BaseException:
            await opened.close()
            raise
    if config.data_dir is None:
        return MemoryStore(config.clock, config.base)
    # A restore that was interrupted after its last decision.
    complete(config.data_dir)
    return await SqliteStore.open(config.data_dir / "state.db", config.clock, history_seconds=config.history_seconds)


async def announced(config: Config, store: Store) -> ServerLease | None:
    """This server's record in a shared store. Raises StoreError when servers may not work on it now."""
    if not store.shared:
        return None
    presence = ServerLease(store, config.clock, config.entropy)
    await patiently(config.clock, presence.announce)
    return presence


async def open_keys(config: Config, store: Store) -> tuple[Pki | None, Envelope | None]:
    """Certificates and encryption at rest. Raises PkiError, EncryptionError and StoreError."""
    material = await _material(config, store)
    if config.data_dir is None:
        return config.pki, config.envelope if material is None else material.envelope(config.entropy)
    if config.etcd is not None and material is None:
        raise PkiError("servers on one etcd must have the same keys: say where they are")
    hosts = [config.host, *config.names]
    pki = Pki.ensure(config.data_dir / "pki", hosts, config.clock, config.entropy, material)
    if material is None:
        return pki, load_or_create(config.data_dir / "encryption.yaml", config.entropy)
    return pki, material.envelope(config.entropy)


def place_of_keys(config: Config, store: Store) -> KeyStorage | None:
    """The place of keys that may be rotated; None when the server does not keep them itself."""
    if config.data_dir is None:
        return None
    if config.token:
        return InStore(store, config.token, config.entropy)
    return OwnFiles(config.data_dir) if config.pki_dir is None else Directory(config.pki_dir, store)


async def _material(config: Config, store: Store) -> KeyMaterial | None:
    """The shared keys; None when this server has its own."""
    clock, entropy, directory = config.clock, config.entropy, config.pki_dir
    if config.token:
        return await patiently(clock, lambda: key_agreement.from_token(store, config.token, clock, entropy))
    if directory is None:
        return None
    if not store.shared:
        return ensure_directory(directory, clock, entropy)
    return await patiently(clock, lambda: key_agreement.from_directory(store, directory, clock, entropy))


async def patiently(clock: Clock, attempt: Callable[[], Awaitable[T]]) -> T:
    """Try for a while, as long as the store is only unavailable, and log the reason."""
    until = clock.monotonic() + PATIENCE
    while True:
        try:
            return await attempt()
        except Unavailable as error:
            left = until - clock.monotonic()
            if left <= 0:
                raise StoreError(f"{error}; given up after {PATIENCE:g} s") from error
            logger.warning("%s; trying again, for %.0f s more", error, left)
        await clock.sleep(min(_PAUSE, left))


# --- the objects that every server has ----------------------------------------------------------------------------------
#
# System namespaces, default roles, priority classes, its own service. Several servers of one store may do this at the same
# moment: one that was slower reads again, and goes on.

Obj = dict[str, Any]

# The first address of the range, which kube-apiserver also takes for itself.
_OWN_ADDRESS = str(next(ipaddress.ip_network(SERVICE_RANGE).hosts()))
_TRIES = 8
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_CRITICAL = (
    (
        "system-cluster-critical",
        2_000_000_000,
        "For pods that the cluster can't do without, but that may move between nodes.",
    ),
    ("system-node-critical", 2_000_001_000, "For pods that their node can't do without; nothing is more important."),
)


async def ensure(api: Api, port: int, *, with_roles: bool = True) -> None:
    """Create missing objects. Roles also get back removed rules, unless they opt out. `port` is the server's."""
    for name in NAMESPACES:
        await _ensure(api, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for name, value, words in _CRITICAL:
        await _ensure(
            api,
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "description": words,
            },
        )
    await _ensure_own_service(api, port)
    if not with_roles:
        return
    # All concurrently: they share a few commits instead of one each.
    await asyncio.gather(*(_reconcile_role(api, expected) for expected in roles.desired()))


async def _ensure_own_service(api: Api, port: int) -> None:
    """`kubernetes` in `default`. It has no endpoints: no client could reach a server on loopback through a service address."""
    ports = [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {"type": "ClusterIP", "clusterIP": _OWN_ADDRESS, "sessionAffinity": "None", "ports": ports},
    }
    await _ensure(api, service)
    if api.cache.shared:
        # Each server may listen on its own port, and all are equally right.
        return
    entry = api.entry(_call(api, service, "create").version.resource, "default", "kubernetes")
    if entry is not None and entry.object()["spec"].get("ports") != ports:
        changed = jsonio.copy(entry.object())
        changed["spec"]["ports"] = ports
        await update.update(api, _call(api, service, "update"), changed)


def _call(api: Api, obj: Obj, verb: str) -> Call:
    version = api.registry.by_kind(*GroupVersionKind.of(obj))
    assert version is not None
    return Call(version, verb, namespace_of(obj), name_of(obj) if verb == "update" else "", manager=MANAGER, trusted=True)


async def _ensure(api: Api, obj: Obj) -> None:
    call = _call(api, obj, "create")
    resource, namespace, name = call.version.resource, namespace_of(obj), name_of(obj)
    if api.entry(resource, namespace, name) is not None:
        return
    try:
        await create.create(api, call, obj)
    except ApiError:
        # Any error (the name or the address is taken) is harmless if another server has created it.
        await api.cache.consistent()
        if api.entry(resource, namespace, name) is None:
            raise


async def _reconcile_role(api: Api, expected: Obj) -> None:
    await _settled(api, lambda: _reconcile_role_once(api, expected))


async def _reconcile_role_once(api: Api, expected: Obj) -> None:
    resource = _call(api, expected, "create").version.resource
    entry = api.entry(resource, namespace_of(expected), name_of(expected))
    found = roles.reconcile(None if entry is None else entry.object(), expected)
    match found.operation:
        case roles.Operation.CREATE:
            await _ensure(api, found.obj)
        case roles.Operation.UPDATE:
            await update.update(api, _call(api, expected, "update"), jsonio.copy(found.obj))
        case roles.Operation.RECREATE:
            await delete.delete(api, _call(api, expected, "update"), DeleteOptions())
            await _ensure(api, found.obj)


async def _settled(api: Api, attempt: Callable[[], Awaitable[None]]) -> None:
    """Try again when another server has changed or removed the object meanwhile; that ends, since all want the same."""
    for left in reversed(range(_TRIES)):
        try:
            await attempt()
            return
        except ApiError as error:
            if not left or not (error.is_conflict or error.is_not_found or error.is_already_exists):
                raise
        await api.cache.consistent()
