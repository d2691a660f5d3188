"""Runs one command: with bounded output and time, and without leftover processes.

Both streams are read as they come, in chunks, so no output can block the child or fill our memory; of long output the beginning
and the end are kept. The child leads its own session: when its time is up, everything it started is killed with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from typing import IO, NamedTuple

#: Of one stream: the first and the last half of this are kept.
KEPT = 4 * 1024 * 1024
LONGEST_LINE = 64 * 1024
LOGGED_LINES = 5000
#: How long a killed child's pipes may stay open (a daemon it started may hold them).
_LINGER = 5.0

Say = Callable[[str], None]


class CommandResult(NamedTuple):
    """The result of a command. -1: it could not be started, or was killed."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""
    why: str = ""


def run(
    argv: list[str],
    env: dict[str, str],
    directory: str,
    timeout: float,
    say: Callable[[str, str], None],
    started: Callable[[int], None] = lambda pid: None,
) -> CommandResult:
    """Run until it ends or its time is up; ``say(stream, line)`` gets each line, ``started(pid)`` the process."""
    try:
        process = subprocess.Popen(
            argv,
            cwd=directory,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as reason:
        return CommandResult(-1, why=f"can't start {argv[0]}: {reason}")
    assert process.stdout is not None and process.stderr is not None
    streams = [
        _Stream(process.stdout, lambda line: say("stdout", line)),
        _Stream(process.stderr, lambda line: say("stderr", line)),
    ]
    try:
        started(process.pid)
        code = process.wait(timeout or None)
        why = "" if code == 0 else f"killed by signal {-code}" if code < 0 else f"exit status {code}"
    except subprocess.TimeoutExpired:
        _end(process)
        code, why = -1, f"still running after {timeout:g} s, killed"
    except BaseException:
        kill_group(process.pid)
        process.wait()
        raise
    finally:
        stdout, stderr = (stream.finish() for stream in streams)
    return CommandResult(max(code, -1), stdout, stderr, why)


def kill_group(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, then kill it and all it started."""
    kill_group(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_LINGER)
    kill_group(process.pid)
    process.wait()


class _Stream:
    """One pipe, read by a thread of its own."""

    def __init__(self, pipe: IO[bytes], say: Say) -> None:
        self._pipe = pipe
        self._say = say
        self._kept = BoundedOutput(KEPT)
        self._logged = 0
        self._finished = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def finish(self) -> bytes:
        # Something that was left running in the background may hold the pipe: its output is not this command's.
        self._thread.join(_LINGER)
        self._finished = True
        return self._kept.bytes()

    def _read(self) -> None:
        line = bytearray()
        with self._pipe as pipe:
            descriptor = pipe.fileno()
            while True:
                chunk = os.read(descriptor, LONGEST_LINE)
                if not chunk:
                    break
                if self._finished:
                    continue  # drained, so that its writer does not die of it
                *whole, rest = chunk.split(b"\n")
                for piece in whole:
                    line += piece
                    self._line(bytes(line))
                    line.clear()
                line += rest
                if len(line) > LONGEST_LINE:
                    # Not a line any more. It is passed on in pieces, without newlines that were never there.
                    self._kept.add(bytes(line))
                    self._log(bytes(line))
                    line.clear()
        if line:
            self._line(bytes(line))

    def _line(self, line: bytes) -> None:
        line = line[:-1] if line.endswith(b"\r") else line
        self._kept.add(line + b"\n")
        self._log(line)

    def _log(self, line: bytes) -> None:
        self._logged += 1
        if self._logged <= LOGGED_LINES:
            self._say(line[:LONGEST_LINE].decode(errors="replace"))
        elif self._logged == LOGGED_LINES + 1:
            self._say("[more follows and is not logged]")


class BoundedOutput:
    """The beginning and the end of a stream, however long it is."""

    MARK = b"\n[... left out: too long ...]\n"

    def __init__(self, bound: int) -> None:
        self._half = bound // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._lost = False
        self._lock = threading.Lock()

    def add(self, data: bytes) -> None:
        with self._lock:
            room = self._half - len(self._head)
            if not self._tail and not self._lost and room > 0:
                self._head += data[:room]
                data = data[room:]
            if not data:
                return
            self._tail += data
            if len(self._tail) > 2 * self._half:
                del self._tail[: len(self._tail) - self._half]
                self._lost = True

    def bytes(self) -> bytes:
        with self._lock:
            tail = bytes(self._tail[-self._half :]) if self._lost or len(self._tail) > self._half else bytes(self._tail)
            lost = self._lost or len(tail) < len(self._tail)
            return bytes(self._head) + (self.MARK if lost else b"") + tail
