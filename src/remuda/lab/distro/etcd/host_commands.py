"""The distribution's own commands on this host, by which operations work: while one runs, no scheduled snapshot starts.

Each command shares a lock on a file, which the kernel releases when the process ends, however it does; the schedule of the server
waits until none has it. A command never waits for a scheduled snapshot, whose upload may take long.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from remuda.kube.clock import Clock

from ..config.settings import Paths

_AGAIN: Final = 5.0


@contextmanager
def running(paths: Paths) -> Iterator[None]:
    """For the duration of a command. A host without a datastore has no schedule, either."""
    if not paths.db.is_dir():
        yield
        return
    with paths.commands.open("ab") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield


def is_any_running(paths: Paths) -> bool:
    if not paths.db.is_dir():
        return False
    with paths.commands.open("ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


async def ended(paths: Paths, clock: Clock) -> None:
    """Returns when no command runs on this host."""
    while is_any_running(paths):
        await clock.sleep(_AGAIN)
