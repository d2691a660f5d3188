"""How long those rest who only add up."""

from __future__ import annotations

from remuda.capi.cluster.controller import PollRate
from remuda.kube.clock import VirtualClock


def test_a_few_rest_no_longer_than_they_must() -> None:
    pace = PollRate(VirtualClock(), rate=20)
    assert [pace.rest(key, 1.0, 10.0) for key in range(20)] == [1.0] * 20


def test_many_share_the_rate_up_to_the_longest_rest() -> None:
    pace = PollRate(VirtualClock(), rate=20)
    rests = [pace.rest(key, 0.1, 10.0) for key in range(500)]
    assert rests[99] == 5.0
    assert rests[-1] == 10.0


def test_one_that_comes_again_and_again_is_still_one() -> None:
    pace = PollRate(VirtualClock(), rate=20)
    assert {pace.rest("a", 0.1, 10.0) for _ in range(100)} == {0.1}


async def test_those_that_are_at_rest_do_not_count() -> None:
    clock = VirtualClock()
    pace = PollRate(clock, rate=20, window=10)
    for key in range(500):
        pace.rest(key, 0.1, 10.0)
    await clock.advance(11)
    assert pace.rest("a", 0.1, 10.0) == 0.1
