"""Tunnel messages of any kind, to both sides: a session goes on or ends with a reason, and nobody else's is touched."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import WSMsgType, web
from hypothesis import example, given
from hypothesis import strategies as st

from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.tunnel import Server, TunnelClient, TunnelError, frames
from remuda.tunnel.errors import FrameError
from remuda.tunnel.frames import Kind, encode
from tests.integration.tunnel.pair import TOKEN, Door, echo, listening, read_exactly, stopped
from tests.waiting import until

from .budget import complaints, fuzzing
from .shapes import mangled

streams = st.one_of(st.integers(0, 5), st.sampled_from([-1, 2**63 - 1, -(2**63)]))
kinds = st.one_of(st.sampled_from(Kind), st.sampled_from([0, 9, -1, 2**62]))
bodies = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            b"EOF", b"tcp/127.0.0.1:1", b"tcp/", b"/", b"tcp/[::1", b"unix//nowhere", b"tcp/x:99999", b"tcp/\xff:1",
            b"c-abc/7", b"a/+-7", b"a/"+b"9" * 98, b"x" * 5000, b"\x02"+b"\0" * 7, b"tcp/127.0.0.1:-1", b"udp/127.0.0.1:1",
            b"tcp/127.0.0.1:1\n",
        ]
    ),
)  # fmt: skip
whole = st.tuples(st.integers(0, 9), streams, kinds, bodies).map(lambda found: encode(*found))
messages = st.one_of(whole, whole.flatmap(mangled), st.binary(max_size=30))


@fuzzing(200)
@given(messages)
def test_messages(raw: bytes) -> None:
    try:
        found = frames.decode(raw)
    except FrameError as error:
        assert str(error)
        return
    for read in (frames.read_connect, frames.read_error, frames.read_client, frames.read_sync):
        with contextlib.suppress(FrameError):
            read(found.body)
    assert frames.decode(encode(found.id, found.stream, found.kind, bytes(found.body)))[1:] == found[1:]


@dataclass
class World:
    """A server with one well-behaved client, whose echo must be heard whatever others send."""

    runner: asyncio.Runner
    door: Door = field(default_factory=Door)
    address: str = ""
    numbers: Iterator[int] = field(default_factory=itertools.count)
    stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    complaints: list[object] = field(default_factory=list)

    async def open(self) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.complaints.append(context))
        await self.stack.enter_async_context(self.door)
        self.address = await self.stack.enter_async_context(listening(echo))
        await self.door.join("c-good")

    async def is_well(self) -> None:
        # Between two examples nothing is heard of it: if that takes too long, it has to come back.
        stream = await self.door.tunnels.dial("c-good", "tcp", self.address, within=60)
        await stream.write(b"hello")
        assert await read_exactly(stream, 5) == b"hello"
        stream.close()

    def heard(self, caplog: pytest.LogCaptureFixture) -> None:
        assert self.complaints == []
        assert complaints(caplog.records) == []
        caplog.clear()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with asyncio.Runner() as runner:
        found = World(runner)
        runner.run(found.open())
        yield found
        runner.run(found.stack.aclose())


async def _answered(socket: aiohttp.ClientWebSocketResponse | web.WebSocketResponse) -> None:
    """All that was sent before has been dealt with: there is a pong, or the end."""
    with contextlib.suppress(ConnectionError):
        await socket.ping(b"")
    async with asyncio.timeout(60):
        while True:
            found = await socket.receive()
            if found.type not in (WSMsgType.BINARY, WSMsgType.PING):
                return


@fuzzing(60)
@given(st.lists(messages, max_size=8), st.booleans())
@example([encode(1, 2, Kind.SYNC_CONNECTIONS, b"")], False)
def test_a_client_that_says_anything(world: World, caplog: pytest.LogCaptureFixture, said: list[bytes], text: bool) -> None:
    async def talk() -> None:
        key = f"c-{next(world.numbers)}"
        headers = {"X-API-Tunnel-Token": TOKEN, "X-Key": key}
        async with aiohttp.ClientSession() as http, http.ws_connect(world.door.url, headers=headers, autoping=False) as socket:
            await until(lambda: world.door.tunnels.has_session(key))
            opened = [await world.door.tunnels.dial(key, "tcp", "x:1") for _ in range(2)]
            for message in said:
                with contextlib.suppress(ConnectionError):
                    await socket.send_bytes(message)
            if text:
                with contextlib.suppress(ConnectionError):
                    await socket.send_str("text")
            await _answered(socket)
            for stream in opened:
                stream.close()
        with contextlib.suppress(TunnelError):
            for stream in opened:
                await stream.read()
        await until(lambda: not world.door.tunnels.has_session(key))
        await world.is_well()

    world.runner.run(talk())
    world.heard(caplog)


@fuzzing(60)
@given(st.lists(messages, max_size=8))
def test_a_server_that_says_anything(world: World, caplog: pytest.LogCaptureFixture, said: list[bytes]) -> None:
    """It may open connections at will, to where our side lets it."""

    async def talk() -> None:
        done = asyncio.Event()

        async def serve(request: web.Request) -> web.WebSocketResponse:
            socket = web.WebSocketResponse(autoping=False)
            await socket.prepare(request)
            if not done.is_set():
                with contextlib.suppress(ConnectionError):
                    for message in (*said, encode(1, 77, Kind.CONNECT, f"tcp/{world.address}".encode())):
                        await socket.send_bytes(message)
                await _answered(socket)
                done.set()
            await socket.close()
            return socket

        application = web.Application()
        application.router.add_get("/v3/connect", serve)
        runner = web.AppRunner(application, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"ws://127.0.0.1:{runner.addresses[0][1]}/v3/connect"
        client = TunnelClient(Server(url, proxy=""), dict, lambda _, to: to == world.address, SYSTEM_CLOCK, Rng(1))
        task = asyncio.create_task(client.run())
        async with asyncio.timeout(60):
            await done.wait()
        await stopped(task)
        await runner.cleanup()

    world.runner.run(talk())
    world.heard(caplog)
