"""The image of hosts whose config names none: Debian with systemd, built by the engine itself, once for each machine.

No image that boots systemd, with what a host of a cluster needs, is published anywhere; a Containerfile of a few lines makes one
from Debian's. The tag is a digest of that file, so another version of Remuda that needs another image builds it anew.
"""

from __future__ import annotations

import hashlib
import io
import socket
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from remuda.kube.clock import deadline

from ...driver import DriverContext, DriverError, Reason
from .engine import Engine

BASE = "docker.io/library/debian:bookworm-slim"
# Units that would change the machine below (its console, its kernel's settings), or use the network by themselves.
_MASKED = (
    "getty@tty1.service console-getty.service systemd-sysctl.service systemd-modules-load.service systemd-logind.service "
    "apt-daily.timer apt-daily-upgrade.timer fstrim.timer e2scrub_all.timer"
)
# Each host gets a machine ID (systemd would take that of D-Bus) and SSH host keys of its own when it starts for the first time.
CONTAINERFILE = f"""\
FROM {BASE}
RUN apt-get update \\
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \\
    systemd systemd-sysv dbus curl ca-certificates iproute2 kmod procps python3 openssh-server \\
 && apt-get clean \\
 && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* /var/lib/dbus/machine-id \\
 && : >/etc/machine-id \\
 && systemctl mask {_MASKED} \\
 && mkdir -p /etc/systemd/system/ssh.service.d \\
 && printf '[Service]\\nExecStartPre=\\nExecStartPre=/usr/bin/ssh-keygen -A\\nExecStartPre=/usr/sbin/sshd -t\\n' \\
    >/etc/systemd/system/ssh.service.d/host-keys.conf
STOPSIGNAL SIGRTMIN+3
CMD ["/sbin/init"]
"""
NAME = f"localhost/remuda-host:{hashlib.sha256(CONTAINERFILE.encode()).hexdigest()[:12]}"
_SECONDS, _PAUSE = 1800.0, 2.0


async def ensure(engine: Engine, around: DriverContext) -> None:
    """Builds the image if it is missing. Raises DriverError."""
    if await engine.has_image(NAME):
        return
    try:
        async with deadline(around.clock, _SECONDS), _alone(engine, around):
            if not await engine.has_image(NAME):
                around.say(f"building the image {NAME} of {BASE}, once for this machine")
                await engine.build(NAME, _context(), around.say)
                around.say(f"the image {NAME} is built")
    except TimeoutError:
        raise DriverError(Reason.TIMED_OUT, f"the image {NAME} was not built within {_SECONDS:.0f} s", field="image") from None


@asynccontextmanager
async def _alone(engine: Engine, around: DriverContext) -> AsyncIterator[None]:
    """The machines of a pool are made at the same time, each by a program of its own: one of them builds, the others wait.

    The lock is a socket in the abstract namespace: it is the whole machine's, needs no directory that all may write, and goes
    with its process.
    """
    with socket.socket(socket.AF_UNIX) as lock:
        told = False
        while not _bound(lock, f"\0remuda {NAME} {engine.socket}"):
            if not told:
                around.say(f"the image {NAME} is being built for another machine: waiting for it")
                told = True
            await around.clock.sleep(_PAUSE)
        yield


def _bound(lock: socket.socket, name: str) -> bool:
    try:
        lock.bind(name[:100])
    except OSError:
        return False
    return True


def _context() -> bytes:
    """The build context of the engine."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        member = tarfile.TarInfo("Containerfile")
        member.size = len(CONTAINERFILE)
        tar.addfile(member, io.BytesIO(CONTAINERFILE.encode()))
    return packed.getvalue()
