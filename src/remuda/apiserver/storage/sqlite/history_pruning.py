"""Deletion of old states: compaction and pruning.

Compaction moves the floor for watches and lists of the past. Older states stay readable as history, except for kinds
whose past is of no use (leases, events): those are deleted at once. Pruning deletes history that is too old, or the oldest of it
when it takes too much space.

Both walk the log once, in order, and use that a row names the one it replaced: when row r is old enough, the row before it
in its key's chain is not needed any more, nor is r if it is a deletion. They go in small slices, each a transaction
of the writer's, so that writes pass between them, and each slice notes its end, so that nothing is repeated after a crash.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from .tables import ORDINAL_BITS, last_id, set_meta

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
