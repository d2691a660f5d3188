"""One connection inside a tunnel: ordered bytes both ways, and flow control both ways.

Received but unread data is bounded: above `PAUSE_ABOVE` the other side is asked to pause, below `RESUME_BELOW` to resume
(docs/reference/tunnel.md#flow-control). Outgoing data is one chunk at a time, so a writer waits while the other side pauses it or
the websocket is full. :mod:`.session` decides whose chunk goes next; it is the only other module that touches the private parts
of a stream.

The Go side keeps one flag for both directions: a side that asks for a pause stops writing, too; a side that sends Resume also
considers itself resumed, but does not wake its own writer; a paused side that reads resumes itself. So two Go sides that both
send much may deadlock. These rules keep our side from that, against Go and against ourselves:

- sending Resume also ends our own pause, because the other side has just forgotten that it asked for one; if it still is
  over its limit it asks again with the next data;
- a Resume that arrives while we still want a pause is answered with Pause again, and one that ends our pause with a Resume,
  which wakes Go's writer;
- a long pause is probed, since it may have crossed our Resume, or be that of a Go side whose service answers while it reads
  (the service can't continue reading because Go does not take its answer, nor Go writing because the service does not read).
  A Resume lets the other side continue, a while later a few bytes find out whether it asks for a pause again, and if it does
  the next probe waits twice as long. For a reader that has truly stopped, this adds `_PROBE` bytes a minute. While we want a
  pause ourselves we can't send Resume; then the few bytes alone make a Go side with free space send its Resume.

The protocol has no half-close: the end of one direction is the end of both.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from remuda.kube.clock import Clock, Timer

from .errors import StreamClosed, StreamError
from .frames import EOF, Kind, error_body

CHUNK = 32 * 1024
PAUSE_ABOVE = 1 << 21
RESUME_BELOW = PAUSE_ABOVE // 8
# When all streams of a session together hold much, each may hold only this before it is asked to pause.
PAUSE_ABOVE_IN_A_CROWD = 2 * CHUNK
# A pause takes time to arrive, and data on the way still comes; a side that sends more than this ignores the pause.
NEVER_ABOVE = 16 * PAUSE_ABOVE

# The first delay and the longest delay before a pause is probed, the time for the other side to drain its buffers, and the
# time for it to answer the probe.
_TRY_AFTER = 0.25
_TRY_AT_LAST = 60.0
_DRAIN_FOR = 0.25
_ANSWER_WITHIN = 1.0
_PROBE = 512
# The time for which a closed stream may wait for the other side's Resume to send its last chunk.
_LINGER = 60.0

DISCONNECTED = "tunnel disconnect"


class ByteStream(Protocol):
    """A stream for code that only moves bytes: :class:`Stream`, or TLS on top of one (:mod:`.tls`)."""

    async def read(self, most: int = ...) -> bytes:
        """Read some bytes, at most `most`; none at the end."""

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write; returns when everything is sent or next in line."""

    def close(self) -> None:
        """Send the written data, then end both directions."""


class Carrier(Protocol):
    """The session as a stream uses it."""

    clock: Clock

    @property
    def crowded(self) -> bool:
        """True if all streams together hold so much that each must limit itself."""

    def hold(self, change: int) -> None:
        """Count so many more (or fewer) received but unread bytes of a stream."""

    def urgent(self, stream: Stream) -> None:
        """Announce a small message of the stream that must not queue behind data."""

    def ready(self, stream: Stream) -> None:
        """Queue the stream, which has a chunk or its end to send."""

    def forget(self, stream: Stream) -> None:
        """Drop the stream, which has ended."""


class Stream:
    """One connection inside a session. One task may read while another writes; no two may do the same."""

    __slots__ = (
        "_asked_to_pause",
        "_carrier",
        "_connect",
        "_ended",
        "_final",
        "_finished",
        "_flow",
        "_linger",
        "_patience",
        "_paused",
        "_probing",
        "_reader",
        "_received",
        "_slot",
        "_trial",
        "_writer",
        "address",
        "id",
        "in_line",
        "in_urgent_line",
        "network",
        "opened_at",
    )

    def __init__(self, carrier: Carrier, number: int, network: str, address: str, connect: bytes | None = None) -> None:
        self.id = number
        self.network = network
        self.address = address
        self.opened_at = carrier.clock.monotonic()
        self.in_line = False
        self.in_urgent_line = False
        self._carrier = carrier
        self._connect = connect
        self._flow: Kind | None = None
        self._received = bytearray()
        self._slot: bytes | None = None
        self._final: str | None = None
        self._finished = False
        self._ended: str | None = None
        self._asked_to_pause = False
        self._paused = False
        self._probing = False
        self._patience = _TRY_AFTER
        self._trial: Timer | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._linger: Timer | None = None

    def __repr__(self) -> str:
        return f"<Stream {self.id} to {self.network}/{self.address}>"

    @property
    def over(self) -> bool:
        """True if nothing can be written any more."""
        return self._ended is not None or self._final is not None

    @property
    def buffered(self) -> int:
        """The number of received but unread bytes."""
        return len(self._received)

    async def read(self, most: int = 2 * CHUNK) -> bytes:
        while not self._received:
            if self._ended == EOF:
                return b""
            if self._ended is not None:
                raise StreamError(self._ended)
            if self._final is not None:
                raise StreamClosed(f"{self!r} was closed here")
            if self._reader is not None:
                raise RuntimeError(f"two tasks read {self!r}")
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        data = bytes(memoryview(self._received)[:most])
        del self._received[:most]
        self._carrier.hold(-len(data))
        if self._asked_to_pause and len(self._received) < (1 if self._carrier.crowded else RESUME_BELOW):
            self._asked_to_pause = False
            self._send_resume()
        return data

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        for start in range(0, len(view), CHUNK):
            await self._room()
            whole = isinstance(data, bytes) and len(data) <= CHUNK
            self._slot = data if whole and isinstance(data, bytes) else bytes(view[start : start + CHUNK])
            if not self._paused:
                self._carrier.ready(self)

    async def sent(self) -> None:
        """Return when everything that was written is on its way."""
        await self._room()

    async def _room(self) -> None:
        while not self.over and self._slot is not None:
            if self._writer is not None:
                raise RuntimeError(f"two tasks write {self!r}")
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None
        if self.over:
            raise StreamClosed(f"{self!r} is closed: {self._ended or self._final}")

    def close(self) -> None:
        """End both directions, after earlier writes have been sent."""
        self._end_here(EOF)

    def fail(self, text: str) -> None:
        """End both directions at once and tell the other side why; local readers and writers get the same error."""
        if self.over:
            self._forget_received()
            return
        self._slot = None
        self._ended = text
        self._end_here(text)

    def leftover(self) -> bytes:
        """All received but unread bytes, without waiting."""
        data = bytes(self._received)
        self._forget_received()
        return data

    def _forget_received(self) -> None:
        self._carrier.hold(-len(self._received))
        self._received = bytearray()

    def _end_here(self, text: str) -> None:
        self._forget_received()
        if self._final is not None or self._finished:
            return
        self._final = text
        self._wake()
        if self._slot is not None and self._paused:
            self._linger = self._carrier.clock.call_later(_LINGER, self._give_up)
            return
        self._carrier.ready(self)

    def _give_up(self) -> None:
        self._slot = None
        self._carrier.ready(self)

    # Called by the session.

    def take_urgent(self) -> tuple[Kind, bytes] | None:
        """The next message that does not queue behind data."""
        if self._connect is not None:
            body, self._connect = self._connect, None
            return Kind.CONNECT, body
        if self._flow is not None and not self._finished:
            kind, self._flow = self._flow, None
            return kind, b""
        return None

    def take(self) -> tuple[Kind, bytes] | None:
        """The next chunk, or the end if no chunk is before it."""
        if self._slot is not None:
            if self._probing:
                return self._take_probe(self._slot)
            if self._paused:
                return None
            body, self._slot = self._slot, None
            if self._writer is not None and not self._writer.done():
                self._writer.set_result(None)
            return Kind.DATA, body
        if self._final is None or self._finished:
            return None
        self._finish()
        self._carrier.forget(self)
        return Kind.ERROR, error_body(self._final)

    def _take_probe(self, slot: bytes) -> tuple[Kind, bytes]:
        self._probing = False
        self._slot = slot[_PROBE:] or None
        if self._asked_to_pause:
            self._try_later()
        else:
            self._trial = self._carrier.clock.call_later(_ANSWER_WITHIN, self._unpause)
        return Kind.DATA, slot[:_PROBE]

    @property
    def waiting(self) -> bool:
        """True if there is something to send in its next turn."""
        if self._slot is not None:
            return self._probing or not self._paused
        return self._final is not None and not self._finished

    def on_data(self, payload: memoryview) -> None:
        if self.over:
            return
        self._received += payload
        self._carrier.hold(len(payload))
        self._wake_reader()
        held = len(self._received)
        if held > NEVER_ABOVE:
            self.fail("receive buffer exceeded: pause was ignored")
        elif not self._asked_to_pause and held > (PAUSE_ABOVE_IN_A_CROWD if self._carrier.crowded else PAUSE_ABOVE):
            self._asked_to_pause = True
            self._signal(Kind.PAUSE)

    def on_pause(self) -> None:
        if self._trial is not None:
            self._trial.cancel()
        self._paused = True
        self._probing = False
        self._try_later()

    def on_resume(self) -> None:
        if self._asked_to_pause:
            self._signal(Kind.PAUSE)
        elif self._paused:
            self._signal(Kind.RESUME)
        self._unpause()

    def on_error(self, text: str) -> None:
        """The other side has ended the stream. Received data can still be read."""
        if self._ended is not None:
            return
        self._ended = text
        self._slot = None
        # Echoed as in Go: no side needs it, but recorded traces of the original contain it.
        self._final = text
        self._wake()
        self._carrier.ready(self)

    def on_session_end(self, text: str = DISCONNECTED) -> None:
        """The session has ended: nothing can be sent any more, not even the end."""
        if self._ended is None:
            self._ended = text
        self._slot = None
        self._finish()
        self._wake()

    def _try_later(self) -> None:
        self._trial = self._carrier.clock.call_later(self._patience, self._try)
        self._patience = min(2 * self._patience, _TRY_AT_LAST)

    def _try(self) -> None:
        self._trial = None
        if self.over:
            return
        if self._asked_to_pause:
            self._probe()
            return
        self._signal(Kind.RESUME)
        self._trial = self._carrier.clock.call_later(_DRAIN_FOR, self._probe)

    def _probe(self) -> None:
        self._trial = None
        if self._slot is not None:
            self._probing = True
            self._carrier.ready(self)
        elif self._asked_to_pause:
            self._try_later()
        else:
            self._unpause()

    def _send_resume(self) -> None:
        if self.over:
            return
        self._signal(Kind.RESUME)
        self._unpause()

    def _unpause(self) -> None:
        if self._trial is not None:
            self._trial.cancel()
            self._trial = None
        self._paused = self._probing = False
        self._patience = _TRY_AFTER
        if self._slot is not None:
            self._carrier.ready(self)

    def _signal(self, kind: Kind) -> None:
        # Only the latest counts, so at most one is queued.
        self._flow = kind
        self._carrier.urgent(self)

    def _finish(self) -> None:
        self._finished = True
        for timer in (self._linger, self._trial):
            if timer is not None:
                timer.cancel()
        self._linger = self._trial = None

    def _wake(self) -> None:
        self._wake_reader()
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
