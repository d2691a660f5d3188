"""Responses on the wire: JSON (or YAML) bodies, Status for errors, gzip for large ones, Warning headers."""

from __future__ import annotations

import asyncio
import unicodedata
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import msgspec
from aiohttp import web

from remuda.kube.clock import yield_to_loop
from remuda.kube.encoding import jsonio, yamlio
from remuda.kube.errors import ApiError

from .negotiation import JSON, YAML, error_type

_JSON_HEADERS = {"Content-Type": JSON, "Cache-Control": "no-cache, private"}
# kube-apiserver compresses from this size on; below it costs more than it saves.
GZIP_FROM = 128 * 1024
# Compressing this much is slow enough for threads, while the first part of it is sent.
_THREAD_FROM = 512 * 1024
_SLICED_FROM, _SLICE = 1024 * 1024, 256 * 1024
# Python writes a megabyte of YAML in a second or more: longer bodies are written beside the event loop, one at a time.
_LONG_YAML = 16 * 1024
_yaml_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="yaml")


def plain(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, headers=_JSON_HEADERS)


def text(body: str, status: int = 200) -> web.Response:
    headers = {
        "Content-Type": "text/plain; charset=utf-8",
        "Cache-Control": "no-cache, private",
        "X-Content-Type-Options": "nosniff",
    }
    return web.Response(body=body.encode(), status=status, headers=headers)


def error(failure: ApiError, request: web.BaseRequest) -> web.Response:
    if failure.page:
        return text(failure.page, failure.code)
    data = jsonio.dumps(failure.status()) + b"\n"
    media_type = error_type(request.headers.get("Accept", ""))
    if media_type == YAML:
        data = yamlio.dumps(failure.status()).encode()
    elif wants_pretty(request, request.query):
        data = msgspec.json.format(data, indent=2)
    response = plain(data, failure.code)
    response.headers["Content-Type"] = media_type
    if failure.retry_after:
        response.headers["Retry-After"] = str(failure.retry_after)
    if failure.code == 403:
        response.headers["X-Content-Type-Options"] = "nosniff"
    return response


async def body(
    request: web.BaseRequest, data: bytes, status: int = 200, media_type: str = JSON, pretty: bool = False
) -> web.Response:
    if media_type == YAML:
        if len(data) > _LONG_YAML:
            data = await asyncio.get_running_loop().run_in_executor(_yaml_thread, _yaml, data)
        else:
            data = _yaml(data)
    elif pretty:
        data = msgspec.json.format(data, indent=2)
    response = plain(data, status)
    if media_type != JSON:
        response.headers["Content-Type"] = media_type
    if len(data) >= GZIP_FROM and _takes_gzip(request.headers.get("Accept-Encoding", "")):
        response.body = gzip_pieces(data) if len(data) >= _THREAD_FROM else gzip(data)
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Vary"] = "Accept-Encoding"
    elif len(data) >= _SLICED_FROM:
        response.body = _slices(data)
    return response


def _yaml(data: bytes) -> bytes:
    return yamlio.dumps(jsonio.loads(data)).encode()


def stream(request: web.BaseRequest, pieces: AsyncIterator[bytes]) -> web.Response:
    """A large JSON body that is made while it is sent."""
    response = plain(b"")
    if _takes_gzip(request.headers.get("Accept-Encoding", "")):
        pieces = gzip_stream(pieces)
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Vary"] = "Accept-Encoding"
    response.body = pieces
    return response


async def _slices(data: bytes) -> AsyncIterator[memoryview]:
    """At the reader's pace: encrypting a large list in one go would delay all others."""
    view = memoryview(data)
    for start in range(0, len(data), _SLICE):
        yield view[start : start + _SLICE]
        await yield_to_loop()


def _takes_gzip(accepted: str) -> bool:
    return any(clause.strip() == "gzip" for clause in accepted.split(","))


_PEOPLE = ("curl", "Wget", "Mozilla/5.0")
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))


def wants_pretty(request: web.BaseRequest, query: Mapping[str, str]) -> bool:
    """Indented on request, or by default for a browser or curl."""
    given = query.get("pretty", "")
    return given in _TRUE if given else request.headers.get("User-Agent", "").startswith(_PEOPLE)


def add_warnings(response: web.StreamResponse, warnings: Iterable[str]) -> None:
    for value in warning_headers(warnings):
        response.headers.add("Warning", value)


def header(response: web.StreamResponse, name: str, value: Any) -> web.StreamResponse:
    response.headers[name] = str(value)
    return response


# --- warnings -------------------------------------------------------------------------------------------------------------
#
# Warning headers: kube-apiserver's limits on the size of warnings.
#
# The HTTP edge passes every text that was collected during a request and gets the header values to send.

MAX_TOTAL = 4 * 1024
MAX_ITEM = 256


def warning_headers(texts: Iterable[str]) -> list[str]:
    """`Warning` header values: each text once; when all together are too long, each is cut and the rest dropped."""
    unique = [text for text in dict.fromkeys(texts) if text]
    if sum(len(text) for text in unique if _printable(text)) <= MAX_TOTAL:
        return [_header(text) for text in unique if _printable(text)]
    headers: list[str] = []
    written = 0
    for text in unique:
        if written >= MAX_TOTAL:
            break
        cut = text[:MAX_ITEM]
        if _printable(cut):
            headers.append(_header(cut))
            written += len(cut)
    return headers


def _printable(text: str) -> bool:
    # A lone surrogate stands for invalid UTF-8 here.
    return not any(unicodedata.category(char) in ("Cc", "Cs") for char in text)


def _header(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'


# --- gzip -----------------------------------------------------------------------------------------------------------------
#
# Gzip of a large answer in pieces: sent while the rest is still being compressed, beside the event loop.
#
# A list of thousands of objects would take longer to compress with zlib than everything else about it, so ISA-L does it where
# it is installed: the same stream, a quarter of the time.


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
