"""The units of a host, and those that start with it: files and links, exactly where systemd keeps them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from . import unitfile
from .unitfile import Unit, UnitError

_TARGETS = ("default.target", "multi-user.target", "graphical.target", "network-online.target")


class NoSuchUnit(UnitError):
    """There is no file for a unit of this name."""


def full_name(name: str) -> str:
    """`a` means `a.service`."""
    return (
        name
        if "." in name.rpartition("/")[2] and name.rpartition(".")[2] in ("service", "target", "socket", "timer")
        else f"{name}.service"
    )


class Catalog:
    """`directories` are in search order; links are made in the first."""

    def __init__(self, directories: Iterable[Path], specifiers: Mapping[str, str] | None = None) -> None:
        self._directories = tuple(directories)
        self._specifiers = dict(specifiers or {})

    def file(self, name: str) -> Path | None:
        """The file of a unit; None for a masked one."""
        template = name.partition("@")[0] + "@." + name.rpartition(".")[2] if "@" in name else name
        for wanted in dict.fromkeys((name, template)):
            for directory in self._directories:
                path = directory / wanted
                if os.path.lexists(path):
                    return None if str(path.resolve()) == os.devnull or not path.is_file() else path
        return None

    def load(self, name: str) -> Unit:
        """The unit of this name. Raises NoSuchUnit, UnitError."""
        path = self.file(name)
        if path is None:
            raise NoSuchUnit(f"Unit {name} not found.")
        try:
            texts = [path.read_text(errors="replace"), *self._drop_ins(name)]
        except OSError as error:
            raise UnitError(f"{name} can't be read: {error.strerror}") from None
        return unitfile.parse(name, texts, self._specifiers)

    def names(self) -> list[str]:
        """All services that have a unit file."""
        found = {path.name for directory in self._directories for path in directory.glob("*.service")}
        return sorted(name for name in found if not name.endswith("@.service") and self.file(name) is not None)

    def wanted(self) -> list[str]:
        """The units that start with the host."""
        found: set[str] = set()
        for directory in self._directories:
            for target in _TARGETS:
                for kind in ("wants", "requires"):
                    links = directory / f"{target}.{kind}"
                    found |= {path.name for path in links.iterdir()} if links.is_dir() else set()
        return sorted(name for name in found if name.endswith(".service") and self.file(name) is not None)

    def is_enabled(self, name: str) -> bool:
        return bool(self._links(name))

    def enable(self, name: str) -> list[tuple[Path, Path]]:
        """Enable a unit; the result is the new links and their targets. Raises NoSuchUnit."""
        unit = self.load(name)
        path = self.file(name)
        assert path is not None
        first = self._directories[0]
        links = [first / f"{target}.wants" / name for target in unit.wanted_by]
        links += [first / f"{target}.requires" / name for target in unit.required_by]
        links += [first / alias for alias in unit.alias]
        made = []
        for link in links:
            link.parent.mkdir(parents=True, exist_ok=True)
            if not (os.path.lexists(link) and link.resolve() == path.resolve()):
                link.unlink(missing_ok=True)
                link.symlink_to(path)
                made.append((link, path))
        return made

    def disable(self, name: str) -> list[Path]:
        """Disable a unit; the result is the removed links, also for a unit whose file is already gone."""
        links = self._links(name)
        for link in links:
            link.unlink()
        return links

    def _links(self, name: str) -> list[Path]:
        places = [path / name for directory in self._directories for path in directory.glob("*.target.*")]
        return [path for path in places if path.is_symlink()]

    def _drop_ins(self, name: str) -> list[str]:
        found: dict[str, Path] = {}
        for directory in reversed(self._directories):
            found |= {path.name: path for path in (directory / f"{name}.d").glob("*.conf")}
        return [found[key].read_text(errors="replace") for key in sorted(found)]
