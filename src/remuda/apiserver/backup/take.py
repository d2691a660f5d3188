"""Takes a backup: from a source to a file, one batch at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from remuda import __version__
from remuda.kube.clock import Clock, Entropy

from ..keys.token_sealing import Cost
from ..storage.sqlite.files import sync
from . import key_files
from .format import BackupError, Header, Stretching
from .sealed_file import Writer, stretch
from .sources import Source

Progress = Callable[[int, int], None]


def _quiet(done: int, of: int) -> None:
    """No progress report."""


async def take(
    source: Source,
    path: Path,
    passphrase: str,
    clock: Clock,
    entropy: Entropy,
    *,
    force: bool = False,
    progress: Progress = _quiet,
    cost: Cost = Cost(),  # noqa: B008 - a constant
) -> Header:
    """Write `path`, completely or not at all. Raises BackupError and StoreError."""
    key, how = stretch(passphrase, Stretching(*cost, entropy.token_bytes(16)))
    header = Header(
        remuda=__version__,
        time=datetime.fromtimestamp(int(clock.time()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        store=source.kind,
        revision=source.revision,
        objects=source.objects,
        scrypt=how,
    )
    with appearing(path, entropy, force) as file:
        writer = Writer(file, header, key)
        for record in key_files.records(source.material, source.own):
            writer.add(record)
        for note in source.notes:
            writer.add(note)
        async for batch in source.batches:
            for entry in batch:
                writer.add(entry)
            progress(writer.objects, source.objects)
        writer.finish()
    return header


# --- output file ----------------------------------------------------------------------------------------------------------
#
# A file that appears completely or not at all: written to a temporary name, synced, renamed.


def check_free(path: Path, force: bool) -> None:
    """Raise BackupError unless a new file may be written here."""
    if path.is_dir():
        raise BackupError(f"{path} is a directory: say the name of the file, too")
    if not path.parent.is_dir():
        raise BackupError(f"{path.parent} is not there: make the directory first")
    if path.exists() and not force:
        raise BackupError(f"{path} is there already: say another name, or --force to replace it")


@contextmanager
def appearing(path: Path, entropy: Entropy, force: bool = False) -> Iterator[BinaryIO]:
    """A new file that only its owner may read; it appears at `path`, durably, when the block ends without an error."""
    check_free(path, force)
    _clear_leftovers(path)
    partial = path.with_name(f".{path.name}.{entropy.token_bytes(6).hex()}.partial")
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                # The writer holds a lock: a partial file without a lock was left behind by a crashed process.
                fcntl.flock(file, fcntl.LOCK_EX)
                yield file
                file.flush()
                os.fsync(file.fileno())
                check_free(path, force)
                partial.rename(path)
            sync(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise BackupError(f"{path} can't be written: {error.strerror or error}") from error


def _clear_leftovers(path: Path) -> None:
    for left in path.parent.glob(f".{_escaped(path.name)}.*.partial"):
        try:
            with left.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink()
        except OSError:
            continue


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
