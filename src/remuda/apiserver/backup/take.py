"""Taking a backup: from a source to a file, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from remuda import __version__
from remuda.kube.clock import Clock, Entropy

from ..keys.token_sealing import Cost
from . import key_files
from .format import Header, Stretching
from .output_file import appearing
from .sealed_file import Writer, stretch
from .sources import Source

Progress = Callable[[int, int], None]


def _quiet(done: int, of: int) -> None:
    """Nobody looks."""


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
    """Write `path`, whole or not at all. Raises BackupError and StoreError."""
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
