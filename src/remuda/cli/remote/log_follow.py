"""Following a log that grows, and loses its oldest lines where it is too long: what is new in it is printed, until nobody writes.

A local Job's log is a ConfigMap that its runner writes every few seconds, a pod's is its own; both are read whole and compared.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from remuda.kube.clock import Clock
from remuda.kube.errors import ApiError

PAUSE_SECONDS = 1.0
Reading = Callable[[], Awaitable[str | None]]
Going = Callable[[], Awaitable[bool]]


async def follow(read: Reading, going: Going, write: Callable[[str], None], warn: Callable[[str], None], clock: Clock) -> bool:
    """Until nobody goes on writing; whether there was anything at all. A server that is away is asked again. Raises ApiError."""
    before, trouble, anything = "", False, False
    while True:
        try:
            # In this order: what is said last is there before it is said that it is the last.
            more = await going()
            text = await read()
            trouble = False
        except ApiError as error:
            if error.code < 500 and error.code != 429:
                raise
            if not trouble:
                warn(f"{error.message}; trying again")
            more, text, trouble = True, None, True
        if text is not None:
            anything = True
            if new := added(before, text):
                write(new)
            before = text
        if not more:
            return anything
        await clock.sleep(PAUSE_SECONDS)


def added(before: str, now: str) -> str:
    """What was written since: `now` begins with what is left of `before`, and that with one of its lines."""
    start = 0
    while start < len(before):
        if now.startswith(before[start:]):
            return now[len(before) - start :]
        start = before.find("\n", start) + 1 or len(before)
    return now
