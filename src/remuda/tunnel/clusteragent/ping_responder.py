"""The other end of the second tunnel: the agent itself answers, for any dialled address.

So far there is one answer: `GET /ping`, by which the server knows that the agent is alive
(docs/reference/tunnel.md#conditions-of-a-connected-cluster). That needs a small part of HTTP/1.1 only; a request with a body is
answered, and the connection closed after it.
"""

from __future__ import annotations

from collections.abc import Mapping

from .. import ByteStream, StreamError

LARGEST_HEAD = 16 * 1024


async def answer(stream: ByteStream) -> None:
    """Serve one connection until either side ends it."""
    received = bytearray()
    try:
        while (head := await _head(stream, received)) is not None:
            response, lasting = _response(head)
            await stream.write(response)
            if not lasting:
                return
    except StreamError:
        # The peer or the session is gone: there is no receiver.
        return
    finally:
        stream.close()


async def _head(stream: ByteStream, received: bytearray) -> bytes | None:
    """The next request's head without its empty line; the rest stays in `received`. None at the end."""
    while (end := received.find(b"\r\n\r\n")) < 0:
        if len(received) > LARGEST_HEAD:
            await stream.write(_message(431, "Request Header Fields Too Large", b"", lasting=False))
            return None
        data = await stream.read()
        if not data:
            return None
        received += data
    head = bytes(received[:end])
    del received[: end + 4]
    return head


def _response(head: bytes) -> tuple[bytes, bool]:
    """The response, and whether another request may follow on the same connection."""
    line, *rest = head.decode("latin-1").split("\r\n")
    words = line.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        return _message(400, "Bad Request", b"", lasting=False), False
    headers = {name.strip().lower(): value.strip().lower() for name, _, value in (field.partition(":") for field in rest)}
    lasting = words[2] == "HTTP/1.1" and headers.get("connection") != "close" and not _has_body(headers)
    method, path = words[0], words[1].partition("?")[0]
    if path == "/ping" and method in ("GET", "HEAD"):
        return _message(200, "OK", b"pong", lasting=lasting, bodiless=method == "HEAD"), lasting
    return _message(404, "Not Found", b"404 page not found\n", lasting=lasting, bodiless=method == "HEAD"), lasting


def _has_body(headers: Mapping[str, str]) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _message(status: int, reason: str, body: bytes, *, lasting: bool, bodiless: bool = False) -> bytes:
    head = (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        f"{'' if lasting else 'Connection: close' + chr(13) + chr(10)}\r\n"
    )
    return head.encode() + (b"" if bodiless else body)
