"""HTTP/1.1 as a cluster answers it: the head parsed strictly, the body's framing removed. No I/O.

A cluster's API server may be any program. Anything that two parsers could understand differently (two lengths, a folded line, a
bare line feed, a length and an encoding) is refused: the rest of the connection could pass as the answer to another user. Bodies
are taken out of their framing and framed again for the client, so nothing that a cluster writes between chunks gets further;
trailers, which no client of a Kubernetes API reads, are dropped, too. :mod:`.reverse_proxy` reads and writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

LARGEST_HEAD = 64 * 1024
MOST_HEADERS = 256
# A chunk's size line with its extensions, and all trailers together.
_LONGEST_LINE = 4096
_LARGEST_TRAILERS = 16 * 1024
_WITHOUT_BODY = frozenset((204, 304))

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: ([\t -~\x80-\xff]*))?")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t -~\x80-\xff]*)?")
# Name lengths of Connection, Content-Length and Transfer-Encoding: all other headers need no further check.
_FRAMING_LENGTHS = frozenset((10, 14, 17))
_LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)


class BadAnswer(ConnectionError):
    """An answer that can't be passed on; the text says why. The connection can't be used any more."""


class Body(Protocol):
    """One body, taken out of its framing."""

    @property
    def done(self) -> bool: ...

    def feed(self, data: bytes) -> bytes:
        """The content in these bytes."""

    def end(self) -> None:
        """The connection has ended; raises BadAnswer when the body has not."""

    @property
    def left(self) -> int:
        """The number of bytes that came after the end."""


@dataclass(frozen=True, slots=True)
class Head:
    """`reusable`: the connection may carry another request after the body. `framing`: all headers about the body's length."""

    status: int
    reason: str
    headers: list[tuple[str, str]]
    reusable: bool
    framing: list[tuple[str, str]]

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]


def request_head(method: str, target: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """A request's line and headers. The caller has checked every part; a line end in one is still refused here."""
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers]
    text = "\r\n".join(lines)
    if text.count("\r") != len(lines) - 1 or text.count("\n") != len(lines) - 1 or "\0" in text:
        raise ValueError("a header contains a line end")
    return f"{text}\r\n\r\n".encode("utf-8", "surrogateescape")


def parse_head(data: bytes) -> Head:
    """The head without the empty line at its end."""
    first, *rest = data.split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise BadAnswer("the answer does not begin with a status line")
    if len(rest) > MOST_HEADERS:
        raise BadAnswer(f"the answer has more than {MOST_HEADERS} headers")
    headers: list[tuple[str, str]] = []
    framing: list[tuple[str, str]] = []
    closing = status[1] == b"0"
    for line in rest:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise BadAnswer("the answer has an invalid header")
        name, value = header[1].decode(), header[2].rstrip(b" \t").decode("utf-8", "replace")
        if len(name) in _FRAMING_LENGTHS:
            lower = name.lower()
            if lower == "connection" and "close" in value.lower():
                closing = True
            elif lower in ("content-length", "transfer-encoding"):
                framing.append((lower, value))
        headers.append((name, value))
    reason = (status[3] or b"").decode("utf-8", "replace")
    return Head(int(status[2]), reason, headers, not closing, framing)


def body_of(head: Head, method: str) -> Body:
    """The framing of this answer's body."""
    if len(head.framing) > 1:
        raise BadAnswer("the answer states the length of its body more than once")
    how, said = head.framing[0] if head.framing else ("", "")
    if how == "content-length" and not _LENGTH.fullmatch(said):
        raise BadAnswer("the answer's Content-Length is not a number")
    if how == "transfer-encoding" and said.lower() != "chunked":
        raise BadAnswer("the answer's Transfer-Encoding is not chunked")
    if method == "HEAD" or head.status in _WITHOUT_BODY:
        return Sized(0)
    if not how:
        return UntilEnd()
    return Sized(int(said)) if how == "content-length" else Chunked()


class Sized:
    """A body of known length."""

    __slots__ = ("_missing", "left")

    def __init__(self, length: int) -> None:
        self._missing = length
        self.left = 0

    @property
    def done(self) -> bool:
        return self._missing == 0

    def feed(self, data: bytes) -> bytes:
        if len(data) <= self._missing:
            self._missing -= len(data)
            return data
        self.left += len(data) - self._missing
        taken, self._missing = data[: self._missing], 0
        return taken

    def end(self) -> None:
        if self._missing:
            raise BadAnswer(f"the answer ended {self._missing} bytes before its end")


class UntilEnd:
    """A body that ends with its connection, as HTTP/1.0 has it."""

    __slots__ = ("done", "left")

    def __init__(self) -> None:
        self.done = False
        self.left = 0

    def feed(self, data: bytes) -> bytes:
        return data

    def end(self) -> None:
        self.done = True


class Chunked:
    """Chunks of any size, split anywhere."""

    __slots__ = ("_line", "_missing", "_state", "_trailers", "done", "left")

    _SIZE, _DATA, _AFTER, _TRAILERS = range(4)

    def __init__(self) -> None:
        self.done = False
        self.left = 0
        self._state = self._SIZE
        self._missing = 0
        self._line = b""
        self._trailers = 0

    def feed(self, data: bytes) -> bytes:
        content: list[bytes] = []
        at, end = 0, len(data)
        while at < end and not self.done:
            if self._state == self._DATA:
                taken = data[at : at + self._missing]
                content.append(taken)
                at += len(taken)
                self._missing -= len(taken)
                if not self._missing:
                    self._state = self._AFTER
                continue
            line, at = self._next_line(data, at)
            if line is not None:
                self._take(line)
        if self.done:
            self.left += end - at
        return content[0] if len(content) == 1 else b"".join(content)

    def _next_line(self, data: bytes, at: int) -> tuple[bytes | None, int]:
        """A complete line without its end, and the start of the next one; None while the end is missing."""
        found = data.find(b"\n", at)
        stop = len(data) if found < 0 else found + 1
        self._line += data[at:stop]
        if len(self._line) > _LONGEST_LINE:
            raise BadAnswer("a line between chunks is too long")
        if found < 0:
            return None, stop
        line, self._line = self._line, b""
        if not line.endswith(b"\r\n"):
            raise BadAnswer("a line between chunks does not end with CR LF")
        return line[:-2], stop

    def _take(self, line: bytes) -> None:
        if self._state == self._AFTER:
            if line:
                raise BadAnswer("a chunk is longer than its stated size")
            self._state = self._SIZE
        elif self._state == self._SIZE:
            size = _SIZE.fullmatch(line)
            if size is None:
                raise BadAnswer("a chunk has no valid size")
            self._missing = int(size[1], 16)
            self._state = self._DATA if self._missing else self._TRAILERS
        elif not line:
            self.done = True
        else:
            self._trailers += len(line)
            if self._trailers > _LARGEST_TRAILERS or not _HEADER.fullmatch(line):
                raise BadAnswer("the data after the chunks is not a trailer")

    def end(self) -> None:
        if not self.done:
            raise BadAnswer("the answer ended between or within chunks")
