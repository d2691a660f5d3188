"""The logs of a host as they are read by people: one unit's or all of them, and what comes next."""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path

from .host_directory import Place
from .units.journal import tail

_PAUSE = 0.2


def follow(place: Place, only: Path | None, count: int | None, go_on: bool) -> Iterator[str]:
    """Lines, with the unit's name before them when there are several; they end unless more is asked for."""
    sizes: dict[Path, int] = {}
    for path in _paths(place, only):
        sizes[path] = path.stat().st_size if path.exists() else 0
        yield from (_named(path, only, line) for line in tail(path, count))
    while go_on:
        select.select([], [], [], _PAUSE)
        for path in _paths(place, only):
            yield from (_named(path, only, line) for line in _more(path, sizes))


def _paths(place: Place, only: Path | None) -> list[Path]:
    return [only] if only is not None else sorted(place.logs.glob("*.log"))


def _more(path: Path, sizes: dict[Path, int]) -> list[str]:
    try:
        size = path.stat().st_size
        # Smaller than before: it was put aside, and this is the next one.
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
