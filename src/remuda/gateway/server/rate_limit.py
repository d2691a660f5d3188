"""How often somebody may do something: a bucket of tries for each, which fills up again with time."""

from __future__ import annotations

from collections import OrderedDict

from remuda.kube.clock import Clock


class Buckets:
    """`burst` at once, then `per_second`. A bucket that nobody used for long is full, and need not be kept."""

    def __init__(self, clock: Clock, burst: int, per_second: float, size: int = 10_000) -> None:
        self._clock = clock
        self._burst = float(burst)
        self._per_second = per_second
        self._size = size
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def has(self, key: str) -> bool:
        """Whether there is a try left, without using one."""
        left, since = self._buckets.get(key, (self._burst, self._clock.monotonic()))
        return left + (self._clock.monotonic() - since) * self._per_second >= 1.0

    def take(self, key: str) -> bool:
        """Use one try up; False when there is none left."""
        now = self._clock.monotonic()
        left, since = self._buckets.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        allowed = left >= 1.0
        self._buckets[key] = (left - 1.0 if allowed else left, now)
        if len(self._buckets) > self._size:
            self._buckets.popitem(last=False)
        return allowed
