"""Self-update: a plan brings a successor, which is tried before it replaces this agent.

A successor is a file named by its own checksum in a directory that the agent names in its report
(:meth:`AgentProgram.about`). Its checksum must match its name, and it must start on this host: with the host's Python,
configuration and connection to the server. Only then it replaces the archive that runs, and the agent ends, so that
the init system starts the new one. A refused successor is removed, and the reason reported; nothing was touched that the next
start needs.

The archive may also be replaced by hand, or by another user's plan: then it only has to be complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable

from . import __version__, log
from .commands import run
from .paths import read_or_none, write_atomically

_NAME = re.compile(r"([0-9a-f]{64})\.pyz")
_TRIAL_SECONDS = 120
_LONGEST_REASON = 300


def try_out(path: str) -> str:
    """Start a successor for a moment; gives the reason why it won't do, or nothing."""
    argv = [sys.executable, "-I", "-S", path, "check"]
    done = run(argv, dict(os.environ), "/", _TRIAL_SECONDS, lambda stream, line: None)
    if done.exit_code == 0:
        return ""
    last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
    return ": ".join(["it does not start", done.why, *(line.decode(errors="replace").strip() for line in last)])


class AgentProgram:
    """The archive this process was started from; none when it runs from plain sources.

    `successors` is where plans put the next one; `trial` says why a file can't be it.
    """

    def __init__(self, path: str, stop: threading.Event, successors: str = "", trial: Callable[[str], str] = try_out) -> None:
        self.path = os.path.realpath(path) if path else ""
        self.stop = stop
        self.wake: threading.Event | None = None
        self._successors = successors
        self._trial = trial
        self._refused: dict[str, str] = {}
        self._seen = _identity(self.path)
        self._checksum = _checksum(self.path)

    def about(self, trusted: list[str] | None = None) -> bytes:
        """The agent's report about itself: its version, unless it is no archive and so can't be replaced; and the CAs that it
        trusts, if given."""
        told: dict[str, object] = {} if trusted is None else {"trusts": trusted}
        if self._checksum and self._successors:
            told.update({"checksum": self._checksum, "successors": self._successors, "version": __version__})
            if self._refused:
                told["refused"] = self._refused
        return json.dumps(told, sort_keys=True).encode() if told else b""

    def check(self) -> None:
        """After a pass: end when there is another good one to be started from."""
        for name in self._candidates():
            self._consider(os.path.join(self._successors, name), name)
        now = _identity(self.path)
        if now is None or now == self._seen:
            return
        self._seen = now
        if not _whole(self.path):
            log.error(f"{self.path} was replaced by a file that is not an agent; the running version stays")
            return
        log.info(f"{self.path} was replaced: the agent ends, to be started from it")
        self.stop.set()
        if self.wake is not None:
            self.wake.set()

    def _candidates(self) -> list[str]:
        if not self._checksum or not self._successors:
            return []
        try:
            return sorted(name for name in os.listdir(self._successors) if _NAME.fullmatch(name))
        except OSError:
            return []

    def _consider(self, path: str, name: str) -> None:
        wanted = name.partition(".")[0]
        try:
            reason = self._take(path, wanted)
        except OSError as problem:
            reason = f"it can't be put in place: {problem}"
        if reason:
            log.error(f"not updated to {wanted[:12]}: {reason}")
            self._refused = {"checksum": wanted, "reason": reason[:_LONGEST_REASON]}
        with contextlib.suppress(OSError):
            os.unlink(path)

    def _take(self, path: str, wanted: str) -> str:
        data = read_or_none(path)
        if data is None or wanted == self._checksum:
            return ""
        if hashlib.sha256(data).hexdigest() != wanted:
            return "its content does not match its checksum"
        if not _whole(path):
            return "it is not an archive of an agent"
        reason = self._trial(path)
        if not reason:
            write_atomically(self.path, data, 0o755)
        return reason


def _checksum(path: str) -> str:
    try:
        data = read_or_none(path) if path else None
    except OSError:
        return ""
    return hashlib.sha256(data).hexdigest() if data is not None else ""


def _identity(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path) if path else None
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns) if found else None


def _whole(path: str) -> bool:
    import zipfile

    try:
        with zipfile.ZipFile(path) as content:
            return content.testzip() is None and "__main__.py" in content.namelist()
    except (OSError, zipfile.BadZipFile):
        return False
