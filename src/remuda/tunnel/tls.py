"""TLS spoken over a stream, as a stream: the handshake and the records are Python's own, the bytes go where we say.

asyncio's `start_tls` wants a transport of its own event loop, and a stream of a tunnel is none. An `ssl.MemoryBIO` on each
side of an `ssl.SSLObject` needs no transport at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl

from remuda.kube.network.tls import is_cut, tell_cuts

from .errors import StreamError
from .stream import CHUNK, ByteStream


class TlsStream:
    """A :class:`~remuda.tunnel.stream.ByteStream` whose bytes are encrypted on the one below. Made by :func:`start_tls`."""

    def __init__(self, below: ByteStream, context: ssl.SSLContext, server_hostname: str | None, server_side: bool) -> None:
        self._below = below
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        tell_cuts(context)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname)
        self._order = asyncio.Lock()

    @property
    def ssl_object(self) -> ssl.SSLObject:
        """Version, cipher and certificate of the other side."""
        return self._tls

    @property
    def buffered(self) -> int:
        """Bytes that have come from below and were not read, as they are or decrypted."""
        return self._incoming.pending + self._tls.pending()

    async def handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                # The alert says to the other side what was wrong.
                with contextlib.suppress(OSError):
                    await self._flush()
                raise
            else:
                await self._flush()
                return
            await self._flush()
            await self._feed()

    async def read(self, most: int = 2 * CHUNK) -> bytes:
        while True:
            try:
                return self._take(self._tls.read(most), most)
            except ssl.SSLWantReadError:
                # Waiting in here would keep the error, with all the frames that it came through.
                pass
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLError as error:
                if not is_cut(error):
                    raise
                # Somebody on the way may have cut it: that is not the end that the other side meant.
                raise StreamError("the connection ended without TLS's own end") from None
            await self._flush()
            await self._feed()

    def _take(self, first: bytes, most: int) -> bytes:
        """What else can be read without waiting: a record is 16 KiB, and whoever reads would rather have more at a time."""
        if not self._incoming.pending:
            return first
        found, size = [first], len(first)
        while size < most and self._incoming.pending:
            try:
                data = self._tls.read(most - size)
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                # It is said again to whoever reads next.
                break
            except ssl.SSLError as error:
                if not is_cut(error):
                    raise
                break
            found.append(data)
            size += len(data)
        return b"".join(found)

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        for start in range(0, len(view), CHUNK):
            part = view[start : start + CHUNK]
            while part:
                part = part[self._tls.write(part) :]
            await self._flush()

    def close(self) -> None:
        """End both directions at once, without TLS's own end; `finish` says that first."""
        self._below.close()

    async def finish(self) -> None:
        """Say TLS's own end to the other side, then close."""
        with contextlib.suppress(OSError):
            # It is written at once; what is asked for then is the other side's end, which is not waited for.
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            await self._flush()
        self._below.close()

    async def _flush(self) -> None:
        # Whoever holds the lock sends everything that is there, so records never change places.
        async with self._order:
            while data := self._outgoing.read(CHUNK):
                await self._below.write(data)

    async def _feed(self) -> None:
        data = await self._below.read()
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()


async def start_tls(
    below: ByteStream, context: ssl.SSLContext, *, server_hostname: str | None = None, server_side: bool = False
) -> TlsStream:
    """TLS on a stream, after its handshake. When that fails the stream is closed and the reason raised."""
    stream = TlsStream(below, context, server_hostname, server_side)
    try:
        await stream.handshake()
    except BaseException:
        below.close()
        raise
    return stream
