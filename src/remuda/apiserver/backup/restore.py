"""What both ways to restore have in common."""

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
from .format import BackupError, Damaged, File, Note, Object
from .key_files import Keyring, are_the_same
from .sealed_file import Backup

# Clients remember resourceVersions from after the backup, too, and how many were handed out by then nobody knows any more. A
# thousand writes a second would need eleven days for this.
MARGIN = 1_000_000_000


class Restored(NamedTuple):
    """How many objects came back, how many had outlived their time, the revision they begin at, and where the old state is."""

    objects: int
    over: int
    revision: int
    aside: Path | None


class Contents(NamedTuple):
    """`notes` by their keys."""

    material: Material
    own: dict[str, bytes]
    notes: dict[str, bytes]
    objects: Iterator[Object]


def contents(backup: Backup, key: bytes) -> Contents:
    """The keys and notes, and then the objects one by one."""
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
    """The keys in the order that a rotation has given them."""
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
    """For what was there before."""
    return datetime.fromtimestamp(clock.time(), UTC).strftime("before-restore-%Y%m%dT%H%M%S%fZ")


def share_keys(pki_dir: Path, material: Material) -> None:
    """Afterwards the directory has these keys. One that has others is left alone: they may be all that opens something else."""
    try:
        if is_unmade(pki_dir):
            fill_directory(pki_dir, material)
        # Also when it was just filled: somebody else may have been faster.
        if not are_the_same(read_directory(pki_dir), material):
            raise BackupError(f"{pki_dir} has other keys than the backup: say an empty --pki-dir")
    except (PkiError, EncryptionError) as error:
        raise BackupError(str(error)) from error


def check_keys_fit(pki_dir: Path | None, material: Material) -> None:
    """Raise what :func:`share_keys` would, before anything is done."""
    if pki_dir is None or is_unmade(pki_dir):
        return
    share_keys(pki_dir, material)
