"""Two connections joined byte for byte, after both sides have agreed to speak websocket or SPDY instead of HTTP.

aiohttp keeps the client's socket; only the bytes read are led here (`set_parser`), and the socket is paused while the upstream
accepts nothing. The end of one side ends both, as in the tunnel.
"""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from remuda.tunnel import ByteStream

from .connection_pool import why

_PAUSE_ABOVE = 256 * 1024


class _FromClient:
    """The client's bytes, as aiohttp delivers them; bounded by pausing the client's socket."""

    def __init__(self, protocol: RequestHandler) -> None:
        self._protocol = protocol
        self._received = bytearray()
        self._paused = False
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self._received += data
        transport = self._protocol.transport
        if len(self._received) > _PAUSE_ABOVE and not self._paused and transport is not None:
            self._paused = True
            transport.pause_reading()
        self._wake()
        return False, b""

    def feed_eof(self) -> None:
        self._ended = True
        self._wake()

    async def read(self) -> bytes:
        while not self._received:
            if self._ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        data, self._received = bytes(self._received), bytearray()
        transport = self._protocol.transport
        if self._paused and transport is not None:
            self._paused = False
            transport.resume_reading()
        return data

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def join(request: web.BaseRequest, upstream: ByteStream, first: bytes) -> str:
    """Carry bytes both ways until one side ends; the reason of an unclean end. `first` came from the upstream already."""
    protocol = request.protocol
    client = _FromClient(protocol)
    # Called for every byte from now on, and for those that came too early.
    protocol.set_parser(client)  # type: ignore[arg-type]
    outward = asyncio.create_task(_to_upstream(client, upstream))
    try:
        return await _to_client(protocol, upstream, first)
    finally:
        outward.cancel()
        await asyncio.gather(outward, return_exceptions=True)


async def _to_upstream(client: _FromClient, upstream: ByteStream) -> None:
    try:
        while data := await client.read():
            await upstream.write(data)
    except OSError:
        # The task that reads the other direction sees the reason.
        return
    upstream.close()


async def _to_client(protocol: RequestHandler, upstream: ByteStream, first: bytes) -> str:
    data = first
    while True:
        transport = protocol.transport
        if transport is None or transport.is_closing():
            return ""
        if data:
            transport.write(data)
            await protocol._drain_helper()
        try:
            data = await upstream.read()
        except OSError as error:
            if protocol.transport is not None:
                protocol.transport.abort()
            return f"the connection was cut off: {why(error)}"
        if not data:
            transport.close()
            return ""
