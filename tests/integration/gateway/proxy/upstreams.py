"""A gateway's listener that passes everything on to one upstream, and upstreams that say what they are told to, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from remuda.apiserver.http.listener import Listener
from remuda.gateway.proxy.connection_pool import Connect, Pool, direct
from remuda.gateway.proxy.reverse_proxy import ClientGone, Exchange
from remuda.gateway.server.headers import for_cluster, from_cluster, upgrade_of
from remuda.kube.clock import SYSTEM_CLOCK, Clock
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def upstream(serve: Serve) -> AsyncIterator[int]:
    """A service on loopback; its port."""
    writers: set[asyncio.StreamWriter] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()


def saying(*answers: bytes, end: bool = True, seen: list[bytes] | None = None) -> Serve:
    """Reads a head per answer (and nothing of its body), then answers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            head = await reader.readuntil(b"\r\n\r\n")
            if seen is not None:
                seen.append(head)
            writer.write(answer)
            await writer.drain()
        if not end:
            await reader.read()

    return serve


@dataclass
class Gate:
    """The listener, and what became of each request."""

    port: int
    pool: Pool
    noted: list[str] = field(default_factory=list)
    gone: int = 0
    open: int = 0


@asynccontextmanager
async def gate(connect: Connect | int, clock: Clock = SYSTEM_CLOCK) -> AsyncIterator[Gate]:
    pool = Pool(direct("127.0.0.1", connect, None) if isinstance(connect, int) else connect, clock)
    found = Gate(0, pool)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        cleaned = for_cluster(request.headers.items())
        found.open += 1
        try:
            async with Exchange(request, pool, clock, what="the cluster") as exchange:
                try:
                    headers = [("Host", "upstream"), *cleaned.headers]
                    await exchange.ask(request.raw_path, headers, upgrade_of(request.headers.items()))
                    return await exchange.answer(from_cluster)
                finally:
                    found.noted.append(exchange.noted)
        except ApiError as error:
            return web.Response(status=error.code, body=jsonio.dumps(error.status()), content_type="application/json")
        except ClientGone:
            found.gone += 1
            raise
        finally:
            found.open -= 1

    listener = Listener(handle, None)
    await listener.open("127.0.0.1", 0)
    found.port = listener.port
    try:
        yield found
    finally:
        await listener.close(0)
        pool.close()


class Caller:
    """A client that sends exactly what it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.heard = asyncio.Event()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def head(self) -> bytes:
        found = await self.reader.readuntil(b"\r\n\r\n")
        self.heard.set()
        return found

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """A whole answer, its framing undone. EOFError when it ends before its end."""
        lines = (await self.head()).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        status = int(lines[0].split()[1])
        if "content-length" in headers:
            return status, headers, await self.reader.readexactly(int(headers["content-length"]))
        if headers.get("transfer-encoding") != "chunked":
            return status, headers, b""
        body = b""
        while True:
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            body += await self.reader.readexactly(size)
            assert await self.reader.readexactly(2) == b"\r\n"
            if not size:
                return status, headers, body

    async def get(self, path: str = "/x", *headers: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        lines = [f"{method} {path} HTTP/1.1", "Host: gate", *headers]
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode())
        return await self.answer()


@asynccontextmanager
async def caller(port: int) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()
