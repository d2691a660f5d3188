"""Delivery of writes to watchers, for engines that have a log to read again.

A watcher is live or behind. A live one gets each batch when it becomes durable; one that does not fetch them, or that
began in the past, is behind and reads the log at its own pace until it has caught up. So a slow watcher costs no memory,
and the only way to lose one's place is to be slower than compaction.

Everything here runs on the event loop; `published` moves only in :meth:`Hub.publish`, which is what makes the step from
behind to live exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Self

from .store import Compacted, Event, FutureRevision


class Replay(NamedTuple):
    """A part of the log; `reached` is the revision up to which there is nothing else."""

    events: list[Event]
    reached: int


Read = Callable[[int, int, str], Awaitable[Replay]]


class Hub:
    def __init__(self, published: int, read: Read, floor: Callable[[], int], committed: Callable[[], int], backlog: int) -> None:
        self.published = published
        self.backlog = backlog
        self.closed = False
        self.error: Exception | None = None
        self.read = read
        self.floor = floor
        self.committed = committed
        self.watchers: set[Watcher] = set()

    def publish(self, events: list[Event], revision: int = 0) -> None:
        """Hand one durable batch to the live watchers. `revision`: its end, when that is not its last event."""
        self.published = revision or events[-1].revision
        for watcher in self.watchers:
            watcher.offer(events)

    async def changes(self, after: int, until: int, prefix: str) -> list[Event]:
        """The log in (after, until], up to its present end. Raises Compacted."""
        found: list[Event] = []
        reached, until = after, min(until, self.committed())
        while True:
            if after < self.floor():
                raise Compacted(after, self.floor())
            if reached >= until:
                return found
            part = await self.read(reached, until, prefix)
            found += part.events
            reached = part.reached

    def interrupt(self, published: int) -> None:
        """Events before `published` can't be delivered any more: all watchers become behind."""
        self.published = published
        for watcher in self.watchers:
            watcher.fall_behind()

    def fail(self, error: Exception) -> None:
        """End all watches with an error: no correct events can be delivered any more."""
        self.error = error
        self.close()

    def close(self) -> None:
        self.closed = True
        for watcher in self.watchers:
            watcher.wake()


class Watcher:
    def __init__(self, hub: Hub, after: int, prefix: str, marks: bool = False) -> None:
        self._hub = hub
        self._prefix = prefix
        self._marks = marks
        self._position = after  # everything up to here has been fetched, or is not for this watcher
        self._live = False
        self._pending: list[Event] = []
        self._waiter: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        self._check()
        if self._position > self._hub.committed():
            raise FutureRevision(self._position, self._hub.committed())
        self._live = self._position >= self._hub.published
        self._hub.watchers.add(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._hub.watchers.discard(self)

    def __aiter__(self) -> Self:
        return self

    def _check(self) -> None:
        if self._position < self._hub.floor():
            raise Compacted(self._position, self._hub.floor())

    def offer(self, events: list[Event]) -> None:
        if not self._live:
            return
        if events and events[0].revision <= self._position:
            # It began at a revision that was durable but not published yet.
            events = [event for event in events if event.revision > self._position]
        if self._prefix:
            events = [event for event in events if event.key.startswith(self._prefix)]
        if not events:
            if self._marks:
                self._mark()
            elif not self._pending:
                self._position = max(self._position, self._hub.published)
            return
        if self._pending and len(self._pending) + len(events) > self._hub.backlog:
            self._pending = []
            self._live = False
        else:
            self._pending.extend(events)
            if self._marks and events[-1].revision < self._hub.published:
                self._mark()
        self.wake()

    def _mark(self) -> None:
        if self._hub.published <= self._position:
            return
        if self._pending and not self._pending[-1].key:
            self._pending.pop()
        self._pending.append(mark(self._hub.published))
        self.wake()

    def fall_behind(self) -> None:
        self._pending = []
        self._live = False
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def __anext__(self) -> list[Event]:
        while True:
            if self._pending:
                batch, self._pending = self._pending, []
                self._position = self._hub.published
                return batch
            if self._hub.error is not None:
                raise self._hub.error
            if self._hub.closed:
                raise StopAsyncIteration
            if not self._live:
                if batch := await self._catch_up():
                    return batch
                continue
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def _catch_up(self) -> list[Event]:
        self._check()
        found = await self._hub.read(self._position, self._hub.published, self._prefix)
        # The rows may have been pruned during the read if the floor has passed this place meanwhile.
        self._check()
        self._position = found.reached
        self._live = self._position >= self._hub.published
        if self._marks and (not found.events or found.events[-1].revision < found.reached):
            return [*found.events, mark(found.reached)]
        return found.events


def mark(revision: int) -> Event:
    """No change: there is nothing for the watcher up to this revision."""
    return Event(revision, "", None, None)
