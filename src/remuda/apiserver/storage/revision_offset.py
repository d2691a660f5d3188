"""A store whose revisions are those of another one plus an offset.

etcd counts its revisions by itself, and from one in a new cluster. A state that is restored into it from a backup was at far
higher ones, which clients remember as resourceVersions; what they see must never go back. So a restore notes the offset of
revisions in the store itself, and every server that opens it adds this offset. Revisions below it are from
before the restore: to clients that ask for them, they are compacted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Self

import msgspec

from .store import Compacted, Event, FutureRevision, KeyValue, Mismatch, Op, Range, Store, StoreError

KEY = "/remuda/revisions"


class Noted(msgspec.Struct, frozen=True):
    offset: int


async def read_offset(store: Store) -> int:
    """The offset noted in a store; 0 without a note."""
    found = await store.get(KEY)
    if found is None:
        return 0
    try:
        return msgspec.json.decode(found.value, type=Noted).offset
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise StoreError(f"{KEY} in the store is damaged: restore it from a backup") from None


def note(offset: int) -> bytes:
    return msgspec.json.encode(Noted(offset))


async def as_noted(store: Store) -> Store:
    """The store with the revisions that its clients know."""
    offset = await read_offset(store)
    return OffsetStore(store, offset) if offset else store


class OffsetStore:
    def __init__(self, inner: Store, offset: int) -> None:
        self.inner = inner
        self._offset = offset

    # --- conversion -----------------------------------------------------------------------------------------------------

    def _kv(self, kv: KeyValue) -> KeyValue:
        return KeyValue(kv.key, kv.value, kv.create_revision + self._offset, kv.mod_revision + self._offset)

    def _event(self, event: Event) -> Event:
        kv, prev = event.kv, event.prev
        return Event(
            event.revision + self._offset,
            event.key,
            None if kv is None else self._kv(kv),
            None if prev is None else self._kv(prev),
        )

    def _error(self, error: StoreError) -> StoreError:
        if isinstance(error, Mismatch) and error.current is not None:
            return Mismatch(error.key, self._kv(error.current))
        if isinstance(error, Compacted):
            return Compacted(error.revision + self._offset, error.floor + self._offset)
        if isinstance(error, FutureRevision):
            return FutureRevision(error.revision + self._offset, error.current + self._offset)
        return error

    def _inside(self, revision: int) -> int:
        """A revision as the inner store knows it; 0 is now for both. Raises Compacted for one from before the shift."""
        if not revision:
            return 0
        if revision <= self._offset:
            raise Compacted(revision, max(self.floor, self._offset + 1))
        return revision - self._offset

    def _expected(self, expect: int) -> int:
        # A revision that the inner store never had matches nothing there, and must not turn into 0, which is "absent".
        return expect - self._offset if expect > self._offset else -1 if expect else 0

    def _op(self, op: Op) -> Op:
        return op if op.expect is None else msgspec.structs.replace(op, expect=self._expected(op.expect))

    # --- the store ------------------------------------------------------------------------------------------------------

    @property
    def shared(self) -> bool:
        return self.inner.shared

    @property
    def revision(self) -> int:
        return self.inner.revision + self._offset

    @property
    def floor(self) -> int:
        return self.inner.floor + self._offset

    async def current(self) -> int:
        return await self.inner.current() + self._offset

    async def get(self, key: str, revision: int = 0) -> KeyValue | None:
        inside = self._inside(revision)
        try:
            found = await self.inner.get(key, inside)
        except (Compacted, FutureRevision) as error:
            raise self._error(error) from None
        return None if found is None else self._kv(found)

    async def range(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Range:
        inside = self._inside(revision)
        try:
            found = await self.inner.range(prefix, start=start, limit=limit, revision=inside)
        except (Compacted, FutureRevision) as error:
            raise self._error(error) from None
        return Range([self._kv(kv) for kv in found.items], found.revision + self._offset, found.more, found.remaining)

    async def write(self, ops: Sequence[Op]) -> int:
        try:
            return await self.inner.write([self._op(op) for op in ops]) + self._offset
        except Mismatch as error:
            raise self._error(error) from None

    def watch(
        self, after: int, prefix: str = "", *, marks: bool = False
    ) -> AbstractAsyncContextManager[AsyncIterator[list[Event]]]:
        return _Watch(self, after, prefix, marks)

    async def changes(self, after: int, until: int, prefix: str = "") -> list[Event]:
        if after < self.floor:
            raise Compacted(after, self.floor)
        try:
            found = await self.inner.changes(after - self._offset, max(until - self._offset, 0), prefix)
        except Compacted as error:
            raise self._error(error) from None
        return [self._event(event) for event in found]

    async def compact(self, revision: int) -> None:
        try:
            await self.inner.compact(max(revision - self._offset, 0))
        except FutureRevision as error:
            raise self._error(error) from None

    async def expire(self, now: float) -> int:
        return await self.inner.expire(now)

    async def close(self) -> None:
        await self.inner.close()


class _Watch:
    def __init__(self, store: OffsetStore, after: int, prefix: str, marks: bool) -> None:
        self._store = store
        self._after = after
        self._watch = store.inner.watch(max(after - store._offset, 0), prefix, marks=marks)
        self._events: AsyncIterator[list[Event]]

    async def __aenter__(self) -> Self:
        if self._after < self._store.floor:
            raise Compacted(self._after, self._store.floor)
        try:
            self._events = await self._watch.__aenter__()
        except (Compacted, FutureRevision) as error:
            raise self._store._error(error) from None
        return self

    async def __aexit__(self, *exception: object) -> bool | None:
        return await self._watch.__aexit__(*exception)  # type: ignore[arg-type]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Event]:
        try:
            return [self._store._event(event) for event in await anext(self._events)]
        except Compacted as error:
            raise self._store._error(error) from None
