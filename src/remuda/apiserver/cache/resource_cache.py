"""One resource's objects, sorted by key, with their recent changes. :mod:`remuda.apiserver.cache.watch_cache` fills them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from .entries import Entry, Parsed

# A bucket's ring keeps at most so many changes, and so many bytes of previous states. Older changes come from the store's
# log until it is compacted.
RING = 1024
RING_BYTES = 8 * 1024 * 1024


class Change:
    """An object's change from `prev` (None: created) to `entry` (None: deleted). Frames are made once and shared."""

    __slots__ = ("entry", "frames", "kept", "key", "name", "namespace", "prev", "revision")

    def __init__(self, revision: int, key: str, namespace: str, name: str, entry: Entry | None, prev: Entry | None) -> None:
        self.revision = revision
        self.key = key
        self.namespace = namespace
        self.name = name
        self.entry = entry
        self.prev = prev
        self.frames: dict[Any, bytes] = {}
        self.kept = 0


Follower = Callable[[list[Change]], None]


class Bucket:
    """All objects of one resource, sorted by key, with their recent changes."""

    __slots__ = (
        "_sorted",
        "entries",
        "epoch",
        "followers",
        "keep_parsed",
        "normalize",
        "parsed",
        "prefix",
        "ring",
        "ring_bytes",
        "ring_floor",
    )

    def __init__(self, prefix: str, floor: int, parsed: Parsed) -> None:
        self.prefix = prefix
        self.parsed = parsed
        self.entries: dict[str, Entry] = {}
        self._sorted: list[str] | None = []
        self.ring: deque[Change] = deque()
        # The ring holds every change with a revision above this.
        self.ring_floor = floor
        self.ring_bytes = 0
        self.followers: list[Follower] = []
        self.keep_parsed = False
        # Incremented when a schema changes: entries of an older epoch are brought up to date on their next read.
        self.epoch = 0
        self.normalize: Callable[[Entry], None] | None = None

    def load(self, entry: Entry) -> None:
        self.entries[entry.key] = entry
        self._sorted = None

    def get(self, key: str) -> Entry | None:
        entry = self.entries.get(key)
        return None if entry is None else self.fresh(entry)

    def fresh(self, entry: Entry) -> Entry:
        """The same entry, brought up to the current schema."""
        if entry.epoch != self.epoch:
            if self.normalize is not None:
                self.normalize(entry)
            entry.epoch = self.epoch
        return entry

    def new_epoch(self, normalize: Callable[[Entry], None]) -> None:
        """Start a new epoch: entries pass through `normalize` before their next read."""
        self.normalize = normalize
        self.epoch += 1

    def keys(self) -> list[str]:
        if self._sorted is None:
            self._sorted = sorted(self.entries)
        return self._sorted

    def scan(self, prefix: str, start: str = "") -> Iterator[Entry]:
        """Current entries whose key begins with `prefix` and is >= `start`, in order."""
        return map(self.fresh, self.snapshot(prefix, start))

    def snapshot(self, prefix: str, start: str = "") -> list[Entry]:
        """The entries of :meth:`scan` as a list, for processing in slices; pass each through :meth:`fresh`."""
        ordered = self.keys()
        first = bisect_left(ordered, max(prefix, start))
        # A prefix ends with a slash; "0" is the next character, so it sorts right behind all keys with the prefix.
        last = len(ordered) if prefix == self.prefix else bisect_left(ordered, prefix[:-1] + "0", first)
        entries = self.entries
        return [entries[key] for key in ordered[first:last]]

    def apply(self, change: Change) -> None:
        key = change.key
        if change.entry is None:
            if self.entries.pop(key, None) is not None and self._sorted is not None:
                index = bisect_left(self._sorted, key)
                if index < len(self._sorted) and self._sorted[index] == key:
                    del self._sorted[index]
        else:
            change.entry.epoch = self.epoch
            if key not in self.entries and self._sorted is not None:
                insort(self._sorted, key)
            self.entries[key] = change.entry
        self.ring.append(change)
        # Only the ring keeps the previous state in memory; its size is counted once, since a new schema may encode it anew.
        change.kept = 0 if change.prev is None else len(change.prev.stored)
        self.ring_bytes += change.kept
        while len(self.ring) > RING or (self.ring_bytes > RING_BYTES and len(self.ring) > 1):
            oldest = self.ring.popleft()
            self.ring_bytes -= oldest.kept
            self.ring_floor = oldest.revision

    def restart(self, floor: int) -> None:
        """Drop all changes: the current entries are as of `floor`."""
        self.ring.clear()
        self.ring_bytes = 0
        self.ring_floor = floor

    def since(self, revision: int) -> list[Change] | None:
        """The changes after `revision`, or None when the ring does not reach back to it."""
        if revision < self.ring_floor:
            return None
        found: list[Change] = []
        for change in reversed(self.ring):
            if change.revision <= revision:
                break
            for entry in (change.entry, change.prev):
                if entry is not None:
                    self.fresh(entry)
            found.append(change)
        found.reverse()
        return found
