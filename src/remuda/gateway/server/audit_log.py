"""The audit log: who did what to which cluster, and with which result; one JSON object a line, without secrets.

The file is rotated by size, and a fixed number of old ones is kept. A request never fails because its line can't be written: on a
full disk lines are counted, and the next line that is written says how many are missing. A line that was cut short (a crash, a
full disk) is ended before the next, so that it spoils no other. A setting tells how often the file is forced to disk: every line,
at an interval, or when the system does. :mod:`remuda.kube.redaction` removes secrets.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import os
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from pathlib import Path

import msgspec

from remuda.kube.clock import Clock, rfc3339_micro
from remuda.kube.redaction import redacted

log = logging.getLogger(__name__)

LONGEST_FIELD = 1024
# These differ from line to line, and may contain a secret.
_EVER_NEW = frozenset(("path", "why", "annotations"))
_ALWAYS = frozenset(("method", "path"))
_CUT = "…"
_encoder = msgspec.json.Encoder()


class Result(enum.Enum):
    """The result: done, refused by us, failed behind us, or in progress (the first of two lines of a long request)."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    FAILED = "failed"
    STARTED = "started"


class Record(msgspec.Struct, frozen=True):
    """One line, without the fields that are empty. `why` is the reason of a refusal, which the caller does not always get."""

    method: str
    path: str
    result: Result
    status: int = 0
    user: str = ""
    groups: tuple[str, ...] = ()
    token: str = ""
    impersonated: str = ""
    address: str = ""
    cluster: str = ""
    why: str = ""
    agent: str = ""
    request: str = ""
    milliseconds: float = 0.0
    forged: tuple[str, ...] = ()
    # Of admission: by webhooks (`auditAnnotations`) and by PodSecurity.
    annotations: dict[str, str] = {}


class Fsync(enum.Enum):
    """The policy for forcing lines to disk."""

    EVERY_LINE = "always"
    NOW_AND_THEN = "interval"
    NEVER = "never"


def render(record: Record, now: float) -> bytes:
    """The line with its line end. Every text in it is redacted and cut; JSON keeps a line one line."""
    line: dict[str, object] = {"time": rfc3339_micro(now)}
    for name, value in zip(Record.__struct_fields__, msgspec.structs.astuple(record), strict=True):
        if value or name in _ALWAYS:
            line[name] = _clean(value, _said if name in _EVER_NEW else _said_before)
    return _encoder.encode(line) + b"\n"


def _clean(value: object, said: Callable[[str], str]) -> object:
    if type(value) is str:
        return said(value[: 2 * LONGEST_FIELD])
    if isinstance(value, list | tuple):
        return [_clean(item, said) for item in value[:64]]
    if isinstance(value, dict):
        return {said(key[:LONGEST_FIELD]): _clean(item, said) for key, item in islice(value.items(), 64)}
    return value


def _said(text: str) -> str:
    # Cut first and last: redaction should not have to look at a megabyte, and may make a text longer. A secret that is cut
    # in two must still be known by its shape, hence the room.
    short = redacted(_writable(text))
    return short if len(short) <= LONGEST_FIELD else short[:LONGEST_FIELD] + _CUT


# Users, groups, agents and addresses repeat all the time.
_said_before = lru_cache(2048)(_said)


def _writable(text: str) -> str:
    """The text without lone surrogates, which JSON can't encode in UTF-8."""
    return text.encode(errors="backslashreplace").decode()


class AuditLog:
    """Writes to `path`; older files are `path.1` (the newest) to `path.<keep>`.

    For one event loop. `write` and `force` are system calls, replaceable to simulate a bad disk.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        largest: int = 100 << 20,
        keep: int = 10,
        fsync: Fsync = Fsync.NOW_AND_THEN,
        every: float = 1.0,
        write: Callable[[int, bytes], int] = os.write,
        force: Callable[[int], None] = os.fsync,
    ) -> None:
        if largest < 1 or keep < 0:
            raise ValueError("an audit file must be allowed at least a byte, and the number of old ones can't be negative")
        self._path = path
        self._clock = clock
        self._largest = largest
        self._keep = keep
        self._fsync = fsync
        self._every = every
        self._write = write
        self._force = force
        self._file = -1
        self._size = 0
        self._torn = False
        self._unforced = False
        # Lost lines: since the last written one, and in all.
        self._missing = 0
        self.lost = 0

    def record(self, record: Record) -> bool:
        """Write a line; False when that failed, which is counted and never raised."""
        try:
            line = render(record, self._clock.time())
            self._open()
            self._rotate_before(len(line))
            if self._missing:
                self._append(self._told())
                self._missing = 0
            self._append(line)
        except (OSError, ValueError, TypeError) as error:
            self._lose(error)
            return False
        if self._fsync is Fsync.EVERY_LINE:
            self._sync(self._file)
        return True

    def close(self) -> None:
        if self._file >= 0:
            if self._fsync is not Fsync.NEVER:
                self._sync(self._file)
            os.close(self._file)
            self._file = -1

    async def keep_forced(self) -> None:
        """Force to disk at an interval, until cancelled. Outside the event loop: a disk may take seconds."""
        while True:
            await self._clock.sleep(self._every)
            if self._unforced and self._file >= 0:
                # A descriptor of its own, since rotation may close the other one meanwhile.
                self._unforced = False
                await asyncio.to_thread(self._sync_and_close, os.dup(self._file))

    def _sync_and_close(self, file: int) -> None:
        try:
            self._sync(file)
        finally:
            os.close(file)

    def _sync(self, file: int) -> None:
        try:
            self._force(file)
        except OSError as error:
            log.error("the audit log can't be forced to disk: %s", error.strerror or error)

    def _told(self) -> bytes:
        return msgspec.json.encode({"time": rfc3339_micro(self._clock.time()), "lost": self._missing}) + b"\n"

    def _lose(self, error: Exception) -> None:
        if not self._missing:
            # Once per period of failures, not once a request.
            log.error("a line of the audit log %s can't be written: %s", self._path, error)
        self._missing += 1
        self.lost += 1

    def _append(self, data: bytes) -> None:
        if self._torn:
            data = b"\n" + data
        done = 0
        while done < len(data):
            try:
                wrote = self._write(self._file, data[done:])
            except OSError:
                self._torn = self._torn or done > 0
                raise
            if wrote <= 0:
                self._torn = self._torn or done > 0
                raise OSError("nothing was written")
            done += wrote
            self._size += wrote
        self._torn = False
        self._unforced = self._fsync is Fsync.NOW_AND_THEN

    # --- files

    def _open(self) -> None:
        if self._file >= 0:
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Do not follow a link that another process put there.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            self._size = os.fstat(file).st_size
            self._torn = self._size > 0 and os.pread(file, 1, self._size - 1) != b"\n"
        except OSError:
            os.close(file)
            raise
        self._file = file

    def _rotate_before(self, more: int) -> None:
        if self._size == 0 or self._size + more <= self._largest:
            return
        self.close()
        try:
            self._shift()
        except OSError as error:
            # A file that grows too large is better than lost lines.
            log.error("the audit log %s can't be rotated: %s", self._path, error.strerror or error)
        self._open()

    def _shift(self) -> None:
        """Rename every file to the next number and drop the last. Names are only replaced, so a crash in between loses no
        line."""
        if not self._keep:
            self._path.unlink(missing_ok=True)
            return
        for number in range(self._keep - 1, 0, -1):
            older = self._numbered(number)
            if older.exists():
                older.replace(self._numbered(number + 1))
        self._path.replace(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
