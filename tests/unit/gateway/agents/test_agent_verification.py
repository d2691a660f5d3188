"""One request over a stream whose other end may be anybody, and how often somebody may try."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.gateway.agents.agent_verification import MOST, NoAnswer, ask
from remuda.gateway.server.rate_limit import Buckets
from remuda.kube.clock import VirtualClock


class Line:
    """A stream that says what it was told to, a few bytes at a time."""

    def __init__(self, answer: bytes, at_once: int = 7) -> None:
        self._answer = answer
        self._at_once = at_once
        self.sent = b""

    async def read(self, most: int = 65536) -> bytes:
        data, self._answer = self._answer[: self._at_once], self._answer[self._at_once :]
        return data

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def close(self) -> None:
        self._answer = b""


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npongmore", (200, b"pong")),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", (204, b"")),
        (b"HTTP/1.0 503\r\n\r\nuntil the end", (503, b"until the end")),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}", (201, b"{}")),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\npo\r\n2\r\nng\r\n0\r\n\r\n", (200, b"pong")),
    ],
)
async def test_an_answer(answer: bytes, found: tuple[int, bytes]) -> None:
    line = Line(answer)
    assert await ask(line, "POST", "/x", {"Host": "h"}, b"{}") == found
    assert line.sent == b"POST /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 999 Odd\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npo",
        b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * MOST,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * MOST,
    ],
)
async def test_what_is_no_answer_is_given_up(answer: bytes) -> None:
    with pytest.raises(NoAnswer):
        await ask(Line(answer, 4096), "GET", "/", {})


@given(st.binary(max_size=200))
async def test_nothing_that_comes_does_any_harm(answer: bytes) -> None:
    for start in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        try:
            status, _ = await ask(Line(start + answer), "GET", "/", {})
        except NoAnswer:
            continue
        assert 200 <= status < 600


def test_tries_run_out_and_come_back_with_time() -> None:
    clock = VirtualClock()
    buckets = Buckets(clock, burst=2, per_second=0.5, size=3)
    assert [buckets.take("a") for _ in range(3)] == [True, True, False]
    assert buckets.take("b"), "everybody has their own"


async def test_a_try_comes_back_after_a_while() -> None:
    clock = VirtualClock()
    buckets = Buckets(clock, burst=2, per_second=0.5)
    assert [buckets.take("a") for _ in range(3)] == [True, True, False]
    await clock.advance(2)
    assert [buckets.take("a") for _ in range(2)] == [True, False]
    await clock.advance(600)
    assert [buckets.take("a") for _ in range(3)] == [True, True, False]
