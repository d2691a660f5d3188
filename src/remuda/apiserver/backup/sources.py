"""Where a backup is taken from: a store as of one revision, in batches, beside whoever works on it.

sqlite keeps a reader's view of the database for as long as its transaction lasts, whatever the server writes meanwhile. etcd is
read page by page, all at the revision of the first.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from remuda.kube.clock import Clock, Entropy, Rng

from .. import agreement, guards, keys, presence
from ..encryption import EncryptionError, Envelope
from ..material import Material
from ..rotation import record
from ..signing import PkiError
from ..store import Compacted, StoreError, shifted
from ..store.etcd import EtcdConfig, EtcdStore
from ..store.sqlite import reader, schema
from ..store.sqlite.files import connect, speaking
from ..store.transaction import after_prefix
from . import arriving, keyring
from .errors import BackupError
from .records import Note, Object

PAGE = 500
SECRETS = keys.prefix_for("", "secrets", builtin=True)
_COUNT = "SELECT count(*) FROM current WHERE key >= ? AND key < ? AND live"
_ALL = (
    "SELECT current.key, log.value, current.expires FROM current JOIN log ON log.id = current.id "
    "WHERE current.key >= ? AND current.key < ? AND current.live ORDER BY current.key"
)
# Of what servers note for themselves: what is true only of those that run now, and what a restore makes anew.
_PASSING = (
    agreement.KEY,
    guards.ROOT,
    presence.ROOT,
    presence.RESTORING,
    record.NOTES,
    record.DROPPED,
    shifted.KEY,
    f"{keys.OWN}fences/",
)


def _bounds(prefix: str) -> tuple[str, str]:
    return prefix, after_prefix(prefix)


def _is_kept(key: str) -> bool:
    return not key.startswith(_PASSING)


class Source(NamedTuple):
    """`batches` can be read once. The revision is as clients know it."""

    kind: str
    revision: int
    objects: int
    material: Material
    own: dict[str, bytes]
    notes: list[Note]
    batches: AsyncIterator[list[Object]]


class Unsealing:
    """Values as they are without encryption at rest."""

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
    path = data_dir / keyring.DATABASE
    if arriving.is_pending(data_dir):
        raise BackupError(f"a restore into {data_dir} was cut off shortly before its end: start the server once, it completes it")
    if not path.exists():
        raise BackupError(
            f"there is no state in {data_dir}: say the --data-dir of the server, or its --etcd if the state is there"
        )
    with speaking(path, data_dir / "backups", "read"), contextlib.closing(connect(path, cache_kib=2048, read_only=True)) as found:
        _check(found, path)
        found.execute("BEGIN")
        revision = reader.newest(found)
        # After what they seal: a key is there before it is used.
        material = keyring.of_data_directory(data_dir, pki_dir)
        own = keyring.own_files(data_dir)
        unsealing = Unsealing(material.envelope(entropy), "")
        objects = found.execute(_COUNT, _bounds(keys.ROOT)).fetchone()[0]
        notes = [Note(key, value) for key, value, _ in found.execute(_ALL, _bounds(keys.OWN)) if _is_kept(key)]
        yield Source("sqlite", revision, objects, material, own, notes, _rows(found, unsealing.opened))


def _check(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
        raise BackupError(f"{path} is not a database of Remuda's: say the --data-dir of the server")
    version = int(schema.get_meta(connection).get("schema", 0))
    # What is read here is in all of them so far.
    if version > schema.VERSION:
        raise BackupError(
            f"{path} has schema {version} and this Remuda knows up to {schema.VERSION}: use the version of its server"
        )


async def _rows(connection: sqlite3.Connection, opened: Callable[[str, bytes], bytes]) -> AsyncIterator[list[Object]]:
    cursor = connection.execute(_ALL, _bounds(keys.ROOT))
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
    """An etcd that is open; the store must not be a shifted one."""
    first = await store.range(keys.ROOT, limit=1)
    try:
        # After what they seal: a key is there before it is used.
        material = await agreement.known(store, pki_dir, token)
    except (PkiError, EncryptionError) as error:
        raise BackupError(str(error)) from error
    offset = await shifted.read_offset(store)
    noted = await store.range(keys.OWN, revision=first.revision)
    notes = [Note(kv.key, kv.value) for kv in noted.items if _is_kept(kv.key)]
    unsealing = Unsealing(material.envelope(entropy), prefix)
    objects = len(first.items) + first.remaining
    batches = _pages(store, first.revision, unsealing.opened)
    return Source("etcd", first.revision + offset, objects, material, {}, notes, batches)


async def _pages(store: EtcdStore, revision: int, opened: Callable[[str, bytes], bytes]) -> AsyncIterator[list[Object]]:
    start = ""
    while True:
        try:
            page, expires = await store.leased_page(keys.ROOT, start=start, limit=PAGE, revision=revision)
        except Compacted:
            raise StoreError(
                "reading took longer than etcd keeps the past: take the backup again, or give the servers a longer --watch-window"
            ) from None
        yield [Object(kv.key, opened(kv.key, kv.value), expires.get(kv.key, 0.0)) for kv in page.items]
        if not page.more:
            return
        start = page.items[-1].key + "\0"


def is_over(entry: Object, now: float) -> bool:
    """Its time is up: a server would have deleted it."""
    return bool(entry.expires) and entry.expires <= now


def sealed(entries: Iterable[Object], envelope: Envelope, prefix: str) -> Iterator[tuple[Object, bytes]]:
    """Each with its value as it is to be stored."""
    for entry in entries:
        secret = entry.key.startswith(SECRETS)
        yield entry, envelope.seal(prefix + entry.key, entry.value) if secret else entry.value
