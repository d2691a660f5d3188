"""Which program a service runs, and whether its user can."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import remuda

_HOMES = tuple(map(Path, ("/home", "/root", "/run/user")))
_TEMPORARY = tuple(map(Path, ("/tmp", "/var/tmp")))


@dataclass(frozen=True, slots=True)
class Program:
    """`places` is everything that has to be readable."""

    words: tuple[str, ...]
    places: tuple[Path, ...]

    @property
    def at_home(self) -> bool:
        return any(_below(place, _HOMES) for place in self.places)

    @property
    def temporary(self) -> Path | None:
        return next((place for place in self.places if _below(place, _TEMPORARY)), None)

    @property
    def closed(self) -> Path | None:
        """What other users can't read or pass."""
        return next((path for path in _with_parents(self.places) if not open_to_all(path)), None)


def this_program() -> Program:
    """The one that runs now, as it was installed."""
    beside = Path(sys.executable).with_name("remuda")
    words = (str(beside),) if beside.is_file() else (sys.executable, "-m", "remuda")
    places = (Path(words[0]), Path(sys.executable), Path(sys.prefix), Path(sys.base_prefix), Path(remuda.__file__))
    return Program(words, tuple(dict.fromkeys(place.resolve() for place in places)))


def open_to_all(path: Path) -> bool:
    mode = path.stat().st_mode
    return bool(mode & stat.S_IROTH and (not stat.S_ISDIR(mode) or mode & stat.S_IXOTH))


def _with_parents(places: Iterable[Path]) -> Iterable[Path]:
    return sorted({path for place in places for path in (place, *place.parents)})


def _below(place: Path, directories: Iterable[Path]) -> bool:
    return any(directory in place.parents for directory in directories)
