"""Connections that are kept: never a stale one, never too many, never one of a cluster that has moved."""

from __future__ import annotations

import asyncio

import pytest

from remuda.gateway.proxy.connection_pool import CONNECT_SECONDS, IDLE_SECONDS, Pool, PooledConnection
from remuda.kube.clock import VirtualClock
from remuda.kube.errors import ApiError


class Quiet:
    """A stream on which nothing happens unless it is told to be stale."""

    def __init__(self) -> None:
        self.closed = False
        self.stale = False

    async def read(self, most: int = 0) -> bytes:
        return b""

    async def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def close(self) -> None:
        self.closed = True


class Made:
    def __init__(self) -> None:
        self.streams: list[Quiet] = []
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self) -> PooledConnection:
        await self.go.wait()
        stream = Quiet()
        self.streams.append(stream)
        return PooledConnection(stream, lambda: stream.stale)


async def test_the_newest_that_is_idle_is_used_again_and_a_stale_one_is_not() -> None:
    made = Made()
    pool = Pool(made, VirtualClock())
    first, second = await pool.take(), await pool.take()
    pool.give_back(first)
    pool.give_back(second)
    assert await pool.take() is second and second.reused
    made.streams[0].stale = True
    third = await pool.take()
    assert third is not first and not third.reused and made.streams[0].closed
    pool.give_back(third)
    assert await pool.take(fresh=True) is not third


async def test_no_more_than_are_allowed_at_once_and_few_are_kept() -> None:
    made = Made()
    pool = Pool(made, VirtualClock(), most=3, most_idle=2)
    lines = [await pool.take() for _ in range(3)]
    with pytest.raises(ApiError) as refusal:
        await pool.take()
    assert refusal.value.code == 503 and refusal.value.retry_after
    for line in lines:
        pool.give_back(line)
    assert pool.idle == 2 and sum(stream.closed for stream in made.streams) == 1
    await pool.take()


async def test_idle_ones_are_closed_one_by_one_when_their_time_is_over() -> None:
    clock, made = VirtualClock(), Made()
    pool = Pool(made, clock)
    first, second = await pool.take(), await pool.take()
    pool.give_back(first)
    await clock.advance(IDLE_SECONDS / 2)
    pool.give_back(second)
    await clock.advance(IDLE_SECONDS / 2 + 1)
    assert (made.streams[0].closed, made.streams[1].closed) == (True, False)
    await clock.advance(IDLE_SECONDS)
    assert pool.idle == 0 and made.streams[1].closed


async def test_a_connection_that_does_not_come_about_is_not_waited_for_for_ever() -> None:
    clock, made = VirtualClock(), Made()
    made.go.clear()
    pool = Pool(made, clock)
    taking = asyncio.create_task(pool.take())
    await clock.advance(CONNECT_SECONDS + 1)
    with pytest.raises(ConnectionError, match="within"):
        await taking
    assert pool.busy == 0


async def test_a_closed_pool_keeps_nothing_and_gives_nothing() -> None:
    clock, made = VirtualClock(), Made()
    pool = Pool(made, clock)
    busy, idle = await pool.take(), await pool.take()
    pool.give_back(idle)
    made.go.clear()
    coming = asyncio.create_task(pool.take(fresh=True))
    await asyncio.sleep(0)
    pool.close()
    made.go.set()
    with pytest.raises(ApiError):
        await coming
    with pytest.raises(ApiError):
        await pool.take()
    pool.give_back(busy)
    assert pool.idle == pool.busy == 0 and all(stream.closed for stream in made.streams)
