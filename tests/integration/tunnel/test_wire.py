"""What crosses the websocket, byte by byte, against a peer that knows no more than a socket."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from remuda.kube.clock import SYSTEM_CLOCK, Rng, VirtualClock
from remuda.tunnel import Server, StreamError, TunnelClient
from remuda.tunnel.frames import Kind, Message, decode, encode, sync_body
from remuda.tunnel.stream import CHUNK, NEVER_ABOVE, PAUSE_ABOVE
from tests.waiting import until

from .pair import TOKEN, Door, echo, listening, read_exactly, stopped

Socket = aiohttp.ClientWebSocketResponse


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with Door() as opened:
        yield opened


@pytest.fixture
async def socket(door: Door) -> AsyncIterator[Socket]:
    """A bare websocket to our server, which must be spoken to by hand."""
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(door.url, headers={"X-API-Tunnel-Token": TOKEN}, autoping=False) as opened,
    ):
        await until(lambda: door.tunnels.has_session("c-test"))
        yield opened


async def message(socket: Socket | web.WebSocketResponse) -> Message:
    found = await socket.receive()
    assert found.type is WSMsgType.BINARY, found
    return decode(found.data)


async def test_connect_then_data_without_waiting(door: Door, socket: Socket) -> None:
    stream = await door.tunnels.dial("c-test", "tcp", "127.0.0.1:18125")
    await stream.write(b"GET /")
    connect, data = await message(socket), await message(socket)
    assert (connect.stream, connect.kind, bytes(connect.body)) == (2, Kind.CONNECT, b"tcp/127.0.0.1:18125")
    assert (data.stream, data.kind, bytes(data.body)) == (2, Kind.DATA, b"GET /")
    assert data.id == connect.id + 1
    assert (await door.tunnels.dial("c-test", "tcp", "x:1")).id == 3


async def test_a_ping_is_answered_with_an_empty_pong(socket: Socket) -> None:
    await socket.ping(b"pingpayload")
    answer = await socket.receive()
    assert (answer.type, answer.data) == (WSMsgType.PONG, b"")


async def test_data_for_a_stream_that_is_not_there(door: Door, socket: Socket) -> None:
    await socket.send_bytes(encode(1, 99, Kind.DATA, b"x"))
    answer = await message(socket)
    number = door.tunnels.sessions("c-test")[0].number
    assert (answer.stream, answer.kind) == (99, Kind.ERROR)
    assert bytes(answer.body).decode() == f"connection not found c-test/{number}/99"[:100]


async def test_an_end_is_echoed_once_and_then_ignored(door: Door, socket: Socket) -> None:
    stream = await door.tunnels.dial("c-test", "tcp", "x:1")
    assert (await message(socket)).kind == Kind.CONNECT
    await socket.send_bytes(encode(1, 2, Kind.DATA, b"last words"))
    for number in (2, 3, 4):
        await socket.send_bytes(encode(number, 2, Kind.ERROR, b"EOF"))
    assert await stream.read() == b"last words"
    assert await stream.read() == b""
    assert (await message(socket)).kind == Kind.ERROR
    await socket.ping()
    assert (await socket.receive()).type is WSMsgType.PONG


async def test_a_refused_dial_is_told_to_the_reader(door: Door, socket: Socket) -> None:
    stream = await door.tunnels.dial("c-test", "tcp", "x:1")
    await socket.send_bytes(encode(1, 2, Kind.ERROR, b"dial tcp: lookup x: no such host"))
    with pytest.raises(StreamError, match="no such host"):
        await stream.read()


async def test_unknown_kinds_and_announcements_are_passed_over(door: Door, socket: Socket) -> None:
    await socket.send_bytes(encode(1, 0, 42, b"from the future"))
    await socket.send_bytes(encode(2, 0, Kind.ADD_CLIENT, b"c-other/1"))
    await socket.send_bytes(encode(3, 0, Kind.REMOVE_CLIENT, b"c-other/1"))
    await socket.send_bytes(encode(4, 5, Kind.PAUSE))
    await socket.send_bytes(encode(5, 5, Kind.RESUME))
    await socket.ping()
    assert (await socket.receive()).type is WSMsgType.PONG


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "ends within a number"),
        (b"\xff" * 12, "more than 64 bits"),
        (encode(1, 2, Kind.CONNECT, b"tcp/127.0.0.1:22"), "connect not allowed"),
        (encode(1, 0, Kind.ADD_CLIENT, b"nonsense"), "invalid remote Session"),
        (encode(1, 0, Kind.SYNC_CONNECTIONS, b"odd"), "incorrect data format"),
    ],
)
async def test_what_ends_a_session(door: Door, socket: Socket, raw: bytes, reason: str) -> None:
    session = door.tunnels.sessions("c-test")[0]
    await socket.send_bytes(raw)
    await until(lambda: not session.alive)
    assert reason in (session.reason or "")
    await until(lambda: not door.tunnels.has_session("c-test"))


async def test_text_ends_a_session(door: Door, socket: Socket) -> None:
    session = door.tunnels.sessions("c-test")[0]
    await socket.send_str("hello")
    await until(lambda: not session.alive)
    assert session.reason == "wrong websocket message type"


async def test_pause_and_resume_are_heeded(door: Door, socket: Socket) -> None:
    stream = await door.tunnels.dial("c-test", "tcp", "x:1")
    assert (await message(socket)).kind == Kind.CONNECT
    await socket.send_bytes(encode(1, 2, Kind.PAUSE))
    await until(lambda: stream._paused)
    await stream.write(b"one")
    waiting = asyncio.create_task(stream.write(b"two"))
    await socket.ping()
    assert (await socket.receive()).type is WSMsgType.PONG
    assert not waiting.done()
    await socket.send_bytes(encode(2, 2, Kind.RESUME))
    assert (await message(socket)).kind == Kind.RESUME
    assert bytes((await message(socket)).body) == b"one"
    assert bytes((await message(socket)).body) == b"two"
    await waiting


async def test_a_closed_stream_still_sends_its_last_chunk(door: Door, socket: Socket) -> None:
    stream = await door.tunnels.dial("c-test", "tcp", "x:1")
    assert (await message(socket)).kind == Kind.CONNECT
    await socket.send_bytes(encode(1, 2, Kind.PAUSE))
    await until(lambda: stream._paused)
    await stream.write(b"last")
    stream.close()
    await socket.send_bytes(encode(2, 2, Kind.RESUME))
    assert (await message(socket)).kind == Kind.RESUME
    assert bytes((await message(socket)).body) == b"last"
    end = await message(socket)
    assert (end.kind, bytes(end.body)) == (Kind.ERROR, b"EOF")


async def test_pause_is_asked_for_again_when_the_other_side_forgets_it(door: Door, socket: Socket) -> None:
    """Go's side resumes itself when it reads; its flag is one for both directions."""
    stream = await door.tunnels.dial("c-test", "tcp", "x:1")
    assert (await message(socket)).kind == Kind.CONNECT
    for number in range(PAUSE_ABOVE // 65536 + 1):
        await socket.send_bytes(encode(number, 2, Kind.DATA, bytes(65536)))
    assert (await message(socket)).kind == Kind.PAUSE
    await socket.send_bytes(encode(100, 2, Kind.RESUME))
    assert (await message(socket)).kind == Kind.PAUSE
    await read_exactly(stream, PAUSE_ABOVE + 65536)
    assert (await message(socket)).kind == Kind.RESUME


async def test_who_never_heeds_a_pause_loses_the_stream(door: Door, socket: Socket) -> None:
    stream = await door.tunnels.dial("c-test", "tcp", "x:1")
    assert (await message(socket)).kind == Kind.CONNECT
    for number in range(NEVER_ABOVE // (1 << 20) + 1):
        await socket.send_bytes(encode(number, 2, Kind.DATA, bytes(1 << 20)))
    assert (await message(socket)).kind == Kind.PAUSE
    end = await message(socket)
    assert end.kind == Kind.ERROR
    assert stream.buffered == 0
    with pytest.raises(StreamError, match="receive buffer exceeded"):
        await stream.read()
    assert door.tunnels.has_session("c-test")


async def test_streams_that_the_client_no_longer_has_are_dropped() -> None:
    clock = VirtualClock()
    async with (
        Door(clock) as door,
        aiohttp.ClientSession() as http,
        http.ws_connect(door.url, headers={"X-API-Tunnel-Token": TOKEN}, autoping=False) as socket,
    ):
        await until(lambda: door.tunnels.has_session("c-test"))
        gone, kept = [await door.tunnels.dial("c-test", "tcp", "x:1") for _ in range(2)]
        for _ in range(4):
            await clock.advance(20)
            await socket.ping()
            while (await socket.receive()).type is not WSMsgType.PONG:
                pass
        fresh = await door.tunnels.dial("c-test", "tcp", "x:1")
        await socket.send_bytes(encode(1, 0, Kind.SYNC_CONNECTIONS, sync_body([kept.id])))
        with pytest.raises(StreamError, match="sync from client"):
            await gone.read()
        assert not kept.over
        assert not fresh.over, "its Connect may not have arrived when the list was written"


async def test_streams_take_turns(door: Door, socket: Socket) -> None:
    streams = [await door.tunnels.dial("c-test", "tcp", "x:1") for _ in range(3)]
    for _ in streams:
        assert (await message(socket)).kind == Kind.CONNECT
    writing = [asyncio.create_task(stream.write(bytes(20 * CHUNK))) for stream in streams]
    order = [(await message(socket)).stream for _ in range(60)]
    await asyncio.gather(*writing)
    turns = [sorted(order[at : at + 3]) for at in range(0, 60, 3)]
    assert turns == [[2, 3, 4]] * 20


@pytest.mark.parametrize("seed", range(25))
async def test_a_peer_that_sends_anything(door: Door, socket: Socket, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever comes, a session goes on or ends with a reason; nobody else notices."""
    chance = random.Random(seed)
    session = door.tunnels.sessions("c-test")[0]
    await door.join("c-other")
    streams = [await door.tunnels.dial("c-test", "tcp", "x:1") for _ in range(3)]
    for number in range(60):
        body = chance.choice([b"", b"EOF", b"tcp/x:1", b"k/1", chance.randbytes(chance.randrange(40))])
        kinds = [0, 1, 3, 6, 7, 8, 9, -1] + [2, 4, 5] * (number > 40)
        raw = encode(chance.randrange(1 << 62), chance.randrange(-2, 7), chance.choice(kinds), body)
        with contextlib.suppress(ConnectionError):
            await socket.send_bytes(raw if chance.random() < 0.98 else chance.randbytes(chance.randrange(30)))
    with contextlib.suppress(ConnectionError):
        await socket.send_bytes(encode(1, 0, Kind.ADD_CLIENT, b"the end"))
    await until(lambda: not session.alive)
    assert all(stream.over for stream in streams)
    async with listening(echo) as address:
        stream = await door.tunnels.dial("c-other", "tcp", address)
        await stream.write(b"hello")
        assert await read_exactly(stream, 5) == b"hello"
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


class Bare:
    """A server that our client connects to, and that must be spoken to by hand."""

    def __init__(self) -> None:
        self.sockets: asyncio.Queue[web.WebSocketResponse] = asyncio.Queue()
        self.headers: list[dict[str, str]] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        self.headers.append(dict(request.headers))
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        self.sockets.put_nowait(socket)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return socket


@pytest.fixture
async def bare() -> AsyncIterator[Bare]:
    made = Bare()
    application = web.Application()
    application.router.add_get("/", made.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"ws://127.0.0.1:{runner.addresses[0][1]}/"
    yield made
    await runner.cleanup()


def client_of(bare: Bare, clock: object = SYSTEM_CLOCK) -> TunnelClient:
    return TunnelClient(Server(bare.url, proxy=""), lambda: {"X-API-Tunnel-Token": TOKEN}, lambda *_: True, clock, Rng(1))  # type: ignore[arg-type]


async def test_the_client_as_the_protocol_tells_it(bare: Bare) -> None:
    task = asyncio.create_task(client_of(bare).run())
    socket = await bare.sockets.get()
    assert bare.headers[0]["X-API-Tunnel-Token"] == TOKEN
    assert "Sec-WebSocket-Protocol" not in bare.headers[0]
    assert "Sec-WebSocket-Extensions" not in bare.headers[0]
    async with listening(echo) as address:
        await socket.send_bytes(encode(7, 2, Kind.CONNECT, f"tcp/{address}".encode()))
        await socket.send_bytes(encode(8, 2, Kind.DATA, b"hello"))
        answer = await message(socket)
        assert (answer.stream, answer.kind, bytes(answer.body)) == (2, Kind.DATA, b"hello")
        await socket.send_bytes(encode(9, 99, Kind.DATA, b"?"))
        answer = await message(socket)
        assert (answer.stream, bytes(answer.body)) == (99, b"connection not found client/0/99")
        await socket.send_bytes(encode(10, 3, Kind.CONNECT, b"tcp/127.0.0.1:1"))
        answer = await message(socket)
        assert (answer.stream, answer.kind) == (3, Kind.ERROR)
        assert bytes(answer.body) == b"dial tcp 127.0.0.1:1: connect: connection refused"
        await socket.send_bytes(encode(11, 2, Kind.ERROR, b"EOF"))
        answer = await message(socket)
        assert (answer.stream, answer.kind, bytes(answer.body)) == (2, Kind.ERROR, b"EOF")
    await stopped(task)


@pytest.mark.parametrize("seed", range(10))
async def test_a_server_that_sends_anything(bare: Bare, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(seed)
    client = TunnelClient(Server(bare.url, proxy=""), dict, lambda *_: False, SYSTEM_CLOCK, Rng(1))
    task = asyncio.create_task(client.connect_once())
    socket = await bare.sockets.get()
    for _ in range(60):
        body = chance.choice([b"EOF", b"tcp/x:1", b"k/1", chance.randbytes(16)])
        with contextlib.suppress(ConnectionError):
            await socket.send_bytes(encode(1, chance.randrange(-2, 40), chance.randrange(-1, 10), body))
    with contextlib.suppress(ConnectionError):
        await socket.send_bytes(b"")
    assert await task
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_stream_number_used_twice_ends_the_session(bare: Bare) -> None:
    client = client_of(bare)
    task = asyncio.create_task(client.connect_once())
    socket = await bare.sockets.get()
    async with listening(echo) as address:
        for number in (1, 2):
            await socket.send_bytes(encode(number, 2, Kind.CONNECT, f"tcp/{address}".encode()))
        assert "opened twice" in await task


async def test_the_client_pings_every_five_seconds_and_lists_its_streams_every_minute(bare: Bare) -> None:
    clock = VirtualClock()
    task = asyncio.create_task(client_of(bare, clock).run())
    socket = await bare.sockets.get()
    await socket.send_bytes(encode(1, 7, Kind.CONNECT, b"tcp/127.0.0.1:1"))
    while (await socket.receive()).type is not WSMsgType.BINARY:
        pass
    seen = []
    for _ in range(12):
        await clock.advance(5)
        found = await socket.receive()
        seen.append((found.type, found.data))
        await socket.pong(b"")
        await asyncio.sleep(0.02)
    assert seen == [(WSMsgType.PING, b"")] * 12
    found = await message(socket)
    assert (found.kind, found.stream, bytes(found.body)) == (Kind.SYNC_CONNECTIONS, 0, b"")
    await stopped(task)


async def test_data_is_no_sign_of_life() -> None:
    clock = VirtualClock()
    async with (
        Door(clock) as door,
        aiohttp.ClientSession() as http,
        http.ws_connect(door.url, headers={"X-API-Tunnel-Token": TOKEN}, autoping=False) as socket,
    ):
        await until(lambda: door.tunnels.has_session("c-test"))
        session = door.tunnels.sessions("c-test")[0]
        await clock.advance(24)
        await socket.ping()
        assert (await socket.receive()).type is WSMsgType.PONG
        for seconds in (24, 24, 11):
            await clock.advance(seconds)
            assert session.alive
            await socket.send_bytes(encode(1, 99, Kind.DATA, b"x"))
            await message(socket)
        await clock.advance(1)
        assert session.reason == "no ping for 60 s"


async def test_a_client_without_pongs_gives_up_and_comes_back(bare: Bare) -> None:
    clock = VirtualClock()
    client = client_of(bare, clock)
    task = asyncio.create_task(client.run())
    await bare.sockets.get()
    await until(lambda: client.session is not None)
    session = client.session
    assert session is not None
    for _ in range(5):
        await clock.advance(5)
    assert session.reason == "nothing was received for 25 s"
    await until(lambda: client.session is None)
    # It closes the line before it waits, in real time.
    for _ in range(3000):
        if not bare.sockets.empty():
            break
        await clock.advance(1)
        await asyncio.sleep(0.02)
    assert not bare.sockets.empty()
    await stopped(task)


async def test_a_line_that_takes_nothing_is_dead() -> None:
    clock = VirtualClock()
    async with (
        Door(clock) as door,
        aiohttp.ClientSession() as http,
        http.ws_connect(door.url, headers={"X-API-Tunnel-Token": TOKEN}, autoping=False) as socket,
    ):
        await until(lambda: door.tunnels.has_session("c-test"))
        session = door.tunnels.sessions("c-test")[0]
        stream = await door.tunnels.dial("c-test", "tcp", "x:1")

        async def flood() -> None:
            while True:
                await stream.write(bytes(32768))

        writing = asyncio.create_task(flood())
        stuck = 0
        while stuck < 20:
            before = session._sending_since, session._last_message
            await asyncio.sleep(0.01)
            stuck = stuck + 1 if (session._sending_since, session._last_message) == before and before[0] is not None else 0
        for _ in range(13):
            await clock.advance(5)
            await socket.ping()
            await asyncio.sleep(0.01)
        assert session.reason == "the other side has read nothing for 60 s"
        with pytest.raises(StreamError):
            await writing
