"""Checks and deletions of snapshots in buckets, by the server itself (docs/reference/operations.md#files).

A check downloads the whole file once: its hash is computed on the way, and the database is read from a file without a name, which
is gone with the process.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from dataclasses import replace
from typing import BinaryIO

from . import database_reader, snapshot_content
from .bucket_looks import Wanted
from .file_requests import DELETED, INVALID, VALID, FileAnswer
from .s3 import copies
from .s3.answers import S3Error, Why
from .s3.copies import Folder
from .snapshot_content import InvalidSnapshot

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
        found = snapshot_content.read(packed)
    except InvalidSnapshot as error:
        return FileAnswer(INVALID, f"{location}: {error}")
    return FileAnswer(VALID, revision=found.revision, keys=found.keys)
