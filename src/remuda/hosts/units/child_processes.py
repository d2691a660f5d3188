"""The processes that an init starts, and how it hears of their end, of those too that became its children without being asked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
from collections.abc import Iterable, Mapping

from .. import processes


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
