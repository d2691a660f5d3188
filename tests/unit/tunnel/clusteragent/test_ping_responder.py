"""What the second tunnel answers: a small, strict piece of HTTP/1.1."""

from __future__ import annotations

import pytest

from remuda.tunnel.clusteragent.connections import LARGEST_HEAD, answer

PONG = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 4\r\n\r\npong"


class Line:
    """A stream that has all of its bytes, in the pieces given."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)
        self.written = b""
        self.closed = False

    async def read(self, most: int = 0) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True


async def answered(*pieces: bytes) -> bytes:
    line = Line(*pieces)
    await answer(line)
    assert line.closed
    return line.written


async def test_a_ping_is_answered_with_pong() -> None:
    assert await answered(b"GET /ping HTTP/1.1\r\nHost: not-used\r\n\r\n") == PONG


async def test_in_any_pieces_and_several_on_one_connection() -> None:
    request = b"GET /ping HTTP/1.1\r\nHost: not-used\r\n\r\n"
    assert await answered(*(request[at : at + 1] for at in range(len(request)))) == PONG
    assert await answered(request + request, request) == 3 * PONG


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /v1/pods HTTP/1.1", b"404"),
        (b"GET /ping/../secret HTTP/1.1", b"404"),
        (b"POST /ping HTTP/1.1", b"404"),
        (b"GET /ping?x=1 HTTP/1.1", b"200"),
        (b"GET /ping", b"400"),
        (b"GET  /ping HTTP/1.1", b"400"),
        (b"GET /ping HTTP/2.0", b"400"),
        (b"\x16\x03\x01\x02\x00", b"400"),
    ],
)
async def test_everything_else(request_line: bytes, status: bytes) -> None:
    assert (await answered(request_line + b"\r\nHost: x\r\n\r\n")).split(b" ")[1] == status


async def test_a_head_has_no_body() -> None:
    found = await answered(b"HEAD /ping HTTP/1.1\r\nHost: x\r\n\r\n")
    assert found.endswith(b"Content-Length: 4\r\n\r\n")


@pytest.mark.parametrize("header", [b"Content-Length: 5", b"Transfer-Encoding: chunked", b"Connection: close"])
async def test_what_follows_a_body_is_not_taken_for_a_request(header: bytes) -> None:
    smuggled = b"GET /ping HTTP/1.1\r\n" + header + b"\r\n\r\nGET /ping HTTP/1.1\r\n\r\n"
    found = await answered(smuggled)
    assert found.count(b"HTTP/1.1 200") == 1
    assert b"Connection: close" in found


async def test_a_head_without_end() -> None:
    assert (await answered(b"GET /ping HTTP/1.1\r\nX: ", b"x" * (LARGEST_HEAD + 1), b"more")).startswith(b"HTTP/1.1 431")
