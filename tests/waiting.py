"""How tests with real peers, processes and time wait: for progress.

What is waited for may take as long as a busy machine needs, as long as something changes. A wait fails when what it looks at has
stayed the same for a number of seconds, and says what that was. Unit tests wait for nothing (`tests/unit/test_tiers.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from remuda.kube.errors import ApiError

QUIET = 60.0
_PAUSE = 0.01
# The machine may stop for a while, all of it: what was waited for had no time then, either.
_LONGEST = 1.0


async def until(
    found: Callable[[], Any],
    what: str = "what is to come true",
    *,
    quiet: float = QUIET,
    seen: Callable[[], object] | None = None,
    pause: float = _PAUSE,
) -> Any:
    """What `found` gives as soon as it is true; an object that is not there yet is not true yet.

    `seen` shows how far it has come, where `found` only says whether it is there.
    """
    patience = Patience(what, quiet)
    while True:
        try:
            answer = found()
            if isinstance(answer, Awaitable):
                answer = await answer
        except ApiError as error:
            if not error.is_not_found:
                raise
            answer = None
        if answer:
            return answer
        patience.look(seen() if seen else answer)
        await asyncio.sleep(pause)


def wait_until(
    found: Callable[[], Any],
    what: str = "what is to come true",
    *,
    quiet: float = QUIET,
    seen: Callable[[], object] | None = None,
    pause: float = _PAUSE,
) -> Any:
    """The same where no event loop runs."""
    patience = Patience(what, quiet)
    while not (answer := found()):
        patience.look(seen() if seen else answer)
        time.sleep(pause)
    return answer


class Patience:
    """Ends when all that is looked at has been the same for `quiet` seconds."""

    def __init__(self, what: str, quiet: float = QUIET, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._quiet = self._left = quiet
        self._clock = clock
        self._looked = clock()
        self._seen = ""

    def look(self, seen: object) -> None:
        now = self._clock()
        passed, self._looked = min(now - self._looked, _LONGEST), now
        if (text := repr(seen)) != self._seen:
            self._seen, self._left = text, self._quiet
            return
        self._left -= passed
        assert self._left > 0, f"waited in vain for {self._what}: nothing changed for {self._quiet:g} seconds; last seen: {text}"
