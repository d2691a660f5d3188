"""SIGTERM: watches end as whole answers do, requests under way are finished, and the process exits with 0."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import socket
import threading
import time
from collections.abc import Callable

import pytest

from .serving import Served, config_map, eventually, make_namespace, send

pytestmark = pytest.mark.story

WATCHES = 200
# A server waits for a handshake for some seconds only, so not all of them begin theirs at once.
HANDSHAKES = 8
# What is under way when a server is told to stop has five seconds. A test that took longer for its own part has shown nothing.
GRACE = 5.0


def _refuses(served: Served) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", served.port)) != 0


async def _watch(served: Served, collection: str, room: asyncio.Semaphore, opened: asyncio.Semaphore) -> bytes:
    """Everything that one watch says, to its end."""
    async with room:
        context = served.endpoint.context
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=context, server_hostname="127.0.0.1")
    writer.write(f"GET {collection}?watch=1&resourceVersion=0 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    first = await reader.readuntil(b"\n\r\n")
    opened.release()
    rest = await reader.read()
    writer.close()
    return first + rest


@pytest.mark.parametrize("count", [1, WATCHES])
async def test_watches_end_as_whole_answers(serve: Callable[..., Served], count: int) -> None:
    served = serve()
    collection = make_namespace(served, "ends")
    room, opened = asyncio.Semaphore(HANDSHAKES), asyncio.Semaphore(0)
    watches = [asyncio.create_task(_watch(served, collection, room, opened)) for _ in range(count)]
    async with asyncio.timeout(150):
        for _ in range(count):
            await opened.acquire()
    assert served.process is not None
    # What was acknowledged before the end is told before the end.
    assert send(served.endpoint, "POST", collection, config_map("last-words")).status == 201
    served.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(90):
        heard = await asyncio.gather(*watches)
    assert all(each.endswith(b"0\r\n\r\n") for each in heard), "a watch was cut instead of ended"
    assert all(b"last-words" in each for each in heard)
    assert served.process.wait(90) == 0, served.told()
    assert served.tracebacks() == [], served.told()


def test_a_request_under_way_is_finished(serve: Callable[..., Served]) -> None:
    for number in range(5):
        served = serve(f"data{number}")
        collection = make_namespace(served, "finish")
        received, took = _finish_late(served, collection)
        assert served.process is not None and served.process.wait(90) == 0, served.told()
        if received or took < GRACE / 2:
            break
    assert received.startswith(b"HTTP/1.1 201"), received[:300]
    served.start()
    assert served.endpoint.request("GET", f"{collection}/slow").status == 200
    assert served.stop() == 0
    assert served.tracebacks() == [], served.told()


def _finish_late(served: Served, collection: str) -> tuple[bytes, float]:
    """The answer to a request of which the rest comes when nobody else is listened to any more, and how long that took us."""
    body = json.dumps(config_map("slow", a="x" * 1000)).encode()
    with served.connect() as connection:
        head = f"POST {collection} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body[:500])
        # It has the beginning when it answers somebody who came later.
        assert served.endpoint.request("GET", "/readyz").status == 200
        assert served.process is not None
        began = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        eventually(lambda: _refuses(served))
        received = b""
        with contextlib.suppress(OSError):
            connection.sendall(body[500:])
        took = time.monotonic() - began
        with contextlib.suppress(OSError):
            while part := connection.recv(65536):
                received += part
    return received, took


def test_an_idle_connection_is_closed_at_once(serve: Callable[..., Served]) -> None:
    """Who keeps one for later must hear now that there is no later, and not when the grace of others has ended."""
    took: list[float] = []
    # The quickest of some: a machine may have other things to do for longer than any grace.
    while len(took) < 5 and min(took, default=3) >= 3:
        served = serve(f"data{len(took)}")
        with served.connect() as connection:
            connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
            assert served.process is not None
            began = time.monotonic()
            served.process.send_signal(signal.SIGTERM)
            assert connection.recv(4096) == b""
            took.append(time.monotonic() - began)
        assert served.process.wait(90) == 0, served.told()
    assert min(took) < 3


def test_a_body_that_never_comes_does_not_keep_it_from_stopping(serve: Callable[..., Served]) -> None:
    served = serve()
    with served.connect() as connection:
        connection.sendall(b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        assert served.endpoint.request("GET", "/readyz").status == 200
        assert served.stop() == 0
    assert served.tracebacks() == [], served.told()


def test_writers_get_an_answer_or_a_closed_door(serve: Callable[..., Served]) -> None:
    """Under load: every write is acknowledged or not made or in doubt, and what was acknowledged is there."""
    served = serve()
    collection = make_namespace(served, "load")
    acknowledged: list[str] = []
    stop = threading.Event()

    def write(number: int) -> None:
        endpoint = served.endpoint
        count = 0
        while not stop.is_set():
            count += 1
            name = f"w{number}-{count}"
            try:
                answer = send(endpoint, "POST", collection, config_map(name))
            except (OSError, http.client.HTTPException):
                return
            if answer.status == 201:
                acknowledged.append(name)

    threads = [threading.Thread(target=write, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(acknowledged) > 100)
    assert served.stop() == 0, served.told()
    stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert served.tracebacks() == [], served.told()
    served.start()
    held = {item["metadata"]["name"] for item in served.endpoint.request("GET", collection).json["items"]}
    assert set(acknowledged) <= held
