"""One process of a Job, from start to end: its output goes to a sink, and no process of its session outlives it.

Processes that it started in other sessions stay, as the hosts of the driver `local` must.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from .confinement import JailOptions

_JAIL = str(Path(__file__).with_name("jail.py"))
_CHUNK = 1 << 16
# The most that is read after it has ended: another process with the same pipe could go on writing for ever.
_REST = 64


class Child:
    """Started by its making. Wait for it with :meth:`ended`; :meth:`close` it in any case."""

    def __init__(self, jailed: JailOptions, sink: Callable[[bytes], None]) -> None:
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


# --- directories -----------------------------------------------------------------------------------------------------------
#
# The private directories of Jobs' processes, in one directory of this server, removed at its end; leftovers are swept.
#
# With the leftovers of a server the processes that still run there are ended. A Job's own process dies with its server, but
# processes that it has started (rancher-machine, and its plugins) may not; the Job must not be repeated while they run.

_PREFIX = "remuda-jobs-"


class Directories:
    def __init__(self, base: Path | None = None) -> None:
        self._base = base or Path(tempfile.gettempdir())
        self._mine: Path | None = None
        # A cancelled task does not wait for a thread that makes a directory; that directory must be removed, too.
        self._lock = threading.Lock()
        self._closed = False

    def open(self) -> None:
        """Remove directories of servers that have ended. Blocks."""
        self._closed = False
        for path in self._base.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                if path.lstat().st_uid == os.geteuid() and path.is_dir() and not path.is_symlink() and not _lives(path.name):
                    _end_processes(path)
                    shutil.rmtree(path, ignore_errors=True)

    def make(self, files: Mapping[str, bytes], uid: int) -> Path:
        """A new directory with these files, which only `uid` (0: this process' own user) can read. Blocks; raises OSError."""
        with self._lock:
            return self._make(files, uid)

    def _make(self, files: Mapping[str, bytes], uid: int) -> Path:
        directory = Path(tempfile.mkdtemp(prefix="job-", dir=self._own()))
        try:
            self._fill(directory, files, uid)
        except BaseException:
            # On a full disk, for example: the half that was written may be a key.
            shutil.rmtree(directory, ignore_errors=True)
            raise
        return directory

    def _fill(self, directory: Path, files: Mapping[str, bytes], uid: int) -> None:
        (directory / "tmp").mkdir(mode=0o700)
        for name, content in files.items():
            path = directory / name
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
                stream.write(content)
        if uid:
            for found in (directory, *directory.rglob("*")):
                os.chown(found, uid, uid)

    def discard(self, directory: Path) -> None:
        """Blocks."""
        shutil.rmtree(directory, ignore_errors=True)

    def close(self) -> None:
        """Remove them all; no more are made until it is opened again."""
        with self._lock:
            self._closed = True
            if self._mine is not None:
                shutil.rmtree(self._mine, ignore_errors=True)
                self._mine = None

    def _own(self) -> Path:
        if self._closed:
            raise FileNotFoundError("no more Jobs are begun here")
        if self._mine is None or not self._mine.is_dir():
            made = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-{_started(os.getpid())}-", dir=self._base))
            # Other users may pass, to their own directory; they can't list it.
            made.chmod(0o711)
            self._mine = made
        return self._mine


def _end_processes(directory: Path) -> None:
    """End the processes whose home is below this directory. Machines of the driver `local`, which have to stay, have another
    home."""
    mark = f"HOME={directory}/".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            process = os.pidfd_open(int(entry.name))
            try:
                if any(each.startswith(mark) for each in (entry / "environ").read_bytes().split(b"\0")):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
            finally:
                os.close(process)


def _lives(name: str) -> bool:
    pid, _, rest = name.removeprefix(_PREFIX).partition("-")
    started = rest.partition("-")[0]
    return pid.isdecimal() and started == _started(int(pid))


def _started(pid: int) -> str:
    """The start time of a process, in the kernel's ticks; empty when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return text[text.rindex(")") + 2 :].split()[19]
