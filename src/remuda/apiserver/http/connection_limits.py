"""Connection limits: the number per address, and time limits for reading and writing.

They are counted from accept, before the TLS handshake: each is an open file, and one address
must not have them all.

A client that sends a byte a minute costs as much as one that works, so the time for a request's head, the rate of its body and
the time that a response stays unread are limited. While we do not read (because the handler is slow), no connection
is cut; nor are upgraded connections, whose protocols have their own keepalive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from remuda.kube.clock import Clock

from ..limits.caller_caps import ConnectionCaps, Seat, network_of
from .listener import Connection

log = logging.getLogger(__name__)

PER_ADDRESS, IN_ALL = 4096, 20_000
_OWN_FILES = 1024
# Refused clients retry at once; a line for each would fill the disk and push everything else out of the audit log.
_SAY_EVERY = 60.0


@dataclass(frozen=True, slots=True)
class ConnectionTimeouts:
    """Limits in seconds; `body_pace` is in bytes per second. `look` is the interval between checks."""

    head: float = 30.0
    body_pause: float = 60.0
    body_grace: float = 30.0
    body_pace: float = 256.0
    unread: float = 600.0
    look: float = 2.0


@dataclass(frozen=True, slots=True)
class MaxConnections:
    """The maximum number of connections. One address may stand for a whole site with its agents."""

    per_address: int = PER_ADDRESS
    in_all: int = IN_ALL

    @classmethod
    def within(cls, files: int, per_address: int | None = None) -> MaxConnections:
        """The room of a process that may have `files` open files. Some are kept for the store, logs and our own clients;
        and unless `per_address` is given, one address may not have all."""
        at_most = max(IN_ALL, per_address or 0)
        in_all = max(min(files - min(_OWN_FILES, files // 4), at_most), 1)
        return cls(min(per_address or min(PER_ADDRESS, max(in_all // 2, 1)), in_all), in_all)


DEFAULT_MAX_CONNECTIONS = MaxConnections()


@dataclass(slots=True)
class _Progress:
    address: str
    heard: float
    # The time since which a request's head is awaited or incomplete; None when none is awaited.
    head_since: float | None
    # The request whose body is being received, since when, and its size so far.
    body_of: object = None
    body_since: float = 0.0
    body_size: int = 0
    # The unread part of a response, and the time since which it has not changed.
    unread: int = 0
    unread_since: float = field(default=0.0)


def address_of(connection: Connection) -> str:
    found = connection.peername
    return str(found[0]) if isinstance(found, tuple) and found else ""


class ConnectionLimits:
    """The listener's observer. `on_misread` and `on_refused` get the address and the reason, for the audit log."""

    def __init__(
        self,
        clock: Clock,
        patience: ConnectionTimeouts = ConnectionTimeouts(),
        room: MaxConnections = DEFAULT_MAX_CONNECTIONS,
    ) -> None:
        self._clock = clock
        self._patience = patience
        self._caps = ConnectionCaps(room.per_address, room.in_all)
        self._lines: dict[Connection, _Progress] = {}
        self._said = clock.monotonic() - _SAY_EVERY
        self._refused = 0
        self.on_misread: Callable[[str, str], None] = lambda address, why: None
        self.on_refused: Callable[[str, str], None] = lambda address, why: None

    def __len__(self) -> int:
        return len(self._lines)

    # --- called by the listener -----------------------------------------------------------------------------------------

    def admit(self, address: str) -> Seat | None:
        key = network_of(address)
        seat = self._caps.enter(key)
        if seat is None:
            self._refused += 1
            now = self._clock.monotonic()
            if now - self._said >= _SAY_EVERY:
                log.warning(
                    "%s has %d connections of %d and gets no more; %d were cut since this was said",
                    key,
                    self._caps.held(key),
                    len(self._caps),
                    self._refused,
                )
                self._said, self._refused = now, 0
                self.on_refused(address, "there are too many connections")
        return seat

    def opened(self, connection: Connection) -> None:
        now = self._clock.monotonic()
        self._lines[connection] = _Progress(address_of(connection), now, now)

    def received(self, connection: Connection) -> None:
        line = self._lines.get(connection)
        if line is None:
            return
        line.heard = self._clock.monotonic()
        if connection._request_in_progress or connection._messages:
            line.head_since = None
        elif line.head_since is None:
            line.head_since = line.heard

    def closed(self, connection: Connection) -> None:
        self._lines.pop(connection, None)

    def misread(self, connection: Connection, why: str) -> None:
        self.on_misread(address_of(connection), " ".join(why.split())[:200])

    # --- checks ---------------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Check all connections at intervals, until cancelled."""
        while True:
            await self._clock.sleep(self._patience.look)
            self.look()

    def look(self) -> int:
        """Cut the connections that are too slow; the number of these."""
        now, cut = self._clock.monotonic(), 0
        for connection, line in list(self._lines.items()):
            why = self._verdict(connection, line, now)
            if why and connection.transport is not None:
                cut += 1
                self.on_refused(line.address, why)
                connection.transport.abort()
        return cut

    def _verdict(self, connection: Connection, line: _Progress, now: float) -> str:
        transport = connection.transport
        if transport is None or connection._upgraded or connection._payload_parser is not None:
            return ""
        request = connection._current_request
        if request is None:
            if line.head_since is not None and now - line.head_since > self._patience.head:
                return "the head of a request took too long"
            return ""
        unread = transport.get_write_buffer_size()
        if unread != line.unread:
            line.unread, line.unread_since = unread, now
        elif unread and now - line.unread_since > self._patience.unread:
            return "an answer was not read"
        return self._body_verdict(connection, line, request, now)

    def _body_verdict(self, connection: Connection, line: _Progress, request: object, now: float) -> str:
        assert connection._current_request is not None
        payload = connection._current_request._payload
        if payload.is_eof() or connection._reading_paused or connection._buffer_paused:
            line.body_of = None
            return ""
        size = payload.total_bytes
        if line.body_of is not request:
            line.body_of, line.body_since, line.body_size = request, now, size
            return ""
        if now - line.heard > self._patience.body_pause:
            return "the body of a request stopped"
        taken = now - line.body_since
        if taken > self._patience.body_grace and (size - line.body_size) < taken * self._patience.body_pace:
            return "the body of a request came too slowly"
        return ""
