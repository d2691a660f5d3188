"""The program `rancher-machine`, where it is installed: its version, and the flags of its drivers.

Flags are read from `create -d NAME --help`, since the drivers' own protocol is specific to Go. In the help a blank marks flags
that take a value; integers look like texts (both are texts in a machine config), and the defaults of lists are missing;
:mod:`.known_flags` has those.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from remuda.kube.clock import SYSTEM_CLOCK, Clock, deadline

from ..errors import DriverError, Reason
from ..options import Flag, FlagKind, Value
from .known_flags import flags_of

PROGRAM = "rancher-machine"
PLUGIN = "docker-machine-driver-"
HOW_TO_INSTALL = (
    "install rancher-machine (CGO_ENABLED=0 go install github.com/rancher/machine/cmd/rancher-machine) where the server finds it "
    "on its PATH"
)
_SECONDS = 60.0
_MOST_OUTPUT = 1 << 20
_KEPT = ("PATH", "HOME", "TMPDIR", "LANG")
_VERSION = re.compile(r"version ([^\s,]+)")
_INTEGER = re.compile(r"^-?[0-9]+$")
# `--name`, then a default in quotes, or `[--name option …]`, or a blank alone, or nothing; then tabs and its purpose.
_LINE = re.compile(
    r"^ {3}--(?P<name>[A-Za-z0-9][A-Za-z0-9_-]*)"
    r'(?P<value> \[[^\t]*\]| "(?P<default>[^\t]*)"| ?)'
    r"(?:\t+(?P<usage>.*))?$"
)
_ENV = re.compile(r"^(?P<usage>.*?) ?\[(?P<all>\$[A-Za-z0-9_]+(?:, \$[A-Za-z0-9_]+)*)\]$", re.DOTALL)
# Flags of `create` that do not depend on the driver.
_SHARED = frozenset({"driver", "custom-install-script", "hostname-override", "tls-san", "swarm", "help"})
_SHARED_BEGINNINGS = ("engine-", "swarm-")


@dataclass(frozen=True, slots=True)
class RancherMachine:
    """One that is there. `beside` are directories with drivers of others, which it finds on its PATH."""

    path: Path
    beside: tuple[Path, ...] = ()
    clock: Clock = SYSTEM_CLOCK

    @classmethod
    def found(cls, environ: Mapping[str, str] | None = None, clock: Clock = SYSTEM_CLOCK) -> RancherMachine | None:
        """The one on PATH, if any."""
        path = shutil.which(PROGRAM, path=(os.environ if environ is None else environ).get("PATH"))
        return None if path is None else cls(Path(path), clock=clock)

    async def version(self) -> str:
        """Raises DriverError."""
        out = await self._run("--version")
        said = _VERSION.search(out)
        return said[1] if said is not None else out.strip()

    async def flags(self, driver: str) -> tuple[Flag, ...]:
        """The flags of one of its drivers, in the order of their names. Raises DriverError when it has no such driver."""
        found = parsed(driver, await self._run("create", "-d", driver, "--help"))
        if not found:
            raise DriverError(Reason.MISSING_PROGRAM, f"{self.path} has no driver {driver}")
        return found

    async def _run(self, *arguments: str) -> str:
        path = os.pathsep.join([*(str(each) for each in self.beside), os.environ.get("PATH", os.defpath)])
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ} | {"PATH": path}
        with tempfile.TemporaryDirectory(prefix="remuda-driver-") as scratch:
            process = await asyncio.create_subprocess_exec(
                str(self.path),
                "--storage-path",
                scratch,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
                cwd=scratch,
                start_new_session=True,
            )
            try:
                async with deadline(self.clock, _SECONDS):
                    out, err = await process.communicate()
            except BaseException as error:
                _end(process.pid)
                await process.wait()
                if isinstance(error, TimeoutError):
                    said = f"{self.path} {' '.join(arguments)} did not answer within {_SECONDS:.0f} s"
                    raise DriverError(Reason.TIMED_OUT, said) from None
                raise
        if process.returncode != 0:
            why = _last_line(err) or _last_line(out)
            said = f"{self.path} {' '.join(arguments)} failed with exit code {process.returncode}: {why}"
            raise DriverError(Reason.MISSING_PROGRAM, said)
        return out[:_MOST_OUTPUT].decode(errors="replace")


def _end(session: int) -> None:
    """The program and the driver that it started."""
    try:
        os.killpg(session, 9)
    except ProcessLookupError:
        return


def _last_line(output: bytes) -> str:
    lines = output[-4096:].decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def parsed(driver: str, text: str) -> tuple[Flag, ...]:
    """The driver's own flags, from the help of `create`."""
    known = {flag.name: flag for flag in flags_of(driver) or ()}
    found = []
    for line in text.splitlines():
        match = _LINE.match(line.rstrip("\n"))
        if match is None or _is_shared(match["name"]):
            continue
        usage, env = _usage(match["usage"] or "")
        kind, default = _kind(match["value"], match["default"])
        if kind is FlagKind.STRINGS and match["name"] in known:
            default = known[match["name"]].default
        found.append(Flag(match["name"], kind, default, usage, env))
    return tuple(sorted(found, key=lambda flag: flag.name))


def _is_shared(name: str) -> bool:
    return name in _SHARED or name.startswith(_SHARED_BEGINNINGS)


def _kind(value: str, default: str | None) -> tuple[FlagKind, Value | None]:
    if default is not None:
        return (FlagKind.INT, int(default)) if _INTEGER.match(default) else (FlagKind.STRING, default)
    if value.startswith(" ["):
        return FlagKind.STRINGS, None
    return (FlagKind.STRING, None) if value else (FlagKind.BOOL, None)


def _usage(text: str) -> tuple[str, str]:
    match = _ENV.match(text.strip())
    if match is None:
        return text.strip(), ""
    return match["usage"].strip(), match["all"].split(",")[0].lstrip("$")
