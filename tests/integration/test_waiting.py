"""How tests wait (:mod:`tests.waiting`)."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest

from remuda.kube.errors import ApiError, not_found
from tests.waiting import Patience, until, wait_until


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_what_is_found_is_given() -> None:
    answers = iter([None, "", 0, "there"])
    assert await until(lambda: next(answers)) == "there"
    lists = iter([[], [1]])
    assert wait_until(lambda: next(lists)) == [1]


async def test_what_is_awaited_and_not_there_yet_is_waited_for() -> None:
    asked: list[None] = []

    async def get() -> str:
        asked.append(None)
        if len(asked) < 3:
            raise not_found("", "widgets", "w")
        return "w"

    assert await until(get) == "w"


async def test_another_error_ends_it() -> None:
    def get() -> Awaitable[str]:
        raise ApiError(500, "InternalError", "broken")

    with pytest.raises(ApiError, match="broken"):
        await until(get)


async def test_without_any_change_it_ends_and_tells_what_it_saw() -> None:
    with pytest.raises(AssertionError, match=r"for the last horse: nothing changed for 0\.05 seconds; last seen: \['a'\]"):
        await until(lambda: False, "the last horse", quiet=0.05, seen=lambda: ["a"])
    with pytest.raises(AssertionError, match="last seen: 0"):
        wait_until(lambda: 0, quiet=0.05)


def test_each_change_gives_it_all_the_time_again() -> None:
    clock = Clock()
    patience = Patience("it", 10.0, clock)
    for number in range(100):
        clock.now += 0.9
        patience.look(number // 10)
    with pytest.raises(AssertionError):
        for _ in range(20):
            clock.now += 0.9
            patience.look(9)


def test_a_machine_that_stood_still_costs_a_second() -> None:
    clock = Clock()
    patience = Patience("it", 2.5, clock)
    patience.look(None)
    for _ in range(2):
        clock.now += 3600
        patience.look(None)
    clock.now += 3600
    with pytest.raises(AssertionError):
        patience.look(None)
