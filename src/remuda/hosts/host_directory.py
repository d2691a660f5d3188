"""Paths of a host: its own file system below `root`, and beside it the files that the host can't see.

A host is one directory, so that removing it is removing a directory. `root` is the host's `/`, as in
:class:`remuda.provisioning.host_layout.Layout`.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import HostError

# The directories of an ordinary host before any installation.
_SKELETON = ("etc/systemd/system", "home", "opt", "root", "run", "tmp", "usr/local/bin", "usr/local/lib", "var/lib", "var/log")
# In the order in which systemd looks for units.
UNIT_DIRECTORIES = ("etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system")


@dataclass(frozen=True, slots=True)
class HostDirectory:
    """One host's directory."""

    directory: Path

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def root(self) -> Path:
        return self.directory / "root"

    @property
    def programs(self) -> Path:
        """The first directory on the host's PATH: `systemctl` and a few other programs that installers call."""
        return self.directory / "bin"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @property
    def record(self) -> Path:
        return self.directory / "host.json"

    @property
    def lock(self) -> Path:
        """The lock that the host's init holds as long as it lives."""
        return self.directory / "init.lock"

    @property
    def identity(self) -> Path:
        """The file that identifies the init process."""
        return self.directory / "init.json"

    @property
    def control(self) -> Path:
        """The socket for commands to the init."""
        return self.directory / "control"

    @property
    def boot_log(self) -> Path:
        return self.logs / "init.log"

    def log_of(self, unit: str) -> Path:
        return self.logs / f"{unit}.log"

    def unit_directories(self) -> tuple[Path, ...]:
        return tuple(self.root / directory for directory in UNIT_DIRECTORIES)

    def furnish(self) -> None:
        """Make the directories that every host has."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        for path in (self.programs, self.logs, *(self.root / part for part in _SKELETON)):
            path.mkdir(parents=True, exist_ok=True)


# --- host record ----------------------------------------------------------------------------------------------------------
#
# The stored facts about a host: its identity and its address.


@dataclass(frozen=True, slots=True)
class HostRecord:
    """`id` is unguessable and in the environment of every process of the host, and so identifies them.

    `note` is free text for the creator of the host.
    """

    name: str
    id: str
    address: str
    created: str
    note: str = ""


def read(path: Path) -> HostRecord:
    """The record in a file; raises FileNotFoundError, HostError."""
    try:
        said: Any = json.loads(path.read_bytes())
        return HostRecord(
            **{key: str(said[key]) for key in ("name", "id", "address", "created")}, note=str(said.get("note") or "")
        )
    except (ValueError, KeyError, TypeError) as error:
        raise HostError(f"{path} is no record of a host: {error}") from None


def write(path: Path, record: HostRecord) -> None:
    write_json(path, asdict(record))


def write_json(path: Path, value: object) -> None:
    """Replace a file in one step, durable before it is visible."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    with half.open("w") as stream:
        json.dump(value, stream)
        stream.flush()
        os.fsync(stream.fileno())
    half.replace(path)
