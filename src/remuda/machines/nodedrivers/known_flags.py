"""The flags of drivers: those of drivers that are not in Python as data, and the source that is asked for a driver's.

`flags.json` is written by `tests/real/describe_flags.py` from the program itself and compared with it by a test; the drivers in
`BY_HAND` are not part of that program.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec

from remuda import __version__
from remuda.kube.clock import Clock
from remuda.kube.network.outbound import Policy
from remuda.kube.network.outbound_http import Current
from remuda.kube.objects import dig

from ..errors import DriverError, Reason
from ..options import Flag, FlagKind, Value
from .builtin_drivers import is_local, python_driver
from .driver_downloads import Fetch, downloaded, fetcher
from .driver_schemas import driver_of
from .rancher_machine import HOW_TO_INSTALL, RancherMachine


class _Flag(msgspec.Struct, frozen=True):
    name: str
    kind: FlagKind
    default: str | int | list[str] | None = None
    usage: str = ""
    env: str = ""


def _by_hand(driver: str, rows: Iterable[tuple[str, FlagKind, Value | None, str]], **variables: str) -> tuple[Flag, ...]:
    return tuple(
        Flag(
            f"{driver}-{name}",
            kind,
            default,
            usage,
            variables.get(name.replace("-", "_"), f"{driver}-{name}".upper().replace("-", "_")),
        )
        for name, kind, default, usage in rows
    )


_TEXT, _NUMBER, _SWITCH = FlagKind.STRING, FlagKind.INT, FlagKind.BOOL

BY_HAND: Final[dict[str, tuple[Flag, ...]]] = {
    "linode": _by_hand(
        "linode",
        (
            ("token", _TEXT, None, "Linode API Token"),
            ("root-pass", _TEXT, None, "Root Password"),
            (
                "authorized-users",
                _TEXT,
                None,
                "Linode user accounts (separated by commas) whose SSH keys will be permitted root access",
            ),
            ("label", _TEXT, None, "Linode Instance Label"),
            ("region", _TEXT, "us-east", "Specify the region (location) of the Linode instance"),
            (
                "instance-type",
                _TEXT,
                "g6-standard-4",
                "Specify the Linode Instance type which determines CPU, memory, disk size, etc.",
            ),
            ("ssh-port", _NUMBER, 22, "SSH port"),
            ("ssh-user", _TEXT, None, "SSH username"),
            (
                "image",
                _TEXT,
                "linode/ubuntu18.04",
                "Specify the Linode Instance image which determines the OS distribution and base files",
            ),
            ("docker-port", _NUMBER, 2376, "Docker Port"),
            ("swap-size", _NUMBER, 512, "Linode Instance Swap Size (MB)"),
            ("stackscript", _TEXT, None, "Specifies the Linode StackScript to use to create the instance"),
            ("stackscript-data", _TEXT, None, "A JSON string specifying data for the selected StackScript"),
            ("create-private-ip", _SWITCH, None, "Create private IP for the instance"),
            ("ua-prefix", _TEXT, None, "Prefix the User-Agent in Linode API calls with some 'product/version'"),
            ("tags", _TEXT, None, "A comma separated list of tags to apply to the Linode resource"),
        ),
        root_pass="LINODE_ROOT_PASSWORD",
    )
}


@cache
def _table() -> dict[str, tuple[Flag, ...]]:
    text = files(__package__).joinpath("flags.json").read_bytes()
    read = msgspec.json.decode(text, type=dict[str, list[_Flag]])
    return {driver: tuple(map(_flag, flags)) for driver, flags in read.items()} | BY_HAND


def _flag(each: _Flag) -> Flag:
    default: Value | None = tuple(each.default) if isinstance(each.default, list) else each.default
    return Flag(each.name, each.kind, default, each.usage, each.env)


def drivers() -> list[str]:
    return sorted(_table())


def flags_of(driver: str) -> tuple[Flag, ...] | None:
    return _table().get(driver)


# --- sources of flags ---------------------------------------------------------------------------------------------------
#
# A driver in Python comes first: it makes the machines. Otherwise rancher-machine makes them, so the installed program is asked;
# without it `flags.json` is used, so that kinds and credentials exist, and a Job says what to install.

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of a driver. `version` is that of the program with these flags; `usable` says that machines can be made here,
    `missing` otherwise what is missing for that."""

    flags: tuple[Flag, ...]
    version: str
    missing: str = ""

    @property
    def usable(self) -> bool:
        return not self.missing


class Sources:
    def __init__(
        self,
        clock: Clock,
        environment: Mapping[str, str],
        directory: Path | None = None,
        fetch: Fetch | None = None,
        policy: Current = Policy.for_administrators,
    ) -> None:
        """`directory` is where drivers of others are put; without one they are for as long as this process lives. `policy` says
        from which addresses they are had."""
        self._clock = clock
        self._environment = environment
        self._directory = directory
        self._fetch = fetch or fetcher(clock, environment, policy)
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._versions: dict[Path, tuple[int, str]] = {}

    async def flags(self, driver: Obj) -> Flags:
        """Of a NodeDriver. Raises DriverError."""
        name = driver_of(driver)
        if is_local(driver):
            return await self._local(name)
        program = self._program()
        if program is None:
            known = flags_of(name)
            if known is None:
                raise DriverError(Reason.MISSING_PROGRAM, f"the fields of {name} are read with rancher-machine: {HOW_TO_INSTALL}")
            return Flags(known, __version__, HOW_TO_INSTALL)
        url, checksum = (str(dig(driver, "spec", field) or "") for field in ("url", "checksum"))
        place = await downloaded(self._fetch, name, url, checksum, self._place())
        beside = replace(program, beside=(place,))
        return Flags(await beside.flags(name), await self._version(program))

    async def version(self, driver: Obj) -> str:
        """The version that belongs to the result of :meth:`flags`; cheap."""
        if is_local(driver) and python_driver(driver_of(driver)) is not None:
            return __version__
        program = self._program()
        return __version__ if program is None else await self._version(program)

    async def _local(self, name: str) -> Flags:
        python = python_driver(name)
        if python is not None:
            return Flags(python.flags, __version__)
        program = self._program()
        if program is not None:
            return Flags(await program.flags(name), await self._version(program))
        known = flags_of(name)
        if known is None:
            raise DriverError(Reason.MISSING_PROGRAM, f"there is no driver {name} here: {HOW_TO_INSTALL}")
        return Flags(known, __version__, HOW_TO_INSTALL)

    def _program(self) -> RancherMachine | None:
        return RancherMachine.found(self._environment, self._clock)

    async def _version(self, program: RancherMachine) -> str:
        """Asked once for each program."""
        changed = program.path.stat().st_mtime_ns
        known = self._versions.get(program.path)
        if known is None or known[0] != changed:
            known = self._versions[program.path] = (changed, await program.version())
        return known[1]

    def _place(self) -> Path:
        if self._directory is not None:
            return self._directory
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="remuda-drivers-")
        return Path(self._scratch.name)
