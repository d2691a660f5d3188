"""The source of a backup: a store at one revision, read in batches while servers run.

sqlite keeps a reader's view of the database for as long as its transaction lasts, even while the server writes. etcd is read
page by page, all at the revision of the first page.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from remuda.kube.certificates import PkiError
from remuda.kube.clock import Clock, Entropy, Rng

from ..keys import key_agreement, rotation_record
from ..keys.encryption import EncryptionError, Envelope
from ..keys.shared_keys import Material
from ..replicas import allocation_locks, server_leases
from ..storage import key_layout, revision_offset
from ..storage.etcd import EtcdConfig, EtcdStore
from ..storage.sqlite import reader, tables
from ..storage.sqlite.files import connect, speaking
from ..storage.store import Compacted, StoreError
from ..storage.transaction import after_prefix
from . import key_files, restore_staging
from .format import BackupError, Note, Object

PAGE = 500
SECRETS = key_layout.prefix_for("", "secrets", builtin=True)
_COUNT = "SELECT count(*) FROM current WHERE key >= ? AND key < ? AND live"
_ALL = (
    "SELECT current.key, log.value, current.expires FROM current JOIN log ON log.id = current.id "
    "WHERE current.key >= ? AND current.key < ? AND current.live ORDER BY current.key"
)
# Servers' own notes that are not backed up: those of running servers, and those that a restore creates anew.
_PASSING = (
    key_agreement.KEY,
    allocation_locks.ROOT,
    server_leases.ROOT,
    server_leases.RESTORING,
    rotation_record.NOTES,
    rotation_record.DROPPED,
    revision_offset.KEY,
    f"{key_layout.OWN}fences/",
)


def _bounds(prefix: str) -> tuple[str, str]:
    return prefix, after_prefix(prefix)


def _is_kept(key: str) -> bool:
    return not key.startswith(_PASSING)


class Source(NamedTuple):
    """The source; `batches` can be read once. The revision is the one that clients see."""

    kind: str
    revision: int
    objects: int
    material: Material
    own: dict[str, bytes]
    notes: list[Note]
    batches: AsyncIterator[list[Object]]


class Unsealing:
    """Decrypts values that are encrypted at rest."""

    def __init__(self, envelope: Envelope, prefix: str) -> None:
        self._envelope = envelope
        self._prefix = prefix

    def opened(self, key: str, value: bytes) -> bytes:
        if not key.startswith(SECRETS):
            return value
        try:
            return self._envelope.open(self._prefix + key, value)[0]
        except EncryptionError as error:
            raise BackupError(f"a Secret can't be read: {error}") from error


@asynccontextmanager
async def of_data_directory(data_dir: Path, pki_dir: Path | None, entropy: Entropy) -> AsyncIterator[Source]:
    path = data_dir / key_files.DATABASE
    if restore_staging.is_pending(data_dir):
        raise BackupError(f"a restore into {data_dir} was cut off shortly before its end: start the server once, it completes it")
    if not path.exists():
        raise BackupError(
            f"there is no state in {data_dir}: say the --data-dir of the server, or its --etcd if the state is there"
        )
    with speaking(path, data_dir / "backups", "read"), contextlib.closing(connect(path, cache_kib=2048, read_only=True)) as found:
        _check(found, path)
        found.execute("BEGIN")
        revision = reader.newest(found)
        # Read after the values that they seal: a key exists before it is used.
        material = key_files.of_data_directory(data_dir, pki_dir)
        own = key_files.own_files(data_dir)
        unsealing = Unsealing(material.envelope(entropy), "")
        objects = found.execute(_COUNT, _bounds(key_layout.ROOT)).fetchone()[0]
        notes = [Note(key, value) for key, value, _ in found.execute(_ALL, _bounds(key_layout.OWN)) if _is_kept(key)]
        yield Source("sqlite", revision, objects, material, own, notes, _rows(found, unsealing.opened))


def _check(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != tables.APPLICATION_ID:
        raise BackupError(f"{path} is not a database of Remuda's: say the --data-dir of the server")
    version = int(tables.get_meta(connection).get("schema", 0))
    # All schemas so far have the tables and columns read here.
    if version > tables.VERSION:
        raise BackupError(
            f"{path} has schema {version} and this Remuda knows up to {tables.VERSION}: use the version of its server"
        )


async def _rows(connection: sqlite3.Connection, opened: Callable[[str, bytes], bytes]) -> AsyncIterator[list[Object]]:
    cursor = connection.execute(_ALL, _bounds(key_layout.ROOT))
    while rows := cursor.fetchmany(PAGE):
        yield [Object(key, opened(key, value), expires or 0.0) for key, value, expires in rows]


@asynccontextmanager
async def of_etcd(
    config: EtcdConfig, pki_dir: Path | None, token: str, clock: Clock, rng: Rng, entropy: Entropy
) -> AsyncIterator[Source]:
    store = await EtcdStore.open(config, clock, rng)
    try:
        yield await of_store(store, config.prefix, pki_dir, token, entropy)
    finally:
        await store.close()


async def of_store(store: EtcdStore, prefix: str, pki_dir: Path | None, token: str, entropy: Entropy) -> Source:
    """The source for an open etcd store, which must not apply the revision offset."""
    first = await store.range(key_layout.ROOT, limit=1)
    try:
        # Read after the values that they seal: a key exists before it is used.
        material = await key_agreement.known(store, pki_dir, token)
    except (PkiError, EncryptionError) as error:
        raise BackupError(str(error)) from error
    offset = await revision_offset.read_offset(store)
    noted = await store.range(key_layout.OWN, revision=first.revision)
    notes = [Note(kv.key, kv.value) for kv in noted.items if _is_kept(kv.key)]
    unsealing = Unsealing(material.envelope(entropy), prefix)
    objects = len(first.items) + first.remaining
    batches = _pages(store, first.revision, unsealing.opened)
    return Source("etcd", first.revision + offset, objects, material, {}, notes, batches)


async def _pages(store: EtcdStore, revision: int, opened: Callable[[str, bytes], bytes]) -> AsyncIterator[list[Object]]:
    start = ""
    while True:
        try:
            page, expires = await store.leased_page(key_layout.ROOT, start=start, limit=PAGE, revision=revision)
        except Compacted:
            raise StoreError(
                "reading took longer than etcd keeps the past: take the backup again, or give the servers a longer --watch-window"
            ) from None
        yield [Object(kv.key, opened(kv.key, kv.value), expires.get(kv.key, 0.0)) for kv in page.items]
        if not page.more:
            return
        start = page.items[-1].key + "\0"


def is_over(entry: Object, now: float) -> bool:
    """True when the object has expired: a server would have deleted it."""
    return bool(entry.expires) and entry.expires <= now


def sealed(entries: Iterable[Object], envelope: Envelope, prefix: str) -> Iterator[tuple[Object, bytes]]:
    """The entries with their values as they are to be stored."""
    for entry in entries:
        secret = entry.key.startswith(SECRETS)
        yield entry, envelope.seal(prefix + entry.key, entry.value) if secret else entry.value
