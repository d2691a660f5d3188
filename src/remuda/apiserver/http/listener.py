"""The TLS listener: sockets, connections from accept to their end, certificates. Handlers interpret requests.

One module for all listeners of Remuda: the API server uses its own handler, a gateway may put more in front. Client
certificates are requested but not required; authenticators look at :attr:`Connection.peer_certificate`.

:class:`Acceptor` does what an event loop's own server would do, which counts no connection before the end of its TLS handshake,
and does not report a lack of file descriptors. Here each connection gets its place first (:mod:`.connection_limits`), handshakes
have a time limit, and when files run out the kernel's queue is left alone for a moment, instead of being polled again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from aiohttp import web

from remuda.kube.clock import SYSTEM_CLOCK, Timer, deadline
from remuda.kube.network import tls, unreadable

from ..limits.caller_caps import Seat

log = logging.getLogger(__name__)

_BACKLOG = 4096
_HANDSHAKE_SECONDS = 20.0
# Connections accepted at once; then other tasks get a turn.
_AT_ONCE = 64
# The process or the machine has no file descriptors or no memory left.
_EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
_REST_SECONDS = 0.5
# The kernel does not support such addresses, or the machine does not have this one.
_NOT_HERE = frozenset((errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EADDRNOTAVAIL))

Admit = Callable[[str], Seat | None]
Protocols = Callable[[Seat | None], asyncio.BaseProtocol]


class Acceptor:
    """`protocols` makes a connection's protocol and gets the place that it has to leave; `admit` gives places."""

    def __init__(self, protocols: Protocols, context: ssl.SSLContext | None, admit: Admit | None) -> None:
        self._protocols = protocols
        self._context = context
        self._admit = admit
        self._sockets: list[socket.socket] = []
        self._greeted: set[asyncio.Task[None]] = set()
        self._resting: dict[socket.socket, Timer] = {}
        self._exhausted = False
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        """Raises OSError. Port 0 is any free port."""
        await self._bind(host, port)
        loop = asyncio.get_running_loop()
        try:
            for each in self._sockets:
                each.listen(_BACKLOG)
        except OSError:
            await self.close()
            raise
        for each in self._sockets:
            loop.add_reader(each.fileno(), self._accept, each)

    async def _bind(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                try:
                    made = _bound(family, (address[0], self.port or address[1], *address[2:]))
                except OSError as error:
                    if error.errno not in _NOT_HERE:
                        raise
                    # A name may have addresses that this machine lacks: localhost's ::1, where IPv6 is switched off.
                    log.debug("%s can't be listened on: %s", address[0], error)
                    continue
                self._sockets.append(made)
                self.port = made.getsockname()[1]
            if not self._sockets:
                raise OSError(errno.EADDRNOTAVAIL, f"there is no address of {host} to listen on")
        except OSError:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop accepting; connections that are still in their handshake are closed."""
        loop = asyncio.get_running_loop()
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()
        for each in self._sockets:
            loop.remove_reader(each.fileno())
            each.close()
        self._sockets.clear()
        for task in self._greeted:
            task.cancel()
        await asyncio.gather(*self._greeted, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._rest(listening, error)
                    return
                # This connection closed before it was accepted; there may be others.
                continue
            if self._exhausted:
                self._exhausted = False
                log.info("connections are accepted again")
            self._welcome(connection, str(address[0]))

    def _rest(self, listening: socket.socket, error: OSError) -> None:
        if not self._exhausted:
            self._exhausted = True
            log.error("no connection can be accepted: %s; those that are open go on", error.strerror)
        asyncio.get_running_loop().remove_reader(listening.fileno())
        self._resting[listening] = SYSTEM_CLOCK.call_later(_REST_SECONDS, lambda: self._resume(listening))

    def _resume(self, listening: socket.socket) -> None:
        del self._resting[listening]
        asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening)

    def _welcome(self, connection: socket.socket, address: str) -> None:
        seat = self._admit(address) if self._admit is not None else None
        if self._admit is not None and seat is None:
            connection.close()
            return
        connection.setblocking(False)
        task = asyncio.create_task(self._greet(connection, seat), name="handshake")
        self._greeted.add(task)
        task.add_done_callback(self._greeted.discard)

    async def _greet(self, connection: socket.socket, seat: Seat | None) -> None:
        loop = asyncio.get_running_loop()
        seconds = None if self._context is None else _HANDSHAKE_SECONDS
        try:
            await loop.connect_accepted_socket(
                lambda: self._protocols(seat), connection, ssl=self._context, ssl_handshake_timeout=seconds
            )
        except BaseException as error:
            if seat is not None:
                seat.leave()
            # uvloop raises RuntimeError for a connection that is closed already.
            if not isinstance(error, OSError | RuntimeError | asyncio.CancelledError):
                raise
            # Not TLS, an unknown certificate, too slow, or closed: this is normal.
            log.debug("a connection was not made: %s", error)


async def check_address(host: str, port: int) -> None:
    """Raises OSError where :meth:`Acceptor.open` would now; accepts no connection meanwhile."""
    acceptor = Acceptor(lambda seat: asyncio.Protocol(), None, None)
    await acceptor._bind(host, port)
    await acceptor.close()


def _bound(family: int, address: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            # Accepted connections inherit it.
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if made.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

# Time for a handler that missed its deadline to end after it is cancelled.
_CUT_SECONDS = 0.5


class ConnectionObserver(Protocol):
    """An observer of connections: accepted, active, closed."""

    def admit(self, address: str) -> Seat | None:
        """A place for one more connection from there, left when it ends; None if that is too many: it is cut at once."""
        ...

    def opened(self, connection: Connection) -> None:
        """The handshake is done."""
        ...

    def received(self, connection: Connection) -> None: ...

    def closed(self, connection: Connection) -> None: ...

    def misread(self, connection: Connection, why: str) -> None:
        """The client sent an invalid request; the response was 400."""
        ...


class Connection(unreadable.Connection):
    """One client connection; it keeps its client certificate, and callbacks for its end."""

    def __init__(self, *args: Any, observer: ConnectionObserver | None = None, seat: Seat | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seat = seat
        self.on_lost: dict[Callable[[], None], None] = {}
        self._peer: bytes | None = None
        self._peer_known = False
        self._observer = observer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._observer is not None:
            self._observer.opened(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._observer is not None:
            self._observer.received(self)

    def misread(self, request: web.BaseRequest, why: str) -> None:
        if self._observer is not None:
            self._observer.misread(self, why)
        if isinstance(request, Request):
            # The Server header must not disclose versions of our components.
            request.before_headers = lambda response: response.headers.pop("Server", None)

    @property
    def peer_certificate(self) -> bytes | None:
        """The client's certificate (DER), verified against our CA by the handshake; None when it sent none."""
        if not self._peer_known:
            found = self.transport.get_extra_info("ssl_object") if self.transport is not None else None
            self._peer = found.getpeercert(True) if found is not None else None
            self._peer_known = True
        return self._peer

    async def shutdown(self, timeout: float | None = 15.0) -> None:
        """Like aiohttp's, but a request in progress may still receive the rest of its body, and idle clients are not waited for.

        aiohttp's own method stops reading first, which cuts off every upload, and leaves a client that sends its next
        request on an idle connection without an answer until the time is up.
        """
        if not self._request_in_progress and not self._messages:
            self.close()
        elif self._request_in_progress:
            self._handler_waiter = self._loop.create_future()
            try:
                async with deadline(SYSTEM_CLOCK, 15.0 if timeout is None else timeout):
                    await self._handler_waiter
            except TimeoutError:
                timeout = _CUT_SECONDS
        await super().shutdown(timeout)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self._seat is not None:
            self._seat.leave()
        if self._observer is not None:
            self._observer.closed(self)
        for callback in list(self.on_lost):
            callback()
        self.on_lost.clear()


class Request(web.BaseRequest):
    """A request with a hook that adds headers to every response, also to streams that begin deep inside a handler."""

    before_headers: Callable[[web.StreamResponse], object] | None = None

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        if self.before_headers is not None:
            self.before_headers(response)


class _Server(web.Server):
    def connection(self, seat: Seat | None) -> Connection:
        return Connection(self, loop=self._loop, seat=seat, **self._kwargs)

    def _make_request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        return Request(message, payload, protocol, writer, task, self._loop)


def server_context(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """The TLS context for HTTP/1.1, with optional client certificates."""
    context = tls.server_context()
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def reload_certificate(context: ssl.SSLContext, certificate: Path, key: Path, client_ca: Path) -> None:
    """Use these files' present content for new connections. TLS still accepts a removed CA:
    authenticators have to check that."""
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(client_ca)


class Listener:
    """A listening socket with its connections; `close` stops accepting, then lets requests in progress finish."""

    def __init__(self, handler: Handler, context: ssl.SSLContext | None, observer: ConnectionObserver | None = None) -> None:
        self._server = _Server(
            handler,
            observer=observer,
            access_log=None,
            keepalive_timeout=180,
            max_line_size=16 * 1024,
            max_field_size=32 * 1024,
            tcp_keepalive=True,
            auto_decompress=False,
        )
        self._acceptor = Acceptor(self._server.connection, context, None if observer is None else observer.admit)

    async def open(self, host: str, port: int) -> None:
        await self._acceptor.open(host, port)

    @property
    def port(self) -> int:
        return self._acceptor.port

    @property
    def connections(self) -> int:
        return len(self._server.connections)

    async def close(self, grace: float) -> None:
        """Requests in progress get `grace` seconds to finish and are then cut off; with 0 that is at once."""
        await self._acceptor.close()
        # aiohttp takes 0 for no limit.
        await self._server.shutdown(max(grace, 0.001))
