"""What is in a backup: a header that anybody can read, and records that only the passphrase opens.

Files come first, keys and certificates by name (:mod:`.key_files`); then what servers have noted in the store for themselves;
then the objects, without encryption at rest, under their keys in the store's layout (:mod:`..storage.key_layout`). None has a
revision: after a restore they get new ones.
"""

from __future__ import annotations

import msgspec

FORMAT = 1
# The first line of a file, up to the number of its format.
MAGIC = b"remuda backup, format "


class Stretching(msgspec.Struct, frozen=True):
    """How the passphrase becomes a key: scrypt's numbers. `check` tells a wrong passphrase."""

    n: int
    r: int
    p: int
    salt: bytes
    check: bytes = b""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The second line, as JSON. `store` is the kind it was taken from, `time` when, in RFC 3339."""

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
    """What outlives the servers that noted it, such as how far a rotation of keys is."""

    key: str
    value: bytes


class Object(msgspec.Struct, frozen=True, array_like=True, tag="object", gc=False):
    """`expires`: when the store deletes it by itself, in seconds since the epoch; 0 for never."""

    key: str
    value: bytes
    expires: float = 0.0


class End(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """The last record; how many objects came before it."""

    objects: int


Record = File | Note | Object | End


# --- errors ---------------------------------------------------------------------------------------------------------------
#
# What goes wrong with backups; each is one sentence for an operator.


class BackupError(Exception):
    """A backup that can't be made or restored; the message says what to do."""


class NotABackup(BackupError):
    """The file is something else."""


class Damaged(BackupError):
    """The file is not as it was written."""


class WrongPassphrase(BackupError):
    """The file is whole, but sealed with another passphrase."""


class TooNew(BackupError):
    """A format that a later Remuda writes."""


class NotEmpty(BackupError):
    """The place to restore into holds something already."""


class InUse(BackupError):
    """A server runs on the place to restore into."""
