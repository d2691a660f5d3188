"""Where the parts of a host are: its own file system below `root`, and beside it what a host can't see of itself.

A host is one directory, so that removing it is removing a directory. `root` is the host's `/`, as in
:class:`remuda.provisioning.host_layout.Layout`.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .errors import HostError

# What an ordinary host has before anybody installs anything.
_SKELETON = ("etc/systemd/system", "home", "opt", "root", "run", "tmp", "usr/local/bin", "usr/local/lib", "var/lib", "var/log")
# In the order in which systemd looks for units.
UNIT_DIRECTORIES = ("etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system")


@dataclass(frozen=True, slots=True)
class Place:
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
        """First on the host's PATH: `systemctl` and the few others that installers call."""
        return self.directory / "bin"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @property
    def record(self) -> Path:
        return self.directory / "host.json"

    @property
    def lock(self) -> Path:
        """Held by the host's init as long as it lives."""
        return self.directory / "init.lock"

    @property
    def identity(self) -> Path:
        """Which process is the init."""
        return self.directory / "init.json"

    @property
    def control(self) -> Path:
        """Where the init is told what to do."""
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
# What is remembered of a host between its runs: who it is and which address is its own.


@dataclass(frozen=True, slots=True)
class Record:
    """`id` is unguessable and in the environment of every process of the host: that is how they are known as its own.

    `note` is whatever its maker wants to know it by.
    """

    name: str
    id: str
    address: str
    created: str
    note: str = ""


def read(path: Path) -> Record:
    """The record in a file; raises FileNotFoundError, HostError."""
    try:
        said: Any = json.loads(path.read_bytes())
        return Record(**{key: str(said[key]) for key in ("name", "id", "address", "created")}, note=str(said.get("note") or ""))
    except (ValueError, KeyError, TypeError) as error:
        raise HostError(f"{path} is no record of a host: {error}") from None


def write(path: Path, record: Record) -> None:
    write_json(path, asdict(record))


def write_json(path: Path, value: object) -> None:
    """Replace a file in one step, durable before it is seen."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    with half.open("w") as stream:
        json.dump(value, stream)
        stream.flush()
        os.fsync(stream.fileno())
    half.replace(path)
