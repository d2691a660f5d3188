"""Listening sockets, and connections from accept until the end of the TLS handshake.

An event loop's own server would do this too, but counts none before its handshake, and doesn't report a lack of
file descriptors. Here each connection gets its place first (:mod:`.connection_limits`), handshakes have a time limit,
and when files run out the kernel's queue is left alone for a moment, instead of being polled again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable

from remuda.kube.clock import SYSTEM_CLOCK, Timer

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
