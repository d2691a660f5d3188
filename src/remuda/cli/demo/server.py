"""The demo's own server: `remuda serve` as a process of its own, on a free port of the loopback address.

In a session of its own: Ctrl-C is for the demo, which then takes down what the server has made before it stops it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import which
from typing import NamedTuple

from remuda.images.installer import VARIABLE, wheel
from remuda.images.layout import cache_directory
from remuda.kube.clock import Clock
from remuda.lab.distro.etcd.process import version_problem

from ..exit_codes import Failure

_THERE = "Ctrl-C stops."
_PAUSE = 0.05
_STOP_SECONDS = 60.0
_TOLD = 3000


class DemoServer:
    def __init__(self, directory: Path, environ: Mapping[str, str], clock: Clock) -> None:
        self.directory = directory
        self.log = directory / "server.log"
        self._environ = environ
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._serves = False

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def port(self) -> int:
        """Once it serves."""
        said = next((line for line in self._said().splitlines() if " serves " in line), "")
        return int(said.rpartition(":")[2] or 0)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "remuda", "serve", "--data-dir", str(self.directory), "--listen", "127.0.0.1:0"]

    async def start(self, seconds: float) -> None:
        """Until it serves. Raises Failure."""
        self._process = self._begin()
        until = self._clock.monotonic() + seconds
        while _THERE not in self._said():
            if self._process.poll() is not None:
                raise Failure(f"the server did not start: {self.told() or 'it printed nothing'}")
            if self._clock.monotonic() > until:
                raise Failure(f"the server did not start within {seconds:g} s: {self.told()}")
            await self._clock.sleep(_PAUSE)
        self._serves = True

    def _begin(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self._environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def stop(self) -> str:
        """SIGTERM, until it has ended; what was wrong with how it did."""
        process = self._process
        if process is None:
            return ""
        early = process.poll()
        if early is not None and not self._serves:
            # Which has been told.
            return ""
        if early is not None:
            return f"the server had ended before, with exit code {early}"
        process.send_signal(signal.SIGTERM)
        try:
            code = await asyncio.to_thread(process.wait, _STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"the server did not stop within {_STOP_SECONDS:g} s"
        # Before it serves it may be too early for it to end in an orderly way.
        return f"the server ended with exit code {code}" if code and self._serves else ""

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def told(self) -> str:
        """The end of its log."""
        return self._said()[-_TOLD:].strip()

    def _said(self) -> str:
        try:
            return self.log.read_text(errors="replace")
        except FileNotFoundError:
            return ""


# --- etcd -----------------------------------------------------------------------------------------------------------------
#
# Which etcd the demo's hosts get: a good one that is here already, else the old one of a wheel, which is enough to look at.
#
# :func:`remuda.images.installer.find_etcd` knows the places; here those are left out whose etcd is too old for hosts to take,
# as Debian's is, and what the project's own tests have built is looked at, too.

_SECONDS = 20.0


class Choice(NamedTuple):
    """`demo`: it may lose what it was told when the machine crashes."""

    program: Path
    version: str
    demo: bool = False


def choose(environ: Mapping[str, str]) -> Choice:
    """Raises Failure."""
    problems = []
    for program in _candidates(environ):
        version, problem = _looked_at(program)
        if not problem:
            return Choice(program, version)
        problems.append(f"{program} {problem.partition(':')[0]}")
        if str(program) == environ.get(VARIABLE):
            raise Failure(f"{VARIABLE} says {program}, which {problem}")
    packed = wheel()
    if packed is not None:
        return Choice(packed, _looked_at(packed)[0], demo=True)
    seen = f" ({'; '.join(problems)}, which is too old)" if problems else ""
    raise Failure(f"there is no etcd for the demo's hosts{seen}: pip install 'remuda[demo]', or name one in {VARIABLE}")


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if told := environ.get(VARIABLE):
        yield Path(told)
    if found := which("etcd", path=environ.get("PATH")):
        yield Path(found)
    # Where tests/real/build.py puts it.
    built = Path(environ["REMUDA_CACHE"]) / "remuda" if environ.get("REMUDA_CACHE") else cache_directory(environ)
    yield from sorted(built.glob("real/*/etcd"))


def _looked_at(program: Path) -> tuple[str, str]:
    """Its version, and what is wrong with it."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return "", f"can't be run: {getattr(error, 'strerror', None) or error}"
    first = done.stdout.partition("\n")[0]
    return first.rpartition(" ")[2], version_problem(done.stdout, demo=False)
