"""Processes of a service, found without the kernel's control groups, which only root may create.

A service's processes are below its first process; orphans become the init's children, and are identified by the session in which
they started or by the mark (systemd's INVOCATION_ID) in their environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import struct
import subprocess
from collections.abc import Callable, Iterable, Mapping

from .. import processes

# For services that leave processes behind each time.
_REMEMBERED = 15


class Group:
    """The processes of one service; each start has a new mark, old marks are kept until none of their processes is left."""

    def __init__(self) -> None:
        self.mark = ""
        self._marks: list[str] = []
        self._leaders: set[int] = set()

    def begin(self, mark: str) -> None:
        if not self.members():
            self._marks.clear()
            self._leaders.clear()
        self.mark = mark
        self._marks = [*self._marks[-_REMEMBERED:], mark]

    def add(self, leader: int) -> None:
        """Add a process that was started for the service, in a session of its own."""
        self._leaders.add(leader)

    def members(self) -> set[int]:
        """The living processes."""
        if not self._marks:
            return set()
        known = processes.everything()
        mine = processes.descendants(os.getpid(), known)
        tops = {pid for pid in mine if known[pid].parent == os.getpid() and self._is_ours(known[pid])}
        # The kernel may reuse a number that is free.
        self._leaders &= {known[pid].session for pid in mine} | mine
        return tops.union(*(processes.descendants(pid, known) for pid in tops)) if tops else set()

    def _is_ours(self, found: processes.ProcessStatus) -> bool:
        if found.pid in self._leaders or found.session in self._leaders:
            return True
        return any(processes.environment_has(found.pid, "INVOCATION_ID", mark) for mark in self._marks)


# --- notify socket --------------------------------------------------------------------------------------------------------
#
# The socket on which services of type notify report that they are ready (sd_notify(3)): without a file, so no path is too long.
#
# Every process on the machine can write to it, so the sender is taken from the kernel's credentials.

_CREDENTIALS = struct.Struct("3i")
_LARGEST = 4096


class NotifySocket:
    """`heard(pid, fields)` gets each message from a process of this user."""

    def __init__(self, name: str, heard: Callable[[int, dict[str, str]], None]) -> None:
        self._heard = heard
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind(f"\0{name}")
        self.address = f"@{name}"
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data, ancillary, _, _ = self._socket.recvmsg(_LARGEST, socket.CMSG_SPACE(_CREDENTIALS.size))
                for level, kind, content in ancillary:
                    if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                        pid, uid, _ = _CREDENTIALS.unpack(content)
                        if uid == os.getuid():
                            self._heard(pid, _fields(data))


def _fields(data: bytes) -> dict[str, str]:
    lines = data.decode(errors="replace").splitlines()
    return {key: value for key, equals, value in (line.partition("=") for line in lines) if equals}


# --- child processes ------------------------------------------------------------------------------------------------------
#
# The processes that an init starts, and notification of their end, also for orphans that became its children.


class Children:
    """The children of the init. One per init: no other code in the process may wait for children."""

    def __init__(self) -> None:
        self._running: dict[int, tuple[subprocess.Popen[bytes], asyncio.Future[int]]] = {}

    def start(
        self,
        argv: list[str],
        *,
        program: str = "",
        env: Mapping[str, str],
        directory: str,
        output: int,
        umask: int | None = None,
        limits: Iterable[tuple[str, str]] = (),
    ) -> tuple[int, asyncio.Future[int]]:
        """Start a process that leads a session of its own; its number, and a future for its exit status (negative: by signal).

        Raises OSError if there is no such program.
        """
        wanted = [(getattr(resource, f"RLIMIT_{name}"), value) for name, value in limits]

        def prepare() -> None:
            processes.die_with_parent()
            for number, value in wanted:
                _limit(number, value)

        process = subprocess.Popen(
            argv,
            executable=program or None,
            env=dict(env),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            umask=-1 if umask is None else umask,
            preexec_fn=prepare,
        )
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._running[process.pid] = process, ended
        return process.pid, ended

    def reap(self) -> None:
        """Reap every child that has ended; to be called on SIGCHLD."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            process, ended = self._running.pop(pid, (None, None))
            if process is None or ended is None:
                continue
            process.returncode = os.waitstatus_to_exitcode(status)
            if not ended.done():
                ended.set_result(process.returncode)


def _limit(number: int, value: str) -> None:
    soft, _, hard = value.partition(":")
    most = resource.getrlimit(number)[1]
    values = [_limit_value(part, most) for part in (soft, hard or soft)]
    # Raising a hard limit requires root; systemd would refuse, but a host on a user's machine goes on without.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(number, (values[0], values[1]))


def _limit_value(text: str, most: int) -> int:
    if not text.isdigit():
        return most
    return int(text) if most == resource.RLIM_INFINITY else min(int(text), most)
