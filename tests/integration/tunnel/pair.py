"""Both sides of a tunnel in this process, over a real websocket on loopback, and things on the far side to dial."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from aiohttp import web

from remuda.kube.clock import SYSTEM_CLOCK, Clock, Rng
from remuda.tunnel import Refused, Server, TunnelClient, TunnelServer
from remuda.tunnel.client import Allow
from remuda.tunnel.session import Accept
from tests.waiting import until

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
TOKEN = "right"


async def authorize(request: web.Request) -> str | None:
    token = request.headers.get("X-API-Tunnel-Token")
    if token is None:
        return None
    if token != TOKEN:
        raise Refused("cluster not found")
    return request.headers.get("X-Key", "c-test")


class Door:
    """A tunnel server that listens."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.tunnels = TunnelServer(authorize, clock, Rng(1))
        self.clock = clock
        self.port = 0
        self.url = ""
        self._clients = AsyncExitStack()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Door:
        application = web.Application()
        application.router.add_get("/v3/connect", self.tunnels.handle)
        self._runner = web.AppRunner(application, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.url = f"ws://127.0.0.1:{self.port}/v3/connect"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._clients.aclose()
        self.tunnels.close()
        assert self._runner is not None
        await self._runner.cleanup()

    def client(
        self,
        key: str = "c-test",
        *,
        token: str = TOKEN,
        allow: Allow = lambda *_: True,
        serve: Accept | None = None,
        seed: int = 2,
    ) -> TunnelClient:
        headers = {"X-API-Tunnel-Token": token, "X-Key": key}
        return TunnelClient(Server(self.url, proxy=""), lambda: headers, allow, self.clock, Rng(seed), serve=serve)

    async def join(
        self, key: str = "c-test", *, allow: Allow = lambda *_: True, serve: Accept | None = None
    ) -> tuple[TunnelClient, asyncio.Task[None]]:
        """A client that is connected, as both sides know; it leaves with the door."""
        before = len(self.tunnels.sessions(key))
        client = self.client(key, allow=allow, serve=serve)
        task = asyncio.create_task(client.run())
        self._clients.push_async_callback(stopped, task)
        await until(lambda: client.session is not None and len(self.tunnels.sessions(key)) > before)
        return client, task


async def stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@asynccontextmanager
async def listening(serve: Serve, path: Path | None = None) -> AsyncIterator[str]:
    """A TCP (or unix) service; its address."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await serve(reader, writer)
        writer.close()

    if path is not None:
        server = await asyncio.start_unix_server(handle, str(path))
        address = str(path)
    else:
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield address
    finally:
        server.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def read_all(stream: object) -> bytes:
    found = bytearray()
    while data := await stream.read():  # type: ignore[attr-defined]
        found += data
    return bytes(found)


async def read_exactly(stream: object, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        data = await stream.read(count - len(found))  # type: ignore[attr-defined]
        assert data, f"the end after {len(found)} of {count} bytes"
        found += data
    return bytes(found)
