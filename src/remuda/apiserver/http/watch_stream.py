"""A watch over HTTP: frames go straight to the transport while the reader keeps up, and wait (a while) when it does not."""

from __future__ import annotations

import asyncio

from aiohttp import web

from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError

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

    def __init__(self, version: Version, shape: Shape = JSON) -> None:
        self.version = version
        self.shape = shape
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
        key = (shape, self.version, type_)
        found = change.frames.get(key)
        if found is None:
            # A deletion carries the revision at which it happened.
            revision = change.revision if type_ == DELETED else entry.revision
            found = change.frames[key] = chunk(shape.frame(type_, self.version, entry, revision))
        return found

    def _take_shape(self) -> Shape:
        shape, self._next_shape = self._next_shape, self.shape
        return shape

    def bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bool:
        return self.send(chunk(self._take_shape().bookmark(self.version, revision, annotations)))

    def error(self, error: ApiError) -> None:
        self.send(chunk(framed(ERROR, jsonio.dumps(error.status()))))

    def end(self) -> None:
        self.ended = True
        self._wake.set()

    # --- called by the request ----------------------------------------------------------------------------------------

    async def run(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
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
