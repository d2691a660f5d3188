"""The contents of a backup: a plain-text header, and records encrypted with the passphrase.

Files come first, keys and certificates by name (:mod:`.key_files`); then the servers' own notes in the store; then the
objects, without encryption at rest, under their keys in the store's layout (:mod:`..storage.key_layout`). None has a
revision: after a restore they get new ones.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from ..keys.token_sealing import ScryptCost

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


# --- the sealed file ------------------------------------------------------------------------------------------------------
#
# The bytes of a backup: two lines of text, chunks, a checksum.
#
#     remuda backup, format 1\n
#     {"remuda":"…","time":"…",…}\n
#     for each chunk: 0, or 1 for the last one; the length in four bytes; so many bytes
#     SHA-256 over everything before
#
# A chunk is a list of records, in msgpack, deflated, sealed with AES-256-GCM. The key is derived from the passphrase with scrypt
# and a salt of the file's own, so no other file has the same key, and the nonce can be a counter: the chunk's place in the file
# and a flag for the last one. The header's hash is the associated data. So a chunk that is changed, omitted, repeated or moved,
# even to another file, is detected, and so is a missing end.
#
# The checksum needs no passphrase. It tells a damaged file from a wrong passphrase, and makes copies verifiable.


SHORTEST_PASSPHRASE = 12
# Records are gathered up to this size before they are sealed.
CHUNK = 1024 * 1024
_LARGEST_CHUNK = 64 * 1024 * 1024
_LONGEST_HEADER = 64 * 1024
_DIGEST = 32
_BLOCK = 1024 * 1024
_LEVEL = 3

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Record])


def check_passphrase(passphrase: str) -> None:
    if len(passphrase) < SHORTEST_PASSPHRASE:
        raise BackupError(
            f"the passphrase has {len(passphrase)} characters, it must have at least {SHORTEST_PASSPHRASE}: "
            "it is all that keeps every key and Secret in the file from the finder of the file"
        )


def _stretched(passphrase: str, how: Stretching) -> tuple[bytes, bytes]:
    """The key, and the check value that detects a wrong passphrase."""
    found = Scrypt(how.salt, 64, how.n, how.r, how.p).derive(passphrase.encode())
    return found[:32], hashlib.sha256(b"remuda backup check" + found[32:]).digest()[:16]


def stretch(passphrase: str, how: Stretching) -> tuple[bytes, Stretching]:
    """The key of a new file, and the parameters to derive it again."""
    check_passphrase(passphrase)
    key, check = _stretched(passphrase, how)
    return key, msgspec.structs.replace(how, check=check)


def _nonce(place: int, last: bool) -> bytes:
    return place.to_bytes(11, "big") + (b"\1" if last else b"\0")


class Writer:
    """Writes one backup to an open file. :meth:`finish` completes it."""

    def __init__(self, file: BinaryIO, header: Header, key: bytes) -> None:
        self._file = file
        self._cipher = AESGCM(key)
        self._sum = hashlib.sha256()
        self._place = 0
        self._waiting: list[Record] = []
        self._size = 0
        self.objects = 0
        head = MAGIC + f"{FORMAT}\n".encode() + msgspec.json.encode(header) + b"\n"
        self._bound = hashlib.sha256(head).digest()
        self._write(head)

    def add(self, record: File | Note | Object) -> None:
        self._waiting.append(record)
        self._size += len(record.content) if isinstance(record, File) else len(record.value)
        self.objects += isinstance(record, Object)
        if self._size >= CHUNK:
            self._chunk(last=False)

    def finish(self) -> None:
        self._waiting.append(End(self.objects))
        self._chunk(last=True)
        self._file.write(self._sum.digest())

    def _chunk(self, last: bool) -> None:
        plain = zlib.compress(_encoder.encode(self._waiting), _LEVEL)
        data = self._cipher.encrypt(_nonce(self._place, last), plain, self._bound)
        self._write((b"\1" if last else b"\0") + len(data).to_bytes(4, "big"))
        self._write(data)
        self._place += 1
        self._waiting, self._size = [], 0

    def _write(self, data: bytes) -> None:
        self._sum.update(data)
        self._file.write(data)


class Backup:
    """A file whose header has been read, and whose checksum is valid."""

    def __init__(self, path: Path, header: Header, bound: bytes, start: int) -> None:
        self.path = path
        self.header = header
        self._bound = bound
        self._start = start

    @classmethod
    def open(cls, path: Path) -> Backup:
        """Open a backup; raises BackupError when the file is not a backup, too new, or damaged."""
        with path.open("rb") as file:
            head, header = _read_header(file, path)
        _check_sum(path)
        return cls(path, header, hashlib.sha256(head).digest(), len(head))

    def key(self, passphrase: str) -> bytes:
        how = self.header.scrypt
        key, check = _stretched(passphrase, how)
        if not hmac.compare_digest(check, how.check):
            raise WrongPassphrase(f"the passphrase is not the one that {self.path} was sealed with: give that one")
        return key

    def records(self, key: bytes) -> Iterator[File | Note | Object]:
        """All records, with one chunk in memory at a time. Raises Damaged, at the latest at the end."""
        cipher = AESGCM(key)
        objects = 0
        with self.path.open("rb") as file:
            file.seek(self._start)
            place, last = 0, False
            while not last:
                last, records = self._chunk(file, cipher, place)
                place += 1
                for record in records:
                    if isinstance(record, End):
                        if not last or record.objects != objects or record is not records[-1]:
                            raise _damaged(self.path, "its end does not fit to what comes before")
                        return
                    objects += isinstance(record, Object)
                    yield record
        raise _damaged(self.path, "its end is missing")

    def verify(self, key: bytes, progress: Callable[[int], None] = lambda done: None) -> int:
        """Decrypt everything without keeping it. Gives the number of objects."""
        objects = 0
        for record in self.records(key):
            if isinstance(record, Object):
                objects += 1
                progress(objects)
        return objects

    def _chunk(self, file: BinaryIO, cipher: AESGCM, place: int) -> tuple[bool, Sequence[Record]]:
        start = file.read(5)
        length = int.from_bytes(start[1:], "big")
        if len(start) < 5 or start[0] > 1 or length > _LARGEST_CHUNK:
            raise _damaged(self.path, f"chunk {place} is not where it should be")
        last = bool(start[0])
        try:
            plain = cipher.decrypt(_nonce(place, last), file.read(length), self._bound)
            return last, _decoder.decode(_inflated(plain))
        except (InvalidTag, ValueError, zlib.error, msgspec.DecodeError):
            raise _damaged(self.path, f"chunk {place} does not open") from None


def _inflated(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    found = inflater.decompress(data, 4 * _LARGEST_CHUNK)
    if not inflater.eof:
        raise ValueError("too large")
    return found


def _read_header(file: BinaryIO, path: Path) -> tuple[bytes, Header]:
    first = file.readline(len(MAGIC) + 16)
    number = first[len(MAGIC) :].strip()
    if not first.startswith(MAGIC) or not number.isdigit():
        raise NotABackup(f"{path} is not a backup of Remuda: it does not begin like one")
    if int(number) > FORMAT:
        raise TooNew(
            f"{path} has format {int(number)}, and this Remuda knows up to {FORMAT}: restore it with the version that wrote it"
        )
    second = file.readline(_LONGEST_HEADER)
    try:
        header = msgspec.json.decode(second, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _damaged(path, "its header can't be read") from None
    if problem := ScryptCost(header.scrypt.n, header.scrypt.r, header.scrypt.p).problem():
        raise _damaged(path, f"its header can't be right, {problem}")
    return first + second, header


def _check_sum(path: Path) -> None:
    left = path.stat().st_size - _DIGEST
    found = hashlib.sha256()
    with path.open("rb") as file:
        while left > 0 and (block := file.read(min(_BLOCK, left))):
            found.update(block)
            left -= len(block)
        if left or file.read() != found.digest():
            raise _damaged(path, "its checksum is wrong")


def _damaged(path: Path, what: str) -> Damaged:
    return Damaged(f"{path} is damaged: {what}; take another copy of it")
