"""Restore of a backup: the parts that all kinds share, and the one into a data directory.

There a new database and its keys are staged, then replace the old state in one step. :mod:`.restore_to_etcd` is the other kind.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from remuda.kube.certificates import PkiError
from remuda.kube.clock import Clock, Entropy
from remuda.kube.private_files import write_private

from ..keys import rotation_record
from ..keys.encryption import EncryptionError
from ..keys.shared_keys import KeyMaterial, fill_directory, is_unmade, read_directory
from ..storage.sqlite import reader, tables
from ..storage.sqlite.files import speaking, transaction
from ..storage.store import StoreError
from . import key_files, restore_staging
from .format import Backup, BackupError, Damaged, File, InUse, Note, NotEmpty, Object
from .key_files import Keyring, are_the_same
from .take import Progress, is_over, sealed

# Clients may remember resourceVersions from after the backup, and the number of these is unknown. A thousand writes a second
# would need eleven days for this.
MARGIN = 1_000_000_000


class Restored(NamedTuple):
    """The numbers of restored and of expired objects, the first revision, and the path of the old state."""

    objects: int
    over: int
    revision: int
    aside: Path | None


class Contents(NamedTuple):
    """The contents of a backup; `notes` by their keys."""

    material: KeyMaterial
    own: dict[str, bytes]
    notes: dict[str, bytes]
    objects: Iterator[Object]


def contents(backup: Backup, key: bytes) -> Contents:
    """The keys and notes, and an iterator of the objects."""
    keyring = Keyring(backup.path)
    notes: dict[str, bytes] = {}
    first: list[Object] = []
    records = backup.records(key)
    for found in records:
        if isinstance(found, Object):
            first.append(found)
            break
        if isinstance(found, Note):
            notes[found.key] = found.value
        else:
            keyring.add(found)
    material = _arranged(keyring.material, notes.get(rotation_record.KEY), backup.path)
    return Contents(material, keyring.own, notes, chain(first, _objects(records, backup.path)))


def _arranged(material: KeyMaterial, noted: bytes | None, path: Path) -> KeyMaterial:
    """The keys in the order given by a rotation."""
    if noted is None:
        return material
    try:
        return rotation_record.arranged(material, msgspec.json.decode(noted, type=rotation_record.Record))
    except (PkiError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BackupError(f"the keys in {path} are not those that it says it has ({error}): take another backup") from None


def _objects(records: Iterator[File | Note | Object], path: Path) -> Iterator[Object]:
    for found in records:
        if not isinstance(found, Object):
            raise Damaged(f"{path} has files after objects, which no Remuda writes: take another backup")
        yield found


def timed_name(clock: Clock) -> str:
    """A name for the replaced state."""
    return datetime.fromtimestamp(clock.time(), UTC).strftime("before-restore-%Y%m%dT%H%M%S%fZ")


def share_keys(pki_dir: Path, material: KeyMaterial) -> None:
    """Write these keys into the directory. Existing other keys are never replaced: another state may depend on them."""
    try:
        if is_unmade(pki_dir):
            fill_directory(pki_dir, material)
        # Also after filling it: another process may have been faster.
        if not are_the_same(read_directory(pki_dir), material):
            raise BackupError(f"{pki_dir} has other keys than the backup: say an empty --pki-dir")
    except (PkiError, EncryptionError) as error:
        raise BackupError(str(error)) from error


def check_keys_fit(pki_dir: Path | None, material: KeyMaterial) -> None:
    """Raise the errors of :func:`share_keys`, before any change."""
    if pki_dir is None or is_unmade(pki_dir):
        return
    share_keys(pki_dir, material)


# --- into a data directory ----------------------------------------------------------------------------------------------

_INSERT = "INSERT INTO log (id, prev, created, at, expires, key, value) VALUES (?, 0, ?, ?, ?, ?, ?)"


def restore(
    backup: Backup,
    key: bytes,
    data_dir: Path,
    pki_dir: Path | None,
    clock: Clock,
    entropy: Entropy,
    *,
    force: bool,
    progress: Progress,
) -> Restored:
    """Restore the backup. Raises BackupError and StoreError; the old state is unchanged then."""
    with contextlib.ExitStack() as stack:
        try:
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(restore_staging.locked(data_dir))
        except StoreError as error:
            raise InUse(f"a server runs on {data_dir}, or another restore: {error}") from error
        except OSError as error:
            raise BackupError(f"{error.filename or data_dir} can't be used: {error.strerror}; say another --data-dir") from error
        was_pending = restore_staging.is_pending(data_dir)
        staged = stack.enter_context(restore_staging.staging(data_dir))
        there = restore_staging.occupied(data_dir)
        if there and not force:
            completed = "an earlier restore has just been brought to its end; " if was_pending else ""
            raise NotEmpty(
                f"{data_dir} is not empty, {completed}{there[0]} is there: say another --data-dir, "
                "or --force to put aside what is there"
            )
        found = contents(backup, key)
        check_keys_fit(pki_dir, found.material)
        base = max(backup.header.revision, _newest(data_dir)) + MARGIN
        restored = _fill(staged, found, pki_dir, base, backup.header.objects, clock, entropy, progress)
        if pki_dir is not None:
            share_keys(pki_dir, found.material)
        aside = timed_name(clock)
        restore_staging.decide(data_dir, aside)
        return restored._replace(aside=data_dir / aside if there else None)


def _newest(data_dir: Path) -> int:
    """The revision of the database that is to be replaced; 0 for a damaged one."""
    path = data_dir / key_files.DATABASE
    if not path.exists():
        return 0
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return reader.newest(connection)
    except sqlite3.Error:
        return 0


def _fill(
    staged: Path,
    found: Contents,
    pki_dir: Path | None,
    base: int,
    expected: int,
    clock: Clock,
    entropy: Entropy,
    progress: Progress,
) -> Restored:
    (staged / key_files.PKI).mkdir(mode=0o700)
    for name, content in found.own.items():
        write_private(staged / name, content)
    if pki_dir is None:
        files = found.material.files()
        for name, path in key_files.places(staged).items():
            write_private(path, files[name])
    path = staged / key_files.DATABASE
    path.touch(mode=0o600)
    with speaking(path, staged, "write"), contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        # An incomplete file is never used, so it needs no rollback.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        tables.create(connection)
        with transaction(connection):
            return _insert(connection, found, base, expected, clock, entropy, progress)


def _insert(
    connection: sqlite3.Connection, found: Contents, base: int, expected: int, clock: Clock, entropy: Entropy, progress: Progress
) -> Restored:
    now, revision, done, over = clock.time(), base, 0, 0

    def insert(key: str, value: bytes, expires: float = 0.0) -> None:
        nonlocal revision
        revision += 1
        connection.execute(_INSERT, (tables.first_id(revision), revision, now, expires or None, key, value))

    for key, value in found.notes.items():
        insert(key, value)
    for entry, value in sealed(found.objects, found.material.envelope(entropy), ""):
        if is_over(entry, now):
            over += 1
            continue
        insert(entry.key, value, entry.expires)
        done += 1
        progress(done, expected)
    last = tables.last_id(revision)
    reached = {"swept": last, "pruned": last, "pruned_at": now}
    tables.set_meta(connection, {"revision": revision, "at": now, "floor": revision, **reached})
    return Restored(done, over, base + 1, None)
