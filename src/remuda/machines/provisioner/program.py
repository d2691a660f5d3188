"""The program in a Job: reads its arguments, carries them out, and ends with a code and a last line with the reason of a failure.

That line is `Reason: message` (:mod:`..machineprovision.job_outcome` reads it), on the standard error stream and in the
termination log, from which a Job's status gets it. Codes are rancher-machine's: 1 for any failure, 3 for one before anything was
made.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from remuda.client.https import HttpsClient
from remuda.client.kubeconfig import ConfigError, KubeTarget, in_cluster, load, select
from remuda.kube.network import outbound
from remuda.kube.network.outbound import Policy

from .. import driver_registry
from ..driver import ASIDE, OWNER_VARIABLE, Driver, DriverContext
from ..errors import DriverError, Reason
from ..machine_state import MachineState
from ..options import Options
from . import arguments
from . import external_driver as foreign
from .arguments import ProvisionRequest
from .session import MachineOrder, PreCreateError, Session
from .state_store import MachineStateStore, StateSecret

OK, FAILED, PRE_CREATE_FAILED = 0, 1, 3
# Where a container's last words are read from, and the variable that names another place.
TERMINATION_LOG, TERMINATION_VARIABLE = Path("/dev/termination-log"), "REMUDA_TERMINATION_LOG"
_LAST_WORDS = 4096
_TERMINATED = 128 + signal.SIGTERM


def main(words: Sequence[str]) -> int:
    """Run it; the exit code."""
    if os.getpid() == 1:
        # The first process of a pod is deaf to every signal that it has not asked for, and would be waited for.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(_TERMINATED))
    with trusted(os.environ) as more:
        # OpenSSL and botocore look there themselves.
        os.environ.update(more)
        return _main(words, dict(os.environ))


def _main(words: Sequence[str], environ: dict[str, str]) -> int:
    _tell_the_server_apart()
    try:
        around = DriverContext(environ=environ, say=_say, outbound=Policy.of(environ.get(outbound.VARIABLE, "")))
        return asyncio.run(run(list(words), around))
    except DriverError as error:
        _say(str(error))
        _leave_word(str(error), environ)
        if isinstance(error, foreign.Failed):
            return error.code
        return PRE_CREATE_FAILED if isinstance(error, PreCreateError) else FAILED
    except Exception as error:
        # A policy that can't be read is no policy: nothing is connected to.
        if environ.get("REMUDA_DEBUG") == "1":
            raise
        line = f"{Reason.FAILED}: internal error: {type(error).__name__}: {error}"
        _say(line)
        _leave_word(line, environ)
        return FAILED


async def run(words: list[str], around: DriverContext) -> int:
    """Raises DriverError."""
    request = arguments.parse(words, dict(around.environ))
    if request.verb == "power-on":
        return await _power_on(around)
    async with _workplace(request, around) as place:
        if request.verb == "create":
            return await _create(place, request, words)
        return await _remove(place, request, words)


@dataclass(frozen=True, slots=True)
class _Workplace:
    store: MachineStateStore
    secret: StateSecret | None
    around: DriverContext

    async def foreign(self, request: ProvisionRequest, words: list[str], driver: str) -> int:
        return await foreign.run(request, words, self.store.storage, self.secret, self.around, driver)


async def _create(place: _Workplace, request: ProvisionRequest, words: list[str]) -> int:
    kind = driver_registry.find(request.driver)
    if kind is None:
        return await place.foreign(request, words, request.driver)
    name = request.names[0]
    async with _driver(kind, place.around) as driver:
        given = arguments.driver_arguments(request.rest, kind.flags)
        options = Options.read(kind.name, kind.flags, given, place.around.environ)
        order = MachineOrder(name, options, request.script, request.hostname, place.around.environ.get(OWNER_VARIABLE, ""))
        await Session(driver, place.store, place.around).create(order, await place.store.load(name))
    return OK


async def _remove(place: _Workplace, request: ProvisionRequest, words: list[str]) -> int:
    failures = []
    for name in request.names:
        try:
            known = await place.store.load(name)
            if known is None:
                # Every driver keeps something before it makes anything: so there is nothing to remove.
                place.around.say(f"nothing is known of {name}: nothing to remove")
                await place.store.clear(name)
                continue
            kind = driver_registry.find(known.driver)
            if kind is None:
                await place.foreign(replace(request, names=(name,)), _for_one(words, request, name), known.driver)
                continue
            await _remove_one(place, kind, known)
        except DriverError as error:
            if not request.force:
                raise
            place.around.say(str(error))
            failures.append(name)
    for name in failures:
        await place.store.remove(name)
    return OK


async def _remove_one(place: _Workplace, kind: type[Driver], known: MachineState) -> None:
    async with _driver(kind, place.around) as driver:
        names = {flag.name for flag in kind.flags}
        restored = (
            {f"{kind.name}-{name}": value for name, value in driver.restored(known.state).items()}
            if known.foreign
            else known.options
        )
        given = {name: value for name, value in restored.items() if name in names}
        options = Options.read(kind.name, kind.flags, given, place.around.environ)
        await Session(driver, place.store, place.around).remove(known, options)


def _for_one(words: list[str], request: ProvisionRequest, name: str) -> list[str]:
    return [word for word in words if word not in request.names or word == name]


async def _power_on(around: DriverContext) -> int:
    from ..drivers import local

    return FAILED if await asyncio.to_thread(local.power_on, around) else OK


@asynccontextmanager
async def _driver(kind: type[Driver], around: DriverContext) -> AsyncIterator[Driver]:
    try:
        driver = kind(around)
    except ImportError as error:
        raise driver_registry.missing_extra(kind, error) from None
    try:
        yield driver
    except ImportError as error:
        raise driver_registry.missing_extra(kind, error) from None
    finally:
        await driver.aclose()


@asynccontextmanager
async def _workplace(request: ProvisionRequest, around: DriverContext) -> AsyncIterator[_Workplace]:
    """Files in a directory that is removed at the end if the state is in a Secret, and stays otherwise."""
    async with contextlib.AsyncExitStack() as held:
        if not request.secret_name:
            home = Path(around.environ.get("HOME") or Path.home())
            yield _Workplace(MachineStateStore(request.storage or home / ".docker" / "machine"), None, around)
            return
        storage = request.storage or Path(held.enter_context(tempfile.TemporaryDirectory(prefix="remuda-machine-")))
        client = await held.enter_async_context(HttpsClient(_target(request, around), around.clock))
        secret = StateSecret(client, request.secret_namespace, request.secret_name, around.clock, around.say)
        yield _Workplace(MachineStateStore(storage.absolute(), secret), secret, around)


def _target(request: ProvisionRequest, around: DriverContext) -> KubeTarget:
    try:
        if request.kubeconfig:
            return select(load([Path(part) for part in request.kubeconfig.split(os.pathsep) if part]))
        found = in_cluster(around.environ)
    except ConfigError as error:
        raise DriverError(Reason.INVALID, f"the state Secret can't be reached: {error}") from None
    if found is None:
        raise DriverError(Reason.INVALID, "the state Secret can't be reached: there is no --kubeconfig, and this is no pod")
    return found


def _say(line: str) -> None:
    # A line that others made up is never one for the server.
    print(line.lstrip(ASIDE), file=sys.stderr, flush=True)  # noqa: T201 - the Job's log


def _tell_the_server_apart() -> None:
    """Mark log lines of :mod:`remuda.kube.network.outbound`: they are for the server's log, since tenants read the Job's."""

    class Aside(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            line = " ".join(record.getMessage().split())[: _LAST_WORDS // 4]
            print(f"{ASIDE}{line}", file=sys.stderr, flush=True)  # noqa: T201 - to the Job's runner

    outbound.log.handlers[:] = [Aside()]
    outbound.log.setLevel(logging.INFO)
    outbound.log.propagate = False


def _leave_word(line: str, environ: dict[str, str]) -> None:
    named = environ.get(TERMINATION_VARIABLE, "")
    path = Path(named) if named else TERMINATION_LOG
    with contextlib.suppress(OSError):
        if named or path.exists():
            path.write_bytes(line.encode()[-_LAST_WORDS:])


# --- trusted cas ----------------------------------------------------------------------------------------------------------
#
# The CAs that the program trusts in a pod: the system's, and those that the server has mounted.
#
# A pod's Job has the server's certificates, and those of the setting for private ones, as plain files in a directory that
# $SSL_CERT_DIR names. Go reads such a directory as it is; OpenSSL looks for names made of hashes, and botocore for one file. So
# one file is made of all of them.

DIRECTORY = "SSL_CERT_DIR"
# The readers of the one file: OpenSSL, and botocore.
FILES = ("SSL_CERT_FILE", "AWS_CA_BUNDLE")


@contextlib.contextmanager
def trusted(environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The variables that make the program trust them; none where nothing was given. The file is there for as long."""
    given = _given(Path(environ[DIRECTORY])) if environ.get(DIRECTORY) else b""
    if not given:
        yield {}
        return
    with tempfile.NamedTemporaryFile(prefix="remuda-authorities-", suffix=".pem") as bundle:
        bundle.write(_system(environ) + given)
        bundle.flush()
        yield dict.fromkeys(FILES, bundle.name)


def _given(directory: Path) -> bytes:
    try:
        files = [path for path in sorted(directory.iterdir()) if path.is_file()]
        found = [path.read_bytes().strip() + b"\n" for path in files]
    except OSError:
        return b""
    return b"".join(each for each in found if b"-----BEGIN CERTIFICATE-----" in each)


def _system(environ: Mapping[str, str]) -> bytes:
    named = environ.get(FILES[0]) or ssl.get_default_verify_paths().cafile
    with contextlib.suppress(OSError):
        return Path(named).read_bytes().strip() + b"\n" if named else b""
    return b""
