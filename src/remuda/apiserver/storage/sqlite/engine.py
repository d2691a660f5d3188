"""The API of the sqlite engine, which the API server calls. It runs on the event loop and delegates to its neighbours."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Self, TypeVar

from remuda.kube.clock import Clock, SettledTime

from ..store import Compacted, Delete, Event, FutureRevision, KeyValue, Mismatch, Op, Range, StoreError, Version, check
from ..watch_hub import Hub, Replay, Watcher
from . import history as past
from . import reader
from .files import Lock, connect, open_writer, speaking
from .history import WITHOUT_HISTORY, Pruner
from .tables import get_meta
from .writer import Outcome, Writer

HISTORY_SECONDS = 7 * 86400.0
HISTORY_MAX_BYTES = 1024 * 1024 * 1024
READERS = 2
EXPIRE_AT_ONCE = 256

T = TypeVar("T")


class SqliteStore:
    """Open it with :meth:`open`; one process at a time, one event loop."""

    def __init__(self, path: Path, backups: Path, clock: Clock, lock: Lock, connection: sqlite3.Connection, backlog: int) -> None:
        meta = get_meta(connection)
        self._path = path
        self._backups = backups
        self._clock = clock
        self._settled = SettledTime(clock)
        self._lock = lock
        self._history_seconds = HISTORY_SECONDS
        self._history_max_bytes = HISTORY_MAX_BYTES
        self._closed = False
        self._loop = asyncio.get_running_loop()
        revision = reader.newest(connection)
        newest = connection.execute("SELECT at FROM log ORDER BY id DESC LIMIT 1").fetchall()
        # A point read takes less time than waking a thread would.
        self._direct = connect(path, cache_kib=1024, read_only=True)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = [self._direct]
        self._writer = Writer(connection, clock, self._loop, self._deliver, path, backups)
        self._pruner = Pruner(self, meta, lambda: {"revision": self._writer.committed, "at": self._writer.at})
        self._hub = Hub(revision, self._replay, lambda: self._pruner.floor, lambda: self._writer.committed, backlog)
        self._writer.begin(revision, max(meta["at"], newest[0][0] if newest else 0.0))

    @classmethod
    async def open(
        cls,
        path: Path,
        clock: Clock,
        *,
        history_seconds: float = HISTORY_SECONDS,
        history_max_bytes: int = HISTORY_MAX_BYTES,
        watch_backlog: int = 8192,
        backups: Path | None = None,
    ) -> Self:
        """Open or create the database. `backups` is the place for copies named to the operator when it is damaged."""
        backups = backups or path.parent / "backups"
        with speaking(path, backups, "open"):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = Lock(path)
        try:
            connection = await asyncio.to_thread(open_writer, path, backups, clock.time())
            try:
                with speaking(path, backups, "open"):
                    store = cls(path, backups, clock, lock, connection, watch_backlog)
            except BaseException:
                connection.close()
                raise
        except BaseException:
            lock.release()
            raise
        store._history_seconds = history_seconds
        store._history_max_bytes = history_max_bytes
        return store

    @property
    def shared(self) -> bool:
        return False

    @property
    def revision(self) -> int:
        return self._writer.committed

    async def current(self) -> int:
        return self._writer.committed

    @property
    def floor(self) -> int:
        return self._pruner.floor

    @property
    def history_floor(self) -> int:
        return self._pruner.history_floor

    @property
    def history_time(self) -> float:
        return self._pruner.pruned_at

    def keeps_past(self, prefix: str) -> bool:
        return not prefix.startswith(WITHOUT_HISTORY)

    @property
    def history_bytes(self) -> int:
        """The size of kept history, as of the last compaction."""
        return self._pruner.history_bytes

    # Reading

    def _resolve(self, revision: int) -> None:
        if self._closed:
            raise StoreError(f"the database {self._path} is closed")
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        if 0 < revision < self.floor:
            raise Compacted(revision, self.floor)

    def _connection(self) -> sqlite3.Connection:
        """This reader thread's own connection."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = connect(self._path, cache_kib=2048, read_only=True)
            self._opened.append(connection)
        return connection

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            with speaking(self._path, self._backups, "read"):
                return query(self._connection())

        if self._closed:
            raise StoreError(f"the database {self._path} is closed")
        return await self._loop.run_in_executor(self._readers, run)

    async def get(self, key: str, revision: int = 0) -> KeyValue | None:
        self._resolve(revision)
        with speaking(self._path, self._backups, "read"):
            if revision:
                return reader.get_past(self._direct, key, revision)
            return reader.get(self._direct, key)

    async def range(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Range:
        self._resolve(revision)
        found = await self.read(lambda connection: reader.ranged(connection, prefix, start, limit, revision))
        if 0 < revision < self.floor:
            raise Compacted(revision, self.floor)
        return found

    # Writing

    def _deliver(self, outcomes: list[Outcome], made: list[Event]) -> None:
        """Called on the loop once for each durable batch: watchers first, so that writers can rely on it."""
        if made:
            self._hub.publish(made)
        for future, result, error in outcomes:
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    async def write(self, ops: Sequence[Op]) -> int:
        """See the protocol. Cancelling the caller does not undo the write."""
        check(ops)
        if self._closed:
            raise StoreError(f"the database {self._path} is closed")
        future: asyncio.Future[int] = self._loop.create_future()
        self._writer.submit(ops, future)
        return await future

    async def change(self, job: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise StoreError(f"the database {self._path} is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._writer.submit_job(job, future)
        return await future

    async def expire(self, now: float) -> int:
        gone = 0
        while due := await self.read(lambda connection: reader.expired(connection, now, EXPIRE_AT_ONCE)):
            writes = (self.write([Delete(key, expect=revision)]) for key, revision in due)
            results = await asyncio.gather(*writes, return_exceptions=True)
            for result in results:
                # A key that was rewritten since has a new ttl.
                if isinstance(result, BaseException) and not isinstance(result, Mismatch):
                    raise result
            gone += sum(isinstance(result, int) for result in results)
        return gone

    # Watching

    async def _replay(self, after: int, upto: int, prefix: str) -> Replay:
        return await self.read(lambda connection: reader.replay(connection, after, upto, prefix))

    def watch(
        self, after: int, prefix: str = "", *, marks: bool = False
    ) -> AbstractAsyncContextManager[AsyncIterator[list[Event]]]:
        return Watcher(self._hub, after, prefix, marks)

    async def changes(self, after: int, until: int, prefix: str = "") -> list[Event]:
        return await self._hub.changes(after, until, prefix)

    # The past

    async def compact(self, revision: int) -> None:
        self._resolve(0)
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        await self._pruner.compact(revision)

    async def prune(self) -> int:
        oldest = self._settled.time() - self._history_seconds
        return await self._pruner.prune(lambda: self.revision_at(oldest), self._history_max_bytes)

    async def revision_at(self, time: float) -> int:
        self._resolve(0)
        with speaking(self._path, self._backups, "read"):
            return max(reader.revision_at(self._direct, time), self.history_floor)

    async def time_of(self, revision: int) -> float:
        self._resolve(0)
        with speaking(self._path, self._backups, "read"):
            found = reader.time_of(self._direct, revision)
        return self._writer.at if found is None else found

    async def history(self, key: str, *, before: int = 0, limit: int = 0, most_bytes: int = 0) -> list[Version]:
        walk = past.States(key, before, limit, most_bytes)
        while not await self.read(walk.step):
            pass
        return walk.found

    async def read_history(self, key: str, *, at_revision: int | None = None, at_time: float | None = None) -> Version | None:
        if at_revision is None:
            at_revision = self.revision if at_time is None else await self.revision_at(at_time)
            if at_time is not None and at_time < self._pruner.pruned_at:
                raise Compacted(at_revision, self._oldest(key))
        self._check_kept(key, at_revision)
        walk = past.States(key, at_revision + 1, 1, 0)
        while not await self.read(walk.step):
            pass
        self._check_kept(key, at_revision)
        return walk.found[0] if walk.found else None

    async def range_history(self, prefix: str, revision: int, *, start: str = "", limit: int = 0, most_bytes: int = 0) -> Range:
        self._check_kept(prefix, revision)
        walk = past.Keys(prefix, revision, start, limit, most_bytes)
        while not await self.read(walk.step):
            pass
        # Some of it may have been pruned during the read.
        self._check_kept(prefix, revision)
        return Range(walk.found, revision, walk.more)

    def _oldest(self, prefix: str) -> int:
        return self.history_floor if self.keeps_past(prefix) else self.floor

    def _check_kept(self, prefix: str, revision: int) -> None:
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        if revision < (oldest := self._oldest(prefix)):
            raise Compacted(revision, oldest)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._hub.close()
        await asyncio.to_thread(self._readers.shutdown)
        self._writer.finish()
        for connection in self._opened:
            connection.close()
        await asyncio.to_thread(self._writer.join)
        self._lock.release()
