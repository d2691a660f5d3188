"""How long those rest who only add up what others did, so that all of them together take no more than their share.

With a few at work each is looked at soon. With a thousand of them at once (after a start, or when many clusters are made) every
change of every machine is news for somebody's sums, and writing all of these would cost more than the machines themselves. Each
rests the longer, then, the more there are, and finds more news at its next look.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from remuda.kube.clock import Clock


class Pace:
    """`rate`: how many looks a second are all right, for all keys together."""

    def __init__(self, clock: Clock, rate: float, window: float = 10.0) -> None:
        self._clock = clock
        self._rate = rate
        self._window = window
        # Who was looked at within the window, the one for whom that is longest ago first.
        self._seen: OrderedDict[Hashable, float] = OrderedDict()

    def rest(self, key: Hashable, least: float, most: float) -> float:
        """How long to leave the key alone, which has just been looked at."""
        now = self._clock.monotonic()
        self._seen[key] = now
        self._seen.move_to_end(key)
        while now - next(iter(self._seen.values())) > self._window:
            self._seen.popitem(last=False)
        return max(least, min(most, len(self._seen) / self._rate))
