"""The store: revisioned keys, compare-and-set transactions, ranges, a watch from any revision that is still kept.

One narrow interface, several engines (`memory`, `sqlite`, `etcd`), one suite for all. The store knows bytes and keys; their
meaning and encryption are up to :mod:`remuda.apiserver.cache`.

The rules every engine keeps:

- A transaction is applied whole or not at all, and takes one new revision. Revisions are never used twice, also not after a
  crash. `write` returns only when the transaction would survive one.
- Watchers see transactions in revision order, only after they are durable, without gaps.
- Reads at a past revision work until that revision is compacted; then they raise :class:`Compacted`.
- A store may be shared with other servers. Then `revision` and the feed may be behind; `current` asks for the true revision.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from typing import Protocol

import msgspec


class KeyValue(msgspec.Struct, frozen=True, gc=False):
    key: str
    value: bytes
    create_revision: int
    mod_revision: int


class Put(msgspec.Struct, frozen=True, gc=False):
    """Write `key`. `expect` is the mod_revision it must have now: 0 for absent, None for any.

    `ttl` (seconds, 0 for ever) makes the store delete the key by itself some time after it has expired. `who` wrote it: for
    stores that keep history.
    """

    key: str
    value: bytes
    expect: int | None = None
    ttl: int = 0
    who: str = ""


class Delete(msgspec.Struct, frozen=True, gc=False):
    """Delete `key`, which must exist; `expect` and `who` as for Put (0 makes no sense here)."""

    key: str
    expect: int | None = None
    who: str = ""


class Check(msgspec.Struct, frozen=True, gc=False):
    """Change nothing, but fail the transaction unless `key` is at mod_revision `expect` (0: absent)."""

    key: str
    expect: int


Op = Put | Delete | Check


class Event(msgspec.Struct, frozen=True, gc=False):
    """The effect of one transaction on one key. `kv` is None for a deletion; `prev` is None for a creation."""

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


class Version(msgspec.Struct, frozen=True, gc=False):
    """One kept state of a key, from `revision` (written at `at`, seconds since the epoch) on. None: deleted.

    `who` is empty for the server's own writes, and where it is unknown.
    """

    revision: int
    at: float
    kv: KeyValue | None
    who: str = ""


class StoreError(Exception):
    """The store can't do an operation; the message says how to fix that."""


class Mismatch(StoreError):
    """A transaction's expectation did not hold; `current` is the present state of the key (None when absent)."""

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


class Unavailable(StoreError):
    """The store is unavailable now (no quorum, no member answers); nothing was done, so a retry is safe."""


class Unknown(StoreError):
    """A write was sent without an answer in time: it may have been done, or not, or may yet be."""


class Store(Protocol):
    @property
    def shared(self) -> bool:
        """Other servers write to it too, so its feed may be behind its content."""

    @property
    def revision(self) -> int:
        """The newest durable revision; of a shared store the newest that is known here."""

    async def current(self) -> int:
        """The newest revision of the whole store at some moment after this call began.

        A linearizable read must have seen it. With a single writer it is `revision`, without a wait; a shared
        store asks its quorum, and may raise Unavailable.
        """

    @property
    def floor(self) -> int:
        """The compaction floor: watches and past reads work for revisions >= floor."""

    async def get(self, key: str, revision: int = 0) -> KeyValue | None: ...

    async def range(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Range:
        """Keys that begin with `prefix` and are >= `start`, at `revision` (0: now)."""

    async def write(self, ops: Sequence[Op]) -> int:
        """Apply all or nothing; the new revision. Raises Mismatch; of a shared store also Unavailable and Unknown."""

    def watch(
        self, after: int, prefix: str = "", *, marks: bool = False
    ) -> AbstractAsyncContextManager[AsyncIterator[list[Event]]]:
        """Every event with a revision > `after`, in order, in batches; then new ones as they come.

        With `marks`, events without a key report the progress of the watch when nothing happened under `prefix`.

        Entering raises Compacted when `after` < floor. A watcher that falls too far behind gets Compacted later.
        """

    async def changes(self, after: int, until: int, prefix: str = "") -> list[Event]:
        """The kept events with `after` < revision <= `until`, in order. Raises Compacted when `after` < floor."""

    async def compact(self, revision: int) -> None:
        """Forget states from before `revision`."""

    async def expire(self, now: float) -> int:
        """Delete the keys whose ttl expired before `now`, with events like any other deletion; the number of these.

        The store has no timers of its own: the server calls this, and `compact`, at intervals.
        """

    async def close(self) -> None: ...


class HistoryStore(Store, Protocol):
    """A store that keeps past states for longer than the watch window: time travel and the timeline."""

    @property
    def history_floor(self) -> int:
        """Kept history is complete from this revision on; never above `floor`."""

    @property
    def history_time(self) -> float:
        """The same as a time; 0 while nothing was ever pruned."""

    def keeps_past(self, prefix: str) -> bool:
        """True if there is history of keys with this prefix; others have only the watch window."""

    async def revision_at(self, time: float) -> int:
        """The newest revision written at or before `time`; the floor when that is older than the kept history."""

    async def time_of(self, revision: int) -> float:
        """The time when `revision` was written, or the next kept one after it."""

    async def history(self, key: str, *, before: int = 0, limit: int = 0, most_bytes: int = 0) -> list[Version]:
        """The kept states of `key`, newest first; those from before revision `before`, if it is given.

        At most `limit` of them, and no more when their values have reached `most_bytes` together (0: no limit).
        The next page is quick when `before` is the last revision of the one before it.
        """

    async def read_history(self, key: str, *, at_revision: int | None = None, at_time: float | None = None) -> Version | None:
        """The state of `key` at a revision or a time; None if it did not exist yet. Raises Compacted before the kept history."""

    async def range_history(self, prefix: str, revision: int, *, start: str = "", limit: int = 0, most_bytes: int = 0) -> Range:
        """As `range`, at any revision that history goes back to; bounded as `history` is. `remaining` is not set."""

    async def prune(self) -> int:
        """Delete history that is too old or too large; the number of deleted states."""


# --- attribution ----------------------------------------------------------------------------------------------------------
#
# The user of a write: passed to stores that keep history, for `remuda history`.
#
# The HTTP handler sets it around each request that may write; it is empty for the server's own writes, which are told apart by
# its field manager.

# Names are short; a header may be long.
_LONGEST = 256

_writer: ContextVar[str] = ContextVar("writer", default="")


@contextmanager
def writing(who: str) -> Iterator[None]:
    """Writes inside the block are attributed to `who`."""
    token = _writer.set(who[:_LONGEST])
    try:
        yield
    finally:
        _writer.reset(token)


def writer() -> str:
    return _writer.get()


# --- transactions, for every engine ---------------------------------------------------------------------------------------
#
# The semantics of a transaction, for every engine: validation, and its effect on the keys it names.
#
# Pure: an engine passes a lookup of the present state and gets back the events; making those durable is the
# engine's own job (:mod:`.memory`, :mod:`.sqlite`).


# An engine may number the changes within one revision in eight bits; Kubernetes itself writes one key at a time.
MAX_OPS = 256


def check(ops: Sequence[Op]) -> None:
    """Raise StoreError for operations that no engine could apply, before it is queued together with the writes of others."""
    if not ops:
        raise StoreError("a transaction needs at least one operation")
    if len(ops) > MAX_OPS:
        raise StoreError(f"a transaction takes at most {MAX_OPS} operations, this one has {len(ops)}: split it")
    for op in ops:
        _check_key(op.key)
    if isinstance(ops[0], Check) and all(isinstance(op, Check) for op in ops):
        raise StoreError("a transaction that only checks changes nothing: read instead")
    if len(ops) > 1 and len({op.key for op in ops}) != len(ops):
        raise StoreError("a transaction may name a key only once")


def _check_key(key: str) -> None:
    if not key or "\0" in key:
        raise StoreError(f"{key!r} can't be a key: it is empty or has a NUL in it")
    if key.isascii():
        return
    try:
        key.encode()
    except UnicodeEncodeError:
        raise StoreError(f"{key!r} can't be a key: it is not valid Unicode") from None


def events(ops: Sequence[Op], revision: int, lookup: Callable[[str], KeyValue | None]) -> list[Event]:
    """The events of applying `ops` at `revision`; raises Mismatch without having changed anything."""
    made: list[Event] = []
    for op in ops:
        now = lookup(op.key)
        if isinstance(op, Delete):
            if now is None or (op.expect is not None and op.expect != now.mod_revision):
                raise Mismatch(op.key, now)
            made.append(Event(revision, op.key, None, now))
            continue
        if isinstance(op, Check):
            if op.expect != (0 if now is None else now.mod_revision):
                raise Mismatch(op.key, now)
            continue
        if op.expect is not None and op.expect != (0 if now is None else now.mod_revision):
            raise Mismatch(op.key, now)
        created = revision if now is None else now.create_revision
        made.append(Event(revision, op.key, KeyValue(op.key, op.value, created, revision), now))
    return made


def changing(ops: Sequence[Op]) -> list[Put | Delete]:
    """Those that :func:`events` makes an event of, in the same order."""
    return [op for op in ops if not isinstance(op, Check)]


# Above every possible key: no text sorts after the highest code point.
LAST = "\U0010ffff\U0010ffff"


def after_prefix(prefix: str) -> str:
    """The smallest text that sorts after everything that begins with `prefix`."""
    while prefix and prefix[-1] == "\U0010ffff":
        prefix = prefix[:-1]
    if not prefix:
        return LAST
    following = ord(prefix[-1]) + 1
    # Surrogates are no characters; use the first one after them.
    return prefix[:-1] + chr(0xE000 if following == 0xD800 else following)
