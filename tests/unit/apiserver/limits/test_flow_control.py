"""Gates: so many at once, so many waiting, fair between users. Turns: so many in each round of the loop."""

from __future__ import annotations

import asyncio

import pytest

from remuda.apiserver.limits.flow_control import Gate, Turns
from remuda.kube.clock import yield_to_loop
from remuda.kube.errors import ApiError


class Visitors:
    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.seated: list[str] = []
        self._leave: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, user: str, name: str) -> None:
        self._leave[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._visit(user, name))
        await yield_to_loop()

    async def _visit(self, user: str, name: str) -> None:
        async with self.gate.seat(user):
            self.seated.append(name)
            await self._leave[name].wait()

    async def leave(self, name: str) -> None:
        self._leave[name].set()
        await self._tasks[name]
        await yield_to_loop()

    async def give_up(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.gather(self._tasks[name], return_exceptions=True)
        await yield_to_loop()

    async def all_leave(self) -> None:
        for name in self._leave:
            self._leave[name].set()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def test_so_many_at_once() -> None:
    visitors = Visitors(Gate("g", seats=2, queue=10))
    for name in "abc":
        await visitors.come("u", name)
    assert visitors.seated == ["a", "b"]
    await visitors.leave("a")
    assert visitors.seated == ["a", "b", "c"]
    await visitors.all_leave()


async def test_one_user_s_flood_does_not_starve_another() -> None:
    visitors = Visitors(Gate("g", seats=1, queue=10))
    for name in ("f1", "f2", "f3", "f4"):
        await visitors.come("flood", name)
    await visitors.come("quiet", "q1")
    for name in ("f1", "f2", "q1", "f3"):
        await visitors.leave(name)
    assert visitors.seated == ["f1", "f2", "q1", "f3", "f4"]
    await visitors.all_leave()


async def test_who_comes_when_the_queue_is_full_is_told_to_try_again() -> None:
    gate = Gate("g", seats=1, queue=1)
    visitors = Visitors(gate)
    await visitors.come("u", "a")
    await visitors.come("u", "b")
    with pytest.raises(ApiError) as caught:
        async with gate.seat("u"):
            pass
    assert (caught.value.code, gate.rejected) == (429, 1)
    await visitors.all_leave()


async def test_who_stops_waiting_makes_room_in_the_queue_at_once() -> None:
    gate = Gate("g", seats=1, queue=1)
    visitors = Visitors(gate)
    await visitors.come("u", "a")
    await visitors.come("v", "b")
    await visitors.give_up("b")
    assert gate.waiting == 0
    await visitors.come("w", "c")
    await visitors.leave("a")
    assert visitors.seated == ["a", "c"]
    await visitors.all_leave()


async def test_a_seat_of_a_request_that_just_left_goes_to_the_next() -> None:
    gate = Gate("g", seats=1, queue=5)
    visitors = Visitors(gate)
    for name in "abc":
        await visitors.come("u", name)
    # Both before the loop runs again: the seat is given to b, and b is cancelled.
    visitors._leave["a"].set()
    await yield_to_loop()
    visitors._tasks["b"].cancel()
    for _ in range(5):
        await yield_to_loop()
    assert "c" in visitors.seated
    await visitors.all_leave()
    assert gate.waiting == 0
    async with gate.seat("u"):
        pass


async def test_so_many_have_their_turn_in_a_round_and_each_in_order() -> None:
    turns = Turns(2)
    taken: list[int] = []

    async def work(number: int) -> None:
        for _ in range(3):
            await turns.take()
            taken.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(5)]
    most = before = 0
    while len(taken) < 15 - 3:
        await yield_to_loop()
        most, before = max(most, len(taken) - before), len(taken)
        if len(taken) == 4:
            tasks[4].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert most <= 2, "the loop goes on in between"
    assert taken[:4] == [0, 1, 2, 3]
    assert sorted(taken) == sorted([*range(4)] * 3)
    # Nobody is left, and it begins anew.
    await turns.take()
