"""Watches: delivery of changes to watchers, in each watcher's form.

A :class:`Feed` belongs to one resource in one version. It indexes its watchers by scope (everything, a namespace, one
object), so a change costs time only for the watchers in scope. An event is framed once
for each shape (JSON, Table, metadata only) and all watchers get the same bytes.

Where a version needs a conversion webhook the feed converts each batch in order, before delivery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from remuda.kube.encoding import jsonio

from ..cache.entries import Entry
from ..cache.resource_cache import Bucket, Change
from ..registry.resources import Version
from .selection import Selection

logger = logging.getLogger(__name__)
Obj = dict[str, Any]

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"


class Shape(Protocol):
    """The form of an object on one kind of watch; hashable, since frames are cached by shape.

    `leading` is the shape of a stream's first event, where that differs from the others.
    """

    @property
    def leading(self) -> Shape: ...

    def frame(self, type_: str, version: Version, entry: Entry, revision: int) -> bytes: ...

    def bookmark(self, version: Version, revision: int, annotations: dict[str, str] | None) -> bytes: ...


def blank(version: Version, revision: int, annotations: dict[str, str] | None) -> Obj:
    """The object of a bookmark: only its revision."""
    metadata: Obj = {"resourceVersion": str(revision)}
    if annotations:
        metadata["annotations"] = annotations
    return {"kind": version.kind, "apiVersion": version.api_version, "metadata": metadata, **version.empty()}


def framed(type_: str, data: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (type_.encode(), data)


class JsonShape:
    """The whole object as JSON: nearly every watch."""

    def frame(self, type_: str, version: Version, entry: Entry, revision: int) -> bytes:
        return framed(type_, version.body(entry, revision=revision))

    @property
    def leading(self) -> Shape:
        return self

    def bookmark(self, version: Version, revision: int, annotations: dict[str, str] | None) -> bytes:
        return framed(BOOKMARK, jsonio.dumps(blank(version, revision, annotations)))


JSON = JsonShape()


class Sink(Protocol):
    """The receiver of a watcher's events. `deliver` must not block; it returns False when the reader is too slow to go on."""

    def deliver(self, events: list[tuple[str, Change, Entry]]) -> bool: ...

    def end(self) -> None:
        """No more events will come."""


class Marked(Protocol):
    """A stream that can send bookmarks, for clients that requested them, and that can be ended."""

    @property
    def bookmarks_for(self) -> Watcher | None: ...

    def bookmark(self, revision: int) -> bool: ...

    def end(self) -> None: ...


def step(selection: Selection, change: Change) -> tuple[str, Entry] | None:
    """The event of a change for a watcher of the selection: an object may move in or out of it."""
    entry, prev = change.entry, change.prev
    if selection.trivial:
        if entry is None:
            return None if prev is None else (DELETED, prev)
        return (ADDED if prev is None else MODIFIED), entry
    is_in = entry is not None and selection.matches(entry)
    was_in = prev is not None and selection.matches(prev)
    if is_in:
        assert entry is not None
        return (MODIFIED if was_in else ADDED), entry
    if was_in:
        assert prev is not None
        # Also for an object that still exists: a watcher of a selection gets the last state that was in it.
        return DELETED, prev
    return None


class Watcher:
    """One watch. `revision` is the last one it got an event or a bookmark for.

    From the moment it has joined its feed it misses nothing, but it is silent until :meth:`go`: earlier events are kept,
    so that the past can be prepared and sent first.
    """

    __slots__ = ("_early", "closed", "feed", "revision", "scope", "selection", "sink")

    def __init__(self, selection: Selection, sink: Sink, revision: int) -> None:
        self.selection = selection
        self.sink = sink
        self.revision = revision
        self.scope = (selection.namespace, selection.name)
        self.closed = False
        self.feed: Feed | None = None
        self._early: list[Change] | None = []

    def go(self) -> None:
        """All events before the live ones are on their way."""
        early, self._early = self._early, None
        if early:
            self.tell(early)

    def tell(self, changes: list[Change]) -> None:
        if self.closed:
            return
        if self._early is not None:
            self._early.extend(changes)
            return
        events: list[tuple[str, Change, Entry]] = []
        for change in changes:
            if change.revision <= self.revision:
                continue
            found = step(self.selection, change)
            if found is not None:
                events.append((found[0], change, found[1]))
        if changes:
            self.revision = max(self.revision, changes[-1].revision)
        if events and not self.sink.deliver(events):
            self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.sink.end()

    def leave(self) -> None:
        """Stop watching: the client is gone."""
        self.closed = True
        if self.feed is not None:
            self.feed.discard(self)

    @property
    def reached(self) -> int:
        """The revision up to which it has got everything; newer than the last change that concerned it."""
        return self.revision if self.feed is None or self._early is not None else max(self.revision, self.feed.revision)


class Feed:
    """The watchers of one version of a resource."""

    def __init__(self, version: Version, current: Callable[[], int]) -> None:
        """`current` gives the cache's revision."""
        self.version = version
        self.closed = False
        self._current = current
        self._scopes: dict[tuple[str, str], dict[Watcher, None]] = {}
        self._bucket: Bucket = version.resource.bucket
        self._queue: asyncio.Queue[list[Change]] | None = None
        self._task: asyncio.Task[None] | None = None
        self.count = 0
        # Everything up to here has been delivered; a converting feed runs behind the cache.
        self._told = 0
        self._busy = False
        if version.resource.convert is None:
            self._bucket.followers.append(self._dispatch)
        else:
            self._queue = asyncio.Queue()
            self._bucket.followers.append(self._queue.put_nowait)
            self._task = asyncio.create_task(self._convert_and_dispatch(), name=f"watch {version.api_version}")

    @property
    def revision(self) -> int:
        """The revision up to which every watcher here has got everything."""
        behind = self._queue is not None and (self._busy or not self._queue.empty())
        return self._told if behind else self._current()

    def add(self, watcher: Watcher) -> None:
        if self.closed:
            watcher.close()
            return
        watcher.feed = self
        self._scopes.setdefault(watcher.scope, {})[watcher] = None
        self.count += 1

    def discard(self, watcher: Watcher) -> None:
        found = self._scopes.get(watcher.scope)
        if found is not None and found.pop(watcher, watcher) is None:
            self.count -= 1
            if not found:
                del self._scopes[watcher.scope]

    def close(self) -> None:
        """The resource is no longer served (in this form): end every watch, so that clients reconnect."""
        self.closed = True
        follower = self._dispatch if self._queue is None else self._queue.put_nowait
        if follower in self._bucket.followers:
            self._bucket.followers.remove(follower)
        if self._task is not None:
            self._task.cancel()
        for watchers in list(self._scopes.values()):
            for watcher in list(watchers):
                watcher.close()

    def watchers(self) -> list[Watcher]:
        return [watcher for watchers in self._scopes.values() for watcher in watchers]

    async def _convert_and_dispatch(self) -> None:
        assert self._queue is not None
        while True:
            changes = await self._queue.get()
            self._busy = True
            entries = [e for change in changes for e in (change.entry, change.prev) if e is not None]
            if self.count:
                try:
                    await self.version.prepare(entries)
                except Exception as error:
                    # A watcher that misses one event is broken: end them all, they resume when the webhook answers again.
                    logger.warning("conversion failed, ending watches of %s: %s", self.version.api_version, error)
                    for watcher in self.watchers():
                        watcher.close()
            self._dispatch(changes)
            self._busy = False
            self._told = changes[-1].revision

    def _dispatch(self, changes: list[Change]) -> None:
        scopes = self._scopes
        if not scopes:
            return
        if len(changes) == 1:
            change = changes[0]
            for scope in _scopes_of(change):
                watchers = scopes.get(scope)
                if watchers:
                    for watcher in tuple(watchers):
                        watcher.tell(changes)
            return
        concerned: dict[Watcher, list[Change]] = {}
        for change in changes:
            for scope in _scopes_of(change):
                for watcher in scopes.get(scope, ()):
                    concerned.setdefault(watcher, []).append(change)
        for watcher, theirs in concerned.items():
            watcher.tell(theirs)


def _scopes_of(change: Change) -> tuple[tuple[str, str], ...]:
    namespace, name = change.namespace, change.name
    if namespace:
        return ("", ""), (namespace, ""), (namespace, name), ("", name)
    return ("", ""), ("", name)


class Feeds:
    """All feeds, made for their first watcher and kept while their version is served."""

    def __init__(self, current: Callable[[], int]) -> None:
        self._current = current
        self._feeds: dict[Version, Feed] = {}

    def feed(self, version: Version) -> Feed:
        found = self._feeds.get(version)
        if found is None:
            found = Feed(version, self._current)
            if version.retired:
                found.close()
            else:
                self._feeds[version] = found
        return found

    def drop(self, version: Version) -> None:
        """The version is no longer served: its watches end, including those that are just starting."""
        version.retired = True
        found = self._feeds.pop(version, None)
        if found is not None:
            found.close()

    def all(self) -> list[Feed]:
        return list(self._feeds.values())

    def close(self) -> None:
        for version in list(self._feeds):
            self.drop(version)
