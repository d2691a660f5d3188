"""The parts that a server needs before it can load anything: its store, and its keys.

One server alone has both in its data directory. Servers that share a state have it in etcd, with the same keys
(:mod:`.keys.key_agreement`); a data directory then has each server's own files.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from remuda.kube.certificates import PkiError
from remuda.kube.clock import Clock

from .backup.restore_staging import complete
from .keys import key_agreement
from .keys.encryption import Envelope, load_or_create
from .keys.key_places import Directory, InStore, OwnFiles, Place
from .keys.pki import Pki
from .keys.shared_keys import Material, ensure_directory
from .replicas.server_leases import ServerLease
from .storage.memory import MemoryStore
from .storage.revision_offset import as_noted
from .storage.sqlite import SqliteStore
from .storage.store import Store, StoreError, Unavailable

if TYPE_CHECKING:
    from .server import Config

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


def place_of_keys(config: Config, store: Store) -> Place | None:
    """The place of keys that may be rotated; None when the server does not keep them itself."""
    if config.data_dir is None:
        return None
    if config.token:
        return InStore(store, config.token, config.entropy)
    return OwnFiles(config.data_dir) if config.pki_dir is None else Directory(config.pki_dir, store)


async def _material(config: Config, store: Store) -> Material | None:
    """None when this server has its own keys."""
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
