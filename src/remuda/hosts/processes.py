"""Processes of this machine, identified reliably although the kernel reuses process numbers.

A process is identified by its number and its start time; it is signalled through a pidfd that was opened before the check, so
that there is no race. Processes of a host carry the host's id in their environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process, as long as this machine runs: `boot` distinguishes processes from before a reboot."""

    pid: int
    started: int
    boot: str


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """The kernel's present data about a process."""

    pid: int
    parent: int
    session: int
    started: int
    is_dead: bool


def identify(pid: int) -> ProcessIdentity | None:
    """The living process with this number, if there is one."""
    found = status(pid)
    return None if found is None or found.is_dead else ProcessIdentity(pid, found.started, boot_id())


def is_alive(identity: ProcessIdentity) -> bool:
    return identify(identity.pid) == identity


def boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def status(pid: int) -> ProcessStatus | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The program's name is in parentheses and may hold anything.
    fields = text[text.rindex(")") + 2 :].split()
    return ProcessStatus(pid, int(fields[1]), int(fields[3]), int(fields[19]), fields[0] in "ZX")


def everything() -> dict[int, ProcessStatus]:
    """All living processes, by number."""
    found = (status(int(path.name)) for path in _PROC.iterdir() if path.name.isdigit())
    return {each.pid: each for each in found if each is not None and not each.is_dead}


def descendants(pid: int, known: dict[int, ProcessStatus] | None = None) -> set[int]:
    """All processes below one. Below a subreaper none escapes: an orphan becomes its child."""
    children: dict[int, list[int]] = {}
    for each in (everything() if known is None else known).values():
        children.setdefault(each.parent, []).append(each.pid)
    found: set[int] = set()
    waiting = list(children.get(pid, ()))
    while waiting:
        child = waiting.pop()
        if child not in found:
            found.add(child)
            waiting.extend(children.get(child, ()))
    return found


def environment_has(pid: int, variable: str, value: str) -> bool:
    """True if a process was started with this variable; False for other users' processes, which can't be read."""
    try:
        return f"{variable}={value}".encode() in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def marked(variable: str, value: str) -> set[int]:
    """Our own living processes with this variable in their environment."""
    return {pid for pid in everything() if environment_has(pid, variable, value)}


def send(pid: int, number: signal.Signals, sure: Callable[[], bool]) -> bool:
    """Signal a process if `sure` says that it is the right one; its pidfd, opened first, excludes a reused number."""
    with _opened(pid) as descriptor:
        if descriptor is None or not sure():
            return False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(descriptor, number)
            return True
    return False


def send_to(identity: ProcessIdentity, number: signal.Signals) -> bool:
    return send(identity.pid, number, lambda: is_alive(identity))


def await_end(identity: ProcessIdentity, seconds: float) -> bool:
    """Wait until a process has ended; True if it has."""
    with _opened(identity.pid) as descriptor:
        if descriptor is None or not is_alive(identity):
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(max(seconds, 0) * 1000))


def kill_marked(variable: str, value: str, spare: Iterable[int] = ()) -> int:
    """Kill every process with this variable; the result is the number seen alive. Call it again until there are none."""
    found = marked(variable, value) - set(spare)
    for pid in found:
        send(pid, signal.SIGKILL, lambda pid=pid: environment_has(pid, variable, value))  # type: ignore[misc]
    return len(found)


def kill_tree(root: ProcessIdentity) -> bool:
    """Kill all below a subreaper, then itself; False while some are left. It is stopped first, so it starts nothing new."""
    send_to(root, signal.SIGSTOP)
    known = everything()
    left = descendants(root.pid, known) if is_alive(root) else set()
    for pid in left:
        send_to(ProcessIdentity(pid, known[pid].started, root.boot), signal.SIGKILL)
    if not left:
        send_to(root, signal.SIGKILL)
    return not left


def become_subreaper() -> None:
    """Make orphans below this process its children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Kill this process when its parent ends; called in a child between fork and exec."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def _opened(pid: int) -> Iterator[int | None]:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
