"""The store: revisioned keys, compare-and-set transactions, ranges, a watch from any revision that is still kept.

One narrow interface, several engines (`memory`, `sqlite`), one suite for all of them. The store knows bytes and keys; what
the bytes mean, and whether they are encrypted, is the business of :mod:`remuda.apiserver.storage`.

The rules every engine keeps:

- A transaction is applied whole or not at all, and takes one new revision. Revisions are never used twice, also not after a
  crash. `write` returns only when the transaction would survive one.
- Watchers see transactions in revision order, only after they are durable, without gaps.
- Reads at a past revision work until that revision is compacted; then they raise :class:`Compacted`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

import msgspec


class KeyValue(msgspec.Struct, frozen=True, gc=False):
    key: str
    value: bytes
    create_revision: int
    mod_revision: int


class Put(msgspec.Struct, frozen=True, gc=False):
    """Write `key`. `expect` is the mod_revision it must have now: 0 for absent, None for whatever it is.

    `ttl` (seconds, 0 for ever) makes the store delete the key by itself some time after it has run out.
    """

    key: str
    value: bytes
    expect: int | None = None
    ttl: int = 0


class Delete(msgspec.Struct, frozen=True, gc=False):
    """Delete `key`, which must exist; `expect` as for Put (0 makes no sense here)."""

    key: str
    expect: int | None = None


Op = Put | Delete


class Event(msgspec.Struct, frozen=True, gc=False):
    """What one transaction did to one key. `kv` is None for a deletion; `prev` is None for a creation."""

    revision: int
    key: str
    kv: KeyValue | None
    prev: KeyValue | None


class Range(msgspec.Struct, frozen=True, gc=False):
    """Keys in order. `revision` is the revision the whole range was read at; `more` says that `limit` cut it."""

    items: list[KeyValue]
    revision: int
    more: bool = False
    remaining: int = 0


class StoreError(Exception):
    """The store can't do what was asked; the message says what to do about it."""


class Mismatch(StoreError):
    """A transaction's expectation did not hold; `current` is what the key holds now (None when absent)."""

    def __init__(self, key: str, current: KeyValue | None) -> None:
        super().__init__(f"{key} is not at the expected revision")
        self.key = key
        self.current = current


class Compacted(StoreError):
    def __init__(self, revision: int, floor: int) -> None:
        super().__init__(f"revision {revision} has been compacted, the oldest kept is {floor}")
        self.revision = revision
        self.floor = floor


class FutureRevision(StoreError):
    def __init__(self, revision: int, current: int) -> None:
        super().__init__(f"revision {revision} is in the future, the current one is {current}")
        self.revision = revision
        self.current = current


class Store(Protocol):
    @property
    def revision(self) -> int:
        """The newest durable revision."""

    @property
    def floor(self) -> int:
        """The compaction floor: watches and past reads work for revisions >= floor."""

    async def get(self, key: str, revision: int = 0) -> KeyValue | None: ...

    async def range(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Range:
        """Keys that begin with `prefix` and are >= `start`, at `revision` (0: now)."""

    async def write(self, ops: Sequence[Op]) -> int:
        """Apply all or nothing; the new revision. Raises Mismatch."""

    def watch(self, after: int, prefix: str = "") -> AbstractAsyncContextManager[AsyncIterator[list[Event]]]:
        """Every event with a revision > `after`, in order, in batches; then new ones as they come.

        Entering raises Compacted when `after` < floor. A watcher that falls too far behind gets Compacted later.
        """

    async def compact(self, revision: int) -> None:
        """Forget how things were before `revision`."""

    async def snapshot(self, path: Path) -> None:
        """Write a consistent copy of everything to `path`, online."""

    async def close(self) -> None: ...
