"""Pause and Resume, as one stream sends and heeds them: against a Go side that keeps one flag for both directions."""

from __future__ import annotations

import pytest

from remuda.kube.clock import VirtualClock
from remuda.tunnel.frames import Kind
from remuda.tunnel.stream import CHUNK, PAUSE_ABOVE, Stream

PROBE = 512


class Line:
    """A session's place taken by the test: what the stream wants to send is taken from it here."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.stream = Stream(self, 2, "tcp", "x:1")
        self.crowded = False
        self.held = 0
        self._urgent = False
        self._ready = False

    def hold(self, change: int) -> None:
        self.held += change

    def urgent(self, stream: Stream) -> None:
        self._urgent = True

    def ready(self, stream: Stream) -> None:
        self._ready = True

    def forget(self, stream: Stream) -> None:
        pass

    def sent(self) -> list[tuple[Kind, int]]:
        """Everything that would have gone out by now: what, and how many bytes."""
        found: list[tuple[Kind, int]] = []
        while self._urgent and (taken := self.stream.take_urgent()):
            found.append((taken[0], len(taken[1])))
        while self._ready and (taken := self.stream.take()):
            found.append((taken[0], len(taken[1])))
        self._urgent = self._ready = False
        return found

    async def after(self, seconds: float) -> list[tuple[Kind, int]]:
        await self.clock.advance(seconds)
        return self.sent()


@pytest.fixture
async def line() -> Line:
    """A stream that was asked to pause and has a chunk to send."""
    made = Line()
    made.stream.on_pause()
    await made.stream.write(bytes(CHUNK))
    assert made.sent() == []
    return made


async def test_a_pause_is_heeded_and_a_resume_answered_once(line: Line) -> None:
    # Go clears its own flag when it sends Resume, and leaves its own writer asleep: the answer wakes it.
    line.stream.on_resume()
    assert line.sent() == [(Kind.RESUME, 0), (Kind.DATA, CHUNK)]
    # Two of us would otherwise answer each other for ever.
    line.stream.on_resume()
    assert line.sent() == []


async def test_a_pause_that_is_not_lifted_is_probed_and_ends(line: Line) -> None:
    assert await line.after(0.25) == [(Kind.RESUME, 0)]
    assert await line.after(0.25) == [(Kind.DATA, PROBE)]
    assert await line.after(0.9) == []
    assert await line.after(0.1) == [(Kind.DATA, CHUNK - PROBE)]


async def test_a_reader_that_has_truly_stopped_is_tried_ever_more_rarely(line: Line) -> None:
    sent = tries = 0
    for _ in range(4 * 3600):
        for kind, size in await line.after(0.25):
            tries += kind is Kind.RESUME
            if kind is Kind.DATA:
                sent += size
                line.stream.on_pause()
    assert 55 <= tries <= 75
    assert sent <= tries * PROBE


async def test_a_pause_while_we_want_one_ourselves_is_tried_with_bytes_alone(line: Line) -> None:
    line.stream.on_data(memoryview(bytes(PAUSE_ABOVE + 1)))
    assert line.sent() == [(Kind.PAUSE, 0)]
    assert await line.after(0.25) == [(Kind.DATA, PROBE)]
    assert await line.after(0.5) == [(Kind.DATA, PROBE)]
    assert await line.after(0.9) == []
    # A Go side that has room says so, and takes our pause for over; we still want it.
    line.stream.on_resume()
    assert line.sent() == [(Kind.PAUSE, 0), (Kind.DATA, CHUNK - 2 * PROBE)]


async def test_our_own_resume_ends_the_pause_of_the_other_side(line: Line) -> None:
    line.stream.on_data(memoryview(bytes(PAUSE_ABOVE + 1)))
    assert line.sent() == [(Kind.PAUSE, 0)]
    while line.stream.buffered:
        await line.stream.read()
    assert line.sent() == [(Kind.RESUME, 0), (Kind.DATA, CHUNK)]


async def test_a_closed_stream_leaves_no_timer_behind(line: Line) -> None:
    line.stream.fail("no more")
    assert line.sent() == [(Kind.ERROR, len("no more"))]
    assert line.clock.next_timer() is None
