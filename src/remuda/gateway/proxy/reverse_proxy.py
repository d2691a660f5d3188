"""One request passed on to an upstream, and its answer passed back: streamed both ways, at the pace of the slower side.

    async with Exchange(request, pool, clock, what="cluster c-m-abcdefgh") as exchange:
        head = await exchange.ask(target, headers)
        return await exchange.answer(headers.from_cluster)

Until the first byte of the answer is sent, every failure is an ApiError that the client sees. After that the client's connection
is cut: a clean end would make half a list look complete. A client that disconnects cancels its request at once. The body is
framed by what was parsed here, never by the client's own framing.
:mod:`.http1_parser` parses the answer, :mod:`.connection_pool` keeps connections, :func:`join` takes over when both sides
change to another protocol than HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from multidict import CIMultiDict

from remuda.apiserver.http.listener import Connection
from remuda.kube.clock import Clock, deadline
from remuda.kube.errors import ApiError, bad_request
from remuda.kube.network import unreadable
from remuda.tunnel import ByteStream

from ..server.headers import Headers
from .connection_pool import Pool, PooledConnection, no_upstream, why
from .http1_parser import LARGEST_HEAD, BadAnswer, Body, Head, UntilEnd, body_of, parse_head, request_head

log = logging.getLogger(__name__)

# Bodies up to this size are sent together with their head.
_AT_ONCE = 32 * 1024
_MOST_INTERIM = 16
# As Go's client: an upstream that does not send 100 Continue gets the body all the same.
_CONTINUE_SECONDS = 1.0
# How often the way of a connection is looked at, on which no answer comes.
_LOOK_SECONDS = 1.0
_REPEATABLE = frozenset(("GET", "HEAD", "OPTIONS"))
_OURS = frozenset(("content-length", "expect", "connection", "upgrade", "transfer-encoding"))

Clean = Callable[[Headers], list[tuple[str, str]]]


class ClientGone(ConnectionError):
    """The client has disconnected; no answer can be sent."""


class _Together(web.StreamResponse):
    """Sends its headers with the first bytes of its body, not before."""

    _send_headers_immediately = False


class Exchange:
    """One request and its answer. `noted` holds a failure that occurred after the answer had begun."""

    def __init__(self, request: web.BaseRequest, pool: Pool, clock: Clock, *, what: str) -> None:
        self._request = request
        self._pool = pool
        self._clock = clock
        self._what = what
        self.noted = ""
        self._line: PooledConnection | None = None
        self._head: Head | None = None
        self._body: Body = UntilEnd()
        self._received = b""
        self._upgrade = ""
        self._chunked = request.headers.get("Transfer-Encoding") is not None
        self._has_body = request.body_exists and not request.content.at_eof()
        self._upload: asyncio.Task[None] | None = None
        self._unreadable = ""
        self._untaken = False
        self._go_on: asyncio.Event | None = None
        self._task = asyncio.current_task()
        self._gone = False

    # --- the client's connection -----------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        connection = self._request.protocol
        if connection.transport is None:
            raise ClientGone("the client has disconnected")
        if isinstance(connection, Connection):
            connection.on_lost[self._left] = None
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        connection = self._request.protocol
        if isinstance(connection, Connection):
            connection.on_lost.pop(self._left, None)
        self._drop()
        if self._upload is not None:
            await asyncio.gather(self._upload, return_exceptions=True)
        if self._gone and isinstance(error, asyncio.CancelledError) and self._task is not None:
            self._task.uncancel()
            raise ClientGone("the client has disconnected") from None

    def _left(self) -> None:
        self._gone = True
        if self._task is not None:
            self._task.cancel()

    def _drop(self) -> None:
        """End the upstream connection and everything on it."""
        if self._upload is not None:
            self._upload.cancel()
        if self._line is not None:
            self._pool.discard(self._line)
            self._line = None

    # --- the request -----------------------------------------------------------------------------------------------------

    async def ask(self, target: str, headers: list[tuple[str, str]], upgrade: str = "") -> Head:
        """Send the request and read the head of its answer. `headers` are complete but for the body's framing.

        May be called again as long as `repeatable`, for example with other credentials.
        """
        if upgrade and (self._has_body or self._chunked):
            raise bad_request("a request that asks for another protocol can't have a body")
        self._upgrade = upgrade
        data = request_head(self._request.method, target, self._framed(headers))
        self._drop()
        self._received = b""
        fresh = bool(upgrade)
        while True:
            line = self._line = await self._connected(fresh)
            try:
                await self._send(line, data)
                with self._leaving_silence(line):
                    head = await self._read_head(line)
                self._body = body_of(head, self._request.method)
            except OSError as error:
                # A reused one was closed while idle, which can't be noticed here before using it.
                again = (line.reused or line.passed_over) and not self._received and not isinstance(error, BadAnswer)
                self._drop()
                if again and not fresh and self.repeatable:
                    fresh = True
                    continue
                raise self._unanswered(error) from None
            self._head = head
            return head

    @property
    def repeatable(self) -> bool:
        """Tells whether the same request may be repeated: it changes nothing, and no body was sent."""
        return self._request.method in _REPEATABLE and not self._has_body and not self._chunked and not self._upgrade

    @contextlib.contextmanager
    def _leaving_silence(self, line: PooledConnection) -> Iterator[None]:
        """End the connection when its way falls silent while there is another one: a request that may be repeated goes that way,
        long before this one counts as dead."""
        if not self.repeatable:
            yield
            return
        timer = self._clock.call_later(_LOOK_SECONDS, lambda: look())

        def look() -> None:
            nonlocal timer
            if line.passed_over and not self._received:
                line.stream.close()
            else:
                timer = self._clock.call_later(_LOOK_SECONDS, look)

        try:
            yield
        finally:
            timer.cancel()

    def _framed(self, headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
        request = self._request
        framed = [pair for pair in headers if pair[0].lower() not in _OURS]
        if self._upgrade:
            framed += [("Connection", "Upgrade"), ("Upgrade", self._upgrade)]
        elif self._chunked:
            framed.append(("Transfer-Encoding", "chunked"))
        elif request.content_length is not None:
            framed.append(("Content-Length", str(request.content_length)))
        if self._has_body and request.headers.get("Expect", "").lower() == "100-continue":
            framed.append(("Expect", "100-continue"))
            self._go_on = asyncio.Event()
        return framed

    async def _connected(self, fresh: bool) -> PooledConnection:
        try:
            return await self._pool.take(fresh=fresh)
        except OSError as error:
            raise no_upstream(self._what, error) from None

    def _unanswered(self, error: OSError) -> ApiError:
        if self._unreadable:
            return bad_request(f"the body of the request can't be read: {self._unreadable}")
        return ApiError(502, "BadGateway", f"{self._what} sent no valid answer: {why(error)}")

    async def _send(self, line: PooledConnection, head: bytes) -> None:
        content = self._request.content
        if not self._has_body:
            await line.stream.write(head + b"0\r\n\r\n" if self._chunked else head)
        elif content.is_eof() and self._go_on is None and content.total_bytes <= _AT_ONCE:
            body = content.read_nowait(-1)
            await line.stream.write(head + (b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if self._chunked else body))
        else:
            await line.stream.write(head)
            self._upload = asyncio.create_task(self._send_body(line))

    async def _send_body(self, line: PooledConnection) -> None:
        """Send the body as it arrives. A failure to send shows in the answer, or in its absence."""
        if self._go_on is not None:
            await self._let_client_go_on(self._go_on)
        stream, content = line.stream, self._request.content
        try:
            while True:
                try:
                    data = await content.readany()
                except (RequestPayloadError, HttpProcessingError, ConnectionError, EOFError) as error:
                    # Half a body must not look complete.
                    self._unreadable = unreadable.reason(error)
                    stream.close()
                    return
                if not data:
                    break
                await stream.write(b"%x\r\n%s\r\n" % (len(data), data) if self._chunked else data)
            if self._chunked:
                await stream.write(b"0\r\n\r\n")
        except OSError as error:
            self._untaken = True
            log.debug("%s stopped reading the request's body: %s", self._what, error)

    async def _let_client_go_on(self, said: asyncio.Event) -> None:
        try:
            async with deadline(self._clock, _CONTINUE_SECONDS):
                await said.wait()
        except TimeoutError:
            pass
        transport = self._request.transport
        if transport is not None:
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _read_head(self, line: PooledConnection) -> Head:
        for _ in range(_MOST_INTERIM):
            head = await self._next_head(line)
            if head.status == 101:
                wanted = [value.lower() for value in head.values("upgrade")]
                if not self._upgrade or wanted != [self._upgrade.lower()]:
                    raise BadAnswer("it switched to a protocol that was not requested")
                return head
            if head.status >= 200:
                return head
            if head.status == 100 and self._go_on is not None:
                self._go_on.set()
        raise BadAnswer("it sent too many interim answers")

    async def _next_head(self, line: PooledConnection) -> Head:
        received = self._received
        while (end := received.find(b"\r\n\r\n")) < 0:
            if len(received) > LARGEST_HEAD:
                break
            data = await line.stream.read()
            if not data:
                if not received:
                    raise ConnectionResetError("it closed the connection")
                raise BadAnswer("it closed the connection inside the head of an answer")
            self._received = received = received + data
        if end < 0 or end > LARGEST_HEAD:
            raise BadAnswer(f"the head of the answer is longer than {LARGEST_HEAD} bytes")
        self._received = received[end + 4 :]
        return parse_head(received[:end])

    # --- the answer ------------------------------------------------------------------------------------------------------

    async def answer(self, clean: Clean) -> web.StreamResponse:
        """Pass the answer on, with the headers that `clean` keeps; the response that was sent."""
        head, line = self._head, self._line
        assert head is not None and line is not None
        if head.status == 101:
            return await self._change_protocol(head, line, clean)
        body, first = self._body, self._received
        content = body.feed(first) if first else b""
        headers = CIMultiDict(clean(head.headers))
        kind = _Together if content or body.done else web.StreamResponse
        response = kind(status=head.status, reason=head.reason or None, headers=headers)
        if self._upload is not None and not self._upload.done():
            # The client may still be sending a body that is not read.
            response.force_close()
        elif self._request.version < HttpVersion11 and response.content_length is None:
            # The client knows no chunks: the end of the connection marks the end of the answer.
            response.force_close()
        await response.prepare(self._request)
        whole = await self._pass_on(response, line, body, content)
        if not whole:
            self._cut()
        elif head.reusable and body.left == 0 and not isinstance(body, UntilEnd) and not self._upgrade and self._sent:
            self._pool.give_back(line)
            self._line = None
        return response

    @property
    def _sent(self) -> bool:
        return self._upload is None or (self._upload.done() and not self._unreadable and not self._untaken)

    async def _pass_on(self, response: web.StreamResponse, line: PooledConnection, body: Body, content: bytes) -> bool:
        """False when the upstream ended before the body did."""
        read, write = line.stream.read, response.write
        while not body.done:
            if content:
                await write(content)
            try:
                data = await read()
                if data:
                    content = body.feed(data)
                else:
                    content = b""
                    body.end()
            except OSError as error:
                self.noted = f"the answer was cut off: {why(error)}"
                return False
        await response.write_eof(content)
        return True

    def _cut(self) -> None:
        log.info("%s: %s", self._what, self.noted)
        transport = self._request.transport
        if transport is not None:
            transport.abort()

    async def _change_protocol(self, head: Head, line: PooledConnection, clean: Clean) -> web.StreamResponse:
        headers = CIMultiDict(clean(head.headers))
        headers.popall("Content-Length", None)
        headers["Connection"] = "Upgrade"
        headers["Upgrade"] = self._upgrade
        response = web.StreamResponse(status=101, reason=head.reason or None, headers=headers)
        response.force_close()
        await response.prepare(self._request)
        self.noted = await join(self._request, line.stream, self._received)
        return response


# --- upgraded connections ---------------------------------------------------------------------------------------------------
#
# Two connections joined byte for byte, after both sides have agreed to speak websocket or SPDY instead of HTTP. aiohttp keeps the
# client's socket; only the bytes read are led here (`set_parser`), and the socket is paused while the upstream accepts nothing.
# The end of one side ends both, as in the tunnel.

_PAUSE_ABOVE = 256 * 1024


class _FromClient:
    """The client's bytes, as aiohttp delivers them; bounded by pausing the client's socket."""

    def __init__(self, protocol: RequestHandler) -> None:
        self._protocol = protocol
        self._received = bytearray()
        self._paused = False
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self._received += data
        transport = self._protocol.transport
        if len(self._received) > _PAUSE_ABOVE and not self._paused and transport is not None:
            self._paused = True
            transport.pause_reading()
        self._wake()
        return False, b""

    def feed_eof(self) -> None:
        self._ended = True
        self._wake()

    async def read(self) -> bytes:
        while not self._received:
            if self._ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        data, self._received = bytes(self._received), bytearray()
        transport = self._protocol.transport
        if self._paused and transport is not None:
            self._paused = False
            transport.resume_reading()
        return data

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def join(request: web.BaseRequest, upstream: ByteStream, first: bytes) -> str:
    """Carry bytes both ways until one side ends; the reason of an unclean end. `first` came from the upstream already."""
    protocol = request.protocol
    client = _FromClient(protocol)
    # Called for every byte from now on, and for those that came too early.
    protocol.set_parser(client)  # type: ignore[arg-type]
    outward = asyncio.create_task(_to_upstream(client, upstream))
    try:
        return await _to_client(protocol, upstream, first)
    finally:
        outward.cancel()
        await asyncio.gather(outward, return_exceptions=True)


async def _to_upstream(client: _FromClient, upstream: ByteStream) -> None:
    try:
        while data := await client.read():
            await upstream.write(data)
    except OSError:
        # The task that reads the other direction sees the reason.
        return
    upstream.close()


async def _to_client(protocol: RequestHandler, upstream: ByteStream, first: bytes) -> str:
    data = first
    while True:
        transport = protocol.transport
        if transport is None or transport.is_closing():
            return ""
        if data:
            transport.write(data)
            await protocol._drain_helper()
        try:
            data = await upstream.read()
        except OSError as error:
            if protocol.transport is not None:
                protocol.transport.abort()
            return f"the connection was cut off: {why(error)}"
        if not data:
            transport.close()
            return ""
