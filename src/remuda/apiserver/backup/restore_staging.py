"""How a restored state takes its place in a data directory: all of it or nothing, wherever the machine dies.

A state is several files, and no file system renames several at once. So they are made beside, in a directory of their own, and
then one small file appears that says so: that is the moment. From then on the state is the new one, and whoever opens the data
directory next (a server, or another restore) first brings to its end what is left to do: what was there goes aside, the new comes
in. Each step may be done again.

Before that moment nothing has happened to the old state.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..keys.pki import write_private
from ..storage.sqlite.files import Lock, sync
from ..storage.store import StoreError
from .key_files import DATABASE, PKI

PLACE = ".restoring"
_STAGED = "staged"
# Holds the name that what was there is kept under.
_DECIDED = "decided"
# What was there is aside.
_CLEARED = "cleared"
# All that a state is made of. What else is in a data directory (logs, hosts, programs) belongs to the machine, and stays.
PARTS = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", PKI, "encryption.yaml", "kubeconfig", "bootstrap-password")


def occupied(data_dir: Path) -> list[str]:
    """The parts of a state that are there."""
    return [name for name in PARTS if os.path.lexists(data_dir / name)]


def is_pending(data_dir: Path) -> bool:
    return any((data_dir / PLACE / name).exists() for name in (_DECIDED, _CLEARED))


def complete(data_dir: Path) -> None:
    """Bring a restore to its end, or clear away one that never came so far. Raises StoreError when a server runs."""
    if not (data_dir / PLACE).exists():
        return
    with locked(data_dir):
        _settle(data_dir)


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Nobody else has the state open meanwhile. Raises StoreError."""
    lock = Lock(data_dir / DATABASE)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def staging(data_dir: Path) -> Iterator[Path]:
    """Under the lock: an empty directory to make the new state in; gone afterwards, unless :func:`decide` was called."""
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
    """Under the lock: what is staged is the state from now on. What was there goes into the directory `aside`."""
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
            # Before the rest goes: who finds the word and not what it speaks of could not go on.
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
