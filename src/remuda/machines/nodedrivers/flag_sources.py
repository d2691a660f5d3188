"""The sources of a driver's flags: Python, the program rancher-machine, or what we know of that program.

A driver in Python comes first: it makes the machines. Otherwise rancher-machine makes them, so the installed program is asked;
without it `flags.json` is used, so that kinds and credentials exist, and a Job says what to install.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remuda import __version__
from remuda.kube.clock import Clock
from remuda.kube.network.outbound import Policy
from remuda.kube.network.outbound_http import Current
from remuda.kube.objects import dig

from ..errors import DriverError, Reason
from ..options import Flag
from .builtin_drivers import is_local, python_driver
from .driver_downloads import Fetch, downloaded, fetcher
from .driver_schemas import driver_of
from .known_flags import flags_of
from .rancher_machine import HOW_TO_INSTALL, RancherMachine

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
        """The flags of a NodeDriver. Raises DriverError."""
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
