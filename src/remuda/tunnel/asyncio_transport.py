"""A stream of a tunnel as an asyncio and aiohttp connection, for libraries that bring their own HTTP.

asyncio pushes bytes to a protocol; a stream's bytes are read on demand. :class:`StreamTransport` converts between the two and
keeps flow control both ways: it stops reading while the protocol has paused it, and pauses the protocol while the stream accepts
nothing. :class:`TunnelConnector` is aiohttp's connection pool on top of it, with TLS inside the tunnel (the server's name is the
host of the URL; an IP address must be among the certificate's addresses).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Sequence
from typing import Any, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler

from remuda.kube.clock import Clock, deadline

from .stream import ByteStream
from .tls import TlsStream, start_tls

_HIGH = 256 * 1024
_LOW = 64 * 1024
# After so many seconds without a connection another client is tried.
PATIENCE = 4.0

log = logging.getLogger(__name__)

Way = Callable[[str], ByteStream]
"""A stream to `host:port` on the far side, through one of its clients."""

Context = Callable[[], ssl.SSLContext]
"""The TLS context of one connection."""


class StreamTransport(asyncio.Transport):
    """Created and started by :meth:`connect`."""

    def __init__(self, stream: ByteStream, protocol: asyncio.Protocol, extra: dict[str, Any]) -> None:
        super().__init__(extra)
        self._stream = stream
        self._protocol = protocol
        self._out: list[bytes] = []
        self._size = 0
        self._closing = False
        self._lost = False
        self._protocol_paused = False
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._to_write = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    def connect(cls, stream: ByteStream, protocol: asyncio.Protocol) -> StreamTransport:
        extra = {"ssl_object": stream.ssl_object} if isinstance(stream, TlsStream) else {}
        transport = cls(stream, protocol, extra)
        protocol.connection_made(transport)
        transport._tasks = [asyncio.create_task(transport._read_all()), asyncio.create_task(transport._write_all())]
        return transport

    # --- the protocol's calls -------------------------------------------------------------------------------------------

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._may_read.is_set()

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def get_write_buffer_size(self) -> int:
        return self._size

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The limits are fixed: they bound the memory that a slow tunnel needs."""

    def can_write_eof(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        self._out.append(bytes(data))
        self._size += len(data)
        self._to_write.set()
        if self._size > _HIGH and not self._protocol_paused:
            self._protocol_paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """Close after the written data has been sent."""
        self._closing = True
        self._may_read.set()
        self._to_write.set()

    def abort(self) -> None:
        self._end(None)

    # --- both directions ------------------------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        try:
            while not self._closing:
                await self._may_read.wait()
                data = await self._stream.read()
                if not data:
                    break
                # It may have been paused during the wait; it still takes this much.
                self._protocol.data_received(data)
        except (OSError, ssl.SSLError) as error:
            self._end(error)
            return
        if not self._closing:
            self._protocol.eof_received()
            self._end(None)

    async def _write_all(self) -> None:
        try:
            while True:
                await self._to_write.wait()
                self._to_write.clear()
                while self._out:
                    data, self._out = b"".join(self._out), []
                    await self._stream.write(data)
                    self._size -= len(data)
                    self._resume_protocol()
                if self._closing:
                    break
        except (OSError, ssl.SSLError) as error:
            self._end(error)
            return
        if isinstance(self._stream, TlsStream):
            await self._stream.finish()
        self._end(None)

    def _resume_protocol(self) -> None:
        if self._protocol_paused and self._size <= _LOW:
            self._protocol_paused = False
            self._protocol.resume_writing()

    def _end(self, error: Exception | None) -> None:
        self._closing = True
        if self._lost:
            return
        self._lost = True
        self._stream.close()
        # The task that calls this is about to return by itself. The tasks refer to this transport: a reference back would make a
        # cycle, with a TLS connection in it, that stays until the garbage collector runs.
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            if task is not asyncio.current_task():
                task.cancel()
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)


class TunnelConnector(aiohttp.BaseConnector):
    """aiohttp's connections, dialled through a tunnel. `context` is for https; untrusted servers are refused.

    `ways` are the clients to dial through at this moment, the best one first; another one is tried when a connection is not there
    after `patience` seconds. It raises NoSession without any. Idle connections are kept for `keep` seconds.
    """

    def __init__(
        self,
        ways: Callable[[], Sequence[Way]],
        context: Context | None,
        clock: Clock,
        *,
        limit: int,
        within: float = 15.0,
        keep: float = 45.0,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(limit=limit, keepalive_timeout=keep)
        self._ways = ways
        self._patience = patience
        self._context = context
        self._clock = clock
        self._within = within

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> ResponseHandler:
        try:
            async with deadline(self._clock, self._within):
                stream = await self._by_any_way(req.url.host, req.url.port, req.is_ssl())
        except TimeoutError:
            raise aiohttp.ServerTimeoutError(f"no connection through the tunnel within {self._within:.0f} s") from None
        except ssl.SSLCertVerificationError as error:
            raise aiohttp.ClientConnectorCertificateError(req.connection_key, error) from error
        except ssl.SSLError as error:
            raise aiohttp.ClientConnectorSSLError(req.connection_key, error) from error
        except OSError as error:
            raise aiohttp.ClientConnectionError(str(error) or type(error).__name__) from error
        protocol = self._factory()
        StreamTransport.connect(stream, protocol)
        return protocol

    async def _by_any_way(self, host: str, port: int, secure: bool) -> ByteStream:
        *first, last = self._ways()
        for way in first:
            # A client whose node has just lost power is not known to be gone yet.
            try:
                async with deadline(self._clock, self._patience):
                    return await self._connected(way, host, port, secure)
            except (TimeoutError, OSError) as error:
                log.info("no connection to %s:%s through a client, another one is tried: %s", host, port, error or "no answer")
        return await self._connected(last, host, port, secure)

    async def _connected(self, way: Way, host: str, port: int, secure: bool) -> ByteStream:
        stream = way(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        if not secure:
            return stream
        if self._context is None:
            stream.close()
            raise ssl.SSLError("there is no TLS context to verify a certificate")
        try:
            return await start_tls(stream, self._context(), server_hostname=host)
        except BaseException:
            with contextlib.suppress(OSError):
                stream.close()
            raise
