"""Which processes are a service's, without a kernel's control groups, which only root may make.

What a service starts is below its first process; what lost its parent has become the init's child, and is known by the session
that it was started in or by the mark (systemd's INVOCATION_ID) in its environment.
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

# Of services that leave processes behind each time.
_REMEMBERED = 15


class Group:
    """The processes of one service; a new mark with each start, old ones are remembered until nothing of them is left."""

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
        """A process that was started for the service, in a session of its own."""
        self._leaders.add(leader)

    def members(self) -> set[int]:
        """Those that live now."""
        if not self._marks:
            return set()
        known = processes.everything()
        mine = processes.descendants(os.getpid(), known)
        tops = {pid for pid in mine if known[pid].parent == os.getpid() and self._is_ours(known[pid])}
        # A number that nobody has any more may become somebody else's.
        self._leaders &= {known[pid].session for pid in mine} | mine
        return tops.union(*(processes.descendants(pid, known) for pid in tops)) if tops else set()

    def _is_ours(self, found: processes.Status) -> bool:
        if found.pid in self._leaders or found.session in self._leaders:
            return True
        return any(processes.environment_has(found.pid, "INVOCATION_ID", mark) for mark in self._marks)


# --- notify socket --------------------------------------------------------------------------------------------------------
#
# Where services of type notify tell that they are ready (sd_notify(3)): a socket without a file, so that no path is too long.
#
# Everybody on the machine could write there, so what counts is who the kernel says has written.

_CREDENTIALS = struct.Struct("3i")
_LARGEST = 4096


class NotifySocket:
    """`heard(pid, fields)` gets each message of a process of this user."""

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
# The processes that an init starts, and how it hears of their end, of those too that became its children without being asked.


class Children:
    """One per init: nobody else in the process may wait for children."""

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
        """A process that leads a session of its own; its number, and its exit status (negative: by signal) when it has ended.

        Raises OSError when there is no such program.
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
        """Take note of every child that has ended; to be called when the kernel says that one has."""
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
    # More than one has can't be given without root; systemd would refuse, a host on somebody's machine makes do.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(number, (values[0], values[1]))


def _limit_value(text: str, most: int) -> int:
    if not text.isdigit():
        return most
    return int(text) if most == resource.RLIM_INFINITY else min(int(text), most)
