"""HTTP/2's header blocks (RFC 7541), for a client without a dynamic table.

We announce a dynamic table of size zero. So a block always means the same, one that was decoded once need not be decoded
again, and the headers of a request are a constant.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache

_STATIC = """\
:authority|:method GET|:method POST|:path /|:path /index.html|:scheme http|:scheme https|:status 200|:status 204
:status 206|:status 304|:status 400|:status 404|:status 500|accept-charset|accept-encoding gzip, deflate
accept-language|accept-ranges|accept|access-control-allow-origin|age|allow|authorization|cache-control
content-disposition|content-encoding|content-language|content-length|content-location|content-range|content-type
cookie|date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since
last-modified|link|location|max-forwards|proxy-authenticate|proxy-authorization|range|referer|refresh|retry-after
server|set-cookie|strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate"""
_TABLE = [(name, value) for name, _, value in (each.partition(" ") for each in _STATIC.replace("\n", "|").split("|"))]

# The length of each byte's code in bits, and last that of the end. Codes of equal length follow each other.
_LENGTHS = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c060a0a0c0d06080b0a0a080b0806060605050506060606060606"
    "07080f060c0a0d06070707070707070707070707070707070707070707070807080d130d0e060f050605060506060605070706060605060706"
    "05050607070707070f0b0e0d1c141614141616161716171717171718171818161718171717171516171617171816151416161717151716161815"
    "161717151516151716171714161616171616171a1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b1815151a1a1c1b1b1b141814151615"
    "15171616191918181a171a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a1e"
)
_END = 256
_LONGEST = 30


@cache
def _codes() -> dict[tuple[int, int], int]:
    """The byte of each (length, code)."""
    found: dict[tuple[int, int], int] = {}
    code = length = 0
    for symbol in sorted(range(len(_LENGTHS)), key=lambda each: (_LENGTHS[each], each)):
        code <<= _LENGTHS[symbol] - length
        length = _LENGTHS[symbol]
        found[length, code] = symbol
        code += 1
    return found


def _unpacked(packed: bytes) -> bytes:
    codes = _codes()
    out = bytearray()
    length = code = 0
    for byte in packed:
        for shift in range(7, -1, -1):
            code = code << 1 | (byte >> shift & 1)
            length += 1
            symbol = codes.get((length, code))
            if symbol is not None:
                if symbol == _END:
                    raise ValueError("a header text has its end inside")
                out.append(symbol)
                length = code = 0
            elif length > _LONGEST:
                raise ValueError("a header text has no such code")
    if length > 7 or code != (1 << length) - 1:
        raise ValueError("a header text is cut off")
    return bytes(out)


class _Block:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def left(self) -> bool:
        return self._at < len(self._data)

    def first(self) -> int:
        return self._data[self._at]

    def number(self, bits: int) -> int:
        mask = (1 << bits) - 1
        value = self._byte() & mask
        if value < mask:
            return value
        shift = 0
        while True:
            byte = self._byte()
            value += (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 28:
                raise ValueError("a header has a number beyond reason")

    def text(self) -> str:
        packed = bool(self.first() & 0x80) if self.left() else False
        length = self.number(7)
        end = self._at + length
        if end > len(self._data):
            raise ValueError("a header is cut off")
        data = self._data[self._at : end]
        self._at = end
        return (_unpacked(data) if packed else data).decode("latin-1")

    def _byte(self) -> int:
        if self._at >= len(self._data):
            raise ValueError("a header is cut off")
        self._at += 1
        return self._data[self._at - 1]


@lru_cache(maxsize=256)
def decode(block: bytes) -> dict[str, str]:
    """The headers of a block; for a repeated name the last value. Raises ValueError."""
    source = _Block(block)
    found: dict[str, str] = {}
    while source.left():
        first = source.first()
        if first & 0x80:
            name, value = _entry(source.number(7))
        elif first & 0xE0 == 0x20:
            if source.number(5):
                raise ValueError("it makes a table of headers that it was told to do without")
            continue
        else:
            index = source.number(6 if first & 0x40 else 4)
            name = _entry(index)[0] if index else source.text()
            value = source.text()
        found[name] = value
    return found


def _entry(index: int) -> tuple[str, str]:
    if not 0 < index <= len(_TABLE):
        raise ValueError(f"it refers to header {index}, which there is not")
    return _TABLE[index - 1]


def encode(headers: Iterable[tuple[str, str]]) -> bytes:
    """Encode every header in full, marked as never indexed."""
    out = bytearray()
    for name, value in headers:
        if (name, value) in _TABLE:
            out += _number(_TABLE.index((name, value)) + 1, 7, 0x80)
            continue
        out.append(0)
        for text in (name, value):
            data = text.encode("latin-1")
            out += _number(len(data), 7, 0) + data
    return bytes(out)


def _number(value: int, bits: int, flags: int) -> bytes:
    mask = (1 << bits) - 1
    if value < mask:
        return bytes([flags | value])
    out = bytearray([flags | mask])
    value -= mask
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
