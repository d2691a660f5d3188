"""One count of drains: what the planner and deletions tell each other."""

from __future__ import annotations

from remuda.capi.drain_count import DrainCount
from remuda.kube.clock import VirtualClock
from remuda.kube.objects import Key

DEMO, OTHER = Key("fleet-default", "demo"), Key("fleet-default", "other")


async def test_a_deletion_is_told_until_the_caches_show_it() -> None:
    clock = VirtualClock(1000.0)
    count = DrainCount(clock)
    count.delete(DEMO, "a")
    assert (count.deleted(DEMO), count.deleted(OTHER)) == ({"a"}, set())
    await clock.advance(61)
    assert count.deleted(DEMO) == set()


def test_a_refused_deletion_does_not_count() -> None:
    count = DrainCount(VirtualClock(1000.0))
    count.delete(DEMO, "a")
    count.keep(DEMO, "a")
    count.keep(OTHER, "b")
    assert count.deleted(DEMO) == set()


def test_without_a_planner_nothing_is_drained_by_one() -> None:
    assert DrainCount(VirtualClock(1000.0)).by_planner(DEMO) == set()


def test_a_planner_that_has_not_looked_yet_is_waited_for() -> None:
    count = DrainCount(VirtualClock(1000.0))
    count.has_planner()
    assert count.by_planner(DEMO) is None
    count.planned(DEMO, ("a", "b"))
    assert (count.by_planner(DEMO), count.by_planner(OTHER)) == ({"a", "b"}, None)
    count.planned(DEMO, ())
    assert count.by_planner(DEMO) == set()
    count.forget(DEMO)
    assert count.by_planner(DEMO) is None
