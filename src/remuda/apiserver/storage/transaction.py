"""The semantics of a transaction, for every engine: validation, and its effect on the keys it names.

Pure: an engine passes a lookup of the present state and gets back the events; making those durable is the
engine's own job (:mod:`.memory`, :mod:`.sqlite`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .store import Check, Delete, Event, KeyValue, Mismatch, Op, Put, StoreError

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
    if all(isinstance(op, Check) for op in ops):
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
