"""Time, randomness and entropy, injected.

Nothing else in Remuda reads the wall clock, sleeps, draws random numbers or makes secrets by itself: it uses one of the three
values here. In production they are the system's; in simulation a :class:`VirtualClock` jumps from timer to timer and a
seeded :class:`Rng` makes every run repeat exactly.

Secrets come from :class:`Entropy` (the operating system's CSPRNG) and never from :class:`Rng`, which is for jitter and
for names that need not be unguessable.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def time(self) -> float:
        """Seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds that never go backwards; only differences mean anything."""

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer: ...


class SystemClock:
    """The machine's own clock and the running event loop's timers."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


_LONGEST_SETTLING = 1_000_000


class _VirtualTimer:
    __slots__ = ("callback", "cancelled", "when")

    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self.when = when
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualClock:
    """A clock that moves only on request; timers fire in order while it moves."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._now = start
        self._timers: list[tuple[float, int, _VirtualTimer]] = []
        self._sequence = 0

    def time(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        timer = _VirtualTimer(self._now + max(seconds, 0.0), callback)
        self._sequence += 1
        heapq.heappush(self._timers, (timer.when, self._sequence, timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not done.done():
                done.set_result(None)

        timer = self.call_later(seconds, wake)
        try:
            await done
        finally:
            timer.cancel()

    def next_timer(self) -> float | None:
        """The time at which the earliest live timer fires, or None when nothing is waiting."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    async def advance(self, seconds: float) -> None:
        """Advance by `seconds`, firing timers on the way and letting the woken tasks run before the next one."""
        target = self._now + seconds
        await self._settle()
        while (when := self.next_timer()) is not None and when <= target:
            self._now = max(self._now, when)
            _, _, timer = heapq.heappop(self._timers)
            timer.callback()
            await self._settle()
        self._now = target

    @staticmethod
    async def _settle() -> None:
        """Let everything that is ready run; tasks that wait for a thread or a socket are not waited for."""
        ready = getattr(asyncio.get_running_loop(), "_ready", None)
        for done in range(_LONGEST_SETTLING):
            await asyncio.sleep(0)
            # uvloop does not show its queue.
            if not ready and (ready is not None or done >= 20):
                return
        raise RuntimeError("the event loop does not come to rest: something spins without waiting for time to pass")


SYSTEM_CLOCK: Clock = SystemClock()


class SettledTime:
    """The time of day, for code that deletes things by their age.

    A clock that jumps forward makes everything old at once, and may be wrong. So a jump forward is believed only after it has
    lasted `settling` seconds on the monotonic clock. A jump back is believed at once: things are then only kept for longer.
    Call it often: a jump is noticed only during a call.
    """

    # Synchronisation changes a clock by less, all the time.
    _SLACK = 60.0

    def __init__(self, clock: Clock, settling: float = 3600.0) -> None:
        self._clock = clock
        self._settling = settling
        # The offset between both clocks: the believed one, and a later one with its time.
        self._believed = clock.time() - clock.monotonic()
        self._claimed = self._believed
        self._since = 0.0

    def time(self) -> float:
        now = self._clock.monotonic()
        found = self._clock.time() - now
        if found - self._believed <= self._SLACK:
            self._believed = self._claimed = found
        elif abs(found - self._claimed) > self._SLACK:
            self._claimed, self._since = found, now
        elif now - self._since >= self._settling:
            self._believed = self._claimed = found
        return now + self._believed

    @property
    def ahead(self) -> float:
        """The seconds by which the clock jumped forward, as far as that is not believed yet."""
        return self._claimed - self._believed


async def yield_to_loop() -> None:
    """Let other ready tasks run first: for long work that must not delay the others."""
    await asyncio.sleep(0)


@asynccontextmanager
async def deadline(clock: Clock, seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError inside the block after `seconds` on the given clock."""
    task = asyncio.current_task()
    assert task is not None
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = True
        task.cancel()

    timer = clock.call_later(seconds, expire)
    try:
        yield
    except asyncio.CancelledError:
        if expired and task.uncancel() == 0:
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()


def rfc3339(seconds: float) -> str:
    """Kubernetes' metav1.Time: whole seconds, UTC."""
    return _rfc3339(math.floor(seconds))


@lru_cache(maxsize=64)
def _rfc3339(seconds: int) -> str:
    # Remembered, since a busy server writes the present second into every object, twice.
    return _written(datetime.fromtimestamp(seconds, UTC), "seconds")


def rfc3339_micro(seconds: float) -> str:
    """Kubernetes' metav1.MicroTime."""
    return _written(datetime.fromtimestamp(seconds, UTC), "microseconds")


def _written(when: datetime, digits: str) -> str:
    # Not strftime: it writes the year 1 with one digit.
    return when.replace(tzinfo=None).isoformat(timespec=digits) + "Z"


def parse_rfc3339(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 time; ValueError when it is invalid."""
    return _moment(text).timestamp()


def in_utc(text: str, *, micro: bool) -> str:
    """The time as metav1.Time or MicroTime writes it, exact in every year, unlike a float; ValueError when it is invalid."""
    # Python has no year 0; it is like 2000 in all but the number.
    zero = text.startswith("0000-")
    try:
        found = _written(_moment(f"2000{text[4:]}" if zero else text).astimezone(UTC), "microseconds" if micro else "seconds")
    except OverflowError:
        raise ValueError(f"outside of the years 0 to 9999: {text!r}") from None
    if zero and found.startswith("1999"):
        raise ValueError(f"outside of the years 0 to 9999: {text!r}")
    return f"000{found[3:]}" if zero else found


def _moment(text: str) -> datetime:
    if len(text) < 20 or text[10] not in "Tt":
        raise ValueError(f"not an RFC 3339 time: {text!r}")
    when = datetime.fromisoformat(text.replace("t", "T").replace("z", "Z"))
    if when.tzinfo is None:
        raise ValueError(f"not an RFC 3339 time: {text!r}")
    return when


def time_of(text: Any) -> float | None:
    """The same for text from outside: None when it is no valid time."""
    try:
        return parse_rfc3339(text) if isinstance(text, str) else None
    except ValueError:
        return None


class Rng:
    """Repeatable randomness: jitter, shuffles, generated name suffixes."""

    # Kubernetes leaves out vowels and look-alikes, so that no suffix spells a word.
    _SUFFIX = "bcdfghjklmnpqrstvwxz2456789"

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def name_suffix(self, length: int = 5) -> str:
        return "".join(self._random.choice(self._SUFFIX) for _ in range(length))

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


class Entropy:
    """Unguessable bytes. Seedable only so that a simulation repeats; a server never seeds it."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = None if seed is None else random.Random(seed)

    def token_bytes(self, count: int) -> bytes:
        return os.urandom(count) if self._random is None else self._random.randbytes(count)

    def uuid(self) -> str:
        """A random (version 4) UUID, as Kubernetes gives every object."""
        raw = bytearray(self.token_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = raw.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def token_text(self, length: int, alphabet: str = "bcdfghjklmnpqrstvwxz2456789") -> str:
        bound = 256 - 256 % len(alphabet)
        chosen: list[str] = []
        while len(chosen) < length:
            chosen.extend(alphabet[b % len(alphabet)] for b in self.token_bytes(length) if b < bound)
        return "".join(chosen[:length])
