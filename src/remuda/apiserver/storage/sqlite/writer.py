"""The one thread that writes.

Group commit without a timer: take the queued writes, decide them in memory, write them in one sqlite transaction, sync, answer
all; writes that came meanwhile are the next batch. Each write keeps its own revision, and one whose expectation fails does not
touch the others.

The design follows from Python's global lock, which sqlite3 releases around every step and must get back from a busy event
loop. So a batch takes few steps: one SELECT for all its keys, one INSERT of all its rows that commits by itself, one wake-up
of the loop. And the switch interval is short: a thread that waits for the lock requests it only when no thread has released it
for a whole interval, and the loop releases it at each turn, only to take it back before the waiter has woken up. With Python's
5 ms and turns of 0.2 ms, a write once waited for two seconds; with 0.1 ms the longest waits were those of the disk.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, TypeVar

from remuda.kube.clock import Clock

from ..store import Delete, Event, KeyValue, Mismatch, Op, Put, StoreError, changing, events
from . import tables
from .files import failure, transaction
from .tables import ORDINAL_BITS, first_id

log = logging.getLogger(__name__)
T = TypeVar("T")

SWITCH_INTERVAL = 0.0001
MAX_BATCH = 512
MAX_BATCH_BYTES = 8 * 1024 * 1024
# The log file is folded into the database at this many pages while no write waits, or at this many while one does.
CHECKPOINT_IDLE, CHECKPOINT_BUSY = 2000, 6000


class Outcome(NamedTuple):
    future: asyncio.Future[Any]
    result: object
    error: Exception | None = None


class _Write(NamedTuple):
    ops: Sequence[Op]
    future: asyncio.Future[int]


class _Job(NamedTuple):
    run: Callable[[sqlite3.Connection], object]
    future: asyncio.Future[Any]


class _Row(NamedTuple):
    """The newest row of a key, within a batch also one that is not written yet."""

    id: int
    kv: KeyValue | None


class _Batch(NamedTuple):
    outcomes: list[Outcome]
    events: list[Event]
    rows: list[tuple[object, ...]]


class Writer(Thread):
    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        deliver: Callable[[list[Outcome], list[Event]], None],
        path: Path,
        backups: Path,
    ) -> None:
        super().__init__(name="store-writer", daemon=True)
        self._connection = connection
        self._clock = clock
        self._loop = loop
        self._deliver = deliver
        self._path = path
        self._backups = backups
        self._queue: SimpleQueue[_Write | _Job | None] = SimpleQueue()
        self._wal_pages = 0
        self.committed = 0
        self.at = 0.0
        self._used = 0
        self._complained = False

    def begin(self, revision: int, at: float) -> None:
        if sys.getswitchinterval() > SWITCH_INTERVAL:
            sys.setswitchinterval(SWITCH_INTERVAL)
        self.committed = self._used = revision
        self.at = at
        self.start()

    def submit(self, ops: Sequence[Op], future: asyncio.Future[int]) -> None:
        self._queue.put(_Write(ops, future))

    def submit_job(self, run: Callable[[sqlite3.Connection], object], future: asyncio.Future[Any]) -> None:
        """Run another writing job, in its own transaction, after the queue before it."""
        self._queue.put(_Job(run, future))

    def finish(self) -> None:
        """End after the queue is done; the database is then marked as closed."""
        self._queue.put(None)

    def run(self) -> None:
        while True:
            writes, other = self._drain(self._queue.get())
            if writes:
                self._commit(writes)
            if other is None:
                break
            if isinstance(other, _Job):
                self._work(other)
            self._checkpoint_when_due()
        self._close()

    def _drain(self, item: _Write | _Job | None) -> tuple[list[_Write], _Write | _Job | None]:
        """The writes that fit in one transaction, and the item that ended them (a write when the size did)."""
        writes: list[_Write] = []
        size = 0
        while isinstance(item, _Write):
            writes.append(item)
            size += sum(len(op.value) for op in item.ops if isinstance(op, Put))
            if len(writes) >= MAX_BATCH or size >= MAX_BATCH_BYTES:
                return writes, item
            try:
                item = self._queue.get_nowait()
            except Empty:
                return writes, writes[-1]
        return writes, item

    def _tell(self, outcomes: list[Outcome], made: list[Event]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._deliver, outcomes, made)
        except RuntimeError:
            log.warning("the event loop ended before the store was closed; %d answers have no reader", len(outcomes))

    def _commit(self, writes: list[_Write]) -> None:
        try:
            batch = self._decide(writes)
            if batch.rows:
                self._store(batch.rows)
                self.committed = self._used
        except Exception as error:
            # One error object for each waiter: raising adds its own trace to it.
            text = str(self._explain(error))
            self._complain(text)
            self._tell([Outcome(write.future, None, StoreError(text)) for write in writes], [])
            return
        self._tell(batch.outcomes, batch.events)
        if batch.rows and self._complained:
            self._complained = False
            log.info("the database %s takes writes again", self._path)

    def _complain(self, text: str) -> None:
        """Log once at the start of each problem: writers get the error anyway, again and again."""
        if not self._complained:
            self._complained = True
            log.error("no write is accepted until this is over: %s", text)

    def _explain(self, error: Exception) -> StoreError:
        if isinstance(error, sqlite3.Error | OSError):
            return failure(error, self._path, self._backups, "write to")
        log.exception("the store could not apply a batch of writes")
        return StoreError(f"could not write to the database {self._path}: {error!r}")

    def _decide(self, writes: list[_Write]) -> _Batch:
        self.at = max(self.at, self._clock.time())
        state = self._load(list({op.key for write in writes for op in write.ops}))
        batch = _Batch([], [], [])

        def lookup(key: str) -> KeyValue | None:
            row = state.get(key)
            return None if row is None else row.kv

        for write in writes:
            revision = self._used + 1
            try:
                made = events(write.ops, revision, lookup)
            except Mismatch as mismatch:
                batch.outcomes.append(Outcome(write.future, None, mismatch))
                continue
            # Not undone if the batch fails: a gap is harmless, a number used twice is not.
            self._used = revision
            batch.outcomes.append(Outcome(write.future, revision))
            batch.events.extend(made)
            for ordinal, (op, event) in enumerate(zip(changing(write.ops), made, strict=True)):
                before = state.get(event.key)
                row = first_id(revision) + ordinal
                batch.rows.append(_log_row(row, before.id if before else 0, self.at, op, event))
                state[event.key] = _Row(row, event.kv)
        return batch

    def _load(self, keys: list[str]) -> dict[str, _Row]:
        found: dict[str, _Row] = {}
        for part in _parts(keys):
            marks = ",".join("?" * len(part))
            rows = self._connection.execute(
                "SELECT current.key, current.id, log.created, log.value FROM current JOIN log ON log.id = current.id "
                f"WHERE current.key IN ({marks})",
                part,
            ).fetchall()
            for key, row, created, value in rows:
                kv = None if value is None else KeyValue(key, value, created, row >> ORDINAL_BITS)
                found[key] = _Row(row, kv)
        return found

    def _store(self, rows: list[tuple[object, ...]]) -> None:
        parts = list(_parts(rows))
        if len(parts) == 1:
            self._insert(parts[0])
        else:
            with transaction(self._connection):
                for part in parts:
                    self._insert(part)
        # An estimate: for each row its value, and the page of `current` that points to it.
        values = (row[tables.VALUE] for row in rows)
        self._wal_pages += 1 + sum(2 + len(value) // tables.PAGE_SIZE for value in values if isinstance(value, bytes))

    def _insert(self, rows: list[tuple[object, ...]]) -> None:
        marks = ",".join(["(?,?,?,?,?,?,?,?)"] * len(rows))
        self._connection.execute(f"INSERT INTO log VALUES {marks}", [cell for row in rows for cell in row])

    def _work(self, job: _Job) -> None:
        try:
            with transaction(self._connection):
                result = job.run(self._connection)
        except Exception as error:
            self._tell([Outcome(job.future, None, self._explain(error))], [])
            return
        self._wal_pages += 64
        self._tell([Outcome(job.future, result)], [])

    def _checkpoint_when_due(self) -> None:
        due = CHECKPOINT_IDLE if self._queue.empty() else CHECKPOINT_BUSY
        if self._wal_pages < due:
            return
        try:
            _, pages, done = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            # Nothing is lost: all is in the log file, which grows until this works again.
            log.warning("%s", failure(error, self._path, self._backups, "fold the log of"))
            self._wal_pages = 0
            return
        self._wal_pages = max(pages - done, 0)

    def _close(self) -> None:
        try:
            with transaction(self._connection):
                tables.set_meta(self._connection, {"revision": self.committed, "at": self.at, "clean": 1})
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            # The next process finds all acknowledged writes, and checks the database as after a crash.
            log.warning("the database %s was closed without folding its log into it: %s", self._path, error)
        self._connection.close()


def _log_row(row: int, before: int, at: float, op: Put | Delete, event: Event) -> tuple[object, ...]:
    if event.kv is None:
        return row, before, 0, at, None, event.key, None, op.who or None
    expires = at + op.ttl if isinstance(op, Put) and op.ttl else None
    return row, before, event.kv.create_revision, at, expires, event.key, event.kv.value, op.who or None


def _parts(rows: list[T]) -> Iterator[list[T]]:
    """`rows` in pieces: one up to 64, so that a usual batch is one statement; sqlite3 keeps each size prepared."""
    for start in range(0, len(rows), 64):
        yield rows[start : start + 64]
