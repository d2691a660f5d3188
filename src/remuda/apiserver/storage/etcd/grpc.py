"""One gRPC connection to one member: HTTP/2, any number of calls at once.

Every write of the API passes here, so it does little. The peer is always etcd: request headers are constants, answers are one
message or a stream of them, nothing is compressed. Memory is bounded by the number of concurrent calls (:mod:`.members`), not by
windows; ours have HTTP/2's maximum size, the member's are respected.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple, cast
from urllib.parse import unquote

from . import hpack

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
_PUSH_PROMISE = 5
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 1, 1, 4, 8, 32
_TABLE_SIZE, _ENABLE_PUSH, _MAX_STREAMS, _WINDOW, _FRAME_SIZE = 1, 2, 3, 4, 5
_CANCEL, _REFUSED_STREAM = 8, 7

_WIDEST = 2**31 - 1
_USUAL_WINDOW = 65_535
_LARGEST_FRAME = 16_384
# Received bytes are counted, and the member's window is updated before it has to wait.
_REFILL = 2**30
# Headers of answers are a few hundred bytes.
_HEAD_LIMIT = 64 * 1024
# Stream numbers only grow; a new connection is made before they run out.
_LAST_STREAM = 2**31 - 1001

_frame = Struct(">HBBBI")  # 24 bits of length in two pieces, kind, flags, stream
_setting = Struct(">HI")
_long = Struct(">I")
_prefix = Struct(">BI")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return _frame.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


class Failed(Exception):
    """No answer came. `sent`: the request may have reached the member anyway. `trust`: TLS trust failed on one side.
    `foreign`: the peer does not speak gRPC."""

    def __init__(self, why: str, *, sent: bool, trust: bool = False, foreign: bool = False) -> None:
        super().__init__(why)
        self.sent = sent
        self.trust = trust
        self.foreign = foreign


class Status(NamedTuple):
    """The end of a call; `code` is gRPC's, 0 for success."""

    code: int
    message: str


class Call:
    """One call. `messages` grows as they come; `ended` is set after the last. A caller that stops waiting cancels it."""

    __slots__ = ("_buffer", "_connection", "_need", "ended", "messages", "number", "outgoing", "status", "used", "wake", "window")

    def __init__(self, connection: Connection, number: int, window: int, outgoing: memoryview) -> None:
        self._connection = connection
        self._buffer = bytearray()
        self._need = 0
        self.number = number
        self.window = window
        # The part of the request that is not sent yet.
        self.outgoing = outgoing
        self.messages: list[bytes] = []
        self.ended: Failed | Status | None = None
        self.status: Status | None = None
        # Bytes received since the last window update.
        self.used = 0
        self.wake: Callable[[], None] = _nobody

    def received(self, data: bytes) -> None:
        buffer = self._buffer
        if not buffer and len(data) >= 5:
            # The usual case: one message in one frame.
            compressed, size = _prefix.unpack_from(data)
            if not compressed and len(data) == size + 5:
                self.messages.append(data[5:])
                self.wake()
                return
        buffer += data
        found = False
        while len(buffer) >= 5:
            compressed, size = _prefix.unpack_from(buffer)
            if compressed:
                raise ValueError("its message is compressed")
            if len(buffer) < size + 5:
                break
            self.messages.append(bytes(buffer[5 : size + 5]))
            del buffer[: size + 5]
            found = True
        if found:
            self.wake()

    def end(self, how: Failed | Status) -> None:
        if self.ended is None:
            self.ended = how
            self.wake()

    def cancel(self) -> None:
        """The caller does not wait any more."""
        self.wake = _nobody
        if self.ended is None:
            self.ended = Failed("no caller waits for it", sent=True)
            self._connection.reset(self)


def _nobody() -> None:
    return None


class Connection(asyncio.Protocol):
    """Make calls on it as long as it is `usable`."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._calls: dict[int, Call] = {}
        self._next = 1
        self._window = _USUAL_WINDOW
        self._stream_window = _USUAL_WINDOW
        self._frame_size = _LARGEST_FRAME
        self._most = 100
        self._came = 0
        self._stalled: deque[Call] = deque()
        # Headers that continue in the next frame: their stream, whether the stream ends with them, and the part received.
        self._head: tuple[int, bool, bytearray] | None = None
        self._greeted = False
        self._greeting: asyncio.Future[None] | None = None
        self._leaving = False
        self.closed = False

    # --- asyncio protocol -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        settings = b"".join(
            _setting.pack(*each) for each in ((_TABLE_SIZE, 0), (_ENABLE_PUSH, 0), (_WINDOW, _WIDEST), (_MAX_STREAMS, 0))
        )
        widened = frame(_WINDOW_UPDATE, 0, 0, _long.pack(_WIDEST - _USUAL_WINDOW))
        self._transport.write(_PREFACE + frame(_SETTINGS, 0, 0, settings) + widened)

    def connection_lost(self, error: Exception | None) -> None:
        why = explain(error) if isinstance(error, OSError) else str(error or "the connection was closed")
        self._fail(why, trust=isinstance(error, ssl.SSLError))

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at, end = 0, len(buffer)
        try:
            while end - at >= 9:
                high, low, kind, flags, stream = _frame.unpack_from(buffer, at)
                size = high << 8 | low
                if not self._greeted:
                    if kind != _SETTINGS or flags & _ACK:
                        raise ValueError("it does not speak HTTP/2")
                    self._greeted = True
                    if self._greeting is not None and not self._greeting.done():
                        self._greeting.set_result(None)
                if size > _LARGEST_FRAME:
                    raise ValueError(f"its frame is of {size} bytes")
                if end - at < size + 9:
                    break
                payload = bytes(buffer[at + 9 : at + 9 + size])
                at += size + 9
                self._take(kind, flags, stream & _WIDEST, payload)
        except ValueError as error:
            self._fail(f"this is not etcd: {error}", foreign=not self._greeted)
            return
        del buffer[:at]

    # --- reading --------------------------------------------------------------------------------------------------------

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if self._head is not None and kind != _CONTINUATION:
            raise ValueError("a head is cut off by another frame")
        if kind == _DATA:
            self._take_data(flags, stream, payload)
        elif kind == _HEADERS:
            block = _unpadded(payload, flags)
            if flags & _PRIORITY:
                block = block[5:]
            self._take_head(stream, bool(flags & _END_STREAM), bytearray(block), bool(flags & _END_HEADERS))
        elif kind == _CONTINUATION:
            if self._head is None or self._head[0] != stream:
                raise ValueError("a head goes on that did not begin")
            stream, ends, block_so_far = self._head
            block_so_far += payload
            self._take_head(stream, ends, block_so_far, bool(flags & _END_HEADERS))
        elif kind == _RST_STREAM:
            self._take_reset(stream, payload)
        elif kind == _SETTINGS:
            self._take_settings(flags, payload)
        elif kind == _PING:
            if not flags & _ACK:
                self._write(frame(_PING, _ACK, 0, payload))
        elif kind == _GOAWAY:
            self._take_leave(payload)
        elif kind == _WINDOW_UPDATE:
            self._take_window(stream, payload)
        elif kind == _PUSH_PROMISE:
            raise ValueError("it pushes a response without a request")

    def _take_data(self, flags: int, stream: int, payload: bytes) -> None:
        self._came += len(payload)
        if self._came >= _REFILL:
            self._write(frame(_WINDOW_UPDATE, 0, 0, _long.pack(self._came)))
            self._came = 0
        call = self._calls.get(stream)
        if call is None:
            # A cancelled call: its remaining frames.
            return
        # A response with another status than 200 is an error page for people.
        if payload and call.status is None:
            call.received(_unpadded(payload, flags))
            # A stream may go on for days: its window is kept at its size.
            if not flags & _END_STREAM:
                self._refill(call, len(payload))
        if flags & _END_STREAM:
            self._end(call, _cut_off())

    def _refill(self, call: Call, size: int) -> None:
        call.used += size
        if call.used >= _REFILL:
            self._write(frame(_WINDOW_UPDATE, 0, call.number, _long.pack(call.used)))
            call.used = 0

    def _take_head(self, stream: int, ends: bool, block: bytearray, whole: bool) -> None:
        if len(block) > _HEAD_LIMIT:
            raise ValueError("the head of its answer has no end")
        if not whole:
            self._head = stream, ends, block
            return
        self._head = None
        headers = hpack.decode(bytes(block))
        call = self._calls.get(stream)
        if call is None:
            return
        said = headers.get("grpc-status")
        if said is not None:
            call.status = Status(int(said), unquote(headers.get("grpc-message", "")))
        elif headers.get(":status", "200") != "200":
            call.status = Status(14, f"it answers {headers[':status']}: is this etcd?")
        if ends:
            self._end(call, _cut_off())

    def _end(self, call: Call, how: Failed | Status) -> None:
        self._calls.pop(call.number, None)
        if call.outgoing:
            # It was answered before its request was sent completely.
            call.outgoing = call.outgoing[:0]
            self._write(frame(_RST_STREAM, 0, call.number, _long.pack(_CANCEL)))
        call.end(call.status or how)
        if self._leaving and not self._calls:
            self.close()

    def _take_reset(self, stream: int, payload: bytes) -> None:
        call = self._calls.get(stream)
        if call is None:
            return
        (code,) = _unpack(_long, payload)
        call.outgoing = call.outgoing[:0]
        self._end(call, Failed(f"it broke off (HTTP/2 code {code})", sent=code != _REFUSED_STREAM))

    def _take_settings(self, flags: int, payload: bytes) -> None:
        if flags & _ACK:
            return
        if len(payload) % _setting.size:
            raise ValueError("its settings are cut off")
        for name, value in _setting.iter_unpack(payload):
            if name == _MAX_STREAMS:
                self._most = value
            elif name == _FRAME_SIZE:
                if not _LARGEST_FRAME <= value < 2**24:
                    raise ValueError(f"it takes frames of {value} bytes")
                self._frame_size = value
            elif name == _WINDOW:
                if value > _WIDEST:
                    raise ValueError(f"its window is of {value} bytes")
                for call in self._calls.values():
                    call.window += value - self._stream_window
                self._stream_window = value
        self._write(frame(_SETTINGS, _ACK, 0))
        self._go_on()

    def _take_window(self, stream: int, payload: bytes) -> None:
        (more,) = _unpack(_long, payload)
        more &= _WIDEST
        if stream == 0:
            self._window += more
        elif (call := self._calls.get(stream)) is not None:
            call.window += more
        self._go_on()

    def _take_leave(self, payload: bytes) -> None:
        """The member closes: calls it has not begun may be repeated elsewhere, the rest is still answered."""
        if len(payload) < 8:
            raise ValueError("it goes without a word")
        last = _long.unpack_from(payload)[0] & _WIDEST
        self._leaving = True
        for call in [each for each in self._calls.values() if each.number > last]:
            call.outgoing = call.outgoing[:0]
            self._end(call, Failed("it goes", sent=False))
        if not self._calls:
            self.close()

    # --- writing --------------------------------------------------------------------------------------------------------

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self.closed:
            self._transport.write(data)

    def _go_on(self) -> None:
        """Send requests that had to wait for the member's windows."""
        for _ in range(len(self._stalled)):
            call = self._stalled.popleft()
            if call.outgoing and not self._send(call):
                self._stalled.append(call)

    def _send(self, call: Call) -> bool:
        """Send as much of a request as possible; whether that was all."""
        while call.outgoing:
            size = min(len(call.outgoing), self._frame_size, call.window, self._window)
            if size <= 0:
                return False
            piece, call.outgoing = call.outgoing[:size], call.outgoing[size:]
            call.window -= size
            self._window -= size
            self._write(frame(_DATA, 0 if call.outgoing else _END_STREAM, call.number, bytes(piece)))
        return True

    async def greeted(self) -> None:
        """Wait for the peer's first frame, before which a server with TLS 1.3 may still refuse our certificate. Raises Failed."""
        if not self._greeted:
            self._greeting = asyncio.get_running_loop().create_future()
            if self.closed:
                raise Failed("the connection was closed", sent=False)
            await self._greeting

    # --- for callers ----------------------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """True if one more call may be made."""
        return not self.closed and not self._leaving and len(self._calls) < self._most and self._next < _LAST_STREAM

    @property
    def idle(self) -> bool:
        return not self._calls

    def retire(self) -> None:
        """No further calls; those in progress finish."""
        self._leaving = True
        if not self._calls:
            self.close()

    def call(self, head: bytes, message: bytes) -> Call:
        """Start a call. `head` is from :func:`head_of`."""
        if self._transport is None or not self.usable or self._transport.is_closing():
            raise Failed("the connection was closed", sent=False)
        number, self._next = self._next, self._next + 2
        data = _prefix.pack(0, len(message)) + message
        size = len(data)
        if size <= self._frame_size and size <= self._stream_window and size <= self._window:
            # All of it in one write.
            call = Call(self, number, self._stream_window - size, memoryview(b""))
            self._window -= size
            self._calls[number] = call
            self._transport.write(frame(_HEADERS, _END_HEADERS, number, head) + frame(_DATA, _END_STREAM, number, data))
            return call
        call = Call(self, number, self._stream_window, memoryview(data))
        self._calls[number] = call
        self._transport.write(frame(_HEADERS, _END_HEADERS, number, head))
        if not self._send(call):
            self._stalled.append(call)
        return call

    def reset(self, call: Call) -> None:
        if self._calls.pop(call.number, None) is not None:
            call.outgoing = call.outgoing[:0]
            self._write(frame(_RST_STREAM, 0, call.number, _long.pack(_CANCEL)))
            if self._leaving and not self._calls:
                self.close()

    def _fail(self, why: str, *, trust: bool = False, foreign: bool = False) -> None:
        calls, self._calls = list(self._calls.values()), {}
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(Failed(why, sent=False, trust=trust, foreign=foreign))
        self.close()
        for call in calls:
            call.end(Failed(why, sent=True, trust=trust))

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.abort()
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            call.end(Failed("the connection was closed", sent=True))


def _cut_off() -> Failed:
    """Not a refusal: the call may have been done."""
    return Failed("it ends without saying how", sent=True)


def _unpadded(payload: bytes, flags: int) -> bytes:
    if not flags & _PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ValueError("a frame is nothing but padding")
    return payload[1 : len(payload) - payload[0]]


def _unpack(shape: Struct, payload: bytes) -> tuple[int, ...]:
    if len(payload) != shape.size:
        raise ValueError("a frame is of another size than it must be")
    return shape.unpack(payload)


def head_of(scheme: str, authority: str, method: str, *, needs_leader: bool = True) -> bytes:
    """The headers of every request for one method."""
    headers = [
        (":method", "POST"),
        (":scheme", scheme),
        (":path", method),
        (":authority", authority),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]
    if needs_leader:
        # A member without a leader must end its streams instead of staying silent.
        headers.append(("hasleader", "true"))
    return hpack.encode(headers)


async def connect(host: str, port: int, tls: ssl.SSLContext | None) -> Connection:
    """Raises Failed."""
    try:
        _, made = await asyncio.get_running_loop().create_connection(
            Connection, host, port, ssl=tls, server_hostname=host if tls is not None else None
        )
    except (OSError, ssl.SSLError) as error:
        raise Failed(explain(error), sent=False, trust=isinstance(error, ssl.SSLError)) from None
    try:
        await made.greeted()
    except BaseException:
        made.close()
        raise
    return made


def explain(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return error.strerror or str(error)
