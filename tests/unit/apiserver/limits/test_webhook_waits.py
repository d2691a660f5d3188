"""Who waits for a webhook keeps no seat: others are let in meanwhile, and nobody is let in twice."""

from __future__ import annotations

import asyncio

import pytest

from remuda.apiserver.limits.flow_control import Gate, stepped_out


class Visit:
    """A request that takes a seat, waits for somebody else, and goes on."""

    def __init__(self, gate: Gate, calls: int = 1) -> None:
        self.gate, self.calls = gate, calls
        self.away, self.answered, self.back, self.done = (asyncio.Event() for _ in range(4))

    async def run(self) -> None:
        async with self.gate.seat("user"):
            async with asyncio.TaskGroup() as group:
                for _ in range(self.calls):
                    group.create_task(self._call())
            self.back.set()
            await self.done.wait()

    async def _call(self) -> None:
        async with stepped_out():
            self.away.set()
            await self.answered.wait()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("calls", [1, 3])
async def test_a_seat_is_free_while_its_holder_waits_for_others(calls: int) -> None:
    gate = Gate("writes", seats=1, queue=10)
    first = Visit(gate, calls)
    task = asyncio.create_task(first.run())
    await first.away.wait()
    async with gate.seat("other"):
        first.answered.set()
        await settle()
        # The seat is taken: it has to wait for it again.
        assert not first.back.is_set()
    await first.back.wait()
    late = asyncio.create_task(gate.enter("third"))
    await settle()
    assert not late.done()
    first.done.set()
    await asyncio.gather(task, late)
    gate.leave()
    assert gate.waiting == 0
    async with gate.seat("last"):
        pass


async def test_who_comes_back_is_not_turned_away_by_a_full_queue() -> None:
    gate = Gate("writes", seats=1, queue=1)
    first = Visit(gate)
    task = asyncio.create_task(first.run())
    await first.away.wait()
    await gate.enter("second")
    third = asyncio.create_task(gate.enter("third"))
    await settle()
    first.answered.set()
    await settle()
    assert gate.waiting == 2
    gate.leave()
    await third
    gate.leave()
    first.done.set()
    await task


async def test_a_wait_that_is_cut_short_loses_no_seat() -> None:
    gate = Gate("writes", seats=1, queue=10)
    for _ in range(5):
        first = Visit(gate)
        task = asyncio.create_task(first.run())
        await first.away.wait()
        await gate.enter("second")
        # Once while it waits for the other, once while it waits to come back.
        first.answered.set()
        await settle()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gate.leave()
    async with gate.seat("last"):
        assert gate.waiting == 0


async def test_outside_of_any_gate_there_is_nothing_to_leave() -> None:
    async with stepped_out():
        pass
