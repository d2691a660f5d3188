"""The one watch over the whole keyspace, from any answering member.

All keys, not only ours: every revision then shows up here, so that a caller with a revision (from a write, or from
:meth:`~remuda.apiserver.storage.etcd.engine.EtcdStore.current`) can wait until the feed has reached it. No progress
requests are needed in between.

A member that is paused or cut off from the others keeps its stream open and stays silent. So callers tell the feed each
known revision (:meth:`Feed.expect`), and a feed that does not get there soon goes to another member.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from remuda.kube.clock import Clock, deadline

from ..store import Compacted, Event, StoreError
from .grpc import Failed
from .keyspace import COMPACTION_KEY, Keyspace
from .members import Member, Members, Stream
from .rpc import WATCH, WatchResult, WireEvent, number

log = logging.getLogger(__name__)

# The time within which a known revision must arrive.
PATIENCE = 1.0
# The time for which a member may be silent in a replay of existing events.
REPLAY_PATIENCE = 2.5
# The interval of checks when no events come.
QUIET = 3.0
_PAUSE = 0.1

Deliver = Callable[[list[Event], int], None]


class Feed:
    """Calls `deliver` with each message's events and the revision that it reaches; `lost` when its start is compacted."""

    def __init__(
        self,
        members: Members,
        keyspace: Keyspace,
        clock: Clock,
        deliver: Deliver,
        lost: Callable[[Compacted], Awaitable[int]],
        compacted: Callable[[int], None],
    ) -> None:
        self._members = members
        self._keyspace = keyspace
        self._clock = clock
        self._deliver = deliver
        self._lost = lost
        self._compacted = compacted
        self.position = 0
        self._expected = 0
        self._expected_since = 0.0
        self._heard = 0.0
        # The error of the last stream, until one delivers again.
        self._said = ""
        self._task: asyncio.Task[None] | None = None
        self._stream: asyncio.Task[None] | None = None
        self._member: Member | None = None

    def start(self, after: int) -> None:
        self.position = after
        self._heard = self._clock.monotonic()
        self._task = asyncio.create_task(self._run(), name="etcd-feed")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # --- liveness -------------------------------------------------------------------------------------------------------

    def expect(self, revision: int) -> None:
        """This revision exists: it should arrive."""
        if revision > self.position and revision > self._expected:
            if self._expected <= self.position:
                self._expected_since = self._clock.monotonic()
            self._expected = revision

    @property
    def is_quiet(self) -> bool:
        return self._clock.monotonic() - self._heard > QUIET

    def was_asked(self) -> None:
        """The current revision was just read, and would have been expected."""
        self._heard = self._clock.monotonic()

    def check(self) -> None:
        """Leave a member that withholds events."""
        late = self._expected > self.position and self._clock.monotonic() - self._expected_since > PATIENCE
        if not late or self._stream is None:
            return
        log.warning("the watch on etcd is behind (%d, not %d): trying another member", self.position, self._expected)
        self._expected_since = self._clock.monotonic()
        if self._member is not None:
            self._members.shun(self._member, "its watch is behind")
        self._stream.cancel()

    # --- following ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._stream = asyncio.create_task(self._follow())
            try:
                await asyncio.wait([self._stream])
            finally:
                self._stream.cancel()
            if self._stream.cancelled():
                continue
            error = self._stream.exception()
            if isinstance(error, Compacted):
                self.position = await self._recover(error)
                continue
            if isinstance(error, Failed | StoreError):
                # An etcd that is in trouble for minutes is logged once.
                log.log(logging.DEBUG if str(error) == self._said else logging.INFO, "the watch on etcd broke off: %s", error)
                self._said = str(error)
            else:
                log.error("the watch on etcd broke off", exc_info=error)
            await self._clock.sleep(_PAUSE)

    async def _recover(self, error: Compacted) -> int:
        while True:
            try:
                return await self._lost(error)
            except StoreError as again:
                log.warning("%s", again)
                await self._clock.sleep(_PAUSE * 10)

    async def _follow(self) -> None:
        request = self._keyspace.watch_everything(self.position + 1)
        async with self._members.stream(WATCH, request) as watch:
            self._member = watch.member
            while True:
                for result in await watch.next():
                    self._take(_checked(result, self.position))
                self._heard = self._clock.monotonic()

    def _take(self, result: WatchResult) -> None:
        if result.events:
            self._said = ""
        if not result.events:
            # Progress: nothing else has happened up to there. The created message does not mean progress.
            if not result.created and result.header.revision > self.position:
                self.position = result.header.revision
                self._deliver([], self.position)
            return
        found: list[Event] = []
        for wire in result.events:
            # A restarted stream may repeat events.
            if wire.kv.mod_revision <= self.position:
                continue
            if wire.kv.key == COMPACTION_KEY:
                self._compacted(number(wire.kv.value))
            event = self._keyspace.event(wire)
            if event is not None:
                found.append(event)
        reached = result.events[-1].kv.mod_revision
        if reached > self.position:
            self.position = reached
            self._deliver(found, reached)


def _checked(result: WatchResult, position: int) -> WatchResult:
    if result.canceled:
        if result.compact_revision:
            raise Compacted(position, result.compact_revision)
        raise Failed(result.cancel_reason or "it ended the watch", sent=True)
    return result


async def replay(watch: Stream[WatchResult], clock: Clock, after: int, upto: int, most: int) -> tuple[list[WireEvent], int]:
    """The events of a watch from the past in (after, upto], in whole revisions, about `most` at once; and their end."""
    found: list[WireEvent] = []
    reached = after
    while reached < upto and len(found) < most:
        try:
            async with deadline(clock, REPLAY_PATIENCE):
                results = await watch.next()
        except TimeoutError:
            raise Failed("it keeps the past to itself", sent=True) from None
        for result in results:
            _checked(result, after)
            if result.events:
                found += [wire for wire in result.events if after < wire.kv.mod_revision <= upto]
                reached = max(reached, result.events[-1].kv.mod_revision)
            elif not result.created:
                reached = max(reached, result.header.revision)
    return found, min(reached, upto)
