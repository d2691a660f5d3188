"""The tunnel between ours and Rancher's own remotedialer, each as server and as client: every stream test in all four pairings.

A connection of a test goes to a loopback port of the server's side, through the tunnel, and on to a service of the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.tunnel import NoSession, Refused, Server, Session, TunnelClient, TunnelServer, join
from remuda.tunnel.session import PING_EVERY
from tests.e2e.conftest import SOAK
from tests.real import need
from tests.waiting import until

OURS, THEIRS = "remuda", "remotedialer"
PAIRINGS = [(server, client) for server in (OURS, THEIRS) for client in (OURS, THEIRS)]
KEY = "c-test"
TOKEN = "right"
MIB = 1 << 20

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter
Serve = Callable[[Reader, Writer], Awaitable[None]]


class OurServer:
    """Our server side; a forwarded port is a listener whose connections are joined to dialled streams."""

    def __init__(self) -> None:
        self.tunnels = TunnelServer(self._authorize, SYSTEM_CLOCK, Rng())
        self.url = ""
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        application = web.Application()
        application.router.add_get("/connect", self.tunnels.handle)
        runner = web.AppRunner(application, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"ws://127.0.0.1:{runner.addresses[0][1]}/connect"
        self._stack.push_async_callback(runner.cleanup)

    async def stop(self) -> None:
        self.tunnels.close()
        await self._stack.aclose()

    @staticmethod
    async def _authorize(request: web.Request) -> str | None:
        shown = request.headers.get("X-API-Tunnel-Token")
        if shown is not None and shown != TOKEN:
            raise Refused("cluster not found")
        return request.headers["X-Key"] if shown else None

    async def connected(self) -> bool:
        return self.tunnels.has_session(KEY)

    async def forward(self, network: str, address: str) -> int:
        async def lead(reader: Reader, writer: Writer) -> None:
            try:
                stream = await self.tunnels.dial(KEY, network, address)
            except NoSession:
                writer.close()
                return
            await join(stream, reader, writer)

        listener = await asyncio.start_server(lead, "127.0.0.1", 0)
        self._stack.callback(listener.close)
        port: int = listener.sockets[0].getsockname()[1]
        return port


class TheirServer:
    """Rancher's server side, in a process of its own."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self._process: asyncio.subprocess.Process | None = None
        self._base = ""
        self.url = ""

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(self._program, "server", stdout=-1, stderr=sys.stderr.fileno())
        assert self._process.stdout is not None
        port = int(await self._process.stdout.readline())
        self._base = f"http://127.0.0.1:{port}"
        self.url = f"ws://127.0.0.1:{port}/connect"

    async def stop(self) -> None:
        assert self._process is not None
        await ended(self._process)

    async def _ask(self, path: str, **query: str) -> str:
        async with aiohttp.ClientSession() as http, http.get(self._base + path, params=query) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.text()

    async def connected(self) -> bool:
        return KEY in (await self._ask("/clients")).splitlines()

    async def forward(self, network: str, address: str) -> int:
        return int(await self._ask("/forward", key=KEY, network=network, address=address))


class OurClient:
    def __init__(self) -> None:
        self.client: TunnelClient | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, url: str) -> None:
        headers = {"X-API-Tunnel-Token": TOKEN, "X-Key": KEY}
        connected = asyncio.Event()

        async def greet(session: Session) -> None:
            connected.set()

        def allowed(network: str, address: str) -> bool:
            return not address.endswith(":9")

        self.client = TunnelClient(Server(url, proxy=""), lambda: headers, allowed, SYSTEM_CLOCK, Rng(), connected=greet)
        self._task = asyncio.create_task(self.client.run())
        await connected.wait()

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


class TheirClient:
    def __init__(self, program: Path) -> None:
        self._program = program
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, url: str) -> None:
        arguments = (self._program, "client", url, KEY)
        self._process = await asyncio.create_subprocess_exec(*arguments, stdout=-1, stderr=sys.stderr.fileno())
        assert self._process.stdout is not None
        assert await self._process.stdout.readline() == b"connected\n"

    async def stop(self) -> None:
        assert self._process is not None
        await ended(self._process)


async def ended(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGKILL)
    await process.wait()


@dataclass(frozen=True, slots=True)
class Tunnel:
    server: OurServer | TheirServer
    client: OurClient | TheirClient
    # Another client with the same key, not started.
    second: OurClient | TheirClient

    @asynccontextmanager
    async def to(self, serve: Serve) -> AsyncIterator[tuple[Reader, Writer]]:
        """A connection through the tunnel to a service."""
        async with listening(serve) as address, self.dialled(address) as found:
            yield found

    @asynccontextmanager
    async def dialled(self, address: str, network: str = "tcp") -> AsyncIterator[tuple[Reader, Writer]]:
        port = await self.server.forward(network, address)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield reader, writer
        finally:
            writer.close()

    async def goes_on(self) -> None:
        """Streams work, or will within seconds."""
        end = time.monotonic() + 90
        # Go's server never ends a stream that it dialled in the very moment in which the session ended.
        patience = 20 if isinstance(self.server, TheirServer) else None
        while time.monotonic() < end:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError):
                async with asyncio.timeout(patience), self.to(echo) as (reader, writer):
                    writer.write(b"again")
                    assert await reader.readexactly(5) == b"again"
                    return
            await asyncio.sleep(0.1)
        raise AssertionError("no stream works any more")

    async def until_connected(self) -> None:
        end = time.monotonic() + 90
        while time.monotonic() < end:
            if await self.server.connected():
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the client did not connect")


@pytest.fixture(params=PAIRINGS, ids=[f"server-{server}-client-{client}" for server, client in PAIRINGS])
async def tunnel(request: pytest.FixtureRequest) -> AsyncIterator[Tunnel]:
    server_kind, client_kind = request.param
    program = Path()
    if THEIRS in (server_kind, client_kind):
        program = need.programs("remotedialer")["remotedialer"]
    server = OurServer() if server_kind == OURS else TheirServer(program)
    await server.start()
    client, second = (OurClient() if client_kind == OURS else TheirClient(program) for _ in range(2))
    await client.start(server.url)
    made = Tunnel(server, client, second)
    try:
        await made.until_connected()
        yield made
    finally:
        await client.stop()
        await server.stop()


pytestmark = pytest.mark.real


@asynccontextmanager
async def listening(serve: Serve, path: Path | None = None) -> AsyncIterator[str]:
    async def handle(reader: Reader, writer: Writer) -> None:
        with contextlib.suppress(ConnectionError):
            await serve(reader, writer)
        writer.close()

    if path is None:
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    else:
        server = await asyncio.start_unix_server(handle, str(path))
        address = str(path)
    try:
        yield address
    finally:
        server.close()


async def echo(reader: Reader, writer: Writer) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def written(writer: Writer, content: bytes) -> None:
    for start in range(0, len(content), 65536):
        writer.write(content[start : start + 65536])
        await writer.drain()


async def flow(reader: Reader, writer: Writer, send: bool) -> None:
    """Send or take for as long as there is somebody at the other end."""
    with contextlib.suppress(ConnectionError):
        while send:
            writer.write(bytes(65536))
            await writer.drain()
        while await reader.read(65536):
            pass


async def test_there_and_back(tunnel: Tunnel) -> None:
    async with tunnel.to(echo) as (reader, writer):
        for size in (1, 100, 4096, 40_000, 1):
            content = random.Random(size).randbytes(size)
            writer.write(content)
            assert await reader.readexactly(size) == content


async def test_a_unix_socket(tunnel: Tunnel, tmp_path: Path) -> None:
    async with listening(echo, tmp_path / "s") as address, tunnel.dialled(address, "unix") as (reader, writer):
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"


async def test_the_far_end_comes_after_everything_that_was_sent(tunnel: Tunnel) -> None:
    content = random.Random(1).randbytes(5 * MIB)

    async def send(reader: Reader, writer: Writer) -> None:
        await written(writer, content)

    async with tunnel.to(send) as (reader, _):
        assert hashlib.sha256(await reader.read(-1)).digest() == hashlib.sha256(content).digest()


async def test_our_end_comes_after_everything_that_was_written(tunnel: Tunnel) -> None:
    content = random.Random(2).randbytes(5 * MIB)
    got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def take(reader: Reader, writer: Writer) -> None:
        got.set_result(await reader.read(-1))

    async with tunnel.to(take) as (_, writer):
        await written(writer, content)
        writer.close()
        assert hashlib.sha256(await got).digest() == hashlib.sha256(content).digest()


async def test_a_port_without_a_listener_closes_the_connection(tunnel: Tunnel) -> None:
    async with tunnel.dialled("127.0.0.1:1") as (reader, _):
        assert await reader.read(-1) == b""
    async with tunnel.to(echo) as (reader, writer):
        writer.write(b"still here")
        assert await reader.readexactly(10) == b"still here"


async def test_the_end_of_one_direction_is_the_end_of_both_after_everything_was_sent(tunnel: Tunnel) -> None:
    got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def take(reader: Reader, writer: Writer) -> None:
        got.set_result(await reader.read(-1))
        # There is no half-closed connection in the tunnel, so nobody hears this.
        writer.write(b"too late")

    async with tunnel.to(take) as (reader, writer):
        writer.write(b"everything")
        writer.write_eof()
        assert await got == b"everything"
        assert await reader.read(-1) == b""


async def test_an_address_that_is_not_allowed_is_not_dialled(tunnel: Tunnel) -> None:
    async with tunnel.dialled("127.0.0.1:9") as (reader, _):
        assert await reader.read(-1) == b""
    # Go ends its whole session over it, and comes back.
    await tunnel.goes_on()


async def test_the_next_session_takes_over_when_the_first_ends(tunnel: Tunnel) -> None:
    await tunnel.second.start(tunnel.server.url)
    try:
        await tunnel.client.stop()
        await tunnel.goes_on()
    finally:
        await tunnel.second.stop()


async def test_many_streams_at_once(tunnel: Tunnel) -> None:
    async with listening(echo) as address:
        port = await tunnel.server.forward("tcp", address)

        async def one(number: int) -> None:
            content = random.Random(number).randbytes(random.Random(-number).randrange(1, 300_000))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writing = asyncio.create_task(written(writer, content))
            assert await reader.readexactly(len(content)) == content
            await writing
            writer.close()

        await asyncio.gather(*(one(number) for number in range(40)))


async def test_bulk_both_ways(tunnel: Tunnel) -> None:
    # Where both are Go's, each may wait for the other for ever once it asks for a pause (stream.py says how).
    ours = isinstance(tunnel.server, OurServer) or isinstance(tunnel.client, OurClient)
    content = random.Random(3).randbytes((16 if ours else 1) * MIB)
    async with tunnel.to(echo) as (reader, writer):
        writing = asyncio.create_task(written(writer, content))
        found = hashlib.sha256()
        count = 0
        while count < len(content):
            data = await reader.read(65536)
            assert data, f"the end after {count} bytes"
            found.update(data)
            count += len(data)
        await writing
        assert found.digest() == hashlib.sha256(content).digest()


async def test_a_reader_that_stops_holds_up_only_its_own_stream(tunnel: Tunnel) -> None:
    sent = 0
    total = 96 * MIB
    block = bytes(65536)

    async def flood(reader: Reader, writer: Writer) -> None:
        nonlocal sent
        while sent < total:
            writer.write(block)
            await writer.drain()
            sent += len(block)

    async with tunnel.to(flood) as (stuck, _):
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.3)
        assert sent < total, "nobody braked"
        content = random.Random(4).randbytes(2 * MIB)
        async with tunnel.to(echo) as (reader, writer):
            writing = asyncio.create_task(written(writer, content))
            assert await reader.readexactly(len(content)) == content
            await writing
        count = 0
        while data := await stuck.read(1 << 18):
            count += len(data)
        assert count == total


async def test_a_service_that_stops_reading_brakes_the_writer(tunnel: Tunnel) -> None:
    go_on = asyncio.Event()
    got: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    total = 96 * MIB

    async def slow(reader: Reader, writer: Writer) -> None:
        await go_on.wait()
        count = 0
        while data := await reader.read(1 << 18):
            count += len(data)
        got.set_result(count)

    sent = 0

    async def flood(writer: Writer) -> None:
        nonlocal sent
        while sent < total:
            writer.write(bytes(65536))
            await writer.drain()
            sent += 65536
        writer.close()

    async with tunnel.to(slow) as (_, writer):
        writing = asyncio.create_task(flood(writer))
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.3)
        assert sent < total, "nobody braked"
        go_on.set()
        await writing
        assert await got == total


async def test_a_client_that_is_killed_takes_its_streams_along(tunnel: Tunnel) -> None:
    async with tunnel.to(echo) as (reader, writer):
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        await tunnel.client.stop()
        assert await reader.read(-1) == b""
    await tunnel.client.start(tunnel.server.url)
    await tunnel.goes_on()


@pytest.mark.parametrize("upwards", [True, False], ids=["writing", "reading"])
async def test_a_cut_in_the_middle_of_a_transfer_ends_both_ends(tunnel: Tunnel, upwards: bool) -> None:
    reached = asyncio.Event()
    far: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def forever(reader: Reader, writer: Writer) -> None:
        reached.set()
        await flow(reader, writer, not upwards)
        far.set_result(None)

    async with tunnel.to(forever) as (reader, writer):
        near = asyncio.create_task(flow(reader, writer, upwards))
        # Without a far end there is none that could end.
        await reached.wait()
        await asyncio.sleep(0.2)
        assert not near.done()
        await tunnel.client.stop()
        await near
        await far


async def test_signs_of_life_are_understood(tunnel: Tunnel) -> None:
    """Pings of theirs keep our session alive, and their pongs ours; in full only when soaking."""
    ours = []
    if isinstance(tunnel.server, OurServer):
        ours.append(tunnel.server.tunnels.sessions(KEY)[0])
    if isinstance(tunnel.client, OurClient):
        assert tunnel.client.client is not None
        found = tunnel.client.client.session
        assert found is not None
        ours.append(found)
    if not ours:
        return
    before = [session.heard_at for session in ours]

    def heard() -> bool:
        return all(session.heard_at > earlier for session, earlier in zip(ours, before, strict=True))

    await until(heard, "a sign of life of each session", quiet=6 * PING_EVERY)
    if SOAK:
        async with tunnel.to(echo) as (reader, writer):
            # Past the minute after which a silent line is dead and streams are compared.
            await asyncio.sleep(130)
            writer.write(b"still here")
            assert await reader.readexactly(10) == b"still here"
    assert all(session.alive for session in ours)


@pytest.mark.parametrize(("token", "status"), [("", 401), ("wrong", 400)])
async def test_who_is_refused_hears_the_same_from_both(token: str, status: int) -> None:
    servers: list[OurServer | TheirServer] = [OurServer(), TheirServer(need.programs("remotedialer")["remotedialer"])]
    said = []
    for server in servers:
        await server.start()
        headers = {"X-Key": KEY} | ({"X-API-Tunnel-Token": token} if token else {})
        async with aiohttp.ClientSession() as http, http.get(server.url.replace("ws:", "http:"), headers=headers) as answer:
            said.append((answer.status, await answer.text()))
        await server.stop()
    assert said[0] == said[1]
    assert said[0][0] == status
