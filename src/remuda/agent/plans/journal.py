"""The progress of the current plan, on disk before the next step, so that a killed agent continues and does not start over.

The Secret says ``in-progress`` from before the first instruction until after the last, and an agent that dies in between finds
that state. The original then runs everything again. Here each finished instruction is recorded with its output; the next agent
skips it, kills processes that its predecessor left, runs the interrupted one again, and reports as if nothing had happened. A
result that could not be reported (the server was away) is kept the same way and reported later, without another run.

A journal belongs to one ``run``: the Secret's uid, the plan's checksum and the count that moves with each attempt.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

from ..clock import Clock, elapsed, parse_unix_date, unix_date
from ..commands import kill_group
from ..errors import InterlockHeld
from ..paths import read_or_none, write_atomically


class Journal:
    """The notes of one run, kept at ``path``."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.run = ""
        self.done: list[bytes] = []
        self.failed: bytes | None = None
        self.child: dict[str, Any] | None = None

    @classmethod
    def open(cls, path: str) -> Journal:
        """The notes as a predecessor left them; unreadable ones are none."""
        journal = cls(path)
        raw = read_or_none(path)
        if raw is None:
            return journal
        with contextlib.suppress(ValueError, KeyError, TypeError):
            value = json.loads(raw)
            done = [base64.b64decode(item) for item in value["done"]]
            failed = value.get("failed")
            journal.run, journal.done, journal.child = str(value["run"]), done, value.get("child")
            journal.failed = None if failed is None else base64.b64decode(failed)
        return journal

    def begin(self, run: str) -> bool:
        """Notes for this run: its own if there are any (true), else none. An orphan of a predecessor is killed."""
        self.stop_orphan()
        if self.run == run:
            return True
        self.run, self.done, self.failed = run, [], None
        self._save()
        return False

    def running(self, pid: int) -> None:
        self.child = {"pid": pid, "since": _started_at(pid), "boot": _boot()}
        self._save()

    def finished(self, stdout: bytes) -> None:
        self.done.append(stdout)
        self.child = None
        self._save()

    def broke(self, stdout: bytes) -> None:
        self.failed = stdout
        self.child = None
        self._save()

    def close(self) -> None:
        """The result is reported: nothing is left to remember."""
        self.run, self.done, self.failed, self.child = "", [], None, None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def stop_orphan(self) -> None:
        """Kill the process that a killed agent left running. Its start time tells it from another with the same id."""
        child, self.child = self.child, None
        if not isinstance(child, dict) or not isinstance(child.get("pid"), int) or child["pid"] <= 1:
            return
        since = _started_at(child["pid"])
        if since and since == child.get("since") and _boot() == child.get("boot"):
            kill_group(child["pid"])

    def _save(self) -> None:
        os.makedirs(os.path.dirname(self.path), mode=0o755, exist_ok=True)
        value = {
            "run": self.run,
            "done": [base64.b64encode(item).decode() for item in self.done],
            "failed": None if self.failed is None else base64.b64encode(self.failed).decode(),
            "child": self.child,
        }
        write_atomically(self.path, json.dumps(value).encode())


def _started_at(pid: int) -> str:
    raw = _proc(f"/proc/{pid}/stat")
    # The second field is the program's name in brackets, which may hold anything.
    fields = raw.rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else ""


def _boot() -> str:
    return _proc("/proc/sys/kernel/random/boot_id").strip()


def _proc(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


# --- interlock ------------------------------------------------------------------------------------------------------------
#
# Two files that keep an installer and an apply apart (docs/reference/agent.md#interlock).
#
# The installer touches ``restart-pending`` and waits until ``applyinator-active`` is gone; the agent does not begin while the
# first is there. An installer that died must not block a host for ever, so after five minutes its file is removed.

PENDING = "restart-pending"
ACTIVE = "applyinator-active"
GIVE_UP_AFTER = 300.0


class Interlock:
    """The interlock directory; an empty one means no interlock."""

    def __init__(self, directory: str, clock: Clock) -> None:
        self.directory = directory
        self.clock = clock

    def clear_stale(self) -> None:
        """Remove the marker that a killed predecessor may have left: at start no plan is being applied."""
        if self.directory:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.directory, ACTIVE))

    def check(self) -> None:
        """Refuse while a restart is pending."""
        if not self.directory:
            return
        path = os.path.join(self.directory, PENDING)
        content = read_or_none(path)
        if content is None:
            return
        seen = content.decode(errors="replace").strip()
        now = self.clock.now()
        since = parse_unix_date(seen)
        if since is None or since > now + GIVE_UP_AFTER:
            write_atomically(path, unix_date(now).encode())
            raise InterlockHeld("an installer is about to restart this agent; nothing is applied until it has")
        if not elapsed(seen, GIVE_UP_AFTER, now):
            raise InterlockHeld(f"an installer is about to restart this agent since {seen}; nothing is applied until it has")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    @contextlib.contextmanager
    def applying(self) -> Iterator[None]:
        """Show the installer that an apply runs."""
        self.check()
        if not self.directory:
            yield
            return
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        path = os.path.join(self.directory, ACTIVE)
        write_atomically(path, unix_date(self.clock.now()).encode())
        try:
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
