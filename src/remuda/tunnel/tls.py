"""TLS over a stream, itself a stream: handshake and records are Python's own, this module moves the bytes.

asyncio's `start_tls` requires a transport of its own event loop, and a tunnel's stream is not one. An `ssl.MemoryBIO` on each
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
    """A :class:`~remuda.tunnel.stream.ByteStream` that encrypts its bytes on the one below. Made by :func:`start_tls`."""

    def __init__(self, below: ByteStream, context: ssl.SSLContext, server_hostname: str | None, server_side: bool) -> None:
        self._below = below
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        tell_cuts(context)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname)
        self._order = asyncio.Lock()

    @property
    def ssl_object(self) -> ssl.SSLObject:
        """Access to the version, the cipher and the other side's certificate."""
        return self._tls

    @property
    def buffered(self) -> int:
        """The number of bytes received from below but not read, encrypted or decrypted."""
        return self._incoming.pending + self._tls.pending()

    async def handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                # The alert tells the other side what was wrong.
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
                # Waiting inside the handler would keep the exception and all its frames alive.
                pass
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLError as error:
                if not is_cut(error):
                    raise
                # An attacker on the way may have cut the connection: this is not an end that the other side sent.
                raise StreamError("the connection ended without TLS's close_notify") from None
            await self._flush()
            await self._feed()

    def _take(self, first: bytes, most: int) -> bytes:
        """More data that can be read without waiting: a record is 16 KiB, and readers prefer larger pieces."""
        if not self._incoming.pending:
            return first
        found, size = [first], len(first)
        while size < most and self._incoming.pending:
            try:
                data = self._tls.read(most - size)
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                # The next read raises it again.
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
        """End both directions at once, without TLS's close_notify; `finish` sends that first."""
        self._below.close()

    async def finish(self) -> None:
        """Send TLS's close_notify to the other side, then close."""
        with contextlib.suppress(OSError):
            # unwrap writes it at once, and then wants the other side's; this does not wait for it.
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            await self._flush()
        self._below.close()

    async def _flush(self) -> None:
        # The holder of the lock sends all pending data, so records stay in order.
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
    """TLS on a stream, after its handshake. If that fails, the stream is closed and the reason raised."""
    stream = TlsStream(below, context, server_hostname, server_side)
    try:
        await stream.handshake()
    except BaseException:
        below.close()
        raise
    return stream
