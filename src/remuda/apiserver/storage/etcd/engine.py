"""The API of the etcd engine, which the API server calls.

Nothing is cached here. Reads are linearizable, :mod:`.transactions` has the transactions, and :mod:`.watch_feed` brings the
events.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Self

from remuda.kube.clock import Clock, Rng

from ..store import Compacted, Event, FutureRevision, KeyValue, Op, Range, StoreError, Unavailable, check
from ..watch_hub import Hub, Replay, Watcher
from .grpc import Failed
from .keyspace import COMPACTION_KEY, Keyspace
from .members import ENOUGH, EtcdConfig, Members
from .rpc import COMPACT, OUT_OF_RANGE, RANGE, TIME_TO_LIVE, TXN, WATCH, RangeAnswer, RequestRefused, WireKeyValue, number
from .transactions import Writing
from .watch_feed import Feed, replay

Obj = dict[str, Any]

PAGE = 500
REPLAY = 10_000
_CHECK_EVERY = 0.25


class EtcdStore:
    """Open it with :meth:`open`. Several processes may use it at the same time."""

    shared = True

    def __init__(self, config: EtcdConfig, clock: Clock, rng: Rng, backlog: int) -> None:
        self._clock = clock
        self._members = Members(config, clock, rng)
        self._keyspace = Keyspace(config.prefix)
        self._revision = 0
        self._floor = 0
        # Whether anything but compactions has happened since the last one.
        self._dirty = True
        self._closed = False
        self._asking: list[asyncio.Future[int]] = []
        self._asker: asyncio.Task[None] | None = None
        self._watchdog: asyncio.Task[None] | None = None
        self._hub = Hub(0, self._replay, lambda: self._floor, lambda: self._revision, backlog)
        self._feed = Feed(self._members, self._keyspace, clock, self._deliver, self._lost, self._compacted)
        self._writing = Writing(self._members, self._keyspace, clock, rng, self._feed, self._heard_of)

    @classmethod
    async def open(cls, config: EtcdConfig, clock: Clock, rng: Rng, *, watch_backlog: int = 8192) -> Self:
        """Raises Unavailable when no member answers, StoreError when it can't be used."""
        store = cls(config, clock, rng, watch_backlog)
        try:
            await store._members.check_versions()
            noted = await store._range({"key": COMPACTION_KEY})
        except BaseException:
            store._members.close()
            raise
        store._floor = number(noted.kvs[0].value) if noted.kvs else 0
        store._hub.published = store._revision
        store._feed.start(store._revision)
        store._watchdog = asyncio.create_task(store._watch_over(), name="etcd-watchdog")
        return store

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._hub.close()
        if self._watchdog is not None:
            self._watchdog.cancel()
        await self._feed.stop()
        if self._asker is not None:
            self._asker.cancel()
            await asyncio.gather(self._asker, return_exceptions=True)
        self._members.close()

    def use(self, endpoints: Sequence[str]) -> None:
        """Use these members of the cluster from now on."""
        self._members.use(endpoints)

    @property
    def revision(self) -> int:
        """The newest known revision."""
        return self._revision

    @property
    def floor(self) -> int:
        return self._floor

    # --- reading --------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the store is closed")

    def _heard_of(self, revision: int) -> int:
        """The newest revision, including this one."""
        if revision > self._revision:
            self._revision = revision
        self._feed.expect(revision)
        return self._revision

    async def _range(self, request: Obj) -> RangeAnswer:
        self._check_open()
        answer = await self._members.read(RANGE, request)
        self._heard_of(answer.header.revision)
        return answer

    async def _range_at(self, request: Obj, revision: int) -> RangeAnswer:
        if 0 < revision < self._floor:
            raise Compacted(revision, self._floor)
        try:
            return await self._range({**request, "revision": revision} if revision else request)
        except RequestRefused as error:
            if error.code != OUT_OF_RANGE:
                raise
            if "compacted" in str(error):
                self._compacted(revision + 1)
                raise Compacted(revision, self._floor) from None
            raise FutureRevision(revision, self._revision) from None

    async def get(self, key: str, revision: int = 0) -> KeyValue | None:
        answer = await self._range_at({"key": self._keyspace.stored(key)}, revision)
        return self._keyspace.kv(answer.kvs[0]) if answer.kvs else None

    async def range(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Range:
        found, revision, left = await self._pages(prefix, start, limit, revision)
        return Range([self._keyspace.kv(wire) for wire in found], revision, left > 0, left)

    async def _pages(self, prefix: str, start: str, limit: int, revision: int) -> tuple[list[WireKeyValue], int, int]:
        """The keys and values, their revision, and the number of remaining ones."""
        found: list[WireKeyValue] = []
        bounds = self._keyspace.bounds(prefix, start)
        while True:
            page = min(PAGE, limit - len(found)) if limit else PAGE
            answer = await self._range_at({**bounds, "limit": page}, revision)
            # The pages of one range are all of one revision.
            revision = revision or answer.header.revision
            found += [wire for wire in answer.kvs if self._keyspace.own(wire.key) is not None]
            if not answer.more or (limit and len(found) >= limit):
                return found, revision, answer.count - len(answer.kvs)
            if not answer.kvs or answer.kvs[-1].key < bounds["key"]:
                raise StoreError("etcd says that there is more, and gives nothing of it")
            bounds["key"] = answer.kvs[-1].key + b"\0"

    async def current(self) -> int:
        """One linearizable read for all callers that wait while the one before it is in progress."""
        self._check_open()
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asking.append(asked)
        if self._asker is None or self._asker.done():
            self._asker = asyncio.create_task(self._ask(), name="etcd-current")
        return await asked

    async def _ask(self) -> None:
        while self._asking:
            asking, self._asking = self._asking, []
            before, why = self._revision, "the store is closed"
            found = 0
            try:
                found = (await self._range({"key": COMPACTION_KEY, "count_only": True})).header.revision
            except StoreError as error:
                why = str(error)
            finally:
                if 0 < found < before:
                    why, found = self._went_back(found, before), 0
                for asked in asking:
                    if not asked.done() and found:
                        asked.set_result(found)
                    elif not asked.done():
                        asked.set_exception(Unavailable(why))

    def _went_back(self, revision: int, before: int) -> str:
        """The revision went back: no earlier read can be trusted any more."""
        why = f"etcd is at revision {revision} and was at {before}: it was restored from a backup; start this server again"
        self._hub.fail(StoreError(why))
        return why

    # --- writing --------------------------------------------------------------------------------------------------------

    async def write(self, ops: Sequence[Op]) -> int:
        check(ops)
        self._check_open()
        return await self._writing.write(ops)

    async def expire(self, now: float) -> int:
        """Nothing to do: leases expire by themselves."""
        return 0

    # --- events ---------------------------------------------------------------------------------------------------------

    def _deliver(self, events: list[Event], reached: int) -> None:
        if reached > self._revision:
            self._revision = reached
        if events:
            self._dirty = True
        self._hub.publish(self._writing.recognized(events), reached)

    def _compacted(self, revision: int) -> None:
        self._floor = max(self._floor, revision)
        self._dirty = False

    async def _lost(self, error: Compacted) -> int:
        """The feed was away for longer than etcd's history: it goes on with the present state."""
        now = await self.current()
        self._compacted(error.floor)
        self._hub.interrupt(now)
        return now

    async def _watch_over(self) -> None:
        while True:
            await self._clock.sleep(_CHECK_EVERY)
            if self._feed.is_quiet and (self._asker is None or self._asker.done()):
                try:
                    await self.current()
                    self._feed.was_asked()
                except StoreError:
                    continue
            self._feed.check()

    def watch(
        self, after: int, prefix: str = "", *, marks: bool = False
    ) -> AbstractAsyncContextManager[AsyncIterator[list[Event]]]:
        return Watcher(self._hub, after, prefix, marks)

    async def _replay(self, after: int, upto: int, prefix: str) -> Replay:
        self._check_open()
        request = self._keyspace.watch_everything(after + 1)
        until = self._clock.monotonic() + ENOUGH
        while True:
            try:
                async with self._members.stream(WATCH, request) as watch:
                    wires, reached = await replay(watch, self._clock, after, upto, REPLAY)
                break
            except Failed as error:
                await self._members.pause(until, error)
            except Compacted as error:
                self._compacted(error.floor)
                raise
        events = [event for event in map(self._keyspace.event, wires) if event is not None and event.key.startswith(prefix)]
        return Replay(events, reached)

    async def changes(self, after: int, until: int, prefix: str = "") -> list[Event]:
        return await self._hub.changes(after, until, prefix)

    # --- the past -------------------------------------------------------------------------------------------------------

    async def compact(self, revision: int) -> None:
        """The first server to note the revision compacts etcd; the others see the note."""
        if revision > self._revision:
            raise FutureRevision(revision, self._revision)
        if revision <= self._floor or not self._dirty:
            return
        noted = await self._range({"key": COMPACTION_KEY})
        before = number(noted.kvs[0].value) if noted.kvs else 0
        if before >= revision:
            self._compacted(before)
            return
        expected = noted.kvs[0].mod_revision if noted.kvs else 0
        won = {
            "compare": [{"key": COMPACTION_KEY, "target": "MOD", "result": "EQUAL", "mod_revision": expected}],
            "success": [{"request_put": {"key": COMPACTION_KEY, "value": str(revision).encode()}}],
        }
        answer = await self._members.read(TXN, won)
        self._heard_of(answer.header.revision)
        if not answer.succeeded:
            return
        try:
            await self._members.read(COMPACT, {"revision": revision})
        except RequestRefused as error:
            if error.code != OUT_OF_RANGE:
                raise
        self._compacted(revision)

    async def leased_page(self, prefix: str, *, start: str = "", limit: int, revision: int = 0) -> tuple[Range, dict[str, float]]:
        """One page, and the expiry of its keys that have a lease."""
        found, revision, left = await self._pages(prefix, start, limit, revision)
        whole = Range([self._keyspace.kv(wire) for wire in found], revision, left > 0, left)
        return whole, await self._expiries(found)

    async def _expiries(self, wires: Sequence[WireKeyValue]) -> dict[str, float]:
        """The expiry of keys with a lease, by key."""
        ends: dict[int, float] = {}
        for lease in {wire.lease for wire in wires if wire.lease}:
            left = await self._members.read(TIME_TO_LIVE, {"ID": lease})
            ends[lease] = self._clock.time() + max(left.ttl, 0)
        return {self._keyspace.kv(wire).key: ends[wire.lease] for wire in wires if wire.lease}
