"""A work queue: each key at most once in it, at most once in hand, and again later after a failure.

Adding a waiting key does nothing (but may raise its priority); adding one that is being worked on queues it again when
it is done. So a burst of events costs one reconcile, and two workers never hold the same key. Delays are on the injected clock.

The order: higher priority first, and within one priority the lanes (a key's `lane` is usually its cluster) in
turn, so that a cluster with a thousand changes delays another one's single change by one key and not by a thousand. One key
in :data:`LOW_SHARE` is taken from the lowest waiting priority: a resync may be slow, but it must end.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from remuda.kube.clock import Clock, Rng, Timer

from .metrics import QueueMetrics

K = TypeVar("K", bound=Hashable)

# controller-runtime's numbers: new changes go before the objects of the initial list and periodic looks.
FRESH, LOW = 0, -100
LOW_SHARE = 16


class QueueClosed(Exception):
    """The queue is closed and has no more keys."""


def _one_lane(_: object) -> Hashable:
    return None


class WorkQueue(Generic[K]):
    def __init__(
        self,
        clock: Clock,
        rng: Rng,
        *,
        backoff: float = 0.005,
        cap: float = 300.0,
        lane: Callable[[K], Hashable] = _one_lane,
        metrics: QueueMetrics | None = None,
    ) -> None:
        """A failed key waits `backoff` seconds, twice as long each time, never longer than `cap`; with jitter."""
        self._clock = clock
        self._rng = rng
        self._backoff = backoff
        self._cap = cap
        self._lane = lane
        self._ready: dict[int, _Lanes[K]] = {}
        # The waiting keys: priority, time of queueing, and lane: a deleted object's lane may have changed by then.
        self._queued: dict[K, tuple[int, float, Hashable]] = {}
        self._in_hand: dict[K, float] = {}
        self._again: dict[K, int] = {}
        self._delayed: dict[K, tuple[float, int, Timer]] = {}
        self._failures: dict[K, int] = {}
        # The delayed keys that only `look_after` asked for.
        self._looks: set[K] = set()
        # The time until which a key is left alone.
        self._resting: dict[K, float] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._given = 0
        self._closed = False
        self._metrics = metrics
        self._forget_metrics = metrics.follow(self._depths, self._ages) if metrics is not None else None

    def __len__(self) -> int:
        return len(self._queued)

    @property
    def idle(self) -> bool:
        """True if no key is ready and no worker is busy; delayed keys don't count."""
        return not self._queued and not self._in_hand

    @property
    def in_hand(self) -> int:
        return len(self._in_hand)

    def add(self, key: K, priority: int = FRESH) -> None:
        if self._closed:
            return
        if self._resting and (left := self._rest_left(key)) > 0:
            self.add_after(key, left, priority)
            return
        if key in self._in_hand:
            self._again[key] = max(priority, self._again.get(key, priority))
            return
        waiting = self._queued.get(key)
        if waiting is not None:
            if waiting[0] < priority:
                self._ready[waiting[0]].remove(key, waiting[2])
                self._enqueue(key, priority, waiting[1], waiting[2])
            return
        if self._metrics is not None:
            self._metrics.added()
        self._enqueue(key, priority, self._clock.monotonic(), self._lane(key))
        self._wake()

    def _enqueue(self, key: K, priority: int, since: float, lane: Hashable) -> None:
        self._queued[key] = (priority, since, lane)
        lanes = self._ready.get(priority)
        if lanes is None:
            lanes = self._ready[priority] = _Lanes()
        lanes.put(key, lane)

    def add_after(self, key: K, seconds: float, priority: int = FRESH) -> None:
        """Add the key after `seconds`; of several such calls the earliest time counts."""
        if seconds <= 0:
            self.add(key, priority)
            return
        if self._closed:
            return
        if self._metrics is not None:
            self._metrics.delayed()
        when = self._clock.monotonic() + seconds
        waiting = self._delayed.get(key)
        if waiting is not None:
            # From now on it is not only a look.
            self._looks.discard(key)
            if waiting[0] <= when:
                return
            waiting[2].cancel()
        self._delayed[key] = (when, priority, self._clock.call_later(seconds, lambda: self._due(key)))

    def look_after(self, key: K, seconds: float) -> None:
        """Add the key after `seconds`, at low priority; :meth:`unlook` cancels that unless another call asked for the key."""
        alone = key not in self._delayed
        self.add_after(key, seconds, LOW)
        if alone and key in self._delayed:
            self._looks.add(key)

    def unlook(self, key: K) -> None:
        """Cancels `look_after` for this key. Other requests for it stay."""
        if key in self._looks:
            self._looks.discard(key)
            self._delayed.pop(key)[2].cancel()

    def rest(self, key: K, seconds: float) -> None:
        """Leave the key alone for so long: requests meanwhile are served once, afterwards."""
        self._resting[key] = self._clock.monotonic() + seconds

    def _rest_left(self, key: K) -> float:
        until = self._resting.get(key)
        if until is None:
            return 0.0
        left = until - self._clock.monotonic()
        if left <= 0:
            del self._resting[key]
        return left

    def retry(self, key: K) -> float:
        """Add the key after a delay that grows with its failures; returns the delay."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay: float = min(self._backoff * 2.0 ** min(count, 60), self._cap)
        # Up to a fifth less, so that keys that failed together don't return together.
        delay *= 1.0 - self._rng.uniform(0.0, 0.2)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Resets the key's count of failures."""
        self._failures.pop(key, None)

    def drop(self, key: K) -> None:
        """Drops all state of a key that is gone for good."""
        self._failures.pop(key, None)
        self._resting.pop(key, None)

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """The next key, which the caller holds until `done`. Raises QueueClosed after `close`."""
        while not self._queued:
            if self._closed:
                raise QueueClosed
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    # It was woken and cancelled at once: another worker must take the key it was woken for.
                    self._wake()
                raise
        return self._take()

    def _take(self) -> K:
        self._given += 1
        waiting = [priority for priority, lanes in self._ready.items() if lanes]
        priority = min(waiting) if self._given % LOW_SHARE == 0 else max(waiting)
        key = self._ready[priority].take()
        _, since, _ = self._queued.pop(key)
        now = self._clock.monotonic()
        self._in_hand[key] = now
        if self._metrics is not None:
            self._metrics.taken(now - since)
        return key

    def done(self, key: K) -> None:
        began = self._in_hand.pop(key, None)
        if began is not None and self._metrics is not None:
            self._metrics.finished(self._clock.monotonic() - began)
        again = self._again.pop(key, None)
        if again is not None:
            self.add(key, again)

    def close(self) -> None:
        """No more keys are accepted or handed out."""
        self._closed = True
        self._ready.clear()
        self._queued.clear()
        self._again.clear()
        for _, _, timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()
        self._looks.clear()
        if self._forget_metrics is not None:
            self._forget_metrics()
            self._forget_metrics = None
        while self._waiters:
            self._wake()

    def _due(self, key: K) -> None:
        _, priority, _ = self._delayed.pop(key)
        self._looks.discard(key)
        self.add(key, priority)

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _depths(self) -> Iterable[tuple[int, int]]:
        counts = dict.fromkeys((FRESH, *self._ready), 0)
        for priority, _, _ in self._queued.values():
            counts[priority] += 1
        return counts.items()

    def _ages(self) -> list[float]:
        now = self._clock.monotonic()
        return [now - began for began in self._in_hand.values()]


class _Lanes(Generic[K]):
    """The waiting keys of one priority: a queue per lane, and the lanes take turns."""

    def __init__(self) -> None:
        # Dicts as ordered sets: a key may also leave from the middle of its queue.
        self._lines: OrderedDict[Hashable, OrderedDict[K, None]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._lines)

    def put(self, key: K, lane: Hashable) -> None:
        line = self._lines.get(lane)
        if line is None:
            line = self._lines[lane] = OrderedDict()
        line[key] = None

    def take(self) -> K:
        lane, line = next(iter(self._lines.items()))
        key, _ = line.popitem(last=False)
        if line:
            self._lines.move_to_end(lane)
        else:
            del self._lines[lane]
        return key

    def remove(self, key: K, lane: Hashable) -> None:
        line = self._lines[lane]
        del line[key]
        if not line:
            del self._lines[lane]
