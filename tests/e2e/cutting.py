"""A proxy that breaks connections at chosen bytes of what the server says.

Between it and the client is plain HTTP, so that it knows where a status line, a header, a chunk or an event begins and ends;
between it and the server is TLS with the administrator's certificate. :class:`RawProxy` knows nothing and cuts TLS anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

# Where in a response to a watch, chunked as HTTP/1.1 does, a connection may end.
PLACES = (
    "nothing",
    "status line",
    "head",
    "head end",
    "chunk size",
    "chunk size end",
    "event begins",
    "event middle",
    "before newline",
    "after newline",
    "chunk's line end",
    "chunk end",
)


@dataclass(frozen=True)
class Cut:
    """Let `events` chunks pass, then end at `place` of the next; with a reset, or as if the server had hung up."""

    place: str
    events: int
    reset: bool


class _Scanner:
    """Reads a response as it comes and says where to cut it."""

    def __init__(self, cut: Cut) -> None:
        self.cut = cut
        self._data = b""

    def scan(self, data: bytes) -> tuple[int, bool]:
        """How many bytes of all so far come before the cut for sure, and whether the cut is there."""
        self._data += data
        place = self.cut.place
        if place == "nothing":
            return 0, True
        if place == "status line":
            return 5, True
        head = self._data.find(b"\r\n\r\n") + 4
        if head < 4:
            return 0, False
        if place == "head":
            return head // 2, True
        if place == "head end":
            return head, True
        at = head
        for _ in range(self.cut.events):
            chunk = self._chunk(at)
            if chunk is None or chunk[1] + 2 > len(self._data):
                return at, False
            at = chunk[1] + 2
        chunk = self._chunk(at)
        if chunk is None or chunk[1] + 2 > len(self._data):
            return at, False
        begin, end = chunk
        places = {
            "chunk size": at + 1,
            "chunk size end": begin,
            "event begins": begin + 1,
            "event middle": (begin + end) // 2,
            "before newline": end - 1,
            "after newline": end,
            "chunk's line end": end + 1,
            "chunk end": end + 2,
        }
        return places[place], True

    def _chunk(self, at: int) -> tuple[int, int] | None:
        """Where the content of the chunk at `at` begins and ends."""
        line = self._data.find(b"\r\n", at)
        if line < 0:
            return None
        return line + 2, line + 2 + int(self._data[at:line], 16)


class Proxy:
    """`cuts` are used up, one by each connection that watches; when there are none left, connections live."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        self._upstream = (host, port, context)
        self.cuts: deque[Cut] = deque()
        self.refuse_streams = False
        self.watches = 0
        self.url = ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        async with _serving(self._connected) as port:
            self.url = f"http://127.0.0.1:{port}"
            yield self

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port, context = self._upstream
        far_reader, far_writer = await asyncio.open_connection(host, port, ssl=context)
        cut: Cut | None = None

        async def ask() -> None:
            nonlocal cut
            while data := await reader.read(65536):
                if b"watch=true" in data:
                    self.watches += 1
                    if self.refuse_streams and b"sendInitialEvents" in data:
                        body = (
                            b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","message":"no","code":422}'
                        )
                        head = f"HTTP/1.1 422 No\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                        writer.write(head.encode() + body)
                        continue
                    cut = self.cuts.popleft() if self.cuts else None
                far_writer.write(data)

        async def answer() -> None:
            scanner: _Scanner | None = None
            seen, passed = b"", 0
            while data := await far_reader.read(65536):
                if cut is None:
                    writer.write(data)
                    continue
                if scanner is None:
                    scanner = _Scanner(cut)
                seen += data
                allowed, there = scanner.scan(data)
                writer.write(seen[passed:allowed])
                passed = allowed
                if there:
                    await writer.drain()
                    # The client must get what was let through before it sees the end.
                    await asyncio.sleep(0.002)
                    if cut.reset:
                        writer.transport.abort()
                    return

        await _both(ask(), answer(), writer, far_writer)


class RawProxy:
    """Passes bytes on; `limits` are numbers of bytes from the server after which a connection ends, `asking` those from the
    client."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self.limits: deque[int] = deque()
        self.asking: deque[int] = deque()
        self.port = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[RawProxy]:
        async with _serving(self._connected) as self.port:
            yield self

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._upstream)
        asked = self.asking.popleft() if self.asking else None
        answered = self.limits.popleft() if self.limits else None
        await _both(_passed(reader, far_writer, asked), _passed(far_reader, writer, answered), writer, far_writer)


async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None) -> None:
    while data := await reader.read(65536):
        if limit is not None and len(data) >= limit:
            writer.write(data[:limit])
            await writer.drain()
            return
        writer.write(data)
        await writer.drain()
        if limit is not None:
            limit -= len(data)


@contextlib.asynccontextmanager
async def _serving(
    connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _both(ask: Awaitable[None], answer: Awaitable[None], near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
    """Until either side is done; then both connections are."""
    tasks = [asyncio.ensure_future(ask), asyncio.ensure_future(answer)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        far.transport.abort()
        near.close()
