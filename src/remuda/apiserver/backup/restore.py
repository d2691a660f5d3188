"""Common parts of both kinds of restore."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from remuda.kube.certificates import PkiError
from remuda.kube.clock import Clock

from ..keys import rotation_record
from ..keys.encryption import EncryptionError
from ..keys.shared_keys import Material, fill_directory, is_unmade, read_directory
from .format import Backup, BackupError, Damaged, File, Note, Object
from .key_files import Keyring, are_the_same

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

    material: Material
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


def _arranged(material: Material, noted: bytes | None, path: Path) -> Material:
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


def share_keys(pki_dir: Path, material: Material) -> None:
    """Write these keys into the directory. Existing other keys are never replaced: another state may depend on them."""
    try:
        if is_unmade(pki_dir):
            fill_directory(pki_dir, material)
        # Also after filling it: another process may have been faster.
        if not are_the_same(read_directory(pki_dir), material):
            raise BackupError(f"{pki_dir} has other keys than the backup: say an empty --pki-dir")
    except (PkiError, EncryptionError) as error:
        raise BackupError(str(error)) from error


def check_keys_fit(pki_dir: Path | None, material: Material) -> None:
    """Raise the errors of :func:`share_keys`, before any change."""
    if pki_dir is None or is_unmade(pki_dir):
        return
    share_keys(pki_dir, material)
