"""The content of a snapshot's file: whole, and a database of etcd that can be read."""

from __future__ import annotations

import hashlib
import struct
from contextlib import closing, nullcontext
from typing import BinaryIO

from . import database_reader
from .database_reader import Contents, DamagedDatabase

# etcd puts the SHA-256 of all that is before it at the end of a snapshot, behind whole pages.
_DIGEST, _PAGE = 32, 512
_PIECE = 1 << 20


class InvalidSnapshot(ValueError):
    """A file that etcd can't be restored from; the text says why, without naming the file."""


def read(packed: BinaryIO) -> Contents:
    """`packed` stays open. Raises InvalidSnapshot and OSError."""
    if packed.seek(0, 2) > database_reader.LARGEST:
        raise InvalidSnapshot("it is larger than any etcd")
    try:
        file = database_reader.unpacked(packed)
        # What was in an archive is in a file of its own.
        with nullcontext() if file is packed else closing(file):
            if not _is_whole(file):
                raise InvalidSnapshot("it is damaged: its content has changed since it was taken")
            return database_reader.contents(file)
    except (DamagedDatabase, struct.error) as error:
        raise InvalidSnapshot(str(error)) from None


def sha256_of(file: BinaryIO) -> str:
    """The hash of a whole file."""
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        digest.update(piece)
    return digest.hexdigest()


def _is_whole(file: BinaryIO) -> bool:
    size = file.seek(0, 2)
    if size % _PAGE != _DIGEST:
        return True
    file.seek(0)
    digest, left = hashlib.sha256(), size - _DIGEST
    while left and (piece := file.read(min(left, _PIECE))):
        digest.update(piece)
        left -= len(piece)
    return digest.digest() == file.read(_DIGEST)
