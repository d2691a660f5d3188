"""Transactions, and a certain outcome for each.

A write whose answer is lost may have been done, or may be held by a hanging member that does it later. So each
write is sent under an epoch, a key of this process that its transaction compares. When an answer is lost, the epoch is ended:
from then on that write has either been done, and the feed brings it, or never will be. Then a retry is safe.

The feed recognises our own write by its bytes. To tell writes of several processes apart, they must differ; the API's do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from remuda.kube.clock import Clock, Rng

from ..store import Delete, Event, KeyValue, Mismatch, Op, Put, StoreError, Unavailable, Unknown
from .keyspace import EPOCHS, Keyspace
from .members import ENOUGH, Members, Unsure
from .rpc import GRANT, NOT_FOUND, PUT, TXN, OpAnswer, RequestRefused
from .watch_feed import Feed

Obj = dict[str, Any]

# A key of a stopped process is useless; a running one makes it anew.
_EPOCH_SECONDS = 3600


class Flight:
    """A write in progress since `after`; `seen` is the revision at which the feed brought it."""

    __slots__ = ("after", "op", "seen")

    def __init__(self, op: Put | Delete, after: int) -> None:
        self.op = op
        self.after = after
        self.seen = 0

    def is_it(self, event: Event) -> bool:
        if event.revision <= self.after:
            # An equal write that was done before.
            return False
        if isinstance(self.op, Delete):
            before = None if event.prev is None else event.prev.mod_revision
            return event.kv is None and self.op.expect in (None, before)
        return event.kv is not None and event.kv.value == self.op.value


class Epoch:
    """`revision` is that of the key in transactions; 0 as long as no epoch was ever ended."""

    def __init__(self, members: Members, leases: Leases, rng: Rng) -> None:
        self._members = members
        self._leases = leases
        self._ending = asyncio.Lock()
        self.key = EPOCHS + rng.name_suffix(16).encode()
        self.revision = 0

    async def end(self, revision: int) -> int:
        """A revision by which every write sent under the epoch `revision` has been done, if it ever is."""
        async with self._ending:
            if self.revision == revision:
                lease = await self._leases.get(_EPOCH_SECONDS)
                answer = await self._members.read(PUT, {"key": self.key, "lease": lease})
                self.revision = answer.header.revision
            return self.revision


class Writing:
    def __init__(
        self, members: Members, keyspace: Keyspace, clock: Clock, rng: Rng, feed: Feed, heard_of: Callable[[int], int]
    ) -> None:
        """`heard_of` gets every revision, and gives back the newest known one."""
        self._members = members
        self._keyspace = keyspace
        self._clock = clock
        self._feed = feed
        self._heard_of = heard_of
        self._leases = Leases(members, clock)
        self._epoch = Epoch(members, self._leases, rng)
        self._flights: dict[str, list[Flight]] = {}

    def recognized(self, events: list[Event]) -> list[Event]:
        """Give events of our own writes the very bytes object that was written: its writer knows the parsed form."""
        return [self._recognized(event) for event in events] if self._flights else events

    def _recognized(self, event: Event) -> Event:
        for flight in self._flights.get(event.key, ()):
            if not flight.seen and flight.is_it(event):
                flight.seen = event.revision
                if event.kv is not None and isinstance(flight.op, Put):
                    kv = KeyValue(event.key, flight.op.value, event.kv.create_revision, event.kv.mod_revision)
                    return Event(event.revision, event.key, kv, event.prev)
        return event

    async def write(self, ops: Sequence[Op]) -> int:
        after = self._heard_of(0)
        flights = [Flight(op, after) for op in ops if isinstance(op, Put | Delete)]
        for flight in flights:
            self._flights.setdefault(flight.op.key, []).append(flight)
        try:
            revision = await self._commit(ops, flights)
            self._heard_of(revision)
            return revision
        finally:
            for flight in flights:
                waiting = self._flights[flight.op.key]
                waiting.remove(flight)
                if not waiting:
                    del self._flights[flight.op.key]

    async def _commit(self, ops: Sequence[Op], flights: Sequence[Flight]) -> int:
        until = self._clock.monotonic() + ENOUGH
        wanted = await self._transaction(ops)
        while True:
            epoch = self._epoch.revision
            try:
                answer = await self._members.write(TXN, self._under(epoch, wanted), until)
            except Unsure as error:
                if found := await self._settle(flights, epoch, error, until):
                    return found
                continue
            except RequestRefused as error:
                if error.code != NOT_FOUND:
                    raise
                # The lease has ended before its time: etcd was restored, or the lease was revoked.
                self._leases.forget()
                wanted = await self._transaction(ops)
                continue
            self._heard_of(answer.header.revision)
            if answer.succeeded:
                return answer.header.revision
            if len(answer.responses) != 1 + len(ops):
                raise StoreError("etcd refuses a transaction, and does not say what it found instead")
            if self._is_current(epoch, answer.responses[0]):
                raise self._mismatch(ops, answer.responses[1:])
            if self._clock.monotonic() >= until:
                raise Unavailable("etcd loses too many answers")

    def _under(self, epoch: int, wanted: Obj) -> Obj:
        key = self._epoch.key
        mine = {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": epoch}
        look = {"request_range": {"key": key}}
        return {
            "compare": [mine, *wanted["compare"]],
            "success": wanted["success"],
            "failure": [look, *wanted["failure"]],
        }

    def _is_current(self, epoch: int, response: OpAnswer) -> bool:
        """True if the transaction was sent under the present epoch; if not, that is the only reason why it failed."""
        kvs = response.response_range.kvs if response.response_range is not None else []
        found = kvs[0].mod_revision if kvs else 0
        if found == epoch:
            return True
        if self._epoch.revision == epoch:
            self._epoch.revision = found
        return False

    async def _transaction(self, ops: Sequence[Op]) -> Obj:
        compare, success, failure = [], [], []
        for op in ops:
            key = self._keyspace.stored(op.key)
            failure.append({"request_range": {"key": key}})
            if op.expect is not None:
                compare.append({"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": op.expect})
            if isinstance(op, Delete):
                # Also when it is expected to be absent, which makes no sense: for etcd, deleting nothing is no error.
                if not op.expect:
                    compare.append({"key": key, "target": "CREATE", "result": "GREATER", "create_revision": 0})
                success.append({"request_delete_range": {"key": key}})
            elif isinstance(op, Put):
                put: Obj = {"key": key, "value": op.value}
                if op.ttl:
                    put["lease"] = await self._leases.get(op.ttl)
                success.append({"request_put": put})
        return {"compare": compare, "success": success, "failure": failure}

    def _mismatch(self, ops: Sequence[Op], responses: Sequence[OpAnswer]) -> Mismatch:
        """The first expectation that did not hold."""
        found: Mismatch | None = None
        for op, response in zip(ops, responses, strict=True):
            kvs = response.response_range.kvs if response.response_range is not None else []
            current = self._keyspace.kv(kvs[0]) if kvs else None
            revision = 0 if current is None else current.mod_revision
            if (isinstance(op, Delete) and current is None) or (op.expect is not None and op.expect != revision):
                found = found or Mismatch(op.key, current)
        return found or Mismatch(ops[0].key, None)

    async def _settle(self, flights: Sequence[Flight], epoch: int, error: Unsure, until: float) -> int:
        """After a write without an answer: its revision if it was done, 0 if it never will be. Raises Unknown."""
        unknown = Unknown(f"etcd did not say whether a write was done: {error}")
        try:
            ended = await self._epoch.end(epoch)
            self._heard_of(ended)
        except StoreError:
            raise unknown from None
        while self._feed.position < ended:
            if self._clock.monotonic() >= until + ENOUGH:
                raise unknown
            await self._clock.sleep(0.02)
        if all(flight.seen for flight in flights):
            return max(flight.seen for flight in flights)
        if self._clock.monotonic() >= until:
            raise Unavailable(f"etcd does not answer: {error}")
        return 0


# --- leases ---------------------------------------------------------------------------------------------------------------
#
# Leases for keys that expire. A lease costs etcd more than a key does, so keys of about the same age share one.

# Keys may outlive their ttl by this fraction, up to a minute.
_SHARE, _LONGEST = 0.1, 60.0
_MOST_KEYS = 1000


class _Lease(NamedTuple):
    id: int
    until: float


class Leases:
    def __init__(self, members: Members, clock: Clock) -> None:
        self._members = members
        self._clock = clock
        self._leases: dict[int, _Lease] = {}
        self._keys: dict[int, int] = {}
        self._granting = asyncio.Lock()

    async def get(self, ttl: int) -> int:
        """The id of a lease that lasts at least `ttl` seconds from now."""
        async with self._granting:
            found = self._leases.get(ttl)
            if found is None or self._clock.monotonic() > found.until or self._keys[ttl] >= _MOST_KEYS:
                found = await self._grant(ttl)
            self._keys[ttl] += 1
            return found.id

    async def _grant(self, ttl: int) -> _Lease:
        share = min(ttl * _SHARE, _LONGEST)
        now = self._clock.monotonic()
        # etcd only supports whole seconds.
        answer = await self._members.read(GRANT, {"TTL": ttl + int(share)})
        found = self._leases[ttl] = _Lease(answer.id, now + int(share))
        self._keys[ttl] = 0
        return found

    def forget(self) -> None:
        """A lease is unknown to etcd: use new ones."""
        self._leases.clear()
