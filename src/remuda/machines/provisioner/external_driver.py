"""Drivers that are not in Python: the real `rancher-machine` does the work, on the same state Secret, with the same words.

It extracts the state's archive to the absolute paths in it, so the archive is moved to where it may write before it is called.
Drivers that rancher-machine itself does not have are programs of their own, from a URL and with a checksum: what is run with
somebody's cloud credentials must be known exactly.

What it connects to can't be seen. So the hosts that its options name are checked before it is called, as far as names are known
here (:mod:`.external_driver_hosts`), and what it says of a failed connection is cut down to what our own drivers say.
"""

from __future__ import annotations

import asyncio
import collections
import ctypes
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from remuda.kube.network.outbound import Policy

from ..driver import Surroundings
from ..errors import DriverError, Reason
from ..machineprovision.job_outcome import failure_of
from ..nodedrivers.driver_downloads import downloaded, fetcher
from ..nodedrivers.rancher_machine import HOW_TO_INSTALL, PROGRAM
from . import external_driver_hosts, machine_state, state_archive
from .arguments import Request
from .state_secret import StateSecret

_LINES = 50
_PRE_CREATE = 3
_PDEATHSIG = 1
# Lines of Go's that say nothing a person could use.
_NOISE = re.compile(r"^(?:goroutine \d+|\s+/|exit status \d+|time=|\(.*\) Closing plugin)")


async def run(
    request: Request, words: list[str], storage: Path, secret: StateSecret | None, around: Surroundings, driver: str
) -> int:
    """Its exit code. Raises DriverError when it can't be run; what it said has been said."""
    environ = dict(around.environ)
    program = shutil.which(PROGRAM, path=environ.get("PATH"))
    if program is None:
        raise DriverError(
            Reason.MISSING_PROGRAM, f"the driver {driver} is not in Python, and {PROGRAM} is not here: {HOW_TO_INSTALL}"
        )
    if request.driver_url:
        around.say(f"downloading the driver {driver} from {request.driver_url}")
        fetch = fetcher(around.clock, around.environ, lambda: Policy.for_administrators(around.outbound.text))
        found = await downloaded(fetch, driver, request.driver_url, request.driver_hash, storage / "drivers")
        environ["PATH"] = f"{found}:{environ.get('PATH', os.defpath)}"
    await external_driver_hosts.check(around.outbound, driver, words, around.environ)
    if secret is not None:
        await _move(secret, request.names, str(storage))
    environ["MACHINE_STORAGE_PATH"] = str(storage)
    return await _called([program, *without_ours(words)], environ, around)


def without_ours(words: list[str]) -> list[str]:
    """What its image's entry point keeps from it, too."""
    kept, left = [], list(words)
    while left:
        word = left.pop(0)
        if word.partition("=")[0] in ("--driver-download-url", "--driver-hash"):
            if "=" not in word and left:
                left.pop(0)
            continue
        kept.append(word)
    return kept


async def _move(secret: StateSecret, names: tuple[str, ...], home: str) -> None:
    """The archive as if it had been written by a store at `home`."""
    data = await secret.read()
    for name in names:
        before, files = state_archive.read(data, name) if data else ("", {})
        if not files or before == home:
            continue
        if machine_state.CONFIG in files:
            files[machine_state.CONFIG] = machine_state.relocated(files[machine_state.CONFIG], before, home)
        await secret.write(state_archive.write(name, files, home))


async def _called(command: list[str], environ: dict[str, str], around: Surroundings) -> int:
    last: collections.deque[str] = collections.deque(maxlen=_LINES)
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        preexec_fn=_dies_with(os.getpid()),
    )
    assert process.stdout is not None
    try:
        async for raw in process.stdout:
            line = external_driver_hosts.plainly(raw.decode(errors="replace").rstrip())
            last.append(line)
            around.say(line)
        code = await process.wait()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if code != 0:
        raise Failed(code, _reason(list(last), code))
    return 0


def _dies_with(parent: int) -> Callable[[], None]:
    """What makes the child end with this process, also when that is killed: it could keep nothing any more, and whoever goes on
    with the Job would make the same machine beside it."""
    libc = ctypes.CDLL(None)

    def bind() -> None:
        libc.prctl(_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return bind


class Failed(DriverError):
    """rancher-machine itself has failed; the message is its own."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(failure_of(message).reason, message)
        self.code = code if code == _PRE_CREATE else 1


def _reason(lines: list[str], code: int) -> str:
    told = [line.strip() for line in lines if line.strip() and not _NOISE.match(line)]
    errors = [line for line in told if line.lower().startswith(("error", "fatal", "could not", "unable"))]
    return (errors or told or [f"{PROGRAM} ended with {code} and said nothing"])[-1]
