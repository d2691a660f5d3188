"""Where a stream leads on to: a connection dialled on this side, and the bytes carried between the two.

Half-closed connections do not exist in the tunnel. When the local side ends, what the other side had sent by then is still
handed over before everything is closed; when the other side ends, all it sent is handed over first.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Awaitable, Callable

from remuda.kube.clock import Clock, deadline

from .errors import StreamError
from .stream import CHUNK, ByteStream, Stream

DIAL_WITHIN = 60.0

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[str, str], Awaitable[Connection]]


def split_address(address: str) -> tuple[str, int]:
    """Go's `host:port`, an IPv6 address in brackets; ValueError when it is none."""
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"address {address}: not host:port")
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    if ":" in host:
        raise ValueError(f"address {address}: too many colons in address")
    return host or "localhost", int(port)


async def dial_network(network: str, address: str) -> Connection:
    """A connection by the machine's own network: tcp, tcp4, tcp6 or unix."""
    if network == "unix":
        return await asyncio.open_unix_connection(address, limit=2 * CHUNK)
    if network not in ("tcp", "tcp4", "tcp6"):
        raise ValueError(f"unknown network {network}")
    host, port = split_address(address)
    return await asyncio.open_connection(host, port, limit=2 * CHUNK)


async def serve_by_dialling(stream: Stream, dial: Dial, clock: Clock) -> None:
    """Dial what the stream asks for and carry bytes both ways until one side ends."""
    try:
        async with deadline(clock, DIAL_WITHIN):
            reader, writer = await dial(stream.network, stream.address)
    except (OSError, ValueError) as error:
        raise StreamError(f"dial {stream.network} {stream.address}: {_why(error)}") from None
    await join(stream, reader, writer)


def _why(error: Exception) -> str:
    """The words Go would use, since somebody may look for them."""
    if isinstance(error, TimeoutError) and not getattr(error, "errno", None):
        return "i/o timeout"
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number in errno.errorcode:
        return f"connect: {os.strerror(number).lower()}"
    return str(error)


async def join(stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes between a stream and a connection; both are closed afterwards."""
    outward = asyncio.ensure_future(_to_stream(reader, stream))
    inward = asyncio.ensure_future(_to_connection(stream, writer))
    try:
        await asyncio.wait((outward, inward), return_when=asyncio.FIRST_COMPLETED)
        if outward.done() and not inward.done():
            inward.cancel()
            await asyncio.wait((inward,))
            rest = stream.leftover()
            if rest and not writer.is_closing():
                writer.write(rest)
    finally:
        for task in (outward, inward):
            task.cancel()
        await asyncio.gather(outward, inward, return_exceptions=True)
        stream.close()
        writer.close()


async def _to_stream(reader: asyncio.StreamReader, stream: ByteStream) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            await stream.write(data)


async def _to_connection(stream: ByteStream, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await stream.read():
            writer.write(data)
            await writer.drain()
