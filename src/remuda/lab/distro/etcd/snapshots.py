"""Snapshots of etcd on this host: etcd's own format, one file each, kept in one directory.

`<name>-<node>-<seconds>`, as k3s names them; with `.zip` appended when they are compressed. :mod:`.restore` restores one,
:mod:`.snapshot_files` reports them to the cluster.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from remuda.apiserver.storage.store import StoreError
from remuda.kube.clock import Clock
from remuda.kube.private_files import write_private

from .. import DistroError
from ..config.settings import Paths, Snapshots
from .client import EtcdClient

log = logging.getLogger(__name__)

ON_DEMAND = "on-demand"
_PARTIAL = ".part"
_DIGEST = 32
_PAGE = 512


class SnapshotError(DistroError):
    """A snapshot that could not be made, or does not exist."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    name: str
    path: Path
    size: int
    created: float

    @property
    def location(self) -> str:
        return f"file://{self.path}"


def metadata_file(directory: Path, name: str) -> Path:
    """The file beside a snapshot with the cluster's metadata, so that it survives a restore."""
    return directory.parent / ".metadata" / name


def listed(directory: Path) -> list[Snapshot]:
    """The existing snapshots, by name."""
    if not directory.is_dir():
        return []
    found = []
    for path in sorted(directory.iterdir()):
        if path.is_file() and not path.name.startswith(".") and path.suffix != _PARTIAL:
            status = path.stat()
            found.append(Snapshot(path.name, path, status.st_size, status.st_mtime))
    return found


def surplus(found: Sequence[Snapshot], prefix: str, retention: int) -> list[Snapshot]:
    """The snapshots to remove so that the newest of one kind stay; none without a limit."""
    if retention < 1:
        return []
    kind = sorted((each for each in found if each.name.startswith(prefix)), key=lambda each: (each.created, each.name))
    return kind[:-retention]


async def save(client: EtcdClient, options: Snapshots, name: str, node: str, clock: Clock) -> Snapshot:
    """Raises SnapshotError."""
    directory = options.directory
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / f"{name}-{node}-{int(clock.time())}"
    partial = path.with_name(path.name + _PARTIAL)
    try:
        await _fetch(client, partial)
        if options.compress:
            partial, path = await asyncio.to_thread(_compressed, partial, path.name), path.with_name(f"{path.name}.zip")
        partial.rename(path)
    except (StoreError, OSError) as error:
        raise SnapshotError(f"the snapshot {path.name} could not be saved: {error}") from None
    finally:
        partial.unlink(missing_ok=True)
    status = path.stat()
    log.info("saved the snapshot %s, %d bytes", path.name, status.st_size)
    return Snapshot(path.name, path, status.st_size, status.st_mtime)


async def _fetch(client: EtcdClient, path: Path) -> None:
    """Fetch all of it, checked by the digest that etcd puts at its end."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    digest, tail, size = hashlib.sha256(), b"", 0
    with os.fdopen(handle, "wb") as file:
        async for piece in client.snapshot():
            size += len(piece)
            file.write(piece)
            tail += piece
            digest.update(tail[:-_DIGEST])
            tail = tail[-_DIGEST:]
        file.flush()
        os.fsync(file.fileno())
    if size % _PAGE != _DIGEST or digest.digest() != tail:
        raise SnapshotError("what etcd sent is not a whole snapshot: its digest is another")


def _compressed(path: Path, name: str) -> Path:
    made = path.with_name(f"{name}.zip{_PARTIAL}")
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(path, name)
    made.chmod(0o600)
    path.unlink()
    return made


def delete(directory: Path, names: Sequence[str]) -> list[str]:
    """Delete snapshots; the names of those that existed. Nothing outside of the directory is touched."""
    known = {each.name: each for each in listed(directory)}
    gone = [name for name in names if name in known]
    for name in gone:
        known[name].path.unlink(missing_ok=True)
        metadata_file(directory, name).unlink(missing_ok=True)
    return gone


def prune(options: Snapshots, name: str, node: str) -> list[str]:
    """Delete surplus snapshots of one kind; their names."""
    extra = surplus(listed(options.directory), f"{name}-{node}-", options.retention)
    return delete(options.directory, [each.name for each in extra])


# --- failures ---------------------------------------------------------------------------------------------------------------
#
# Snapshots and copies that could not be made, for the cluster's manager: a file each, for a day, as k3s keeps them.

LOCAL, REMOTE = "local", "s3"
_KEPT_SECONDS = 24 * 3600.0


class Failure(msgspec.Struct, frozen=True):
    name: str
    storage: str
    time: float
    message: str


def note_failure(paths: Paths, failure: Failure) -> None:
    directory = paths.failed_snapshots
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(directory / f"{failure.storage}-{failure.name}", msgspec.json.encode(failure))


def failures(paths: Paths, now: float) -> list[Failure]:
    """Those of the last day; older ones are removed."""
    found = []
    for path in sorted(paths.failed_snapshots.iterdir()) if paths.failed_snapshots.is_dir() else ():
        try:
            failure = msgspec.json.decode(path.read_bytes(), type=Failure)
        except (OSError, msgspec.DecodeError):
            continue
        if now - failure.time > _KEPT_SECONDS:
            path.unlink(missing_ok=True)
        else:
            found.append(failure)
    return found
