"""What a tunnel may cost, and how soon a line that is dead without a word is known to be dead."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from remuda.kube.clock import Rng, VirtualClock
from remuda.tunnel import NoSession, Server, StreamError, TunnelClient
from remuda.tunnel import server as server_module
from remuda.tunnel import session as session_module
from remuda.tunnel.frames import Kind, encode
from remuda.tunnel.stream import CHUNK, PAUSE_ABOVE
from tests.waiting import until

from .pair import TOKEN, Door, echo, listening, read_exactly, stopped

MIB = 1 << 20


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with Door() as opened:
        yield opened


class Hole:
    """A line whose packets can be lost both ways without anybody being told."""

    def __init__(self) -> None:
        self.drops = False
        self.port = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if not self.drops:
                    writer.write(data)
                    await writer.drain()
        if not self.drops:
            writer.close()

    @asynccontextmanager
    async def before(self, port: int) -> AsyncIterator[Hole]:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(self.carry(reader, there[1]), self.carry(there[0], writer))

        listener = await asyncio.start_server(accept, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self.drops = False
            listener.close()


async def test_a_line_that_loses_everything_is_known_to_both_sides_within_half_a_minute() -> None:
    clock = VirtualClock()
    async with Door(clock) as door, Hole().before(door.port) as hole:
        headers = {"X-API-Tunnel-Token": TOKEN}
        at = Server(f"ws://127.0.0.1:{hole.port}/v3/connect", proxy="")
        client = TunnelClient(at, lambda: headers, lambda *_: True, clock, Rng(1))
        task = asyncio.create_task(client.run())
        await until(lambda: client.session is not None and door.tunnels.has_session("c-test"))
        near, far = door.tunnels.sessions("c-test")[0], client.session
        assert far is not None
        # Alive for as long as something comes through.
        for _ in range(20):
            heard = near.heard_at, far.heard_at
            await clock.advance(5)
            await until(lambda: near.heard_at > heard[0] and far.heard_at > heard[1])  # noqa: B023
        stream = await door.tunnels.dial("c-test", "tcp", "x:1")
        hole.drops = True
        await clock.advance(20)
        assert near.alive
        assert far.alive
        await clock.advance(10)
        assert (near.reason, far.reason) == ("nothing was received for 25 s",) * 2
        with pytest.raises(StreamError, match="tunnel disconnect"):
            await stream.read()
        await stopped(task)


async def test_who_is_not_connected_may_come_back_while_one_waits(door: Door) -> None:
    async with listening(echo) as address:
        dialling = asyncio.create_task(door.tunnels.dial("c-test", "tcp", address, within=60))
        await asyncio.sleep(0.05)
        assert not dialling.done()
        await door.join()
        stream = await dialling
        await stream.write(b"hello")
        assert await read_exactly(stream, 5) == b"hello"
        stream.close()


async def test_waiting_for_a_client_ends() -> None:
    clock = VirtualClock()
    async with Door(clock) as door:
        dialling = asyncio.create_task(door.tunnels.dial("c-test", "tcp", "x:1", within=20))
        await clock.advance(19)
        assert not dialling.done()
        await clock.advance(1)
        with pytest.raises(NoSession):
            await dialling
        assert door.tunnels._waiting == {}


async def test_the_sessions_of_a_client_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MOST_SESSIONS", 2)
    clock = VirtualClock()
    headers = {"X-API-Tunnel-Token": TOKEN}
    async with Door(clock) as door, aiohttp.ClientSession(headers=headers) as http:
        quiet = await http.ws_connect(door.url, autoping=False)
        await until(lambda: len(door.tunnels.sessions("c-test")) == 1)
        await clock.advance(1)
        lively = await http.ws_connect(door.url, autoping=False)
        await until(lambda: len(door.tunnels.sessions("c-test")) == 2)
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(door.url)
        assert refused.value.status == 503
        # Others are not concerned.
        other = await http.ws_connect(door.url, headers={"X-Key": "c-other"})
        # Who was silent for three pings makes room.
        await clock.advance(15)
        await lively.ping()
        await lively.receive()
        kept = door.tunnels.sessions("c-test")[1]
        third = await http.ws_connect(door.url, autoping=False)
        await until(lambda: len(door.tunnels.sessions("c-test")) == 2)
        assert door.tunnels.sessions("c-test")[0] is kept
        for socket in (quiet, lively, other, third):
            await socket.close()


async def test_no_session_has_more_streams_than_it_may(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(echo) as address:
        client, _ = await door.join()
        monkeypatch.setattr(session_module, "MOST_STREAMS", 3)
        streams = [await door.tunnels.dial("c-test", "tcp", address) for _ in range(3)]
        with pytest.raises(StreamError, match="carries 3 connections already"):
            await door.tunnels.dial("c-test", "tcp", address)
        # The other side holds to it, too, whatever its server does.
        assert client.session is not None
        await until(lambda: client.session is not None and client.session.streams == 3)
        monkeypatch.setattr(session_module, "MOST_STREAMS", 4)
        one_more = await door.tunnels.dial("c-test", "tcp", address)
        monkeypatch.setattr(session_module, "MOST_STREAMS", 3)
        with pytest.raises(StreamError, match="too many connections"):
            await one_more.read()
        for stream in streams:
            await stream.write(b"still here")
            assert await read_exactly(stream, 10) == b"still here"
            stream.close()


@asynccontextmanager
async def spoken_to(door: Door, count: int) -> AsyncIterator[tuple[list[server_module.Stream], aiohttp.ClientWebSocketResponse]]:
    """A bare client with streams open to it."""
    headers = {"X-API-Tunnel-Token": TOKEN}
    async with aiohttp.ClientSession(headers=headers) as http, http.ws_connect(door.url, autoping=False) as socket:
        await until(lambda: door.tunnels.has_session("c-test"))
        yield [await door.tunnels.dial("c-test", "tcp", "x:1") for _ in range(count)], socket


async def test_in_a_crowd_each_stream_is_braked_early(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "CROWDED_ABOVE", 4 * MIB)
    async with spoken_to(door, 5) as (streams, socket):
        session = door.tunnels.sessions("c-test")[0]
        for stream in streams:
            for _ in range(15):
                await socket.send_bytes(encode(1, stream.id, Kind.DATA, bytes(64 * 1024)))
        await until(lambda: session.unread == 5 * 15 * 64 * 1024)
        # 4 MiB are reached within the fifth; none is above its own limit.
        assert [stream._asked_to_pause for stream in streams] == [False] * 4 + [True]
        assert max(stream.buffered for stream in streams) < PAUSE_ABOVE
        for stream in streams:
            await read_exactly(stream, 15 * 64 * 1024)
        assert session.unread == 0
        assert not any(stream._asked_to_pause for stream in streams)


async def test_a_peer_that_ignores_pauses_loses_its_largest_stream(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "CROWDED_ABOVE", 2 * MIB)
    monkeypatch.setattr(session_module, "MOST_UNREAD", 4 * MIB)
    async with spoken_to(door, 3) as (streams, socket):
        session = door.tunnels.sessions("c-test")[0]
        small, big, other = streams
        await socket.send_bytes(encode(1, small.id, Kind.DATA, b"a little"))
        for number in range(32):
            await socket.send_bytes(encode(number, big.id, Kind.DATA, bytes(100 * 1024)))
        for number in range(10):
            await socket.send_bytes(encode(number, other.id, Kind.DATA, bytes(100 * 1024)))
        with pytest.raises(StreamError, match="receive buffers of the tunnel exceeded"):
            while True:
                await big.read(1)
                await asyncio.sleep(0)
        assert session.alive
        await until(lambda: other.buffered == 10 * 100 * 1024)
        assert await read_exactly(small, 8) == b"a little"
        assert await read_exactly(other, 10 * 100 * 1024) == bytes(10 * 100 * 1024)
        assert session.unread == 0


@pytest.mark.parametrize("how", ["close", "fail", "leftover"])
async def test_data_of_closed_streams_is_not_held(door: Door, how: str) -> None:
    async with spoken_to(door, 1) as ((stream,), socket):
        session = door.tunnels.sessions("c-test")[0]
        await socket.send_bytes(encode(1, stream.id, Kind.DATA, bytes(CHUNK)))
        await socket.send_bytes(encode(1, stream.id, Kind.ERROR, b"EOF"))
        await until(lambda: stream.over)
        assert session.unread == CHUNK
        {"close": stream.close, "fail": lambda: stream.fail("no"), "leftover": stream.leftover}[how]()
        assert session.unread == 0


async def test_a_slow_reader_holds_little_and_delays_no_other_stream(door: Door) -> None:
    total = 48 * MIB
    sent = 0

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        for _ in range(0, total, 1 << 16):
            writer.write(bytes(1 << 16))
            await writer.drain()
            sent += 1 << 16

    async with listening(send) as source, listening(echo) as mirror:
        client, _ = await door.join()
        slow = await door.tunnels.dial("c-test", "tcp", source)
        session = door.tunnels.sessions("c-test")[0]
        got = most = rounds = 0
        while data := await slow.read():
            got += len(data)
            most = max(most, session.unread)
            if got > (rounds + 1) * 4 * MIB:
                rounds += 1
                other = await door.tunnels.dial("c-test", "tcp", mirror)
                await other.write(bytes(CHUNK))
                await read_exactly(other, CHUNK)
                other.close()
        assert got == sent == total
        assert rounds > 5
        # What is on the way when a pause is asked for comes on top of the limit.
        assert most < 4 * PAUSE_ABOVE
        assert client.session is not None
        assert client.session.unread == 0
