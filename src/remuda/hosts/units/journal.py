"""Output of units, a file each, every line with its time; large files are rotated."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Iterator
from pathlib import Path

from remuda.kube.clock import Clock, rfc3339

from ..host_directory import HostDirectory

LARGEST = 4 << 20
KEPT = 2
_LONGEST_LINE = 16 << 10
# The capacity of a pipe.
_PIECE = 1 << 16


class Journal:
    """The log of one unit."""

    def __init__(self, path: Path, clock: Clock, largest: int = LARGEST, kept: int = KEPT) -> None:
        self._path = path
        self._clock = clock
        self._largest = largest
        self._kept = kept
        self._rest = b""

    def write(self, chunk: bytes) -> None:
        """Write output as it comes: whole lines, and overlong lines in pieces."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        while len(self._rest) > _LONGEST_LINE:
            whole.append(self._rest[:_LONGEST_LINE])
            self._rest = self._rest[_LONGEST_LINE:]
        if whole:
            self._append(whole)

    def note(self, text: str) -> None:
        """Write a line of the init's own."""
        self.flush()
        self._append([b"-- " + text.encode()])

    def flush(self) -> None:
        if self._rest:
            self._append([self._rest])
            self._rest = b""

    def _append(self, lines: list[bytes]) -> None:
        moment = rfc3339(self._clock.time()).encode()
        content = b"".join(moment + b" " + line.removesuffix(b"\r") + b"\n" for line in lines)
        try:
            # Opened each time: if the file is removed or moved meanwhile, no later output is lost.
            with self._path.open("ab") as stream:
                stream.write(content)
                size = stream.tell()
            if size > self._largest:
                self._rotate()
        except OSError:
            # A full disk must not stop the logged program; there is nowhere to report it.
            return

    def _rotate(self) -> None:
        for number in range(self._kept, 0, -1):
            older = self._path if number == 1 else numbered(self._path, number - 1)
            if older.exists():
                older.replace(numbered(self._path, number))


class OutputPipe:
    """The pipe that a unit's processes write to; what they write goes into the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._read_end, self._write_end = -1, -1

    def open(self) -> int:
        """The descriptor for processes, the same as long as the pipe is open."""
        if self._write_end < 0:
            self._read_end, self._write_end = os.pipe()
            os.set_blocking(self._read_end, False)
            asyncio.get_running_loop().add_reader(self._read_end, self._drain)
        return self._write_end

    def close(self) -> None:
        if self._write_end >= 0:
            asyncio.get_running_loop().remove_reader(self._read_end)
            self._drain()
            self._journal.flush()
            os.close(self._read_end)
            os.close(self._write_end)
            self._read_end, self._write_end = -1, -1

    def _drain(self) -> None:
        # One piece at a time: a flood of output must not block everything else.
        with contextlib.suppress(BlockingIOError):
            self._journal.write(os.read(self._read_end, _PIECE))


def numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def tail(path: Path, count: int | None) -> list[str]:
    """The last lines of a log, including its older files; all without a count."""
    lines: list[str] = []
    for number in range(KEPT, -1, -1):
        part = numbered(path, number) if number else path
        if part.exists():
            lines += part.read_text(errors="replace").splitlines()
    return lines if count is None else lines[len(lines) - min(count, len(lines)) :]


# --- log follower ---------------------------------------------------------------------------------------------------------
#
# The logs of a host for people: one unit's or all of them, and new lines as they come.

_PAUSE = 0.2


def follow(place: HostDirectory, only: Path | None, count: int | None, go_on: bool) -> Iterator[str]:
    """Lines, with the unit's name in front if there are several units; with `go_on`, also new ones, without end."""
    sizes: dict[Path, int] = {}
    for path in _paths(place, only):
        sizes[path] = path.stat().st_size if path.exists() else 0
        yield from (_named(path, only, line) for line in tail(path, count))
    while go_on:
        select.select([], [], [], _PAUSE)
        for path in _paths(place, only):
            yield from (_named(path, only, line) for line in _more(path, sizes))


def _paths(place: HostDirectory, only: Path | None) -> list[Path]:
    return [only] if only is not None else sorted(place.logs.glob("*.log"))


def _more(path: Path, sizes: dict[Path, int]) -> list[str]:
    try:
        size = path.stat().st_size
        # Smaller than before: the file was rotated, and this is the next one.
        seen = min(sizes.get(path, 0), size) if size >= sizes.get(path, 0) else 0
        with path.open("rb") as stream:
            stream.seek(seen)
            content = stream.read(size - seen)
    except FileNotFoundError:
        return []
    whole = content[: content.rfind(b"\n") + 1]
    sizes[path] = seen + len(whole)
    return whole.decode(errors="replace").splitlines()


def _named(path: Path, only: Path | None, line: str) -> str:
    return line if only is not None else f"{path.name.removesuffix('.log').removesuffix('.service')}: {line}"
