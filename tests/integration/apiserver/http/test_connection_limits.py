"""Slow clients and too many of them: cut where they only cost, left alone where they wait for us."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from remuda.apiserver.http.connection_limits import ConnectionLimits, ConnectionTimeouts, MaxConnections
from remuda.apiserver.http.listener import Listener
from remuda.kube.clock import VirtualClock
from tests.waiting import until


class Place:
    def __init__(self, room: MaxConnections) -> None:
        self.clock = VirtualClock()
        self.lines = ConnectionLimits(self.clock, ConnectionTimeouts(), room)
        self.told: list[str] = []
        self.lines.on_refused = lambda address, why: self.told.append(why)
        self.reading = asyncio.Event()
        self.reading.set()
        self.listener = Listener(self.answer, None, self.lines)
        # Requests whose head has come, and what was written of answers that never end.
        self.requests: list[web.BaseRequest] = []
        self.written = 0

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        await self.reading.wait()
        if request.path == "/endless":
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                self.written += 1
                await response.write(b"x" * 65536)
        return web.Response(text=str(len(await request.read())))

    async def connect(self, let_in: bool = True) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """`let_in`: by now it is one of the lines that are looked at."""
        before = len(self.lines)
        found = await asyncio.open_connection("127.0.0.1", self.listener.port)
        if let_in:
            await until(lambda: len(self.lines) > before)
        return found

    async def begun(self, count: int = 1) -> web.BaseRequest:
        """The last of so many requests, whose head has come."""
        await until(lambda: len(self.requests) == count)
        return self.requests[-1]

    async def pass_time(self, seconds: float) -> int:
        """How many were cut meanwhile."""
        cut = 0
        for _ in range(int(seconds)):
            await self.clock.advance(1.0)
            cut += self.lines.look()
        return cut


@asynccontextmanager
async def place(room: MaxConnections = MaxConnections()) -> AsyncIterator[Place]:  # noqa: B008 - a constant
    found = Place(room)
    await found.listener.open("127.0.0.1", 0)
    try:
        yield found
    finally:
        found.reading.set()
        await found.listener.close(0.0)


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(60):
            while await reader.read(65536):
                pass
    except ConnectionError:
        pass
    return True


async def test_of_the_addresses_of_a_name_those_are_listened_on_that_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    named = ["192.0.2.1", "127.0.0.1"]

    def getaddrinfo(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in named]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    found = Place(MaxConnections())
    await found.listener.open("some.example", 0)
    monkeypatch.undo()
    try:
        _, writer = await found.connect()
        writer.close()
    finally:
        await found.listener.close(0.0)
    named.pop()
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(OSError, match=r"no address of some\.example") as refused:
        await Place(MaxConnections()).listener.open("some.example", 0)
    assert refused.value.errno == errno.EADDRNOTAVAIL


async def test_a_head_that_never_ends() -> None:
    async with place() as here:
        silent, kept = await here.connect()
        reader, writer = await here.connect()
        writer.write(b"GET / HTTP/1.1\r\nX-A: ")
        for _ in range(20):
            writer.write(b"X")
            await asyncio.sleep(0.001)
            await here.pass_time(1)
        assert await here.pass_time(15) == 2
        assert await ended(reader) and await ended(silent) and kept
        assert here.told == ["the head of a request took too long"] * 2
        assert len(here.lines) == 0


async def test_a_client_that_keeps_its_connection_is_left_alone() -> None:
    async with place() as here:
        reader, writer = await here.connect()
        for _ in range(3):
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n0")
            assert await here.pass_time(100) == 0
        writer.close()


async def test_a_body_that_stops_or_drips() -> None:
    async with place() as here:
        stopped, writer = await here.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nabc")
        await here.begun()
        assert await here.pass_time(70) == 1
        assert await ended(stopped)
        reader, writer = await here.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nabc")
        await here.begun(2)
        cut = 0
        for _ in range(40):
            writer.write(b"x")
            await asyncio.sleep(0.002)
            cut += await here.pass_time(1)
        assert cut == 1
        assert await ended(reader)
        assert here.told == ["the body of a request came too slowly"] * 2


async def test_no_connection_is_cut_because_the_server_is_slow() -> None:
    async with place() as here:
        here.reading.clear()
        reader, writer = await here.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 900_000)
        request = await here.begun()
        # It has as much of the body as it takes before somebody reads it.
        await until(lambda: request.protocol._reading_paused or request.protocol._buffer_paused)
        assert await here.pass_time(1000) == 0
        here.reading.set()
        writer.write(b"x" * 100_000)
        assert b"200 OK" in await reader.readuntil(b"1000000")
        writer.close()


async def test_an_answer_that_is_not_read() -> None:
    async with place() as here:
        _, writer = await here.connect()
        writer.write(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
        await here.begun()
        # It has written as much as there is room for on the way.
        written = 0
        while here.written > written:
            written = here.written
            await asyncio.sleep(0.2)
        assert await here.pass_time(500) == 0
        assert await here.pass_time(200) == 1
        assert here.told == ["an answer was not read"]
        writer.close()


async def test_one_address_has_so_many_connections() -> None:
    async with place(MaxConnections(per_address=2, in_all=10)) as here:
        first, writer = await here.connect()
        second = await here.connect()
        third, _ = await here.connect(let_in=False)
        assert await ended(third)
        assert here.told == ["there are too many connections"]
        writer.close()
        assert await ended(first)
        async with asyncio.timeout(60):
            while len(here.lines) > 1:
                await asyncio.sleep(0.01)
        reader, writer = await here.connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert b"200 OK" in await reader.read()
        # It was there all the time.
        second[1].close()


async def test_who_is_turned_away_again_and_again_is_told_of_once_a_minute() -> None:
    async with place(MaxConnections(per_address=1, in_all=10)) as here:
        _, kept = await here.connect()
        for _ in range(20):
            reader, _ = await here.connect(let_in=False)
            assert await ended(reader)
        assert here.told == ["there are too many connections"]
        await here.clock.advance(60)
        reader, _ = await here.connect(let_in=False)
        assert await ended(reader)
        assert len(here.told) == 2
        kept.close()


@pytest.mark.parametrize(
    ("files", "wanted", "expected"),
    [
        (1 << 20, None, MaxConnections(4096, 20_000)),
        (20_000, None, MaxConnections(4096, 18_976)),
        (1024, None, MaxConnections(384, 768)),
        (1024, 100, MaxConnections(100, 768)),
        (1024, 5000, MaxConnections(768, 768)),
        (1 << 20, 50_000, MaxConnections(50_000, 50_000)),
        (1, None, MaxConnections(1, 1)),
    ],
)
def test_there_is_room_for_as_many_as_there_are_files(files: int, wanted: int | None, expected: MaxConnections) -> None:
    assert MaxConnections.within(files, wanted) == expected
