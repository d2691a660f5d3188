"""Connections to one upstream: made when needed, kept for a while, never reused after anything unclean.

Headers say for each request who the user is, so one pool per upstream serves all users. The pool's maker decides how a
connection is made (through a tunnel with TLS in it, or directly): :mod:`.tunnel_downstreams`, or :func:`direct` here.
:mod:`.reverse_proxy` uses the pools.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import cast

from remuda.kube.clock import Clock, Timer, deadline
from remuda.kube.errors import ApiError, unavailable
from remuda.tunnel import ByteStream, StreamError

# Less than any API server keeps idle connections (Kubernetes' own: 90 s), so that we are the side that closes.
IDLE_SECONDS = 45.0
MOST_IDLE = 32
# Watches and execs hold one each.
MOST = 4096
CONNECT_SECONDS = 15.0

_READ = 64 * 1024
_PAUSE_ABOVE = 256 * 1024


def _never() -> bool:
    return False


class PooledConnection:
    """One connection. `stale` tells whether anything has happened on it while it was idle; `passed_over`, whether its way to the
    upstream is silent while there is another one."""

    __slots__ = ("_passed_over", "_stale", "idle_since", "reused", "stream")

    def __init__(self, stream: ByteStream, stale: Callable[[], bool], passed_over: Callable[[], bool] = _never) -> None:
        self.stream = stream
        self._stale = stale
        self._passed_over = passed_over
        self.reused = False
        self.idle_since = 0.0

    @property
    def stale(self) -> bool:
        return self._stale() or self.passed_over

    @property
    def passed_over(self) -> bool:
        return self._passed_over()


Connect = Callable[[], Awaitable[PooledConnection]]


class Pool:
    """The connections of one upstream."""

    def __init__(self, connect: Connect, clock: Clock, *, most: int = MOST, most_idle: int = MOST_IDLE) -> None:
        self._connect = connect
        self._clock = clock
        self._most = most
        self._most_idle = most_idle
        self._idle: list[PooledConnection] = []
        self._busy: set[PooledConnection] = set()
        self._connecting = 0
        self._timer: Timer | None = None
        self._closed = False

    def is_closed(self) -> bool:
        return self._closed

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def busy(self) -> int:
        return len(self._busy) + self._connecting

    async def take(self, *, fresh: bool = False) -> PooledConnection:
        """An unused connection. Raises ApiError (503) when the pool is full or closed, OSError when connecting fails."""
        while self._idle and not fresh:
            line = self._idle.pop()
            if not line.stale:
                line.reused = True
                self._busy.add(line)
                return line
            line.stream.close()
        if self.is_closed() or self.busy >= self._most:
            raise unavailable("too many connections to this cluster are in use", 5)
        self._connecting += 1
        try:
            async with deadline(self._clock, CONNECT_SECONDS):
                line = await self._connect()
        except TimeoutError:
            raise ConnectionError(f"there was no connection within {CONNECT_SECONDS:.0f} s") from None
        finally:
            self._connecting -= 1
        if self.is_closed():
            line.stream.close()
            raise unavailable("the connection to this cluster has just changed", 1)
        self._busy.add(line)
        return line

    def give_back(self, line: PooledConnection) -> None:
        """Return a connection after an exchange that ended cleanly."""
        self._busy.discard(line)
        if self._closed or len(self._idle) >= self._most_idle:
            line.stream.close()
            return
        line.idle_since = self._clock.monotonic()
        self._idle.append(line)
        if self._timer is None:
            self._timer = self._clock.call_later(IDLE_SECONDS, self._expire)

    def discard(self, line: PooledConnection) -> None:
        """Close a connection after any other exchange."""
        self._busy.discard(line)
        line.stream.close()

    def close(self) -> None:
        """Accept no further exchange and close idle connections; exchanges in progress end by themselves."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for line in self._idle:
            line.stream.close()
        self._idle.clear()

    def _expire(self) -> None:
        self._timer = None
        since = self._clock.monotonic() - IDLE_SECONDS
        for line in [line for line in self._idle if line.idle_since <= since]:
            self._idle.remove(line)
            line.stream.close()
        if self._idle:
            left = min(line.idle_since for line in self._idle) - since
            self._timer = self._clock.call_later(max(left, 0.1), self._expire)


class SocketStream(asyncio.Protocol):
    """A socket as a :class:`~remuda.tunnel.ByteStream`. Unread data is bounded."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._ended = False
        self._lost: BaseException | None = None
        self._reading_paused = False
        self._writing_paused = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    @property
    def stale(self) -> bool:
        return self._ended or bool(self._received) or self._transport is None or self._transport.is_closing()

    async def read(self, most: int = _READ) -> bytes:
        while not self._received:
            if self._lost is not None:
                raise StreamError(str(self._lost) or type(self._lost).__name__)
            if self._ended:
                return b""
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        data = bytes(memoryview(self._received)[:most])
        del self._received[:most]
        if self._reading_paused and len(self._received) < _PAUSE_ABOVE // 4 and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._transport is None or self._transport.is_closing() or self._ended:
            raise StreamError("the connection is closed")
        self._transport.write(data)
        while self._writing_paused and not self._ended:
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no asyncio.Transport, and behave as one.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > _PAUSE_ABOVE and not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()
        _wake(self._reader)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._ended = True
        self._lost = exc
        self._transport = None
        _wake(self._reader)
        _wake(self._writer)

    def eof_received(self) -> bool:
        # There is no half-close: the end of one direction ends both.
        self._ended = True
        _wake(self._reader)
        _wake(self._writer)
        return False

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        _wake(self._writer)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def direct(host: str, port: int, tls: ssl.SSLContext | None, server_name: str = "") -> Connect:
    """Connections over this machine's own network."""

    async def connect() -> PooledConnection:
        loop = asyncio.get_running_loop()
        name = (server_name or host) if tls is not None else None
        _, stream = await loop.create_connection(SocketStream, host, port, ssl=tls, server_hostname=name)
        return PooledConnection(stream, lambda: stream.stale)

    return connect


def no_upstream(what: str, error: BaseException) -> ApiError:
    """The answer when connecting to an upstream fails: it got no request, so the client may repeat it."""
    return unavailable(f"{what} can't be reached: {why(error)}", 5)


def why(error: BaseException) -> str:
    """The error in a few words, on one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or type(error).__name__}"
    return " ".join((str(error) or type(error).__name__).split())[:200]
