"""Checks and deletions of snapshots in buckets, by the server itself (docs/reference/operations.md#files).

A check downloads the whole file once: its hash is computed on the way, and the database is read from a file without a name, which
is gone with the process.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
import tempfile
from dataclasses import replace
from typing import BinaryIO

from . import database_reader
from .bucket_looks import Wanted
from .database_reader import DamagedDatabase
from .file_requests import DELETED, INVALID, VALID, FileAnswer
from .s3 import copies
from .s3.answers import S3Error, Why
from .s3.copies import Folder

# etcd puts the SHA-256 of all that is before it at the end of a snapshot, behind whole pages.
_DIGEST, _PAGE = 32, 512
_WRONG = frozenset({Why.NO_OBJECT, Why.CHANGED})


async def deleted(folder: Folder, wanted: Wanted) -> FileAnswer:
    """Delete a snapshot and its metadata; missing ones are fine. Raises S3Error."""
    await folder.delete(folder.place.key(wanted.name))
    await folder.delete(folder.place.metadata_key(wanted.name))
    return FileAnswer(DELETED)


async def verified(folder: Folder, wanted: Wanted) -> FileAnswer:
    """Raises S3Error and OSError if it can't be checked now."""
    try:
        copy = await copies.checked(folder, wanted.name, wanted.size)
        if copy.size > database_reader.LARGEST:
            return FileAnswer(INVALID, f"{copy.location} is larger than any etcd")
        with tempfile.TemporaryFile() as file:
            digest = await _downloaded(folder, wanted.name, file)
            known = wanted.sha256 or copy.sha256
            if known and known != digest:
                return FileAnswer(INVALID, f"{copy.location} is not the file that was taken: its SHA-256 differs", sha256=digest)
            return replace(await asyncio.to_thread(_read, file, copy.location), sha256=digest)
    except S3Error as error:
        if error.why in _WRONG:
            return FileAnswer(INVALID, str(error))
        raise


async def _downloaded(folder: Folder, name: str, file: BinaryIO) -> str:
    digest = hashlib.sha256()
    async for piece in folder.pieces(await folder.head(folder.place.key(name))):
        await asyncio.to_thread(file.write, piece)
        digest.update(piece)
    return digest.hexdigest()


def _read(packed: BinaryIO, location: str) -> FileAnswer:
    try:
        with database_reader.unpacked(packed) as file:
            if not _is_whole(file):
                return FileAnswer(INVALID, f"{location} is damaged: its content has changed since it was taken")
            revision, keys = database_reader.contents(file)
    except (DamagedDatabase, struct.error) as error:
        return FileAnswer(INVALID, f"{location}: {error}")
    return FileAnswer(VALID, revision=revision, keys=keys)


def _is_whole(file: BinaryIO) -> bool:
    size = file.seek(0, 2)
    if size % _PAGE != _DIGEST:
        return True
    file.seek(0)
    digest, left = hashlib.sha256(), size - _DIGEST
    while left and (piece := file.read(min(left, 1 << 20))):
        digest.update(piece)
        left -= len(piece)
    return digest.digest() == file.read(_DIGEST)
