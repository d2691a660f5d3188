"""The watch cache: every stored object in memory as bytes, and a ring of recent changes for each resource.

One task reads the store's only watch and applies it here in revision order; lists, gets and watches are served from what it
has applied. A write waits until its own revision has been applied, so whoever got an answer also reads it back. Where others
write to the store too, a read that must be of the present first waits until the cache has caught up (:meth:`Cache.consistent`),
and a server that was cut off for longer than the store remembers loads everything anew.

The buckets (:mod:`remuda.apiserver.cache.resource_cache`) follow from the keys alone, so nothing has to be registered before
its objects can be loaded. Who watches a bucket, and in which shape, is the business of :mod:`remuda.apiserver.watch.watchers`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from remuda.kube.clock import SYSTEM_CLOCK, Clock, Entropy, deadline
from remuda.kube.errors import timeout

from ..keys.encryption import ANY as SEALED
from ..keys.encryption import EncryptionError, UnknownKey
from ..replicas import consistent_retry
from ..storage import key_layout
from ..storage.store import Compacted, Event, KeyValue, Range, Store, StoreError, Unavailable
from . import mutation_detector
from .entries import Entry, Parsed, ensure_canonical
from .resource_cache import Bucket, Change

Obj = dict[str, Any]
logger = logging.getLogger(__name__)

# How long a reader waits for the feed; and how long the feed waits for a store that does not answer before it asks again.
_CATCH_UP = 10.0
_PAUSE = 1.0


class Opener(Protocol):
    """Turns stored bytes into plain ones and back: the encryption layer, for the buckets that have one."""

    def open(self, key: str, value: bytes) -> tuple[bytes, bool]:
        """The plain bytes, and whether they should be sealed anew (another key, or none)."""

    def seal(self, key: str, value: bytes) -> bytes: ...

    def knows(self, value: bytes) -> bool:
        """Whether it can be opened with the keys that there are."""


class Cache:
    """All buckets, fed by the store's watch."""

    def __init__(
        self,
        store: Store,
        opener: Callable[[str], Opener | None],
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = Entropy(),  # noqa: B008 - has no state of its own
    ) -> None:
        self.store = store
        # Others write to the store too: asked so often that it is kept here.
        self.shared = store.shared
        self._signs = Signs(entropy)
        self._clock = clock
        self._opener = opener
        self._openers: dict[str, Opener | None] = {}
        self._buckets: dict[str, Bucket] = {}
        self.revision = 0
        # Watches from before this can't be served, whatever the store still has.
        self._floor = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._known: dict[int, tuple[bytes, bytes, Obj]] = {}
        self._parsed = Parsed()
        self._task: asyncio.Task[None] | None = None
        self.failed: BaseException | None = None
        self.on_revision: list[Callable[[int], None]] = []
        # Asked when another server has sealed something with a key that is not known here: to look for new keys.
        self.on_unknown_key: Callable[[], Awaitable[None]] | None = None

    # --- start and stop ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        loaded = await self.store.range(key_layout.ROOT)
        self.revision = loaded.revision
        for kv in loaded.items:
            bucket = self.bucket(key_layout.bucket_of(kv.key))
            entry = self._read(kv, bucket, starting=True)
            if entry is not None:
                bucket.load(entry)
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._follow(started), name="watch-cache")
        await started

    def ended(self) -> asyncio.Task[None]:
        """The task that feeds the cache; it ends only when something is wrong or the server stops."""
        assert self._task is not None
        return self._task

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if mutation_detector.DETECTOR is not None:
            # Forgotten first, past revisions too: what is held is watched on, and a session of many servers would look at the
            # objects of all that ever were, again and again.
            self._parsed.forget()
            for bucket in self.buckets():
                for entry in bucket.entries.values():
                    entry.forget()
            mutation_detector.DETECTOR.verify()

    async def _follow(self, started: asyncio.Future[None]) -> None:
        try:
            while True:
                try:
                    await self._feed(started)
                except Unavailable as error:
                    if not started.done():
                        raise
                    logger.warning("the store's feed is not to be had, trying again: %s", error)
                    await self._clock.sleep(_PAUSE)
                except Compacted as error:
                    if not self.shared:
                        raise
                    logger.warning("cut off from the store for longer than it remembers, loading everything anew: %s", error)
                    await self._reload()
        except Exception as error:
            # Without its feed the cache would serve stale data for ever: the server must see this and stop.
            self.failed = error
            logger.exception("the watch cache lost its feed from the store")
            for _, waiter in self._waiting:
                if not waiter.done():
                    waiter.set_exception(error)
            if not started.done():
                started.set_exception(error)

    async def _feed(self, started: asyncio.Future[None]) -> None:
        async with self.store.watch(self.revision, key_layout.ROOT, marks=self.shared) as batches:
            if not started.done():
                started.set_result(None)
            async for batch in batches:
                if self.on_unknown_key is not None and self.shared and not self._can_open(batch):
                    await self.on_unknown_key()
                self._apply(batch)
        raise StoreError("the store was closed while it was in use")

    async def _reload(self) -> None:
        """Go on from what the store holds now, as if the difference had just happened."""
        while True:
            try:
                loaded = await self.store.range(key_layout.ROOT)
                break
            except (Unavailable, Compacted) as error:
                logger.warning("loading everything anew failed, trying again: %s", error)
                await self._clock.sleep(_PAUSE)
        # All of it is read before any is applied, and all is applied in one step: nobody sees a part.
        steps = self._difference(loaded)
        for bucket in self.buckets():
            bucket.restart(loaded.revision)
        self._floor = loaded.revision
        touched: dict[str, list[Change]] = {}
        for prefix, change in steps:
            bucket = self.bucket(prefix)
            change.prev = bucket.get(change.key)
            bucket.apply(change)
            touched.setdefault(prefix, []).append(change)
        self.revision = loaded.revision
        self._tell(touched)
        # What was told carries revisions from inside the gap, and a watch that came back with one would miss deletions.
        for prefix in touched:
            self.bucket(prefix).restart(loaded.revision)

    def _difference(self, loaded: Range) -> list[tuple[str, Change]]:
        """The steps from what is here to what was loaded, in the order of revisions, with the buckets they belong to.

        When something went is not known. What has come back since did so before that; the rest is told at the last revision
        before the load, since nobody may go on watching from there: at the load's own, a watch that is cut in the middle
        of it would come back and miss the others.
        """
        last = max(loaded.revision - 1, self.revision + 1)
        steps: list[tuple[str, Change]] = []
        for kv in loaded.items:
            prefix = key_layout.bucket_of(kv.key)
            bucket = self.bucket(prefix)
            known = bucket.entries.get(kv.key)
            if known is not None and known.revision == kv.mod_revision:
                continue
            entry = self._read(kv, bucket, starting=True)
            namespace, name = key_layout.split(kv.key, prefix)
            if known is not None and kv.create_revision > self.revision:
                gone = Change(kv.create_revision - 1, kv.key, namespace, name, None, None)
                steps.append((prefix, gone))
            if known is not None or entry is not None:
                steps.append((prefix, Change(kv.mod_revision, kv.key, namespace, name, entry, None)))
        there = {kv.key for kv in loaded.items}
        for bucket in self.buckets():
            for key, entry in bucket.entries.items():
                if key not in there:
                    gone = Change(last, key, entry.namespace, entry.name, None, None)
                    steps.append((bucket.prefix, gone))
        return sorted(steps, key=lambda step: step[1].revision)

    # --- applying ------------------------------------------------------------------------------------------------------

    def bucket(self, prefix: str) -> Bucket:
        found = self._buckets.get(prefix)
        if found is None:
            found = self._buckets[prefix] = Bucket(prefix, self.revision, self._parsed)
        return found

    def buckets(self) -> list[Bucket]:
        return list(self._buckets.values())

    def _opener_for(self, prefix: str) -> Opener | None:
        if prefix not in self._openers:
            self._openers[prefix] = self._opener(prefix)
        return self._openers[prefix]

    def seal(self, prefix: str, key: str, plain: bytes, obj: Obj) -> bytes:
        """The bytes to store for an object, remembered so that its event needs neither decryption nor parsing.

        Remembered by the identity of the bytes, which nobody else can have while we hold them. The caller ends this with
        :meth:`forget_sealed`, whatever became of its write.
        """
        opener = self._opener_for(prefix)
        if opener is not None:
            sealed = opener.seal(key, plain)
        else:
            sealed = plain + self._signs.next() if self.shared else plain
        self._known[id(sealed)] = (sealed, plain, obj)
        return sealed

    def _can_open(self, batch: list[Event]) -> bool:
        for event in batch:
            if event.kv is not None and event.kv.value.startswith(SEALED) and id(event.kv.value) not in self._known:
                opener = self._opener_for(key_layout.bucket_of(event.key))
                if opener is not None and not opener.knows(event.kv.value):
                    return False
        return True

    def resealed(self, kv: KeyValue) -> bytes | None:
        """The same, sealed with the key that is used now; None where it is already, or nothing is to be sealed."""
        opener = self._opener_for(key_layout.bucket_of(kv.key))
        if opener is None:
            return None
        plain, stale = opener.open(kv.key, kv.value)
        return opener.seal(kv.key, plain) if stale else None

    def forget_sealed(self, sealed: bytes) -> None:
        """The write is over. If its event is yet to come (the writer was cancelled), it is parsed like a stranger's."""
        self._known.pop(id(sealed), None)

    def _read(self, kv: KeyValue, bucket: Bucket, *, starting: bool = False) -> Entry | None:
        """None for what can't be read. Where others write too, that is as if it was not there: it must not end every server.

        But whoever begins without the keys that the others have must not go on as if all secrets were gone.
        """
        try:
            return self._entry(kv, bucket)
        except Exception as error:
            if not self.shared or (starting and isinstance(error, EncryptionError)):
                raise
            logger.error("%s is left out, it can't be read (another server's, or damaged): %s", kv.key, error)
            return None

    def _entry(self, kv: KeyValue, bucket: Bucket) -> Entry:
        known = self._known.pop(id(kv.value), None)
        if known is not None:
            namespace, name = key_layout.split(kv.key, bucket.prefix)
            entry = Entry(kv.key, namespace, name, kv.mod_revision, known[1])
            entry.home = bucket
            entry.remember(known[2])
            return entry
        return self._opened(kv, bucket)

    def _opened(self, kv: KeyValue, bucket: Bucket) -> Entry:
        namespace, name = key_layout.split(kv.key, bucket.prefix)
        opener = self._opener_for(bucket.prefix)
        plain, stale = (kv.value, False) if opener is None else opener.open(kv.key, kv.value)
        entry = Entry(kv.key, namespace, name, kv.mod_revision, ensure_canonical(plain))
        entry.stale = stale
        entry.home = bucket
        return entry

    def entry_of(self, kv: KeyValue) -> Entry:
        """A value read from the store itself (a past revision, a lost race) as an entry under the present schema."""
        bucket = self.bucket(key_layout.bucket_of(kv.key))
        try:
            entry = self._opened(kv, bucket)
        except UnknownKey:
            # Of before a rotation whose old key is gone: as if it was compacted, so that whoever asks begins anew.
            raise Compacted(kv.mod_revision, self.revision) from None
        # Its caller drops it soon.
        entry.home = None
        return bucket.fresh(entry)

    def past_entry(self, kv: KeyValue) -> Entry:
        """A value of the past as it was stored, whatever the schema is now. Raises EncryptionError."""
        bucket = self.bucket(key_layout.bucket_of(kv.key))
        entry = self._opened(kv, bucket)
        entry.home, entry.epoch = None, bucket.epoch
        return entry

    def _apply(self, batch: list[Event]) -> None:
        touched: dict[str, list[Change]] = {}
        for event in batch:
            if not event.key:
                self.revision = event.revision
                continue
            prefix = key_layout.bucket_of(event.key)
            bucket = self.bucket(prefix)
            prev = bucket.get(event.key)
            entry = None if event.kv is None else self._read(event.kv, bucket)
            if entry is None and prev is None:
                self.revision = event.revision
                continue
            namespace, name = key_layout.split(event.key, prefix)
            change = Change(event.revision, event.key, namespace, name, entry, prev)
            bucket.apply(change)
            touched.setdefault(prefix, []).append(change)
            self.revision = event.revision
        self._tell(touched)

    def _tell(self, touched: dict[str, list[Change]]) -> None:
        """Everything is applied: whoever follows is told, and whoever waited for it goes on."""
        for prefix, changes in touched.items():
            for follower in tuple(self._buckets[prefix].followers):
                follower(changes)
            for change in changes:
                # Everybody has the frames now; whoever comes later has them made again.
                change.frames.clear()
        for callback in self.on_revision:
            callback(self.revision)
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        still: list[tuple[int, asyncio.Future[None]]] = []
        for revision, waiter in self._waiting:
            if revision > self.revision:
                still.append((revision, waiter))
            elif not waiter.done():
                waiter.set_result(None)
        self._waiting = still

    async def reached(self, revision: int) -> None:
        """Return once everything up to `revision` has been applied."""
        if self.revision >= revision:
            return
        if self.failed is not None:
            raise self.failed
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((revision, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            # Whoever asks for a revision that never comes must not be waited for either.
            self._waiting = [waiting for waiting in self._waiting if waiting[1] is not waiter]
            raise

    async def consistent(self) -> bool:
        """Return once the cache shows everything that the store had taken when this was called; whether it did not before.

        So what is read here next is of the present. Raises ApiError when that can't be had: 504 after a while, 503 without a
        quorum. Costs nothing where nobody else writes.
        """
        if not self.shared:
            return False
        before = self.revision
        newest = 0
        try:
            async with deadline(self._clock, _CATCH_UP):
                newest = await self.store.current()
                await self.reached(newest)
        except TimeoutError:
            behind = f"it is at revision {self.revision} of {newest}" if newest else "the store does not say how far it is"
            raise timeout(f"the watch cache did not catch up with the store within {_CATCH_UP:g} s: {behind}") from None
        except StoreError as error:
            raise consistent_retry.as_answer(error) from error
        consistent_retry.note_certain()
        return before < newest

    # --- the past ------------------------------------------------------------------------------------------------------

    async def changes_since(self, bucket: Bucket, revision: int) -> list[Change]:
        """The changes of one bucket after `revision`, up to now: nothing happens between the last look and the return.

        From the ring, or where that does not reach back so far, first from the store's log. Raises Compacted.
        """
        changes: list[Change] = []
        while True:
            floor = max(self.store.floor, self._floor)
            if revision < floor:
                raise Compacted(revision, floor)
            if (found := bucket.since(revision)) is not None:
                break
            until = self.revision
            changes += await self._replay(bucket, revision, until)
            revision = until
        return changes + found if changes else found

    async def _replay(self, bucket: Bucket, revision: int, until: int) -> list[Change]:
        changes: list[Change] = []
        for event in await self.store.changes(revision, until, bucket.prefix):
            namespace, name = key_layout.split(event.key, bucket.prefix)
            entry = None if event.kv is None else self.entry_of(event.kv)
            prev = None if event.prev is None else self.entry_of(event.prev)
            changes.append(Change(event.revision, event.key, namespace, name, entry, prev))
        return changes


# --- write nonce ----------------------------------------------------------------------------------------------------------
#
# What tells the writes of several servers apart, for a store that can only compare bytes.


class Signs:
    """A few spaces and the like behind each value: no two writes of any servers are the same to the byte.

    A store that lost the answer to a write looks for its bytes in what has happened since. If two servers had written the same
    ones, both would take the write for their own, and one of two clients that count up would count for nothing.
    """

    _BLANKS = (b" ", b"\t", b"\r", b"\n")

    def __init__(self, entropy: Entropy) -> None:
        self._table = [b"".join(self._BLANKS[byte >> shift & 3] for shift in (6, 4, 2, 0)) for byte in range(256)]
        self._own = b"".join(self._table[byte] for byte in entropy.token_bytes(4))
        self._count = 0

    def next(self) -> bytes:
        self._count = count = (self._count + 1) & 0xFFFF
        return self._own + self._table[count >> 8] + self._table[count & 255]
