"""Which processes are a service's, without a kernel's control groups, which only root may make.

What a service starts is below its first process; what lost its parent has become the init's child, and is known by the session
that it was started in or by the mark (systemd's INVOCATION_ID) in its environment.
"""

from __future__ import annotations

import os

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
