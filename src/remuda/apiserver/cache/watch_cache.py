"""The watch cache: every stored object in memory as bytes, and a ring of recent changes for each resource.

One task reads the store's only watch and applies its events here in revision order; lists, gets and watches are served from
the applied state. A write waits until its own revision has been applied, so clients can read their own writes. Where other
servers write to the store too, a consistent read first waits until the cache has caught up (:meth:`WatchCache.consistent`), and a
server that was disconnected until its revision was compacted loads everything anew.

The buckets (:mod:`remuda.apiserver.cache.resource_cache`) follow from the keys alone, so no kind has to be registered before
its objects can be loaded. Watchers of a bucket are in :mod:`remuda.apiserver.watch.watchers`.
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
from . import entries
from .entries import Entry, Parsed, ensure_canonical
from .resource_cache import Bucket, Change

Obj = dict[str, Any]
logger = logging.getLogger(__name__)

# The time that a reader waits for the feed, and that the feed waits for the store's answer before it asks again.
_CATCH_UP = 10.0
_PAUSE = 1.0


class ValueTransformer(Protocol):
    """Turns stored bytes into plain ones and back: the encryption layer, for the buckets that have one."""

    def open(self, key: str, value: bytes) -> tuple[bytes, bool]:
        """The plain bytes, and true when they should be sealed anew (old key, or none)."""

    def seal(self, key: str, value: bytes) -> bytes: ...

    def knows(self, value: bytes) -> bool:
        """True when the value can be opened with the known keys."""


class WatchCache:
    """All buckets, fed by the store's watch."""

    def __init__(
        self,
        store: Store,
        opener: Callable[[str], ValueTransformer | None],
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = Entropy(),  # noqa: B008 - has no state of its own
    ) -> None:
        self.store = store
        # True when other servers write to the store too; kept here because it is read often.
        self.shared = store.shared
        self._signs = WriteNonces(entropy)
        self._clock = clock
        self._opener = opener
        self._openers: dict[str, ValueTransformer | None] = {}
        self._buckets: dict[str, Bucket] = {}
        self.revision = 0
        # Watches from an earlier revision can't be served, even if the store still has it.
        self._floor = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._known: dict[int, tuple[bytes, bytes, Obj]] = {}
        self._parsed = Parsed()
        self._task: asyncio.Task[None] | None = None
        self.failed: BaseException | None = None
        self.on_revision: list[Callable[[int], None]] = []
        # Called to look for new keys, when another server has sealed a value with an unknown key.
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
        """The task that feeds the cache; it ends only on an error or when the server stops."""
        assert self._task is not None
        return self._task

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if entries.DETECTOR is not None:
            # Drop all objects first, past revisions too: held objects stay watched, and a session of many servers would check
            # the objects of all previous ones again and again.
            self._parsed.forget()
            for bucket in self.buckets():
                for entry in bucket.entries.values():
                    entry.forget()
            entries.DETECTOR.verify()

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
            # Without its feed the cache would serve stale data forever: the server must notice this and stop.
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
        """Load the store's current state and apply the difference as changes."""
        while True:
            try:
                loaded = await self.store.range(key_layout.ROOT)
                break
            except (Unavailable, Compacted) as error:
                logger.warning("loading everything anew failed, trying again: %s", error)
                await self._clock.sleep(_PAUSE)
        # Everything is read first and then applied in one step: readers never see a part.
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
        # These changes have revisions from inside the gap, and a watch that resumed from one would miss deletions.
        for prefix in touched:
            self.bucket(prefix).restart(loaded.revision)

    def _difference(self, loaded: Range) -> list[tuple[str, Change]]:
        """The changes from the cached to the loaded state, in the order of revisions, with their buckets.

        The revisions of deletions are unknown. An object that was created again was deleted before that; other deletions get
        the last revision before the load, since no watch can resume from there: with the load's own revision, a watch that is
        interrupted among these changes would resume and miss the others.
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

    def _opener_for(self, prefix: str) -> ValueTransformer | None:
        if prefix not in self._openers:
            self._openers[prefix] = self._opener(prefix)
        return self._openers[prefix]

    def seal(self, prefix: str, key: str, plain: bytes, obj: Obj) -> bytes:
        """The bytes to store for an object, remembered so that its event needs neither decryption nor parsing.

        The key is the identity of the bytes, which is unique while we hold them. The caller ends this with
        :meth:`forget_sealed`, whether its write succeeded or not.
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
        """The value sealed with the current key; None when it already is, or is not to be sealed."""
        opener = self._opener_for(key_layout.bucket_of(kv.key))
        if opener is None:
            return None
        plain, stale = opener.open(kv.key, kv.value)
        return opener.seal(kv.key, plain) if stale else None

    def forget_sealed(self, sealed: bytes) -> None:
        """End of the write. If its event is yet to come (the writer was cancelled), it is parsed like another server's."""
        self._known.pop(id(sealed), None)

    def _read(self, kv: KeyValue, bucket: Bucket, *, starting: bool = False) -> Entry | None:
        """The entry. Where other servers write too, an unreadable value is skipped (None): it must not stop every server.

        But a server that starts without the others' keys must fail, and not run as if all secrets were gone.
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
        """A value read from the store itself (a past revision, a lost race) as an entry under the current schema."""
        bucket = self.bucket(key_layout.bucket_of(kv.key))
        try:
            entry = self._opened(kv, bucket)
        except UnknownKey:
            # Sealed with a removed key, before a rotation: treated as compacted, so that the client starts again.
            raise Compacted(kv.mod_revision, self.revision) from None
        # The caller drops it soon.
        entry.home = None
        return bucket.fresh(entry)

    def past_entry(self, kv: KeyValue) -> Entry:
        """A past value as it was stored, not brought up to the current schema. Raises EncryptionError."""
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
        """Notify followers and wake waiting readers, after all changes are applied."""
        for prefix, changes in touched.items():
            for follower in tuple(self._buckets[prefix].followers):
                follower(changes)
            for change in changes:
                # All followers have the frames now; later readers make them again.
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
        """Wait until everything up to `revision` has been applied."""
        if self.revision >= revision:
            return
        if self.failed is not None:
            raise self.failed
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((revision, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            # Also remove a waiter that was cancelled: its revision may never come.
            self._waiting = [waiting for waiting in self._waiting if waiting[1] is not waiter]
            raise

    async def consistent(self) -> bool:
        """Wait until the cache shows all writes that the store had committed at the call; true when it was behind.

        So the next read is consistent. Raises ApiError when that is impossible: 504 after a timeout, 503 without a quorum.
        Costs nothing where no other server writes.
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
        """The changes of one bucket after `revision`, up to now: no change is applied between the last read and the return.

        They come from the ring, and before its start from the store's log. Raises Compacted.
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
# A nonce that distinguishes the writes of several servers, for a store that can only compare bytes.


class WriteNonces:
    """A nonce of whitespace behind each value: no two writes of any servers have equal bytes.

    A store that lost the answer to a write searches later events for its bytes. If two servers had written the same bytes,
    both would take the write for their own, and of two clients that increment a counter one increment would be lost.
    """

    _BLANKS = (b" ", b"\t", b"\r", b"\n")

    def __init__(self, entropy: Entropy) -> None:
        self._table = [b"".join(self._BLANKS[byte >> shift & 3] for shift in (6, 4, 2, 0)) for byte in range(256)]
        self._own = b"".join(self._table[byte] for byte in entropy.token_bytes(4))
        self._count = 0

    def next(self) -> bytes:
        self._count = count = (self._count + 1) & 0xFFFF
        return self._own + self._table[count >> 8] + self._table[count & 255]
