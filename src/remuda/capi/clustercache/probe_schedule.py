"""When connections are probed: each once in an interval, a share of them at each beat.

One timer for all. A timer for each would wake the process as often as there are clusters, which at rest costs more than the
probes themselves; and clusters that were connected together would be probed together for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from remuda.kube.clock import Clock

_BEATS = 20


class Rhythm:
    def __init__(self, clock: Clock, interval: float) -> None:
        self._clock = clock
        self._pause = interval / _BEATS
        self._members: list[dict[object, Callable[[], None]]] = [{} for _ in range(_BEATS)]
        self._anybody = asyncio.Event()

    def join(self, call: Callable[[], None]) -> Callable[[], None]:
        """Have `call` called once in an interval, with as few others as can be; call the result to end that."""
        share = min(self._members, key=len)
        token = object()
        share[token] = call
        self._anybody.set()

        def leave() -> None:
            share.pop(token, None)

        return leave

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            if not any(self._members):
                self._anybody.clear()
            await self._anybody.wait()
            for share in self._members:
                await self._clock.sleep(self._pause)
                for call in list(share.values()):
                    call()
