"""Gzip of a large answer in pieces: sent while the rest is still being compressed, beside the event loop.

A list of thousands of objects would take longer to compress with zlib than everything else about it, so ISA-L does it where
it is installed: the same stream, a quarter of the time. :mod:`.responses` decides which answers are large enough.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

_LEVEL = 1
_GZIP = 31
_PIECE = 1024 * 1024

# Few threads of their own: many large lists must not take every core from the event loop.
_threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="gzip")


class Compressor(Protocol):
    def compress(self, data: bytes | memoryview, /) -> bytes: ...

    def flush(self) -> bytes: ...


def _compressor() -> Compressor:
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    compressor: Compressor = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP)
    return compressor


def gzip(data: bytes) -> bytes:
    """All at once, for data that is small enough for the event loop."""
    compressor = _compressor()
    return compressor.compress(data) + compressor.flush()


def gzip_pieces(data: bytes) -> AsyncIterator[bytes]:
    """The same stream as :func:`gzip`, piece by piece."""
    return gzip_stream(_cut(data))


async def _cut(data: bytes) -> AsyncIterator[memoryview]:
    view = memoryview(data)
    for start in range(0, len(data), _PIECE):
        yield view[start : start + _PIECE]


async def gzip_stream(pieces: AsyncIterator[bytes] | AsyncIterator[memoryview]) -> AsyncIterator[bytes]:
    """While one piece is compressed, the one before is sent and the next one is made."""
    loop = asyncio.get_running_loop()
    compressor = _compressor()
    under_way: asyncio.Future[bytes] | None = None
    async for piece in pieces:
        packed = await under_way if under_way is not None else b""
        under_way = loop.run_in_executor(_threads, compressor.compress, piece)
        if packed:
            yield packed
    if under_way is not None and (packed := await under_way):
        yield packed
    yield compressor.flush()
