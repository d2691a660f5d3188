"""Plans for callers take turns: one at a time for a user, few in all; and how a slow answer is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from remuda.gateway.server.change_plans import Turns
from remuda.kube.clock import VirtualClock
from remuda.kube.errors import ApiError


class Crowd:
    """Users who plan until they are told to end."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.at_work: list[str] = []
        self.end = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, *users: str) -> None:
        self.tasks += [asyncio.create_task(self._plan(user)) for user in users]
        await VirtualClock().advance(1)

    async def _plan(self, user: str) -> None:
        async with self.turns.turn(user):
            self.at_work.append(user)
            await self.end.wait()


@asynccontextmanager
async def crowd() -> AsyncIterator[Crowd]:
    made = Crowd()
    try:
        yield made
    finally:
        for task in made.tasks:
            task.cancel()
        await asyncio.gather(*made.tasks, return_exceptions=True)


def refused(task: asyncio.Task[None]) -> bool:
    error = task.exception() if task.done() else None
    return isinstance(error, ApiError) and error.code == 429


async def test_a_user_has_one_plan_at_a_time_and_two_that_wait() -> None:
    async with crowd() as found:
        await found.come("ann", "ann", "ann", "ann")
        assert found.at_work == ["ann"]
        assert [refused(task) for task in found.tasks] == [False, False, False, True]
        await found.come("bob")
        assert found.at_work == ["ann", "bob"], "another user does not wait for the first"


async def test_all_users_have_two_plans_at_a_time_and_the_others_follow() -> None:
    async with crowd() as found:
        await found.come("ann", "bob", "eve", "dan")
        assert found.at_work == ["ann", "bob"]
        found.end.set()
        await asyncio.gather(*found.tasks)
        assert found.at_work == ["ann", "bob", "eve", "dan"]


async def test_a_caller_who_goes_leaves_no_place_taken() -> None:
    async with crowd() as found:
        await found.come("ann", "ann", "ann")
        for task in found.tasks:
            task.cancel()
        await asyncio.gather(*found.tasks, return_exceptions=True)
        await found.come("ann")
        assert found.at_work == ["ann", "ann"] and not found.tasks[-1].done()
