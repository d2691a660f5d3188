"""Time that tests move by hand, and the deadlines that run on it."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.clock import (
    Entropy,
    Rng,
    SettledTime,
    VirtualClock,
    deadline,
    in_utc,
    parse_rfc3339,
    rfc3339,
    rfc3339_micro,
    time_of,
    yield_to_loop,
)


async def test_timers_fire_in_their_order_while_the_clock_moves() -> None:
    clock = VirtualClock()
    start, fired = clock.time(), []
    for seconds in (3, 1, 2, 1):
        clock.call_later(seconds, lambda seconds=seconds: fired.append((seconds, clock.time() - start)))
    await clock.advance(2)
    assert fired == [(1, 1.0), (1, 1.0), (2, 2.0)]
    assert clock.time() - start == 2
    assert clock.next_timer() == start + 3


async def test_a_cancelled_timer_does_not_fire() -> None:
    clock = VirtualClock()
    fired: list[int] = []
    clock.call_later(1, lambda: fired.append(1)).cancel()
    await clock.advance(2)
    assert fired == []
    assert clock.next_timer() is None


async def test_who_sleeps_again_wakes_again_within_one_advance() -> None:
    clock = VirtualClock()
    woken: list[float] = []

    async def sleeper() -> None:
        for _ in range(3):
            await clock.sleep(10)
            woken.append(clock.time())

    task = asyncio.create_task(sleeper())
    start = clock.time()
    await clock.advance(25)
    assert woken == [start + 10, start + 20]
    await clock.advance(5)
    await task


async def test_a_cancelled_sleeper_leaves_no_timer() -> None:
    clock = VirtualClock()
    task = asyncio.create_task(clock.sleep(10))
    await yield_to_loop()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert clock.next_timer() is None


async def test_a_deadline_ends_what_takes_too_long_and_nothing_else() -> None:
    clock = VirtualClock()

    async def work(seconds: float) -> str:
        async with deadline(clock, 5):
            await clock.sleep(seconds)
        return "done"

    slow, quick = asyncio.create_task(work(6)), asyncio.create_task(work(4))
    await clock.advance(10)
    assert quick.result() == "done"
    with pytest.raises(TimeoutError):
        await slow


async def test_a_cancellation_inside_a_deadline_stays_a_cancellation() -> None:
    clock = VirtualClock()

    async def work() -> None:
        async with deadline(clock, 5):
            await clock.sleep(60)

    task = asyncio.create_task(work())
    await yield_to_loop()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@given(st.integers(0, 4_000_000_000))
def test_times_are_read_back(seconds: int) -> None:
    assert parse_rfc3339(rfc3339(seconds)) == seconds
    assert parse_rfc3339(rfc3339_micro(seconds + 0.5)) == seconds + 0.5


@pytest.mark.parametrize("text", ["", "2024-01-01", "2024-01-01T00:00:00", "2024-01-01 00:00:00Z", "yesterday at ten o'clock"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"not an RFC 3339 time|Invalid isoformat"):
        parse_rfc3339(text)


def test_chance_repeats_with_its_seed_and_entropy_only_in_simulation() -> None:
    assert Rng(7).name_suffix() == Rng(7).name_suffix()
    assert Entropy(7).uuid() == Entropy(7).uuid()
    assert Entropy().uuid() != Entropy().uuid()


def test_a_uuid_says_that_it_is_random() -> None:
    text = Entropy(1).uuid()
    assert len(text) == 36 and text[14] == "4" and text[19] in "89ab"


@pytest.mark.parametrize(
    "text", [None, "", "yesterday", "2024-01-01", "2024-01-01T00:00:00", 1704067200, ["2024-01-01T00:00:00Z"]]
)
def test_foreign_text_may_be_no_time(text: object) -> None:
    assert time_of(text) is None


def test_foreign_times_are_read_like_our_own() -> None:
    assert time_of("2024-01-01T00:00:00Z") == parse_rfc3339("2024-01-01T00:00:00Z")


class Settable(VirtualClock):
    """A time of day that somebody sets, beside a clock that goes on."""

    offset = 0.0

    def time(self) -> float:
        return super().time() + self.offset


async def test_a_clock_that_is_set_forward_is_believed_after_a_while() -> None:
    clock = Settable()
    settled = SettledTime(clock, settling=3600)
    await clock.advance(100)
    assert settled.time() == clock.time()
    clock.offset = 5 * 3600
    assert settled.time() == clock.monotonic() and settled.ahead == 5 * 3600
    for _ in range(59):
        await clock.advance(60)
        assert settled.time() == clock.monotonic()
    await clock.advance(60)
    assert settled.time() == clock.time() and settled.ahead == 0


async def test_a_clock_that_is_set_forward_and_back_has_done_nothing() -> None:
    clock = Settable()
    settled = SettledTime(clock, settling=3600)
    for _ in range(10):
        clock.offset = 5 * 3600
        assert settled.time() == clock.monotonic()
        await clock.advance(1800)
        clock.offset = 0.0
        assert settled.time() == clock.time()
        await clock.advance(1800)
    clock.offset = -5 * 3600
    assert settled.time() == clock.time()


async def test_a_clock_that_is_kept_right_is_believed_at_once() -> None:
    clock = Settable()
    settled = SettledTime(clock)
    for _ in range(100):
        clock.offset += 0.5
        await clock.advance(30)
        assert settled.time() == pytest.approx(clock.time())


@pytest.mark.parametrize(
    ("text", "micro", "written"),
    [
        ("0001-01-01T00:00:30Z", False, "0001-01-01T00:00:30Z"),
        ("0001-01-01T00:00:00.000001Z", True, "0001-01-01T00:00:00.000001Z"),
        ("0999-12-31T23:59:59.999999Z", True, "0999-12-31T23:59:59.999999Z"),
        ("0000-02-29T12:00:00Z", False, "0000-02-29T12:00:00Z"),
        ("0000-12-31T23:30:00-01:00", False, "0001-01-01T00:30:00Z"),
        ("9999-12-31T23:59:59.999999Z", True, "9999-12-31T23:59:59.999999Z"),
        ("1969-12-31T23:59:59.5Z", False, "1969-12-31T23:59:59Z"),
        ("2024-02-29T12:00:00.25+05:30", True, "2024-02-29T06:30:00.250000Z"),
    ],
)
def test_times_are_exact_in_every_year(text: str, micro: bool, written: str) -> None:
    assert in_utc(text, micro=micro) == written
    if not written.startswith("0000"):
        whole = f"{written[:19]}Z"
        assert rfc3339(parse_rfc3339(whole)) == whole


@pytest.mark.parametrize("text", ["0000-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", "2024-01-01T00:00:00", "soon"])
def test_times_that_no_year_has_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|year|Invalid"):
        in_utc(text, micro=True)
