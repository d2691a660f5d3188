"""The queue's promises under any order of events: one key in flight, nothing lost, turns for all; and its numbers."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.kube.clock import Rng, VirtualClock
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import Result, Workers, WorkQueue
from remuda.runtime.metrics import QueueMetrics, ReconcileMetrics, Registry
from remuda.runtime.work_queue import FRESH, LOW

Key = tuple[str, int]


def lane_of(key: Key) -> str:
    return key[0]


KEYS = st.tuples(st.sampled_from("abc"), st.integers(0, 3))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), KEYS, st.sampled_from([FRESH, LOW])),
        st.tuples(st.just("after"), KEYS, st.floats(0.1, 5.0)),
        st.tuples(st.just("fail"), KEYS, st.just(0)),
        st.tuples(st.just("pass"), st.just(("a", 0)), st.floats(0.1, 3.0)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(1, 4), st.integers(0, 2**16))
def test_no_key_is_in_two_hands_and_none_is_lost(steps: list[tuple[str, Key, float]], workers: int, seed: int) -> None:
    asyncio.run(_hands(steps, workers, seed))


async def _hands(steps: list[tuple[str, Key, float]], workers: int, seed: int) -> None:
    clock, rng = VirtualClock(), Rng(seed)
    queue: WorkQueue[Key] = WorkQueue(clock, rng, backoff=0.1, cap=2.0, lane=lane_of)
    inside: set[Key] = set()
    # The wish that a reconcile which begins from now on has to see.
    wished: dict[Key, int] = defaultdict(int)
    seen: dict[Key, int] = defaultdict(int)
    failing: dict[Key, int] = defaultdict(int)

    async def reconcile(key: Key) -> None:
        assert key not in inside
        inside.add(key)
        seen[key] = wished[key]
        await clock.sleep(rng.uniform(0.0, 0.5))
        inside.discard(key)
        if failing[key]:
            failing[key] -= 1
            raise RuntimeError("on purpose")

    running = asyncio.create_task(Workers("test", queue, reconcile, workers).run())
    for what, key, value in steps:
        if what == "pass":
            await clock.advance(value)
            continue
        wished[key] += 1
        if what == "fail":
            failing[key] += 1
        if what == "after":
            queue.add_after(key, value)
        else:
            queue.add(key, int(value) if what == "add" else FRESH)
    await clock.advance(200)
    assert queue.idle
    assert dict(seen) == {key: count for key, count in wished.items() if count}
    assert not any(failing.values())
    queue.close()
    await running


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 30), min_size=1))
def test_every_lane_gets_its_turn(load: dict[str, int]) -> None:
    asyncio.run(_turns(load))


async def _turns(load: dict[str, int]) -> None:
    queue: WorkQueue[Key] = WorkQueue(VirtualClock(), Rng(1), lane=lane_of)
    for lane, count in load.items():
        for number in range(count):
            queue.add((lane, number))
    left = dict(load)
    since = dict.fromkeys(load, 0)
    while len(queue):
        waiting = {lane for lane, count in left.items() if count}
        lane, _ = await queue.get()
        left[lane] -= 1
        for other in waiting - {lane}:
            since[other] += 1
            assert since[other] < len(load), f"{other} waits for more than one turn of each other lane"
        since[lane] = 0
    assert not any(left.values())


async def test_what_changed_goes_before_what_was_there_but_not_for_ever() -> None:
    queue: WorkQueue[str] = WorkQueue(VirtualClock(), Rng(1))
    for number in range(40):
        queue.add(f"old{number}", LOW)
    for number in range(40):
        queue.add(f"new{number}")
    first = [await queue.get() for _ in range(40)]
    old = [key for key in first if key.startswith("old")]
    assert old == ["old0", "old1"]


async def test_a_change_raises_the_priority_of_a_key_that_waits() -> None:
    queue: WorkQueue[str] = WorkQueue(VirtualClock(), Rng(1))
    queue.add("a", LOW)
    queue.add("b", LOW)
    queue.add("b")
    assert len(queue) == 2
    assert [await queue.get(), await queue.get()] == ["b", "a"]


async def test_numbers_have_the_names_that_dashboards_know() -> None:
    clock, registry = VirtualClock(), Registry()
    queue: WorkQueue[str] = WorkQueue(clock, Rng(1), metrics=QueueMetrics(registry, "widget"))
    fails = True

    async def reconcile(key: str) -> Result:
        nonlocal fails
        await clock.sleep(2)
        if fails:
            fails = False
            raise RuntimeError("on purpose")
        return Result(after=100)

    workers = Workers("widget", queue, reconcile, 3, clock=clock, metrics=ReconcileMetrics(registry, "widget"))
    queue.add("a")
    queue.add("b", LOW)
    text = registry.text()
    assert 'workqueue_depth{name="widget",controller="widget",priority="0"} 1' in text
    assert 'workqueue_depth{name="widget",controller="widget",priority="-100"} 1' in text
    running = asyncio.create_task(workers.run())
    await clock.advance(1)
    text = registry.text()
    assert 'workqueue_unfinished_work_seconds{name="widget",controller="widget"} 2' in text
    assert 'workqueue_longest_running_processor_seconds{name="widget",controller="widget"} 1' in text
    assert 'controller_runtime_active_workers{controller="widget"} 2' in text
    assert 'controller_runtime_max_concurrent_reconciles{controller="widget"} 3' in text
    await clock.advance(10)
    text = registry.text()
    for line in (
        'workqueue_adds_total{name="widget",controller="widget"} 3',
        'workqueue_retries_total{name="widget",controller="widget"} 3',
        'workqueue_queue_duration_seconds_count{name="widget",controller="widget"} 3',
        'workqueue_work_duration_seconds_count{name="widget",controller="widget"} 3',
        'workqueue_depth{name="widget",controller="widget",priority="0"} 0',
        'controller_runtime_reconcile_total{controller="widget",result="requeue_after"} 2',
        'controller_runtime_reconcile_total{controller="widget",result="error"} 1',
        'controller_runtime_reconcile_errors_total{controller="widget"} 1',
        'controller_runtime_reconcile_panics_total{controller="widget"} 1',
        'controller_runtime_reconcile_time_seconds_bucket{controller="widget",le="2"} 3',
    ):
        assert line in text.splitlines(), text
    queue.close()
    await running
    assert "workqueue_depth{" not in registry.text()


async def test_a_reconcile_that_hangs_is_cut_and_tried_again() -> None:
    clock, registry = VirtualClock(), Registry()
    queue: WorkQueue[str] = WorkQueue(clock, Rng(1))
    times: list[float] = []

    async def reconcile(key: str) -> None:
        times.append(clock.monotonic())
        if len(times) == 1:
            await clock.sleep(10_000)

    metrics = ReconcileMetrics(registry, "widget")
    running = asyncio.create_task(Workers("widget", queue, reconcile, clock=clock, timeout=60, metrics=metrics).run())
    queue.add("a")
    await clock.advance(61)
    assert len(times) == 2 and 60 <= times[1] - times[0] < 61
    assert 'controller_runtime_reconcile_timeouts_total{controller="widget"} 1' in registry.text()
    queue.close()
    await running


async def test_whatever_waits_is_looked_at_again_without_an_event() -> None:
    clock = VirtualClock()
    queue: WorkQueue[str] = WorkQueue(clock, Rng(1))
    wait = Wait(Code.FINALIZERS, Ref("", "ConfigMap", "default", "a"), Actor.USER)
    seen = 0

    async def reconcile(key: str) -> Result:
        nonlocal seen
        seen += 1
        return Result(waits=(wait,)) if seen < 3 else Result()

    running = asyncio.create_task(Workers("widget", queue, reconcile, clock=clock, rng=Rng(2), wait_seconds=100).run())
    queue.add("a")
    await clock.advance(89)
    assert seen == 1
    await clock.advance(1000)
    assert seen == 3
    queue.close()
    await running
