"""Atomic replacement of the state in a data directory: all of it or nothing, even if the machine crashes.

A state is several files, and no file system renames several at once. So the new files are written to a staging directory, and
then one small file commits the restore. From then on the new state is valid: the next process that opens the data directory
(a server, or another restore) first completes the remaining steps, which move the old files aside and the new files in. Each
step can be repeated.

Before the commit, the old state is unchanged.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remuda.kube.private_files import write_private

from ..storage.sqlite.files import Lock, sync
from ..storage.store import StoreError
from .key_files import DATABASE, PKI

PLACE = ".restoring"
_STAGED = "staged"
# The commit file; holds the name of the directory for the old state.
_DECIDED = "decided"
# The old state has been moved aside.
_CLEARED = "cleared"
# All parts of a state. Other files in a data directory (logs, hosts, programs) belong to the machine, and stay.
PARTS = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", PKI, "encryption.yaml", "kubeconfig", "bootstrap-password")


def occupied(data_dir: Path) -> list[str]:
    """The existing parts of a state."""
    return [name for name in PARTS if os.path.lexists(data_dir / name)]


def is_pending(data_dir: Path) -> bool:
    return any((data_dir / PLACE / name).exists() for name in (_DECIDED, _CLEARED))


def complete(data_dir: Path) -> None:
    """Complete a committed restore, or clean up after an uncommitted one. Raises StoreError when a server runs."""
    if not (data_dir / PLACE).exists():
        return
    with locked(data_dir):
        _settle(data_dir)


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Exclusive access to the state. Raises StoreError."""
    lock = Lock(data_dir / DATABASE)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def staging(data_dir: Path) -> Iterator[Path]:
    """Under the lock: an empty directory for the new state; removed on an error, unless :func:`decide` was called."""
    _settle(data_dir)
    staged = data_dir / PLACE / _STAGED
    staged.parent.mkdir(mode=0o700)
    staged.mkdir(mode=0o700)
    try:
        yield staged
    except BaseException:
        if not is_pending(data_dir):
            shutil.rmtree(staged.parent, ignore_errors=True)
        raise


def decide(data_dir: Path, aside: str) -> None:
    """Under the lock: commit the staged state. The old state goes into the directory `aside`."""
    staged = data_dir / PLACE / _STAGED
    for directory, _, files in os.walk(staged):
        for name in files:
            sync(Path(directory, name))
        sync(Path(directory))
    sync(staged.parent)
    sync(data_dir)
    write_private(data_dir / PLACE / _DECIDED, aside.encode())
    _settle(data_dir)


def _settle(data_dir: Path) -> None:
    place = data_dir / PLACE
    decided, cleared = place / _DECIDED, place / _CLEARED
    try:
        if decided.exists():
            _put_aside(data_dir, data_dir / decided.read_text())
            decided.rename(cleared)
            sync(place)
        if cleared.exists():
            staged = place / _STAGED
            for path in sorted(staged.iterdir()):
                path.rename(data_dir / path.name)
            sync(data_dir)
            cleared.unlink()
            # Before the rest is removed: the commit file without its staged files could not be completed.
            sync(place)
        if place.exists():
            shutil.rmtree(place)
    except OSError as error:
        where = error.filename or data_dir
        raise StoreError(f"a restore into {data_dir} can't be brought to its end: {where}: {error.strerror or error}") from error


def _put_aside(data_dir: Path, aside: Path) -> None:
    there = occupied(data_dir)
    if not there:
        return
    aside.mkdir(mode=0o700, exist_ok=True)
    for name in there:
        (data_dir / name).rename(aside / name)
    sync(aside)
    sync(data_dir)
