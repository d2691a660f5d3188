"""Reads of the past: back along the chains of keys (:mod:`.tables`), in small steps.

A key may have a million states behind it, so a walk holds only its position and its results, and a reader thread
is used only for one step. The past does not change meanwhile, except for its oldest part, which may be pruned: the
caller checks the floor again at the end.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from ..store import KeyValue, Version, after_prefix
from .tables import ORDINAL_BITS, first_id, last_id, set_meta

# The length of one step: links of chains, which take a few microseconds each.
STEPS = 20_000
HEADS = 200
_STEP_BYTES = 8 * 1024 * 1024

_BACK = """
WITH RECURSIVE chain(id, step) AS (
  VALUES (:row, 0)
  UNION ALL
  SELECT log.prev, step + 1 FROM chain JOIN log ON log.id = chain.id WHERE chain.id > :at AND step < :steps
)
SELECT min(id), max(step) FROM chain
"""
_ROW = "SELECT at, created, value, who, prev FROM log WHERE id = ?"
_WITHIN = "SELECT prev FROM log WHERE id >= ? AND id <= ? AND key = ?"
_HEADS = "SELECT key, id, live FROM current WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"


def _back(connection: sqlite3.Connection, row: int, at: int, steps: int) -> tuple[int, int]:
    """Go from `row` back to the first row that is not after `at`, at most `steps` rows.

    Returns that row (0 if the chain ends before), and the number of steps.
    """
    reached, took = connection.execute(_BACK, {"row": row, "at": at, "steps": steps}).fetchall()[0]
    # A row that was pruned ends the chain.
    return (0 if reached == row else reached), took


class States:
    """The states of one key, newest first, from before a revision (0: all)."""

    def __init__(self, key: str, before: int, limit: int, most_bytes: int) -> None:
        self.found: list[Version] = []
        self._key = key
        self._before = before
        self._limit = limit
        self._most_bytes = most_bytes
        self._bytes = 0
        self._row: int | None = None

    def step(self, connection: sqlite3.Connection) -> bool:
        """Do one step; whether that was all."""
        row = self._begin(connection) if self._row is None else self._row
        at = first_id(self._before) - 1
        if self._before and row > at:
            self._row, _ = _back(connection, row, at, STEPS)
            return not self._row
        return self._collect(connection, row)

    def _begin(self, connection: sqlite3.Connection) -> int:
        if self._before:
            # The end of the page before this one.
            known = (first_id(self._before), last_id(self._before), self._key)
            for (prev,) in connection.execute(_WITHIN, known).fetchall():
                return int(prev)
        rows = connection.execute("SELECT id FROM current WHERE key = ?", (self._key,)).fetchall()
        return int(rows[0][0]) if rows else 0

    def _collect(self, connection: sqlite3.Connection, row: int) -> bool:
        size = 0
        for _ in range(HEADS):
            cells = connection.execute(_ROW, (row,)).fetchall() if row else []
            if not cells:
                return True
            at, created, value, who, prev = cells[0]
            revision = row >> ORDINAL_BITS
            kv = None if value is None else KeyValue(self._key, value, created, revision)
            self.found.append(Version(revision, at, kv, who or ""))
            size += 0 if value is None else len(value)
            row = prev
            if len(self.found) == self._limit or 0 < self._most_bytes <= self._bytes + size:
                return True
            if size >= _STEP_BYTES:
                break
        self._bytes += size
        self._row = row
        return not row


class Keys:
    """The values of the keys that begin with `prefix` at a revision, in order."""

    def __init__(self, prefix: str, revision: int, start: str, limit: int, most_bytes: int) -> None:
        self.found: list[KeyValue] = []
        self.more = False
        self._at = last_id(revision)
        self._low = max(prefix, start)
        self._high = after_prefix(prefix)
        self._limit = limit
        self._most_bytes = most_bytes
        self._bytes = 0
        # The next keys, the last one first: each with the row that its walk has reached.
        self._heads: list[tuple[str, int, int]] = []

    def step(self, connection: sqlite3.Connection) -> bool:
        """Do one step; whether that was all."""
        left, size = STEPS, 0
        while left > 0 and size < _STEP_BYTES:
            if not self._heads:
                self._heads = connection.execute(_HEADS, (self._low, self._high, HEADS)).fetchall()[::-1]
                if not self._heads:
                    return True
            key, row, live = self._heads.pop()
            if row > self._at:
                row, took = _back(connection, row, self._at, left)
                left -= took
                if row > self._at:
                    self._heads.append((key, row, True))
                    continue
                live = True
            left -= 1
            self._low = key + "\0"
            cells = connection.execute(_ROW, (row,)).fetchall() if row and live else []
            if not cells or cells[0][2] is None:
                continue
            _, created, value, _, _ = cells[0]
            self.found.append(KeyValue(key, value, created, row >> ORDINAL_BITS))
            size += len(value)
            if len(self.found) == self._limit or 0 < self._most_bytes <= self._bytes + size:
                self.more = True
                return True
        self._bytes += size
        return False


# --- compaction and pruning -----------------------------------------------------------------------------------------------
#
# Deletion of old states: compaction and pruning.
#
# Compaction moves the floor for watches and lists of the past. Older states stay readable as history, except for kinds whose
# past is of no use (leases, events): those are deleted at once. Pruning deletes history that is too old, or the oldest of it
# when it takes too much space.
#
# Both walk the log once, in order, and use that a row names the one it replaced: when row r is old enough, the row before it
# in its key's chain is not needed any more, nor is r if it is a deletion. They go in small slices, each a transaction
# of the writer's, so that writes pass between them, and each slice notes its end, so that nothing is repeated after a crash.


T = TypeVar("T")

WITHOUT_HISTORY = ("/registry/leases/", "/registry/events/")
SLICE = 500
# The cost of a row beside its value: key, numbers, its share of the page.
ROW_BYTES = 128

_SLICE = (
    "SELECT log.id, log.at, log.key, log.prev, log.value IS NULL, length(before.value) "
    "FROM log LEFT JOIN log AS before ON before.id = log.prev WHERE log.id > ? AND log.id <= ? ORDER BY log.id LIMIT ?"
)


class _Row(NamedTuple):
    id: int
    at: float
    key: str
    prev: int
    deletion: int
    before: int | None  # size of the value it replaced


class _Doomed(NamedTuple):
    """The rows of the log to delete in one slice."""

    rows: list[int]
    dead: list[tuple[str, int]]  # keys whose deletion is pruned with its row
    bytes: int


class Access(Protocol):
    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T: ...

    async def change(self, job: Callable[[sqlite3.Connection], T]) -> T: ...


def _read_slice(connection: sqlite3.Connection, after: int, upto: int) -> tuple[list[_Row], int]:
    """The next rows of the log, and the id up to which there are no others."""
    rows = [_Row(*row) for row in connection.execute(_SLICE, (after, upto, SLICE)).fetchall()]
    return rows, rows[-1].id if len(rows) == SLICE else upto


def _weigh(rows: list[_Row]) -> _Doomed:
    doomed: list[int] = []
    dead: list[tuple[str, int]] = []
    size = 0
    for row in rows:
        if row.prev:
            doomed.append(row.prev)
            size += 0 if row.before is None else row.before + ROW_BYTES
        if row.deletion:
            doomed.append(row.id)
            dead.append((row.key, row.id))
            size += ROW_BYTES
    return _Doomed(doomed, dead, size)


def _delete(connection: sqlite3.Connection, doomed: _Doomed) -> None:
    connection.executemany("DELETE FROM log WHERE id = ?", [(row,) for row in doomed.rows])
    connection.executemany("DELETE FROM current WHERE key = ? AND id = ?", doomed.dead)


def _kept(key: str) -> bool:
    return not key.startswith(WITHOUT_HISTORY)


class Pruner:
    def __init__(self, access: Access, meta: Mapping[str, float], progress: Callable[[], Mapping[str, float]]) -> None:
        self._access = access
        # The newest revision and its time: noted with every deletion, which may delete their row.
        self._progress = progress
        self._busy = asyncio.Lock()
        self.floor = int(meta["floor"])
        self._swept = int(meta["swept"])
        self._pruned = int(meta["pruned"])
        self.pruned_at = float(meta["pruned_at"])
        self.history_bytes = int(meta["history_bytes"])

    @property
    def history_floor(self) -> int:
        return self._pruned >> ORDINAL_BITS

    async def compact(self, revision: int) -> None:
        async with self._busy:
            if revision <= self.floor:
                return
            await self._access.change(lambda connection: set_meta(connection, {"floor": revision}))
            self.floor = revision
            await self._sweep()

    async def _sweep(self) -> None:
        """Process each row that came below the floor: delete rows without history, add up the size of the others."""
        upto = last_id(self.floor)
        while self._swept < upto:
            rows, reached = await self._slice(self._swept, upto)
            gone = _weigh([row for row in rows if not _kept(row.key)])
            total = self.history_bytes + _weigh([row for row in rows if _kept(row.key)]).bytes
            await self._note(gone, {"swept": reached, "history_bytes": total})
            self._swept, self.history_bytes = reached, total

    async def _slice(self, after: int, upto: int) -> tuple[list[_Row], int]:
        return await self._access.read(lambda connection: _read_slice(connection, after, upto))

    async def _note(self, doomed: _Doomed, reached: Mapping[str, float]) -> None:
        values = {**self._progress(), **reached}

        def job(connection: sqlite3.Connection) -> None:
            _delete(connection, doomed)
            set_meta(connection, values)

        await self._access.change(job)

    async def prune(self, too_old: Callable[[], Awaitable[int]], max_bytes: int) -> int:
        """Delete states replaced at or before revision `too_old`, then more while the size is over `max_bytes`; rows deleted."""
        async with self._busy:
            await self._sweep()
            gone = 0
            old = last_id(min(await too_old(), self.floor))
            while self._pruned < old:
                gone += await self._prune_slice(old)
            while self.history_bytes > max_bytes and self._pruned < last_id(self.floor):
                gone += await self._prune_slice(last_id(self.floor))
            return gone

    async def _prune_slice(self, upto: int) -> int:
        rows, reached = await self._slice(self._pruned, upto)
        doomed = _weigh([row for row in rows if _kept(row.key)])
        left = max(self.history_bytes - doomed.bytes, 0)
        at = max(rows[-1].at, self.pruned_at) if rows else self.pruned_at
        await self._note(doomed, {"pruned": reached, "pruned_at": at, "history_bytes": left})
        self._pruned, self.pruned_at, self.history_bytes = reached, at, left
        return len(doomed.rows)
