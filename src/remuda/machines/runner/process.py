"""One process of a Job, from start to end: its output goes to a sink, and no process of its session outlives it.

Processes that it started in other sessions stay, as the hosts of the driver `local` must.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from .confinement import Jailed

_JAIL = str(Path(__file__).with_name("jail.py"))
_CHUNK = 1 << 16
# The most that is read after it has ended: another process with the same pipe could go on writing for ever.
_REST = 64


class Child:
    """Started by its making. Wait for it with :meth:`ended`; :meth:`close` it in any case."""

    def __init__(self, jailed: Jailed, sink: Callable[[bytes], None]) -> None:
        """Raises OSError."""
        self._sink = sink
        self._output, theirs = os.pipe()
        os.set_blocking(self._output, False)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", _JAIL],
                stdin=subprocess.PIPE,
                stdout=theirs,
                stderr=theirs,
                env={},
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            os.close(self._output)
            raise
        finally:
            os.close(theirs)
        self.pid = self._process.pid
        assert self._process.stdin is not None
        try:
            # Opened before it can have been waited for, so that it is this very process.
            self._exit = os.pidfd_open(self.pid)
        except BaseException:
            # It waits for its instructions, and has not begun.
            self._process.kill()
            self._process.stdin.close()
            self._process.wait()
            os.close(self._output)
            raise
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stream:
            stream.write(json.dumps(jailed.told()).encode())

    async def ended(self) -> int:
        """Its exit status, negative when a signal ended it."""
        loop = asyncio.get_running_loop()
        gone: asyncio.Future[None] = loop.create_future()

        def over() -> None:
            loop.remove_reader(self._exit)
            if not gone.done():
                gone.set_result(None)

        def said() -> None:
            if self._read() == b"":
                loop.remove_reader(self._output)

        loop.add_reader(self._exit, over)
        loop.add_reader(self._output, said)
        try:
            await gone
        finally:
            loop.remove_reader(self._exit)
            loop.remove_reader(self._output)
        for _ in range(_REST):
            if not self._read():
                break
        self.kill()
        return self._process.wait()

    def kill(self) -> None:
        """Kill it and all of its session, if they live. The waiting task sees it end."""
        # Until it is waited for, no other process can have its id, nor its group's.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill it if it lives, and release its resources."""
        if self._exit < 0:
            return
        self.kill()
        self._process.wait()
        os.close(self._exit)
        os.close(self._output)
        self._exit = -1

    def _read(self) -> bytes | None:
        """The available output; empty at the end, None when there is nothing yet."""
        try:
            found = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return None
        if found:
            self._sink(found)
        return found


def named(code: int | None) -> str:
    """The end of a process, in words."""
    return f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"
