"""Many streams over one websocket: reading, writing, fair scheduling, and detection of dead connections.

Three tasks live as long as a session: one reads and waits only for the socket; one writes, first small and urgent
messages, then one chunk per stream in turn, so that no stream starves another; one handles timeouts. The reader never
writes: two sides that both wait for the other to read would be deadlocked.

:mod:`.server` keeps sessions and opens streams on them, :mod:`.client` connects streams to their targets.
Times are the Go side's (docs/reference/tunnel.md#signs-of-life): the client pings every 5 s, a connection without ping or pong
for 60 s is dead, and so is one that accepts no data for 60 s; data is no sign of life. Every 60 s the client lists its streams,
and the server drops those of its own that are not in the list. In addition, a connection that receives nothing at all for 25 s is
dead: with a ping every 5 s no live one is that quiet, and a cut is detected within half a minute.

The cost of a session is bounded: a number of streams, and a number of received but unread bytes of all of them together.
Near that bound every stream is throttled early; beyond it the stream that holds most is ended, not the session.

Under it is a :class:`Wire`: a few methods over aiohttp's two classes of websockets. Pings and pongs are handed up instead of
being answered by aiohttp: Go answers any ping with an empty pong, and counts pings and pongs, not data, as signs of life.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from math import inf

import aiohttp
from aiohttp import WSMsgType, web

from remuda.kube.clock import Clock, Rng

from .errors import FrameError, SessionEnded, StreamError, TunnelError
from .frames import (
    EOF,
    Kind,
    Message,
    client_body,
    connect_body,
    decode,
    encode,
    error_body,
    read_client,
    read_connect,
    read_error,
    read_sync,
    sync_body,
)
from .stream import Stream

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


PING_EVERY = 5.0
SILENT_AFTER = 60.0
SYNC_EVERY = 60.0
DEAF_AFTER = 25.0

MOST_STREAMS = 8192
CROWDED_ABOVE = 32 << 20
MOST_UNREAD = 128 << 20

CLIENT_KEY = "client"
# The most queued errors for unknown streams; more of them would carry no new information.
_MOST_COMPLAINTS = 1024

log = logging.getLogger(__name__)

Accept = Callable[[Stream], Awaitable[None]]
"""Serves a stream that the other side opened, until it is done with it."""

Announced = Callable[[Kind, str, int], None]
"""Takes what another server announces: AddClient or RemoveClient, the client's key, and the number of its session."""


class Session:
    """The streams of one websocket. The side with `accept` is the client: it pings, and serves opened streams."""

    def __init__(
        self,
        wire: Wire,
        clock: Clock,
        rng: Rng,
        *,
        key: str = CLIENT_KEY,
        number: int = 0,
        accept: Accept | None = None,
        announced: Announced | None = None,
        deaf_after: float = DEAF_AFTER,
    ) -> None:
        """`announced` only for a session with another server; announcements of all others are ignored."""
        self.clock = clock
        self.key = key
        self.number = number
        # An opaque value of the caller that accepted the session.
        self.mark: object = None
        # The one address that the client's side dials, if that is known.
        self.address = ""
        # What a client does when its server says that it will end.
        self.on_going_away: Callable[[], None] = lambda: None
        self.reason: str | None = None
        self.heard_at = clock.monotonic()
        self.unread = 0
        self._came_at = self.heard_at
        self._wire = wire
        self._accept = accept
        self._announced = announced
        self._deaf_after = deaf_after
        self._announcements: dict[tuple[str, int], Kind] = {}
        self._streams: dict[int, Stream] = {}
        self._last_stream = 1
        self._last_message = rng.below(1 << 63)
        self._work = asyncio.Event()
        self._urgent: deque[Stream] = deque()
        self._line: deque[Stream] = deque()
        self._complaints: dict[int, None] = {}
        self._ping_due = False
        self._pong_due = False
        self._sync_due = False
        self._farewell_due = False
        self._sending_since: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Session {self.key}/{self.number}>"

    @property
    def alive(self) -> bool:
        return self.reason is None

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return len(self._streams)

    def open(self, network: str, address: str) -> Stream:
        """Open a stream to an address on the other side. It exists at once; reading reports a failed dial."""
        if self.reason is not None:
            raise SessionEnded(f"the session of {self.key} is over: {self.reason}")
        if len(self._streams) >= MOST_STREAMS:
            raise StreamError(f"the session of {self.key} carries {MOST_STREAMS} connections already")
        body = connect_body(network, address)
        self._last_stream += 1
        stream = Stream(self, self._last_stream, network, address, body)
        self._streams[stream.id] = stream
        self.urgent(stream)
        return stream

    def announce(self, kind: Kind, key: str, number: int) -> None:
        """Tell the other server of a client that came (AddClient) or went (RemoveClient). Of several for the same session that
        are not sent yet, only the last one counts."""
        if self.reason is None:
            self._announcements.pop((key, number), None)
            self._announcements[key, number] = kind
            self._work.set()

    def go_away(self) -> None:
        """Ask the client to open another session, at another server; this one lasts until it is ended."""
        self._farewell_due = True
        self._work.set()

    async def serve(self) -> str:
        """Carry streams until the session ends; the result is the reason. None of its tasks outlives it."""
        self._start(self._write_all())
        self._start(self._look_after_time())
        reason = "stopped"
        try:
            reason = await self._read_all()
        finally:
            self.end(reason)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        return self.reason or reason

    def end(self, reason: str) -> None:
        """Drop the connection; every stream fails. The first reason is kept."""
        if self.reason is not None:
            return
        self.reason = reason
        self._wire.abort()
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.on_session_end()

    # Calls by streams.

    @property
    def crowded(self) -> bool:
        return self.unread > CROWDED_ABOVE

    def hold(self, change: int) -> None:
        self.unread += change

    def urgent(self, stream: Stream) -> None:
        if not stream.in_urgent_line and self.reason is None:
            stream.in_urgent_line = True
            self._urgent.append(stream)
            self._work.set()

    def ready(self, stream: Stream) -> None:
        if not stream.in_line and self.reason is None:
            stream.in_line = True
            self._line.append(stream)
            self._work.set()

    def forget(self, stream: Stream) -> None:
        if self._streams.get(stream.id) is stream:
            del self._streams[stream.id]

    # Reading.

    async def _read_all(self) -> str:
        while True:
            kind, data = await self._wire.receive()
            self._came_at = self.clock.monotonic()
            try:
                if kind is WSMsgType.BINARY:
                    self._take(decode(data))
                elif kind is WSMsgType.PING:
                    self.heard_at = self.clock.monotonic()
                    self._pong_due = True
                    self._work.set()
                elif kind is WSMsgType.PONG:
                    self.heard_at = self.clock.monotonic()
                elif kind is WSMsgType.CLOSED:
                    return "the other side closed the connection"
                elif kind is WSMsgType.ERROR:
                    return f"the websocket failed: {data.decode('utf-8', 'replace')}"
                else:
                    return "wrong websocket message type"
            except TunnelError as error:
                return str(error)

    def _take(self, message: Message) -> None:
        kind = message.kind
        stream = self._streams.get(message.stream)
        if kind == Kind.DATA:
            if stream is None:
                self._complain(message.stream)
            else:
                stream.on_data(message.body)
                if self.unread > MOST_UNREAD:
                    self._relieve()
        elif kind == Kind.CONNECT:
            self._connect(message, stream)
        elif kind == Kind.SYNC_CONNECTIONS:
            self._drop_stale(read_sync(message.body))
        elif kind in (Kind.ADD_CLIENT, Kind.REMOVE_CLIENT):
            # Only other servers announce clients; an invalid announcement ends any session, as in Go.
            client = read_client(message.body)
            if self._announced is not None:
                self._announced(Kind(kind), *client)
        elif kind == Kind.GOING_AWAY and self._accept is not None:
            self.on_going_away()
        elif stream is None:
            # The end of a stream is often reported twice. Kinds of a later version are ignored, too.
            return
        elif kind == Kind.ERROR:
            self.forget(stream)
            stream.on_error(read_error(message.body))
        elif kind == Kind.PAUSE:
            stream.on_pause()
        elif kind == Kind.RESUME:
            stream.on_resume()

    def _relieve(self) -> None:
        most = max(self._streams.values(), key=lambda stream: stream.buffered)
        most.fail("receive buffers of the tunnel exceeded")

    def _complain(self, number: int) -> None:
        if len(self._complaints) < _MOST_COMPLAINTS:
            self._complaints[number] = None
            self._work.set()

    def _connect(self, message: Message, known: Stream | None) -> None:
        if self._accept is None:
            raise FrameError("connect not allowed")
        if known is not None:
            raise FrameError(f"connection {message.stream} was opened twice")
        network, address = read_connect(message.body)
        stream = Stream(self, message.stream, network, address)
        self._streams[stream.id] = stream
        if len(self._streams) > MOST_STREAMS:
            stream.fail("too many connections")
            return
        self._start(self._serve_stream(self._accept, stream))

    async def _serve_stream(self, accept: Accept, stream: Stream) -> None:
        try:
            await accept(stream)
        except TunnelError as error:
            stream.fail(str(error))
        except Exception as error:
            log.exception("a stream of the tunnel failed", extra={"stream": stream.id, "address": repr(stream.address)})
            stream.fail(f"{type(error).__name__} while serving the connection")
        finally:
            stream.close()

    def _drop_stale(self, listed: frozenset[int]) -> None:
        if self._accept is not None:
            return
        # A Connect may not have reached the sender of the list yet, but no longer than a connection may be silent.
        known_before = self.clock.monotonic() - SILENT_AFTER
        for stream in [s for s in self._streams.values() if s.id not in listed and s.opened_at <= known_before]:
            self.forget(stream)
            stream.on_session_end("sync from client")

    # Writing.

    async def _write_all(self) -> None:
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                while await self._write_next():
                    pass
        except (ConnectionError, RuntimeError) as error:
            # aiohttp raises RuntimeError if the websocket was closed in between.
            self.end(f"writing failed: {error}")

    async def _write_next(self) -> bool:
        """Send one message, the most urgent first; False if there is none."""
        self._sending_since = self.clock.monotonic()
        try:
            if self._pong_due:
                self._pong_due = False
                await self._wire.pong()
            elif self._ping_due:
                self._ping_due = False
                await self._wire.ping()
            else:
                message = self._next_message()
                if message is None:
                    return False
                await self._wire.send(message)
            return True
        finally:
            self._sending_since = None

    def _next_message(self) -> bytes | None:
        while self._urgent:
            stream = self._urgent.popleft()
            stream.in_urgent_line = False
            taken = stream.take_urgent()
            if taken is not None:
                self.urgent(stream)
                return self._encode(stream.id, *taken)
        if self._complaints:
            number = next(iter(self._complaints))
            del self._complaints[number]
            return self._encode(number, Kind.ERROR, error_body(f"connection not found {self.key}/{self.number}/{number}"))
        if self._farewell_due:
            self._farewell_due = False
            return self._encode(0, Kind.GOING_AWAY, b"")
        if self._announcements:
            (key, session), kind = next(iter(self._announcements.items()))
            del self._announcements[key, session]
            return self._encode(0, kind, client_body(key, session))
        if self._sync_due:
            self._sync_due = False
            return self._encode(0, Kind.SYNC_CONNECTIONS, sync_body(list(self._streams)))
        while self._line:
            stream = self._line.popleft()
            stream.in_line = False
            taken = stream.take()
            if taken is not None:
                if stream.waiting:
                    self.ready(stream)
                return self._encode(stream.id, *taken)
        return None

    def _encode(self, stream: int, kind: Kind, body: bytes) -> bytes:
        self._last_message += 1
        return encode(self._last_message, stream, kind, body)

    # Time.

    async def _look_after_time(self) -> None:
        client = self._accept is not None
        ping_at = self.clock.monotonic() + PING_EVERY if client else inf
        sync_at = self.clock.monotonic() + SYNC_EVERY
        while True:
            now = self.clock.monotonic()
            if (reason := self._dead(now)) is not None:
                self.end(reason)
                return
            if now >= ping_at:
                ping_at = now + PING_EVERY
                self._ping_due = True
                self._sync_due = now >= sync_at
                sync_at = now + SYNC_EVERY if self._sync_due else sync_at
                self._work.set()
            await self.clock.sleep(min(ping_at, self._came_at + self._deaf_after, self.heard_at + SILENT_AFTER) - now)

    def _dead(self, now: float) -> str | None:
        if now >= self._came_at + self._deaf_after:
            return f"nothing was received for {self._deaf_after:.0f} s"
        if now >= self.heard_at + SILENT_AFTER:
            return f"no {'ping' if self._accept is None else 'pong'} for {SILENT_AFTER:.0f} s"
        if self._sending_since is not None and now >= self._sending_since + SILENT_AFTER:
            return f"the other side has read nothing for {SILENT_AFTER:.0f} s"
        return None

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


__all__ = ["CLIENT_KEY", "EOF", "PING_EVERY", "SILENT_AFTER", "SYNC_EVERY", "Accept", "Announced", "Session"]
