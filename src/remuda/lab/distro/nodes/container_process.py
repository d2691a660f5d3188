"""One container as a process: started, watched, restarted with growing pauses, stopped with all of its children.

Its output goes straight into a file, so that nothing is lost in between. It dies with the process that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from remuda.hosts.processes import die_with_parent
from remuda.kube.clock import Clock

LONGEST_PAUSE: Final = 300.0
# A process that has run for this long begins with short pauses again.
STEADY_SECONDS: Final = 600.0
LONGEST_LOG: Final = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    started: float
    finished: float


class Process:
    """`restarts` continues the count of earlier runs of the node; `first_pause` is the pause before the first restart."""

    def __init__(
        self,
        directory: Path,
        logs: Path,
        clock: Clock,
        ended: Callable[[], None],
        *,
        restarts: int = 0,
        first_pause: float = 10.0,
    ) -> None:
        self._directory = directory
        self._logs = logs
        self._clock = clock
        self._ended = ended
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._first_pause = first_pause
        self._pause = 0.0
        self._again_at = 0.0
        self.restarts = restarts
        self.started = 0.0
        self.last: Ended | None = None

    @property
    def runs(self) -> bool:
        return self._process is not None

    @property
    def pause(self) -> float:
        """The current pause before a restart."""
        return self._pause

    def rest_left(self) -> float:
        """Seconds until it may be restarted."""
        return max(self._again_at - self._clock.monotonic(), 0.0)

    async def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Raises OSError when it can't be started."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._logs.mkdir(parents=True, exist_ok=True)
        if self.last is not None:
            self.restarts += 1
        with (self._logs / "0.log").open("ab") as out:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                env=dict(environment),
                cwd=self._directory,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self.started = self._clock.time()
        self._watching = asyncio.create_task(self._watch(self._process))

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        # Its remaining children are killed, as in a container.
        kill_group(process.pid, signal.SIGKILL)
        now = self._clock.time()
        steady = now - self.started >= STEADY_SECONDS
        self._pause = self._first_pause if steady or not self._pause else min(self._pause * 2, LONGEST_PAUSE)
        self._again_at = self._clock.monotonic() + self._pause
        self.last = Ended(128 - code if code < 0 else code, self.started, now)
        self._process = None
        self._ended()

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            kill_group(self._process.pid, number)

    async def gone(self) -> None:
        """Wait until it has ended."""
        if self._watching is not None:
            await asyncio.shield(self._watching)

    def trim_log(self) -> None:
        """Limit the size of its log file: the content moves to the former log."""
        path = self._logs / "0.log"
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > LONGEST_LOG:
                shutil.copyfile(path, self._logs / "0.log.former")
                os.truncate(path, 0)


def kill_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
