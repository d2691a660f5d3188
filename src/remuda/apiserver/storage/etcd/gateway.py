"""One connection to one member's JSON gateway: HTTP/1.1, one request at a time, and streamed responses.

Requests besides the store's gRPC calls pass here. The peer is always etcd, so this speaks only what etcd does: POST and GET,
bodies with a length or in chunks.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import NamedTuple, cast

_HEAD, _LENGTH, _SIZE, _CHUNK, _CHUNK_END, _TRAILER = range(6)
_HEAD_LIMIT = 64 * 1024


class Failed(Exception):
    """No answer came. `sent`: the request may have reached the member anyway. `trust`: TLS trust failed on one side."""

    def __init__(self, why: str, *, sent: bool, trust: bool = False) -> None:
        super().__init__(why)
        self.sent = sent
        self.trust = trust


class Answer(NamedTuple):
    status: int
    body: bytes


class Connection(asyncio.Protocol):
    """`stream` gets the pieces of a body as they come; without it the answer is the whole body."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._state = _HEAD
        self._left = 0
        self._status = 0
        self._keep = True
        self._body: list[bytes] = []
        self._answer: asyncio.Future[Answer] | None = None
        self._stream: Callable[[bytes], None] | None = None
        self.closed = False

    # --- asyncio protocol -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        if self._answer is not None and not self._answer.done():
            why = explain(error) if isinstance(error, OSError) else str(error or "the connection was closed")
            self._answer.set_exception(Failed(why, sent=True, trust=isinstance(error, ssl.SSLError)))

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            # No request is open: the data can't be told from the next answer.
            self.close()
            return
        self._buffer += data
        try:
            while self._step():
                pass
        except ValueError as error:
            self._fail(f"this is not etcd: {error}")

    # --- reading --------------------------------------------------------------------------------------------------------

    def _step(self) -> bool:
        """Take one piece off the buffer; False when more must come first."""
        state = self._state
        if state == _HEAD:
            return self._read_head()
        if state == _LENGTH:
            return self._read_body()
        if state == _CHUNK:
            return self._read_chunk()
        end = self._buffer.find(b"\r\n")
        if end < 0:
            if len(self._buffer) > _HEAD_LIMIT:
                raise ValueError("a chunk of its answer has no size")
            return False
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        if state == _SIZE:
            self._left = int(line.partition(b";")[0], 16)
            if self._left < 0:
                raise ValueError("a chunk of its answer is smaller than nothing")
            self._state = _CHUNK if self._left else _TRAILER
        elif state == _CHUNK_END:
            if line:
                raise ValueError("a chunk of its answer is longer than it said")
            self._state = _SIZE
        elif not line:
            self._finish()
            return False
        return True

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _HEAD_LIMIT:
                raise ValueError("the head of its answer has no end")
            return False
        lines = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        version, _, rest = lines[0].partition(b" ")
        if not version.startswith(b"HTTP/1."):
            raise ValueError(f"it answers {lines[0][:40]!r}")
        self._status = int(rest[:3])
        self._keep = version == b"HTTP/1.1"
        self._state, self._left = _LENGTH, -1
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            name = name.lower()
            if name == b"content-length":
                self._left = int(value)
            elif name == b"transfer-encoding":
                self._state = _SIZE
            elif name == b"connection" and value.strip().lower() == b"close":
                self._keep = False
        if self._state == _LENGTH and self._left < 0:
            raise ValueError("its answer has no length")
        return True

    def _read_body(self) -> bool:
        if self._left and not self._buffer:
            return False
        self._take()
        if self._left:
            return False
        self._finish()
        return False

    def _read_chunk(self) -> bool:
        if not self._buffer:
            return False
        self._take()
        if not self._left:
            self._state = _CHUNK_END
        return True

    def _take(self) -> None:
        """As much of the body as has arrived."""
        if len(self._buffer) <= self._left:
            piece = bytes(self._buffer)
            self._buffer.clear()
        else:
            piece = bytes(self._buffer[: self._left])
            del self._buffer[: self._left]
        self._left -= len(piece)
        if self._stream is not None and self._status == 200:
            self._stream(piece)
        else:
            self._body.append(piece)

    def _finish(self) -> None:
        answer, self._answer, self._stream = self._answer, None, None
        body, self._body = b"".join(self._body), []
        self._state = _HEAD
        if self._buffer or not self._keep:
            self.close()
        if answer is not None and not answer.done():
            answer.set_result(Answer(self._status, body))

    def _fail(self, why: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Failed(why, sent=True))
        self.close()

    # --- for callers ----------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        return not self.closed and self._answer is None

    def send(self, request: bytes, stream: Callable[[bytes], None] | None = None) -> asyncio.Future[Answer]:
        """The answer, when its body has ended. A caller that stops waiting must close the connection."""
        assert self._transport is not None and self._answer is None
        if self.closed or self._transport.is_closing():
            raise Failed("the connection was closed", sent=False)
        self._stream = stream
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        self.closed = True
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.cancel()
        if self._transport is not None:
            self._transport.abort()


async def connect(host: str, port: int, tls: ssl.SSLContext | None) -> Connection:
    try:
        _, made = await asyncio.get_running_loop().create_connection(
            Connection, host, port, ssl=tls, server_hostname=host if tls is not None else None
        )
    except (OSError, ssl.SSLError) as error:
        raise Failed(explain(error), sent=False, trust=isinstance(error, ssl.SSLError)) from None
    return made


def explain(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return error.strerror or str(error)
