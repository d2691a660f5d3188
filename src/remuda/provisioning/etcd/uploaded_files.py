"""Snapshots that users upload, on the disk of the management server (docs/reference/operations.md#upload).

A file comes in pieces, so that an upload that was cut goes on where it ended; it is known by its SHA-256. When it is complete and
valid it is kept for the hosts of its cluster, until its ETCDSnapshot is deleted. The functions of :class:`UploadedFiles` block:
call them in a thread. :mod:`remuda.gateway.registration.snapshot_uploads` serves users and hosts.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from remuda.kube.clock import Clock
from remuda.kube.errors import ApiError, bad_request

from . import database_reader, snapshot_content
from .database_reader import Contents

# Below this path hosts get the files of their clusters, by their hashes.
HOSTS_PATH: Final = "/v3/connect/snapshots"
LARGEST: Final = database_reader.LARGEST
# Of one cluster, complete or not.
MOST: Final = 3
# What must stay free on the disk, which also has the database of the management server.
ROOM: Final = 2 << 30
# An upload that nothing has come of for so long is given up; a complete file gets its ETCDSnapshot at once.
_ABANDONED: Final = 24 * 3600.0
_HASH = re.compile(r"[0-9a-f]{64}")
_PART: Final = ".part"


@dataclass(frozen=True, slots=True)
class Upload:
    """A file of the cluster with this uid of its clusters.provisioning.cattle.io."""

    cluster: str
    sha256: str


def upload_of(cluster: str, sha256: str) -> Upload:
    """Raises ApiError for what is no hash."""
    if not _HASH.fullmatch(sha256):
        raise bad_request("a file is named by its SHA-256, 64 digits from 0 to f")
    return Upload(cluster, sha256)


class UploadedFiles:
    def __init__(self, directory: Path, clock: Clock, room: int = ROOM) -> None:
        self._directory = directory
        self._clock = clock
        self._room = room

    def path(self, upload: Upload) -> Path | None:
        """The complete and valid file; None if it is not here."""
        found = self._place(upload)
        return found if found.is_file() else None

    def received(self, upload: Upload) -> int:
        """How much of it is here."""
        complete = self.path(upload)
        if complete is not None:
            return complete.stat().st_size
        part = self._part(upload)
        return part.stat().st_size if part.exists() else 0

    def add(self, upload: Upload, offset: int, size: int, piece: bytes) -> int:
        """Append a piece of a file of `size` bytes; how much is here then. Raises ApiError."""
        if not 0 < size <= LARGEST or offset + len(piece) > size:
            raise bad_request(f"a snapshot has at most {LARGEST} bytes, and no more than it says")
        here = self.received(upload)
        if offset != here:
            raise ApiError(409, "Conflict", f"{here} bytes of it are here: go on from there")
        part = self._part(upload)
        if not part.exists():
            self._begin(upload)
        if shutil.disk_usage(self._directory).free - (size - here) < self._room:
            raise ApiError(507, "InsufficientStorage", f"the disk of the management server has no room for {size} bytes")
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "ab") as file:
            file.write(piece)
        return here + len(piece)

    def _begin(self, upload: Upload) -> None:
        directory = self._place(upload).parent
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        there = sorted(directory.iterdir(), key=lambda each: each.stat().st_mtime)
        for abandoned in [each for each in there if each.suffix == _PART][: max(0, len(there) - MOST + 1)]:
            abandoned.unlink()
            there.remove(abandoned)
        if len(there) >= MOST:
            text = f"the management server keeps {MOST} uploaded snapshots of a cluster: delete one (remuda snapshot delete)"
            raise ApiError(409, "Conflict", text)

    def check(self, upload: Upload) -> Contents:
        """Keep a file that has come if it is valid, and remove it if it is not. Raises InvalidSnapshot, and OSError."""
        complete = self.path(upload)
        source = complete or self._part(upload)
        try:
            with source.open("rb") as file:
                if snapshot_content.sha256_of(file) != upload.sha256:
                    raise snapshot_content.InvalidSnapshot("its SHA-256 differs")
                found = snapshot_content.read(file)
                os.fsync(file.fileno())
        except snapshot_content.InvalidSnapshot:
            if complete is None:
                source.unlink()
            raise
        if complete is None:
            source.rename(self._place(upload))
            _settle(source.parent)
        return found

    def remove(self, upload: Upload) -> None:
        for each in (self._place(upload), self._part(upload)):
            each.unlink(missing_ok=True)

    def forget_all_but(self, kept: Collection[Upload]) -> None:
        """Remove files that no ETCDSnapshot stands for, unless they have come of late."""
        before = self._clock.time() - _ABANDONED
        for path in self._all():
            upload = Upload(path.parent.name, path.stem)
            if (path.suffix == _PART or upload not in kept) and path.stat().st_mtime < before:
                path.unlink()

    def is_empty(self) -> bool:
        return next(self._all(), None) is None

    def _all(self) -> Iterator[Path]:
        return (each for each in self._directory.glob("*/*") if _HASH.fullmatch(each.stem))

    def _place(self, upload: Upload) -> Path:
        return self._directory / upload.cluster / upload.sha256

    def _part(self, upload: Upload) -> Path:
        return self._place(upload).with_suffix(_PART)


def _settle(directory: Path) -> None:
    """The names in it outlive a crash: an ETCDSnapshot must not stand for a file that is lost."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
