"""The contents of a backup: a plain-text header, and records encrypted with the passphrase.

Files come first, keys and certificates by name (:mod:`.key_files`); then the servers' own notes in the store; then the
objects, without encryption at rest, under their keys in the store's layout (:mod:`..storage.key_layout`). None has a
revision: after a restore they get new ones.
"""

from __future__ import annotations

import msgspec

FORMAT = 1
# The first line of a file, up to the number of its format.
MAGIC = b"remuda backup, format "


class Stretching(msgspec.Struct, frozen=True):
    """Key derivation from the passphrase: scrypt's parameters. `check` detects a wrong passphrase."""

    n: int
    r: int
    p: int
    salt: bytes
    check: bytes = b""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The second line, as JSON. `store` is the kind of the source store, `time` the time of the backup in RFC 3339."""

    remuda: str
    time: str
    store: str
    revision: int
    objects: int
    scrypt: Stretching


class File(msgspec.Struct, frozen=True, array_like=True, tag="file"):
    name: str
    content: bytes


class Note(msgspec.Struct, frozen=True, array_like=True, tag="note"):
    """A servers' note that outlives them, such as the progress of a key rotation."""

    key: str
    value: bytes


class Object(msgspec.Struct, frozen=True, array_like=True, tag="object", gc=False):
    """An object. `expires` is the time of its automatic deletion in the store, in seconds since the epoch; 0 for never."""

    key: str
    value: bytes
    expires: float = 0.0


class End(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """The last record, with the number of objects before it."""

    objects: int


Record = File | Note | Object | End


# --- errors ---------------------------------------------------------------------------------------------------------------
#
# Errors of backups; each message is one sentence for an operator.


class BackupError(Exception):
    """A backup that can't be made or restored; the message says what to do."""


class NotABackup(BackupError):
    """The file is not a backup."""


class Damaged(BackupError):
    """The file was changed after it was written, or is incomplete."""


class WrongPassphrase(BackupError):
    """The file is valid, but sealed with another passphrase."""


class TooNew(BackupError):
    """A format of a later Remuda version."""


class NotEmpty(BackupError):
    """The target of the restore is not empty."""


class InUse(BackupError):
    """A server runs on the target of the restore."""
