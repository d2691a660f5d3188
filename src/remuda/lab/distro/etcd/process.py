"""Running etcd: the real program as a child that never outlives the supervisor.

The state of a cluster is always a real etcd; the installer provides its program. When it ends by itself, the supervisor ends too,
and its service manager restarts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import re
import shutil
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remuda.apiserver.storage.store import StoreError
from remuda.kube.clock import Clock, deadline

from .. import DistroError
from ..config.settings import ETCD_METRICS_PORT, ETCD_PEER_PORT, ETCD_PORT, Settings, in_url
from ..pki.certificates import etcd_leaves

log = logging.getLogger(__name__)

OLDEST = (3, 6, 0)
NEW, EXISTING = "new", "existing"
_STOP_SECONDS = 10.0
# Options that have other names in 3.6 than in 3.5.
_NEW = ("--feature-gates=InitialCorruptCheck=true", "--watch-progress-notify-interval=5s")
_OLD = ("--experimental-initial-corrupt-check=true", "--experimental-watch-progress-notify-interval=5s")
_PR_SET_PDEATHSIG = 1


class EtcdFailed(DistroError):
    """etcd can't be run, or has ended; its own messages are in the log."""


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """The options for starting a member. `cluster` are the peer URLs by name, needed until the member has data."""

    name: str
    data: Path
    tls: Path
    cluster: Mapping[str, str]
    state: str = EXISTING
    force_new: bool = False


def program(settings: Settings, name: str = "etcd") -> str:
    """The path of an etcd program: configured, installed with the distribution, or found. Raises EtcdFailed."""
    said = settings.etcd_binary if name == "etcd" else settings.etcdutl_binary
    if not said and name != "etcd" and settings.etcd_binary:
        said = str(Path(settings.etcd_binary).with_name(name))
    candidates = (said,) if said else (str(settings.paths.data / "bin" / name), str(settings.paths.root / "usr/local/bin" / name))
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate
    found = None if said else shutil.which(name)
    if found is None:
        raise EtcdFailed(
            f"there is no program {name} at {' or '.join(candidates)}: the installer brings it, or say --{name}-binary"
        )
    return found


def version_problem(text: str, *, demo: bool) -> str:
    """The problem with an etcd of this version output; empty when it can be used."""
    found = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", text)
    if found is None:
        return "does not say its version: is it etcd?"
    version = tuple(int(part) for part in found.groups())
    if version >= OLDEST or demo:
        return ""
    return (
        f"is etcd {'.'.join(found.groups())}: {'.'.join(map(str, OLDEST))} or newer is needed, since older ones can lose data; "
        "to have a look only, say --demo-etcd"
    )


async def check_version(settings: Settings) -> None:
    """Raises EtcdFailed when the program's version must not be used for data."""
    path = program(settings)
    asked = await asyncio.create_subprocess_exec(
        path, "--version", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    output, _ = await asked.communicate()
    if problem := version_problem(output.decode(errors="replace"), demo=settings.demo_etcd):
        raise EtcdFailed(f"{path} {problem}")


def arguments(
    settings: Settings, plan: MemberOptions, client_port: int = ETCD_PORT, peer_port: int = ETCD_PEER_PORT
) -> list[str]:
    """The command line, without the program."""
    leaves = etcd_leaves(settings, plan.tls)
    address, loopback = settings.node_ips[0], settings.loopback
    hosts = list(dict.fromkeys((address, loopback)))
    clients = ",".join(f"https://{in_url(host)}:{client_port}" for host in hosts)
    peers = ",".join(f"https://{in_url(host)}:{peer_port}" for host in hosts)
    found = [
        f"--name={plan.name}",
        f"--data-dir={plan.data}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls=https://{in_url(address)}:{client_port}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls=https://{in_url(address)}:{peer_port}",
        f"--initial-cluster={','.join(f'{name}={url}' for name, url in plan.cluster.items())}",
        f"--initial-cluster-state={plan.state}",
        "--initial-cluster-token=remuda",
        f"--cert-file={leaves['server'].path}",
        f"--key-file={leaves['server'].key}",
        f"--trusted-ca-file={plan.tls / 'server-ca.crt'}",
        "--client-cert-auth",
        f"--peer-cert-file={leaves['peer'].path}",
        f"--peer-key-file={leaves['peer'].key}",
        f"--peer-trusted-ca-file={plan.tls / 'peer-ca.crt'}",
        "--peer-client-cert-auth",
        "--log-level=warn",
        *(_OLD if settings.demo_etcd else _NEW),
    ]
    if client_port == ETCD_PORT:
        found.append(f"--listen-metrics-urls=http://{loopback}:{ETCD_METRICS_PORT}")
    if plan.force_new:
        found.append("--force-new-cluster")
    return [*found, *(f"--{argument.removeprefix('--')}" for argument in settings.etcd_args)]


class EtcdProcess:
    """Start it, await :meth:`ended`, stop it."""

    def __init__(self, command: Sequence[str], clock: Clock) -> None:
        self._command = list(command)
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        log.debug("starting %s", " ".join(self._command))
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.DEVNULL, start_new_session=True, preexec_fn=_die_with_parent()
        )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def ended(self) -> None:
        """Wait until it ends unexpectedly; then raises EtcdFailed."""
        assert self._process is not None
        code = await self._process.wait()
        raise EtcdFailed(f"etcd ended with exit code {code}")

    async def stop(self) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with deadline(self._clock, _STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


async def until(process: EtcdProcess, clock: Clock, ready: Callable[[], Awaitable[bool]], seconds: float = 0.0) -> None:
    """Wait until `ready`, which may raise StoreError while there is no answer. Raises EtcdFailed when etcd ends before."""
    end = clock.monotonic() + seconds if seconds else None
    said = clock.monotonic() + 10.0
    while True:
        why = "it is not ready"
        try:
            if await ready():
                return
        except StoreError as error:
            why = str(error)
        if not process.is_running:
            await process.ended()
        now = clock.monotonic()
        if end is not None and now >= end:
            raise EtcdFailed(f"etcd was not ready within {seconds:g} s: {why}")
        if now >= said:
            log.info("waiting for etcd: %s", why)
            said = now + 10.0
        await clock.sleep(0.2)


def _die_with_parent() -> Callable[[], None]:
    """Kill this process when its parent ends; called between fork and exec, so it makes only one system call."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # The parent may have died before the call.
        if os.getppid() != parent:
            os._exit(1)

    return ask
