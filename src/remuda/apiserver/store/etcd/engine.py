"""The etcd engine's face: what the API server calls.

Nothing is cached here. Writes are transactions on mod revisions, reads are linearizable, and :mod:`.feed` brings what happened.
What a broken connection leaves open is settled here: a write that may or may not have been done is looked for in the feed, and
tried again only as long as its expectation lets it be done but once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Self

from remuda.apiserver.store import (
    Compacted,
    Delete,
    Event,
    FutureRevision,
    KeyValue,
    Mismatch,
    Op,
    Put,
    Range,
    StoreError,
    Unavailable,
    Unknown,
)
from remuda.apiserver.store.sqlite.files import write_copy
from remuda.apiserver.store.transaction import check
from remuda.apiserver.store.watching import Hub, Replay, Watcher
from remuda.kube.clock import Clock, Rng

from .connection import Failed
from .feed import Feed, replay
from .keyspace import COMPACTION_KEY, Keyspace
from .leases import Leases
from .members import ENOUGH, NOT_FOUND, OUT_OF_RANGE, EtcdConfig, Members, Refused, Unsure
from .messages import Empty, LeaseAnswer, RangeAnswer, TxnAnswer, encode

Obj = dict[str, Any]

PAGE = 500
REPLAY = 10_000
_CHECK_EVERY = 0.25


class _Flight:
    """A write that is on its way; `seen` is the revision at which the feed brought it."""

    __slots__ = ("op", "seen")

    def __init__(self, op: Put | Delete) -> None:
        self.op = op
        self.seen = 0

    def is_it(self, event: Event) -> bool:
        if isinstance(self.op, Delete):
            before = None if event.prev is None else event.prev.mod_revision
            return event.kv is None and self.op.expect in (None, before)
        return event.kv is not None and event.kv.value == self.op.value


class EtcdStore:
    """Open it with :meth:`open`. Any number of processes may, at the same time."""

    shared = True

    def __init__(self, config: EtcdConfig, clock: Clock, rng: Rng, backlog: int) -> None:
        self._clock = clock
        self._members = Members(config, clock, rng)
        self._keyspace = Keyspace(config.prefix)
        self._leases = Leases(self._members, clock)
        self._revision = 0
        self._floor = 0
        # Whether anything but compactions has happened since the last one.
        self._dirty = True
        self._closed = False
        self._flights: dict[str, list[_Flight]] = {}
        self._asking: list[asyncio.Future[int]] = []
        self._asker: asyncio.Task[None] | None = None
        self._watchdog: asyncio.Task[None] | None = None
        self._hub = Hub(0, self._replay, lambda: self._floor, lambda: self._revision, backlog)
        self._feed = Feed(self._members, self._keyspace, clock, self._deliver, self._lost, self._compacted)

    @classmethod
    async def open(cls, config: EtcdConfig, clock: Clock, rng: Rng, *, watch_backlog: int = 8192) -> Self:
        """Raises Unavailable when nobody answers, StoreError when it can't be used."""
        store = cls(config, clock, rng, watch_backlog)
        try:
            await store._members.check_versions()
            noted = await store._range({"key": COMPACTION_KEY})
        except BaseException:
            store._members.close()
            raise
        store._floor = int(noted.kvs[0].value) if noted.kvs and noted.kvs[0].value.isdigit() else 0
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

    @property
    def revision(self) -> int:
        """The newest that has been heard of."""
        return self._revision

    @property
    def floor(self) -> int:
        return self._floor

    @property
    def endpoints(self) -> list[str]:
        return self._members.urls

    # --- reading --------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the store is closed")

    def _heard_of(self, revision: int) -> int:
        if revision > self._revision:
            self._revision = revision
        self._feed.expect(revision)
        return revision

    async def _range(self, request: Obj) -> RangeAnswer:
        self._check_open()
        answer = await self._members.read("/v3/kv/range", request, RangeAnswer)
        self._heard_of(answer.header.revision)
        return answer

    async def _range_at(self, request: Obj, revision: int) -> RangeAnswer:
        if 0 < revision < self._floor:
            raise Compacted(revision, self._floor)
        try:
            return await self._range({**request, "revision": str(revision)} if revision else request)
        except Refused as error:
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
        items: list[KeyValue] = []
        while True:
            page = min(PAGE, limit - len(items)) if limit else PAGE
            answer = await self._range_at({**self._keyspace.bounds(prefix, start), "limit": str(page)}, revision)
            # The pages of one range are all of one revision.
            revision = revision or answer.header.revision
            items += [self._keyspace.kv(wire) for wire in answer.kvs if wire.key != COMPACTION_KEY]
            left = answer.count - len(answer.kvs)
            if not answer.more or (limit and len(items) >= limit):
                return Range(items, revision, left > 0, left)
            start = items[-1].key + "\0"

    async def current(self) -> int:
        """One linearizable read for all who ask while the one before it is on its way."""
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
        """Nothing that was read before can be trusted any more."""
        why = f"etcd is at revision {revision} and was at {before}: it was restored from a backup; start this server again"
        self._hub.fail(StoreError(why))
        return why

    # --- writing --------------------------------------------------------------------------------------------------------

    async def write(self, ops: Sequence[Op]) -> int:
        check(ops)
        self._check_open()
        flights = [_Flight(op) for op in ops if isinstance(op, Put | Delete)]
        for flight in flights:
            self._flights.setdefault(flight.op.key, []).append(flight)
        try:
            return self._heard_of(await self._commit(ops, flights))
        finally:
            for flight in flights:
                waiting = self._flights[flight.op.key]
                waiting.remove(flight)
                if not waiting:
                    del self._flights[flight.op.key]

    async def _commit(self, ops: Sequence[Op], flights: Sequence[_Flight]) -> int:
        until = self._clock.monotonic() + ENOUGH
        body = encode(await self._transaction(ops))
        unsure: Unsure | None = None
        while True:
            try:
                answer = await self._members.write("/v3/kv/txn", body, TxnAnswer, until)
            except Unavailable:
                if unsure is not None:
                    raise Unknown(f"etcd did not say whether a write was done: {unsure}") from None
                raise
            except Unsure as error:
                unsure = error
                if found := await self._settle(ops, flights, error, until):
                    return found
                continue
            except Refused as error:
                if error.code != NOT_FOUND:
                    raise
                # The lease has ended before its time: etcd was restored, or somebody revoked it.
                self._leases.forget()
                body = encode(await self._transaction(ops))
                continue
            self._heard_of(answer.header.revision)
            if answer.succeeded:
                return answer.header.revision
            # After a try without an answer, it may be that very one which is in the way now.
            if unsure is not None and (found := await self._settle(ops, flights, unsure, until)):
                return found
            raise self._mismatch(ops, answer)

    async def _transaction(self, ops: Sequence[Op]) -> Obj:
        compare, success, failure = [], [], []
        for op in ops:
            key = self._keyspace.stored(op.key)
            failure.append({"request_range": {"key": key}})
            if op.expect is not None:
                compare.append({"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": str(op.expect)})
            if isinstance(op, Delete):
                # Also when it is expected to be absent, which makes no sense: deleting nothing would be no failure to etcd.
                if not op.expect:
                    compare.append({"key": key, "target": "CREATE", "result": "GREATER", "create_revision": "0"})
                success.append({"request_delete_range": {"key": key}})
            elif isinstance(op, Put):
                put: Obj = {"key": key, "value": op.value}
                if op.ttl:
                    put["lease"] = str(await self._leases.get(op.ttl))
                success.append({"request_put": put})
        return {"compare": compare, "success": success, "failure": failure}

    def _mismatch(self, ops: Sequence[Op], answer: TxnAnswer) -> Mismatch:
        """The first expectation that did not hold."""
        found: Mismatch | None = None
        for op, response in zip(ops, answer.responses, strict=True):
            kvs = response.response_range.kvs if response.response_range is not None else []
            current = self._keyspace.kv(kvs[0]) if kvs else None
            revision = 0 if current is None else current.mod_revision
            if (isinstance(op, Delete) and current is None) or (op.expect is not None and op.expect != revision):
                found = found or Mismatch(op.key, current)
        return found or Mismatch(ops[0].key, None)

    async def _settle(self, ops: Sequence[Op], flights: Sequence[_Flight], error: Unsure, until: float) -> int:
        """After a write without an answer: its revision if it was done, 0 if it may be tried again. Raises Unknown."""
        unknown = Unknown(f"etcd did not say whether a write was done: {error}")
        if self._clock.monotonic() >= until or any(op.expect is None for op in ops):
            raise unknown from None
        try:
            now = await self.current()
        except StoreError:
            raise unknown from None
        while self._feed.position < now:
            if self._clock.monotonic() >= until:
                raise unknown from None
            await self._clock.sleep(0.02)
        return max(flight.seen for flight in flights) if all(flight.seen for flight in flights) else 0

    async def expire(self, now: float) -> int:
        """Nothing to do: leases end by themselves."""
        return 0

    # --- what happens ---------------------------------------------------------------------------------------------------

    def _deliver(self, events: list[Event], reached: int) -> None:
        if reached > self._revision:
            self._revision = reached
        if events:
            self._dirty = True
            if self._flights:
                events = [self._recognized(event) for event in events]
        self._hub.publish(events, reached)

    def _recognized(self, event: Event) -> Event:
        """An own write comes back with the very bytes that were written: whoever wrote them knows what they mean."""
        for flight in self._flights.get(event.key, ()):
            if not flight.seen and flight.is_it(event):
                flight.seen = event.revision
                if event.kv is not None and isinstance(flight.op, Put):
                    kv = KeyValue(event.key, flight.op.value, event.kv.create_revision, event.kv.mod_revision)
                    return Event(event.revision, event.key, kv, event.prev)
        return event

    def _compacted(self, revision: int) -> None:
        self._floor = max(self._floor, revision)
        self._dirty = False

    async def _lost(self, error: Compacted) -> int:
        """The feed was away for longer than etcd remembers: it goes on with what is there now."""
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
                async with self._members.stream("/v3/watch", request) as stream:
                    wires, reached = await replay(stream, self._clock, after, upto, REPLAY)
                break
            except Failed as error:
                await self._members.pause(until, error)
            except Compacted as error:
                self._compacted(error.floor)
                raise
        events = [event for event in map(self._keyspace.event, wires) if event is not None and event.key.startswith(prefix)]
        return Replay(events, reached)

    async def changes(self, after: int, until: int, prefix: str = "") -> list[Event]:
        found: list[Event] = []
        reached, until = after, min(until, self._revision)
        while True:
            if after < self._floor:
                raise Compacted(after, self._floor)
            if reached >= until:
                return found
            part = await self._replay(reached, until, prefix)
            found += part.events
            reached = part.reached

    # --- the past -------------------------------------------------------------------------------------------------------

    async def compact(self, revision: int) -> None:
        """Whoever is first to note the revision tells etcd; the others see the note."""
        if revision > self._revision:
            raise FutureRevision(revision, self._revision)
        if revision <= self._floor or not self._dirty:
            return
        noted = await self._range({"key": COMPACTION_KEY})
        before = int(noted.kvs[0].value) if noted.kvs and noted.kvs[0].value.isdigit() else 0
        if before >= revision:
            self._compacted(before)
            return
        expected = noted.kvs[0].mod_revision if noted.kvs else 0
        won = {
            "compare": [{"key": COMPACTION_KEY, "target": "MOD", "result": "EQUAL", "mod_revision": str(expected)}],
            "success": [{"request_put": {"key": COMPACTION_KEY, "value": str(revision).encode()}}],
        }
        answer = await self._members.read("/v3/kv/txn", won, TxnAnswer)
        self._heard_of(answer.header.revision)
        if not answer.succeeded:
            return
        try:
            await self._members.read("/v3/kv/compaction", {"revision": str(revision)}, Empty)
        except Refused as error:
            if error.code != OUT_OF_RANGE:
                raise
        self._compacted(revision)

    async def snapshot(self, path: Path) -> None:
        whole = await self.range("")
        write_copy(path, whole, await self._expiries(whole.revision), self._clock.time())

    async def _expiries(self, revision: int) -> dict[str, float]:
        """When keys with a lease will go, by key."""
        found: dict[str, float] = {}
        leases: dict[int, float] = {}
        answer = await self._range_at({**self._keyspace.bounds(""), "revision": str(revision)}, revision)
        for wire in answer.kvs:
            if wire.lease and wire.lease not in leases:
                left = await self._members.read("/v3/lease/timetolive", {"ID": str(wire.lease)}, LeaseAnswer)
                leases[wire.lease] = self._clock.time() + max(left.ttl, 0)
            if wire.lease:
                found[self._keyspace.kv(wire).key] = leases[wire.lease]
        return found
