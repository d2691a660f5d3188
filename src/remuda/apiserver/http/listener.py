"""The TLS listener: certificates and connections. Handlers interpret requests, and :mod:`.acceptor` has the
sockets.

One module for all listeners of Remuda: the API server uses its own handler, a gateway may put more in front. Client
certificates are requested but not required; authenticators look at :attr:`Connection.peer_certificate`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from aiohttp import web

from remuda.kube.clock import SYSTEM_CLOCK, deadline
from remuda.kube.network import tls, unreadable

from ..limits.caller_caps import Seat
from .acceptor import Acceptor

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
    """For HTTP/1.1, client certificates optional."""
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
