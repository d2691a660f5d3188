"""Connections that take what others need: too many of one address, no files left, silent ones, and answers that nobody reads."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.serving import Served, config_map, eventually, make_namespace, send

FILES = 240


class Small(Served):
    """May have few files open, and so has few connections."""

    def command(self) -> list[str]:
        return ["prlimit", f"--nofile={FILES}:{FILES}", "--", *super().command()]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    served = Small(tmp_path / "data")
    served.start()
    try:
        yield served
        assert served.stop() == 0, served.told()
        assert served.tracebacks() == [], served.told()
    finally:
        served.end()


def connect(served: Served, source: str) -> socket.socket:
    """A connection from another address of this machine, before any handshake."""
    return socket.create_connection(("127.0.0.1", served.port), timeout=90, source_address=(source, 0))


def secured(served: Served, raw: socket.socket) -> ssl.SSLSocket:
    return served.endpoint.context.wrap_socket(raw, server_hostname="127.0.0.1")


def ask(connection: ssl.SSLSocket, path: str = "/readyz") -> bytes:
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return connection.recv(65536)


def is_served(served: Served, source: str) -> bool:
    try:
        with secured(served, connect(served, source)) as connection:
            return ask(connection).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def ended(connection: socket.socket) -> bool:
    """Whether the server has ended it, without waiting; what it has said before is of no interest."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
        return True
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
    finally:
        connection.settimeout(90)


def files(served: Served) -> int:
    return len(os.listdir(f"/proc/{served.pid}/fd"))


def cpu_seconds(served: Served) -> float:
    fields = Path(f"/proc/{served.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rests(served: Served) -> bool:
    """Whether it leaves the processor to others. One that is busy for a moment may be asked again, one that spins never rests."""
    before = cpu_seconds(served)
    time.sleep(2)
    return cpu_seconds(served) - before < 1


def _left(crowd: list[socket.socket]) -> int:
    return len(crowd) - sum(map(ended, crowd))


def test_one_address_cant_take_every_file(small: Small) -> None:
    """Not even by connections that never shake hands; who is there goes on, and others still come in."""
    collection = make_namespace(small, "crowd")
    endpoint = small.endpoint
    revision = endpoint.request("GET", collection).json["metadata"]["resourceVersion"]
    with contextlib.ExitStack() as stack, endpoint.stream(f"{collection}?watch=1&resourceVersion={revision}") as watch:
        # All are cut when they have not shaken hands for a while, which a machine may take for other things.
        for _ in range(5):
            crowd = [stack.enter_context(connect(small, "127.0.0.2")) for _ in range(2 * FILES)]
            eventually(lambda crowd=crowd: _left(crowd) < FILES / 2, why="an address has more than half of the room")  # type: ignore[misc]
            if there := _left(crowd):
                break
        assert there, "an address has no room at all"
        assert send(endpoint, "POST", collection, config_map("seen")).status == 201
        assert json.loads(watch.readline())["object"]["metadata"]["name"] == "seen"
        with secured(small, connect(small, "127.0.0.3")) as other:
            assert ask(other).startswith(b"HTTP/1.1 200")
    # Those who have left leave room, as soon as the server has read that they left.
    eventually(lambda: is_served(small, "127.0.0.2"))
    assert "127.0.0.2 has" in small.told()


def test_without_a_file_for_one_more_it_rests_and_comes_back(serve: Callable[..., Served]) -> None:
    served = serve()
    collection = make_namespace(served, "files")
    endpoint = served.endpoint
    revision = endpoint.request("GET", collection).json["metadata"]["resourceVersion"]
    with contextlib.ExitStack() as stack, endpoint.stream(f"{collection}?watch=1&resourceVersion={revision}") as watch:
        soft, hard = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)
        highest = max(int(name) for name in os.listdir(f"/proc/{served.pid}/fd"))
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (highest + 3, hard))
        waiting = [stack.enter_context(connect(served, "127.0.0.4")) for _ in range(20)]
        eventually(lambda: "no connection can be accepted: Too many open files" in served.told())
        eventually(lambda: rests(served), why="it asks again and again for what it can't have")
        assert send(endpoint, "POST", collection, config_map("during")).status == 201
        assert json.loads(watch.readline())["object"]["metadata"]["name"] == "during"
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (soft, hard))
        assert ask(secured(served, waiting[-1])).startswith(b"HTTP/1.1 200")
    # Once each time: as often as somebody made room for one more by leaving.
    assert served.told().count("no connection can be accepted") < 5
    eventually(lambda: "connections are accepted again" in served.told())
    assert served.stop() == 0
    assert served.tracebacks() == [], served.told()


def test_the_silent_and_the_slow_are_cut(serve: Callable[..., Served]) -> None:
    """A handshake that never ends, a head that never ends, and a connection of which one half is closed."""
    served = serve()
    collection = make_namespace(served, "slow")
    served.endpoint.request("GET", "/readyz")
    idle = files(served)
    with contextlib.ExitStack() as stack:
        shaking = [stack.enter_context(connect(served, "127.0.0.5")) for _ in range(20)]
        for each in shaking[10:]:
            # The beginning of a handshake.
            each.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
        silent = [stack.enter_context(secured(served, connect(served, "127.0.0.6"))) for _ in range(10)]
        for number, each in enumerate(silent[5:]):
            each.sendall(f"GET /readyz HTTP/1.1\r\nX-{number}: ".encode())
        half = stack.enter_context(secured(served, connect(served, "127.0.0.7")))
        head = f"GET {collection}?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        half.sendall(head)
        assert half.recv(65536).startswith(b"HTTP/1.1 200")
        half.shutdown(socket.SHUT_WR)
        eventually(lambda: ended(half))
        working = stack.enter_context(secured(served, connect(served, "127.0.0.8")))
        assert ask(working).startswith(b"HTTP/1.1 200")
        eventually(lambda: all(ended(each) for each in shaking), why="a handshake may take for ever")
        eventually(lambda: all(ended(each) for each in silent), why="the head of a request may take for ever")
        # One that has said something before may be silent for longer.
        assert ask(working).startswith(b"HTTP/1.1 200")
        # That of the one that works, and a few that a server opens when it first needs them.
        eventually(lambda: files(served) <= idle + 6)
    assert served.stop() == 0
    assert served.tracebacks() == [], served.told()
