"""A watch over HTTP or a websocket: frames go straight to the transport while the reader keeps up, else they wait (a while).

A :class:`Wire` is what carries them: a chunked response, or a websocket on which each event is one text message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from aiohttp import WSMsgType, web

from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError

from ..auth.authenticator import PROTOCOL_PREFIX
from ..cache.entries import Entry
from ..cache.resource_cache import Change
from ..registry.resources import Version
from ..watch.watchers import DELETED, ERROR, JSON, Shape, Watcher, framed

# Above this many bytes in the transport new events are held back until the reader has caught up …
_HIGH = 256 * 1024
# … and a reader that lets this many bytes of events pile up is disconnected; it resumes from its last revision.
_LIMIT = 8 * 1024 * 1024


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class WatchStream:
    """The sink of one HTTP watch."""

    def __init__(self, version: Version, shape: Shape = JSON, frame: Callable[[bytes], bytes] = chunk) -> None:
        self.version = version
        self.shape = shape
        self._frame = frame
        self._next_shape = shape.leading
        self._transport: asyncio.WriteTransport | None = None
        # The same, also while events have to wait.
        self._wire: asyncio.Transport | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._wake = asyncio.Event()
        self.ended = False
        # The watcher to send bookmarks for, when the client requested them.
        self.bookmarks_for: Watcher | None = None

    # --- called by the feed -------------------------------------------------------------------------------------------

    def deliver(self, events: list[tuple[str, Change, Entry]]) -> bool:
        if self.ended:
            return False
        if len(events) == 1:
            data = self._framed(*events[0])
        else:
            data = b"".join([self._framed(*event) for event in events])
        return self.send(data)

    def hold(self, events: list[tuple[str, Change, Entry]]) -> None:
        """Events to be written first, without a limit on their number; the limit is for readers that fall behind later."""
        self._held.append(b"".join([self._framed(*event) for event in events]))

    def send(self, data: bytes) -> bool:
        transport = self._transport
        if transport is None or self._held:
            self._held.append(data)
            self._held_bytes += len(data)
            self._wake.set()
            if self._held_bytes > _LIMIT:
                self._give_up()
                return False
            return True
        if transport.is_closing():
            return False
        transport.write(data)
        if transport.get_write_buffer_size() > _HIGH:
            # From now on events wait in `_held` until `run` has seen the transport drain.
            self._held.append(b"")
            self._wake.set()
        return True

    def _give_up(self) -> None:
        """Cut a reader that is too far behind: drop its events and abort the connection, since a clean end would have to
        wait for the reader as well."""
        self._held.clear()
        self._held_bytes = 0
        self.end()
        if self._wire is not None:
            self._wire.abort()

    def _framed(self, type_: str, change: Change, entry: Entry) -> bytes:
        shape = self._take_shape()
        key = (shape, self.version, type_, self._frame)
        found = change.frames.get(key)
        if found is None:
            # A deletion carries the revision at which it happened.
            revision = change.revision if type_ == DELETED else entry.revision
            found = change.frames[key] = self._frame(shape.frame(type_, self.version, entry, revision))
        return found

    def _take_shape(self) -> Shape:
        shape, self._next_shape = self._next_shape, self.shape
        return shape

    def bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bool:
        return self.send(self._frame(self._take_shape().bookmark(self.version, revision, annotations)))

    def error(self, error: ApiError) -> None:
        self.send(self._frame(framed(ERROR, jsonio.dumps(error.status()))))

    def end(self) -> None:
        self.ended = True
        self._wake.set()

    # --- called by the request ----------------------------------------------------------------------------------------

    async def run(self, request: web.BaseRequest) -> None:
        """Write until the watch ends. Events sent before this call are held."""
        transport = self._wire = request.transport
        while transport is not None and not transport.is_closing():
            # While held events are being written, newer events wait behind them.
            self._transport = None
            held, self._held, self._held_bytes = self._held, [], 0
            for start in range(0, len(held), 64):
                data = b"".join(held[start : start + 64])
                if data:
                    transport.write(data)
                    await _drained(request)
            if self._held:
                continue
            self._transport = transport
            if self.ended:
                return
            self._wake.clear()
            await self._wake.wait()
            await _drained(request)


async def _drained(request: web.BaseRequest) -> None:
    await request.protocol._drain_helper()


# --- wires ----------------------------------------------------------------------------------------------------------------

_HEADERS = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
# The first byte of a text message in one frame, and what stands for lengths of two and of eight bytes.
_MESSAGE, _TWO, _EIGHT = 0x81, 126, 127
# What a client says on its websocket is dropped; it has this long to answer that the watch is over.
_LONGEST_MESSAGE = 64 * 1024
_CLOSE_SECONDS = 2.0


class Wire(Protocol):
    """One way to carry a watch. Its response takes headers until the stream begins."""

    @property
    def frame(self) -> Callable[[bytes], bytes]: ...

    @property
    def response(self) -> web.StreamResponse: ...

    async def carry(self, request: web.BaseRequest, stream: WatchStream) -> None:
        """Send the stream until it ends."""

    async def whole(self, request: web.BaseRequest, event: bytes) -> web.StreamResponse:
        """A watch that is over with its first event."""


def watch_wire(request: web.BaseRequest) -> Wire:
    headers = request.headers
    named = {each.strip().lower() for each in headers.get("Connection", "").split(",")}
    if headers.get("Upgrade", "").lower() == "websocket" and "upgrade" in named:
        return WebSocketWire(headers.get("Sec-WebSocket-Protocol", ""))
    return ChunkedWire()


class ChunkedWire:
    frame = staticmethod(chunk)

    def __init__(self) -> None:
        self.response = web.StreamResponse(headers=_HEADERS)
        self.response.enable_chunked_encoding()

    async def carry(self, request: web.BaseRequest, stream: WatchStream) -> None:
        await self.response.prepare(request)
        await stream.run(request)
        await self.response.write_eof()

    async def whole(self, request: web.BaseRequest, event: bytes) -> web.StreamResponse:
        return web.Response(body=event, headers=_HEADERS)


def message(data: bytes) -> bytes:
    """A text message of a websocket's server, in one frame."""
    size = len(data)
    if size < _TWO:
        head = bytes((_MESSAGE, size))
    elif size < 1 << 16:
        head = bytes((_MESSAGE, _TWO)) + size.to_bytes(2)
    else:
        head = bytes((_MESSAGE, _EIGHT)) + size.to_bytes(8)
    return head + data


class WebSocketWire:
    frame = staticmethod(message)

    def __init__(self, protocols: str) -> None:
        """`protocols`: those that the client lists. The first one is echoed, never one that holds a token."""
        listed = [name for each in protocols.split(",") if (name := each.strip()) and not name.startswith(PROTOCOL_PREFIX)]
        self.response = web.WebSocketResponse(
            protocols=listed[:1], compress=False, max_msg_size=_LONGEST_MESSAGE, timeout=_CLOSE_SECONDS
        )

    async def carry(self, request: web.BaseRequest, stream: WatchStream) -> None:
        await self.response.prepare(request)
        reading = asyncio.create_task(self._read(stream), name="the client's side of a watch")
        try:
            await stream.run(request)
            await self.response.close()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def whole(self, request: web.BaseRequest, event: bytes) -> web.StreamResponse:
        await self.response.prepare(request)
        await self.response.send_str(event.decode())
        await self.response.close()
        return self.response

    async def _read(self, stream: WatchStream) -> None:
        """Answers pings; the watch ends when the client closes its side."""
        while (await self.response.receive()).type in (WSMsgType.TEXT, WSMsgType.BINARY):
            pass
        stream.end()
