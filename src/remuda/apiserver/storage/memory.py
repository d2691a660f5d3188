"""The store in memory: for simulation, preview and tests.

Single-threaded and deterministic: nothing here waits, so the same calls in the same order give the same revisions and the
same batches. It keeps past states until compacted. It may be based on a read-only :class:`InitialState`, which many of them
share: a preview has its own copy of its changes, and shares the rest.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Self

from remuda.kube.clock import Clock

from .store import (
    Compacted,
    Delete,
    Event,
    FutureRevision,
    KeyValue,
    Op,
    Put,
    Range,
    StoreError,
    Version,
    after_prefix,
    changing,
    check,
    events,
)
from .watch_hub import mark


class InitialState:
    """A state that stores may be based on: ordered keys and their values, at one revision. Never changes."""

    __slots__ = ("keys", "revision", "values")

    def __init__(self, items: Sequence[KeyValue], revision: int) -> None:
        self.values = {kv.key: kv for kv in items}
        self.keys = sorted(self.values)
        self.revision = revision

    @classmethod
    def of(cls, whole: Range) -> InitialState:
        """The base made of a range over everything (`await store.range("")`)."""
        if whole.more:
            raise StoreError("a base must be a whole range, this one was cut by a limit")
        return cls(whole.items, whole.revision)


_EMPTY = InitialState((), 0)


class MemoryStore:
    def __init__(self, clock: Clock, base: InitialState | Range | None = None) -> None:
        self._clock = clock
        self._base = InitialState.of(base) if isinstance(base, Range) else base or _EMPTY
        self._revision = self._floor = self._base.revision
        # Only keys that were written here; a key without versions is as in the base.
        self._keys: list[str] = []
        self._versions: dict[str, list[Version]] = {}
        self._log: list[Event] = []
        self._log_revisions: list[int] = []
        self._written: list[tuple[float, int]] = []
        self._expires: dict[str, float] = {}
        # In the order of their start; a set's order would differ in every process.
        self._waiters: dict[_Watch, None] = {}
        self._closed = False
        # The time when the state at the floor was written; a base existed before its first user.
        self._floor_time = clock.time() if self._floor else -math.inf

    @property
    def shared(self) -> bool:
        return False

    @property
    def revision(self) -> int:
        return self._revision

    async def current(self) -> int:
        return self._revision

    @property
    def floor(self) -> int:
        return self._floor

    @property
    def history_floor(self) -> int:
        return self._floor

    @property
    def history_time(self) -> float:
        return max(self._floor_time, 0.0)

    def keeps_past(self, prefix: str) -> bool:
        """No: here nothing outlives compaction."""
        return False

    def _resolve(self, revision: int) -> int:
        if revision == 0:
            return self._revision
        if revision > self._revision:
            raise FutureRevision(revision, self._revision)
        if revision < self._floor:
            raise Compacted(revision, self._floor)
        return revision

    def _at(self, key: str, revision: int) -> KeyValue | None:
        versions = self._versions.get(key)
        if versions is None:
            return self._base.values.get(key)
        for version in reversed(versions):
            if version.revision <= revision:
                return version.kv
        return None

    def _ordered(self, low: str, high: str) -> Iterator[str]:
        """The keys that may exist in [low, high), each once, in order."""
        own = self._keys[bisect_left(self._keys, low) : bisect_left(self._keys, high)]
        base = self._base.keys
        below = [key for key in base[bisect_left(base, low) : bisect_left(base, high)] if key not in self._versions]
        return heapq.merge(own, below) if below else iter(own)

    async def get(self, key: str, revision: int = 0) -> KeyValue | None:
        return self._at(key, self._resolve(revision))

    async def range(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Range:
        at = self._resolve(revision)
        found = [self._at(key, at) for key in self._ordered(max(prefix, start), after_prefix(prefix))]
        items = [kv for kv in found if kv is not None]
        if limit and len(items) > limit:
            return Range(items[:limit], at, True, len(items) - limit)
        return Range(items, at)

    async def write(self, ops: Sequence[Op]) -> int:
        check(ops)
        if self._closed:
            raise StoreError("the store is closed")
        now = self._clock.time()
        if self._written:
            now = max(now, self._written[-1][0])
        revision = self._revision + 1
        made = events(ops, revision, lambda key: self._at(key, revision))
        for op, event in zip(changing(ops), made, strict=True):
            self._remember(event, now, op.who)
            if isinstance(op, Put) and op.ttl:
                self._expires[op.key] = now + op.ttl
            else:
                self._expires.pop(op.key, None)
        self._revision = revision
        self._written.append((now, revision))
        self._wake()
        return revision

    def _remember(self, event: Event, at: float, who: str) -> None:
        versions = self._versions.get(event.key)
        if versions is None:
            insort(self._keys, event.key)
            versions = self._versions[event.key] = []
            if (below := self._base.values.get(event.key)) is not None:
                # Its real time is unknown; it existed before anything here.
                versions.append(Version(below.mod_revision, 0.0, below))
        versions.append(Version(event.revision, at, event.kv, who))
        self._log.append(event)
        self._log_revisions.append(event.revision)

    def _wake(self) -> None:
        for waiter in list(self._waiters):
            waiter.wake()

    def watch(
        self, after: int, prefix: str = "", *, marks: bool = False
    ) -> AbstractAsyncContextManager[AsyncIterator[list[Event]]]:
        return _Watch(self, after, prefix, marks)

    async def changes(self, after: int, until: int, prefix: str = "") -> list[Event]:
        if after < self._floor:
            raise Compacted(after, self._floor)
        return [event for event in self._since(after) if event.revision <= until and event.key.startswith(prefix)]

    def _since(self, revision: int) -> list[Event]:
        return self._log[bisect_right(self._log_revisions, revision) :]

    async def compact(self, revision: int) -> None:
        if revision > self._revision:
            raise FutureRevision(revision, self._revision)
        if revision <= self._floor:
            return
        cut = bisect_right(self._log_revisions, revision)
        for key in sorted({event.key for event in self._log[:cut]}):
            self._forget(key, revision)
        del self._log[:cut], self._log_revisions[:cut]
        gone = bisect_right(self._written, revision, key=lambda pair: pair[1])
        self._floor_time = self._written[gone - 1][0]
        del self._written[:gone]
        self._floor = revision
        self._wake()

    def _forget(self, key: str, revision: int) -> None:
        versions = self._versions[key]
        kept = bisect_right(versions, revision, key=lambda version: version.revision) - 1
        if kept >= 0 and versions[kept].kv is None:
            kept += 1
        del versions[: max(kept, 0)]
        # A key that the base has must stay known here, or its deletion would be undone.
        if not versions and key not in self._base.values:
            del self._versions[key]
            del self._keys[bisect_left(self._keys, key)]

    async def expire(self, now: float) -> int:
        due = sorted(key for key, when in self._expires.items() if when <= now)
        for key in due:
            await self.write([Delete(key)])
        return len(due)

    async def revision_at(self, time: float) -> int:
        found = bisect_right(self._written, time, key=lambda pair: pair[0])
        return self._written[found - 1][1] if found else self._floor

    async def time_of(self, revision: int) -> float:
        found = bisect_left(self._written, revision, key=lambda pair: pair[1])
        return self._written[found][0] if found < len(self._written) else self.history_time

    async def history(self, key: str, *, before: int = 0, limit: int = 0, most_bytes: int = 0) -> list[Version]:
        versions = self._versions.get(key)
        if versions is None:
            below = self._base.values.get(key)
            versions = [] if below is None else [Version(below.mod_revision, 0.0, below)]
        found: list[Version] = []
        size = 0
        for version in reversed(versions):
            if before and version.revision >= before:
                continue
            found.append(version)
            size += 0 if version.kv is None else len(version.kv.value)
            if len(found) == limit or 0 < most_bytes <= size:
                break
        return found

    async def range_history(self, prefix: str, revision: int, *, start: str = "", limit: int = 0, most_bytes: int = 0) -> Range:
        whole = await self.range(prefix, start=start, limit=limit, revision=revision)
        size = 0
        for count, kv in enumerate(whole.items, 1):
            size += len(kv.value)
            if 0 < most_bytes <= size:
                return Range(whole.items[:count], revision, whole.more or count < len(whole.items))
        return Range(whole.items, revision, whole.more)

    async def read_history(self, key: str, *, at_revision: int | None = None, at_time: float | None = None) -> Version | None:
        if at_revision is None:
            at_revision = await self.revision_at(at_time) if at_time is not None else self._revision
            if at_time is not None and at_time < self._floor_time:
                raise Compacted(at_revision, self._floor)
        revision = self._resolve(at_revision) if at_revision else self._floor
        return next((version for version in await self.history(key) if version.revision <= revision), None)

    async def prune(self) -> int:
        """Nothing to do: `compact` deletes at once here."""
        return 0

    async def close(self) -> None:
        self._closed = True
        self._wake()


class _Watch:
    """A position in the store's log. The log itself is the queue; a watcher that is slower than compaction loses its place."""

    def __init__(self, store: MemoryStore, after: int, prefix: str, marks: bool) -> None:
        self._store = store
        self._position = after
        self._prefix = prefix
        self._marks = marks
        self._waiter: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        self._check()
        if self._position > self._store.revision:
            raise FutureRevision(self._position, self._store.revision)
        self._store._waiters[self] = None
        return self

    async def __aexit__(self, *_: object) -> None:
        self._store._waiters.pop(self, None)

    def __aiter__(self) -> Self:
        return self

    def _check(self) -> None:
        if self._position < self._store.floor:
            raise Compacted(self._position, self._store.floor)

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def __anext__(self) -> list[Event]:
        while True:
            if self._position < self._store.revision:
                self._check()
                found = self._store._since(self._position)
                self._position = self._store.revision
                batch = [event for event in found if event.key.startswith(self._prefix)]
                if self._marks and (not batch or batch[-1].revision < self._position):
                    batch.append(mark(self._position))
                if batch:
                    return batch
            if self._store._closed:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
