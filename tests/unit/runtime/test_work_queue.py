"""The work queue: once in it, once in hand, later when it failed."""

from __future__ import annotations

import asyncio

import pytest

from remuda.kube.clock import Rng, VirtualClock
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import QueueClosed, Result, Retry, Workers, WorkQueue
from remuda.runtime.work_queue import LOW


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def queue(clock: VirtualClock) -> WorkQueue[str]:
    return WorkQueue(clock, Rng(1), backoff=1.0, cap=10.0)


async def test_a_key_waits_once_and_is_in_one_hand(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert queue.idle


async def test_of_two_delays_the_earlier_counts(queue: WorkQueue[str], clock: VirtualClock) -> None:
    queue.add_after("a", 5)
    queue.add_after("a", 2)
    queue.add_after("a", 9)
    await clock.advance(1.9)
    assert len(queue) == 0
    await clock.advance(0.2)
    assert len(queue) == 1
    assert await queue.get() == "a"
    queue.done("a")
    await clock.advance(20)
    assert len(queue) == 0


async def test_a_look_is_called_off_when_there_is_nothing_to_look_for(queue: WorkQueue[str], clock: VirtualClock) -> None:
    queue.look_after("a", 5)
    queue.look_after("b", 5)
    queue.unlook("a")
    await clock.advance(6)
    assert [await queue.get() for _ in range(len(queue))] == ["b"]


async def test_calling_off_a_look_takes_no_other_wish_away(queue: WorkQueue[str], clock: VirtualClock) -> None:
    queue.look_after("earlier", 5)
    queue.add_after("earlier", 2)
    queue.look_after("later", 5)
    queue.add_after("later", 9)
    queue.add_after("before", 9)
    queue.look_after("before", 5)
    for key in ("earlier", "later", "before"):
        queue.unlook(key)
    await clock.advance(10)
    assert sorted([await queue.get() for _ in range(len(queue))]) == ["before", "earlier", "later"]


async def test_what_waits_no_longer_is_not_looked_at_again(clock: VirtualClock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock, Rng(1))
    seen: list[float] = []

    async def reconcile(key: str) -> Result:
        seen.append(clock.monotonic())
        return Result(waits=(Wait(Code.DEPENDENTS, Ref("", "ConfigMap", "", key), Actor.USER),)) if len(seen) < 3 else Result()

    workers = asyncio.create_task(Workers("test", queue, reconcile, 1, clock=clock, wait_seconds=60).run())
    queue.add("a")
    await clock.advance(100)
    assert len(seen) == 2
    queue.add("a")
    await clock.advance(1000)
    assert len(seen) == 3
    queue.close()
    await workers


async def test_failures_wait_longer_each_time_up_to_a_cap(queue: WorkQueue[str]) -> None:
    delays = [queue.retry("a") for _ in range(8)]
    for delay, full in zip(delays, [1, 2, 4, 8, 10, 10, 10, 10], strict=True):
        assert full * 0.8 <= delay <= full
    queue.forget("a")
    assert queue.retry("a") <= 1


async def test_closing_wakes_all_waiters(queue: WorkQueue[str]) -> None:
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.close()
    for task in waiting:
        with pytest.raises(QueueClosed):
            await task


async def test_a_cancelled_waiter_loses_no_key(queue: WorkQueue[str]) -> None:
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await second == "a"


async def test_workers_retry_what_fails_and_comes_back_when_told(queue: WorkQueue[str], clock: VirtualClock) -> None:
    seen: list[str] = []

    async def reconcile(key: str) -> Result | None:
        seen.append(key)
        if key == "bad" and seen.count("bad") < 3:
            raise Retry("not yet")
        return Result(after=30) if key == "again" and seen.count("again") == 1 else None

    running = asyncio.create_task(Workers("test", queue, reconcile, concurrency=2).run())
    queue.add("bad")
    queue.add("again")
    await clock.advance(10)
    assert seen.count("bad") == 3
    assert seen.count("again") == 1
    assert queue.failures("bad") == 0
    await clock.advance(25)
    assert seen.count("again") == 2
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_one_key_is_never_reconciled_twice_at_once(queue: WorkQueue[str], clock: VirtualClock) -> None:
    inside = 0
    most = 0

    async def reconcile(key: str) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await clock.sleep(1)
        inside -= 1

    running = asyncio.create_task(Workers("test", queue, reconcile, concurrency=5).run())
    for _ in range(5):
        queue.add("a")
        await clock.advance(0.5)
    await clock.advance(10)
    assert most == 1
    queue.close()
    await running


async def test_a_key_whose_lane_changes_while_it_waits_is_still_found(clock: VirtualClock) -> None:
    lanes = {"a": "one"}
    queue: WorkQueue[str] = WorkQueue(clock, Rng(1), lane=lambda key: lanes.get(key, key))
    queue.add("a", LOW)
    lanes.clear()
    queue.add("a")
    assert await queue.get() == "a"
    assert queue.idle is False
    queue.done("a")
    assert queue.idle
