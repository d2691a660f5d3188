"""A work queue: each key at most once in it, at most once in hand, and later again when it failed.

Adding a key that waits does nothing; adding one that is being worked on makes it come again when it is done. So a burst of
events costs one reconcile, and two workers never hold the same key. Delays are on the injected clock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from remuda.kube.clock import Clock, Rng, Timer

K = TypeVar("K", bound=Hashable)


class QueueClosed(Exception):
    """There is nothing more to do."""


class WorkQueue(Generic[K]):
    def __init__(self, clock: Clock, rng: Rng, *, backoff: float = 0.005, cap: float = 300.0) -> None:
        """A key that fails waits `backoff` seconds, twice as long each time, never longer than `cap`; with jitter."""
        self._clock = clock
        self._rng = rng
        self._backoff = backoff
        self._cap = cap
        self._ready: deque[K] = deque()
        self._queued: set[K] = set()
        self._in_hand: set[K] = set()
        self._again: set[K] = set()
        self._delayed: dict[K, tuple[float, Timer]] = {}
        self._failures: dict[K, int] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def idle(self) -> bool:
        """Nothing waits to be worked on now and nobody works; keys that wait for their time don't count."""
        return not self._ready and not self._in_hand

    def add(self, key: K) -> None:
        if self._closed:
            return
        if key in self._in_hand:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.append(key)
            self._wake()

    def add_after(self, key: K, seconds: float) -> None:
        """Add the key when `seconds` have passed; of several such wishes the earliest counts."""
        if seconds <= 0:
            self.add(key)
            return
        if self._closed:
            return
        when = self._clock.monotonic() + seconds
        waiting = self._delayed.get(key)
        if waiting is not None:
            if waiting[0] <= when:
                return
            waiting[1].cancel()
        self._delayed[key] = (when, self._clock.call_later(seconds, lambda: self._due(key)))

    def retry(self, key: K) -> float:
        """Add the key after a delay that grows with its failures; the delay."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay: float = min(self._backoff * 2.0 ** min(count, 60), self._cap)
        # Up to a fifth less, so that what failed together does not come back together.
        delay *= 1.0 - self._rng.uniform(0.0, 0.2)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """The key's next failure is its first."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """The next key, which is in the caller's hands until `done`. Raises QueueClosed after `close`."""
        while not self._ready:
            if self._closed:
                raise QueueClosed
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    # It was woken and cancelled at once: somebody else must take what it was woken for.
                    self._wake()
                raise
        key = self._ready.popleft()
        self._queued.discard(key)
        self._in_hand.add(key)
        return key

    def done(self, key: K) -> None:
        self._in_hand.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def close(self) -> None:
        """No more keys are taken in or given out."""
        self._closed = True
        self._ready.clear()
        self._queued.clear()
        self._again.clear()
        for _, timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()
        while self._waiters:
            self._wake()

    def _due(self, key: K) -> None:
        self._delayed.pop(key, None)
        self.add(key)

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
