"""Drivers that are not in Python: the real `rancher-machine` does the work, on the same state Secret, with the same words.

It extracts the state's archive to the absolute paths in it, so the archive is moved to where it may write before it is called.
Drivers that rancher-machine itself does not have are separate programs, from a URL and with a checksum: a program that gets a
user's cloud credentials must be known exactly.

Its connections can't be observed. So the hosts that its options name are checked before it is called, as far as the options are
known here, and its messages about a failed connection are cut down to what our own drivers say.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import ctypes
import ipaddress
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from remuda.kube.network import outbound
from remuda.kube.network.outbound import Policy, log, names_host

from .. import machine_state, options
from ..driver import DriverContext
from ..errors import DriverError, Reason
from ..machineprovision.job_outcome import failure_of
from ..nodedrivers.driver_downloads import downloaded, fetcher
from ..nodedrivers.rancher_machine import HOW_TO_INSTALL, PROGRAM
from .arguments import ProvisionRequest
from .state_store import StateSecret

_LINES = 50
_PRE_CREATE = 3
_PDEATHSIG = 1
# Go's lines that are of no use to a user.
_NOISE = re.compile(r"^(?:goroutine \d+|\s+/|exit status \d+|time=|\(.*\) Closing plugin)")


async def run(
    request: ProvisionRequest, words: list[str], storage: Path, secret: StateSecret | None, around: DriverContext, driver: str
) -> int:
    """Its exit code. Raises DriverError when it can't be run; its output has been printed."""
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
    await check(around.outbound, driver, words, around.environ)
    if secret is not None:
        await _move(secret, request.names, str(storage))
    environ["MACHINE_STORAGE_PATH"] = str(storage)
    return await _called([program, *without_ours(words)], environ, around)


def without_ours(words: list[str]) -> list[str]:
    """The arguments without those that its image's entry point also removes."""
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
        before, files = machine_state.read(data, name) if data else ("", {})
        if not files or before == home:
            continue
        if machine_state.CONFIG in files:
            files[machine_state.CONFIG] = machine_state.relocated(files[machine_state.CONFIG], before, home)
        await secret.write(machine_state.write(name, files, home))


async def _called(command: list[str], environ: dict[str, str], around: DriverContext) -> int:
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
            line = plainly(raw.decode(errors="replace").rstrip())
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
    """A function that makes the child end with this process, also when that is killed: its state could not be kept any more, and
    the process that continues the Job would make the same machine beside it."""
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


# --- external driver hosts ------------------------------------------------------------------------------------------------
#
# Hosts that a foreign driver's options name, checked before the driver runs; and its messages about connections, in our words.
#
# The program connects by itself, so a name that changes between the check and its own lookup, a redirect, or an address that is
# in no option can't be prevented: if that matters, confine the network of Jobs.

# Go's messages about a failed connection. Which of them it is tells whether a port is open.
_FAILED = re.compile(
    r"dial (?:tcp|udp)\d?\b.*|lookup \S+(?: on \S+)?: .*"
    r"|(?:connect: )?(?:connection (?:refused|timed out|reset by peer)|no route to host|network is unreachable)"
    r"|i/o timeout|TLS handshake timeout|context deadline exceeded.*|no such host"
    r"|malformed HTTP response.*|server gave HTTP response to HTTPS client|tls: .*|x509: .*|ssh: handshake failed.*",
    re.IGNORECASE,
)


async def check(policy: Policy, driver: str, words: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raises DriverError if an option, or a field of the cloud credential, names a host that the policy refuses."""
    for option, value in (*_options(words, driver), *_variables(driver, environ)):
        host = host_of(option, value)
        if not host:
            continue
        try:
            await outbound.check_ahead(policy, host)
        except outbound.AddressRefused as error:
            raise DriverError(Reason.INVALID, outbound.told(error, f"{option}: {host}")) from None


def _options(words: Sequence[str], driver: str) -> Iterator[tuple[str, str]]:
    """The driver's own options, by name, and their values, in both spellings."""
    prefix = f"--{driver}-"
    for word, following in zip(words, (*words[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        # `--url` is of the driver `none`, which has no prefix.
        if name.startswith(prefix) or name == "--url":
            yield name, value if equals else "" if following.startswith("--") else following


def _variables(driver: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    prefix = options.variable(driver, "")
    return ((name, value) for name, value in environ.items() if name.startswith(prefix))


def host_of(option: str, value: str) -> str:
    """The host that an option's value names; "" for one that names none."""
    value = value.strip()
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(value.strip("[]")))
    with contextlib.suppress(ValueError):
        if "://" in value or names_host(option):
            return urlsplit(value if "://" in value else f"//{value}").hostname or ""
    return ""


def plainly(line: str) -> str:
    """A line of the program's, without the reason for which a connection failed."""
    short = _FAILED.sub(outbound.UNREACHABLE, line)
    if short != line:
        log.info("%s", line)
    return short
