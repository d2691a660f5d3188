"""The websocket under a session, on either side: a few methods over aiohttp's two classes.

Pings and pongs are handed up instead of being answered by aiohttp: Go answers any ping with an empty pong,
and counts pings and pongs, not data, as signs of life (docs/reference/tunnel.md#signs-of-life).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import aiohttp
from aiohttp import WSMsgType, web

# Go has no limit. No known Go program writes more than this at once; a peer that does would fill our memory.
LARGEST_MESSAGE = 16 << 20

WebSocket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


class ClientSocket(aiohttp.ClientWebSocketResponse):
    """aiohttp's client websocket that can be dropped without a close handshake, for a connection on which no peer answers."""

    def abort(self) -> None:
        transport = self._response.connection.transport if self._response.connection is not None else None
        if transport is not None:
            transport.abort()


class Wire:
    """One websocket."""

    def __init__(self, socket: WebSocket, abort: Callable[[], None]) -> None:
        self._socket = socket
        self._abort = abort

    async def receive(self) -> tuple[WSMsgType, bytes]:
        """The next message; CLOSED after the last. Text comes without its content: the protocol has no text messages."""
        message = await self._socket.receive()
        if message.type is WSMsgType.BINARY:
            return message.type, message.data
        if message.type in (WSMsgType.PING, WSMsgType.PONG, WSMsgType.TEXT):
            return message.type, b""
        if message.type is WSMsgType.ERROR:
            return WSMsgType.ERROR, str(message.data).encode()
        return WSMsgType.CLOSED, b""

    async def send(self, message: bytes) -> None:
        await self._socket.send_bytes(message)

    async def ping(self) -> None:
        await self._socket.ping(b"")

    async def pong(self) -> None:
        await self._socket.pong(b"")

    def abort(self) -> None:
        """Drop the connection at once; pending reads and writes fail."""
        with contextlib.suppress(RuntimeError, OSError):
            self._abort()
