"""Takes a backup: from a source to a file, one batch at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from remuda import __version__
from remuda.kube.certificates import PkiError
from remuda.kube.clock import Clock, Entropy, Rng

from ..keys import key_agreement, rotation_record
from ..keys.encryption import EncryptionError, Envelope
from ..keys.shared_keys import KeyMaterial
from ..keys.token_sealing import ScryptCost
from ..replicas import allocation_locks, server_leases
from ..storage import key_layout, revision_offset
from ..storage.etcd import EtcdConfig, EtcdStore
from ..storage.sqlite import reader, tables
from ..storage.sqlite.files import connect, speaking, sync
from ..storage.store import Compacted, StoreError, after_prefix
from . import key_files, restore_staging
from .format import BackupError, Header, Note, Object, Stretching, Writer, stretch

Progress = Callable[[int, int], None]


def _quiet(done: int, of: int) -> None:
    """No progress report."""


async def take(
    source: Source,
    path: Path,
    passphrase: str,
    clock: Clock,
    entropy: Entropy,
    *,
    force: bool = False,
    progress: Progress = _quiet,
    cost: ScryptCost = ScryptCost(),  # noqa: B008 - a constant
) -> Header:
    """Write `path`, completely or not at all. Raises BackupError and StoreError."""
    key, how = stretch(passphrase, Stretching(*cost, entropy.token_bytes(16)))
    header = Header(
        remuda=__version__,
        time=datetime.fromtimestamp(int(clock.time()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        store=source.kind,
        revision=source.revision,
        objects=source.objects,
        scrypt=how,
    )
    with appearing(path, entropy, force) as file:
        writer = Writer(file, header, key)
        for record in key_files.records(source.material, source.own):
            writer.add(record)
        for note in source.notes:
            writer.add(note)
        async for batch in source.batches:
            for entry in batch:
                writer.add(entry)
            progress(writer.objects, source.objects)
        writer.finish()
    return header


# --- output file ----------------------------------------------------------------------------------------------------------
#
# A file that appears completely or not at all: written to a temporary name, synced, renamed.


def check_free(path: Path, force: bool) -> None:
    """Raise BackupError unless a new file may be written here."""
    if path.is_dir():
        raise BackupError(f"{path} is a directory: say the name of the file, too")
    if not path.parent.is_dir():
        raise BackupError(f"{path.parent} is not there: make the directory first")
    if path.exists() and not force:
        raise BackupError(f"{path} is there already: say another name, or --force to replace it")


@contextmanager
def appearing(path: Path, entropy: Entropy, force: bool = False) -> Iterator[BinaryIO]:
    """A new file that only its owner may read; it appears at `path`, durably, when the block ends without an error."""
    check_free(path, force)
    _clear_leftovers(path)
    partial = path.with_name(f".{path.name}.{entropy.token_bytes(6).hex()}.partial")
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                # The writer holds a lock: a partial file without a lock was left behind by a crashed process.
                fcntl.flock(file, fcntl.LOCK_EX)
                yield file
                file.flush()
                os.fsync(file.fileno())
                check_free(path, force)
                partial.rename(path)
            sync(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise BackupError(f"{path} can't be written: {error.strerror or error}") from error


def _clear_leftovers(path: Path) -> None:
    for left in path.parent.glob(f".{_escaped(path.name)}.*.partial"):
        try:
            with left.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink()
        except OSError:
            continue


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


# --- sources --------------------------------------------------------------------------------------------------------------
#
# The source of a backup: a store at one revision, read in batches while servers run.
#
# sqlite keeps a reader's view of the database for as long as its transaction lasts, even while the server writes. etcd is read
# page by page, all at the revision of the first page.


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
    material: KeyMaterial
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
