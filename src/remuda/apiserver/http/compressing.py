"""Gzip of a large answer in pieces: sent while the rest is still being compressed, on as many cores as are free.

A list of thousands of objects takes longer to compress than everything else about it. Each piece is deflated by itself in a
thread (zlib lets go of the interpreter's lock), primed with the bytes before it so that hardly anything is lost; put
together they are one ordinary gzip stream. :mod:`.responses` decides what is large enough.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

_LEVEL = 1
_PIECE = 512 * 1024
_WINDOW = 32 * 1024
# Pieces compressed ahead of the one being sent.
_AHEAD = 3
# Deflate, no name, no time, fastest, unknown system.
_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"

# Threads of their own, and few: lists that are large and many must not take every core from the event loop.
_threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="gzip")


def gzip(data: bytes) -> bytes:
    """All at once, for what is small enough to be done here and now."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, 31)
    return compressor.compress(data) + compressor.flush()


async def gzip_pieces(data: bytes) -> AsyncIterator[bytes]:
    """The same as :func:`gzip` for whoever unpacks it, piece by piece."""
    loop = asyncio.get_running_loop()
    checksum = loop.run_in_executor(_threads, zlib.crc32, data)
    under_way: deque[asyncio.Future[bytes]] = deque()
    yield _HEAD
    for start in range(0, max(len(data), 1), _PIECE):
        under_way.append(loop.run_in_executor(_threads, _deflated, data, start))
        if len(under_way) > _AHEAD:
            yield await under_way.popleft()
    while under_way:
        yield await under_way.popleft()
    yield struct.pack("<LL", await checksum, len(data) & 0xFFFFFFFF)


def _deflated(data: bytes, start: int) -> bytes:
    view = memoryview(data)
    end = start + _PIECE
    before = view[max(0, start - _WINDOW) : start]
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15, zdict=before)
    compressed = compressor.compress(view[start:end])
    # All but the last end on a byte boundary with an empty block, so that they can be put one after the other.
    return compressed + compressor.flush(zlib.Z_FINISH if end >= len(data) else zlib.Z_SYNC_FLUSH)
