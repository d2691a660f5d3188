"""Below HTTP's own rules: broken chunks, endless headers, requests that stop in the middle, plain noise."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from .budget import fuzzing
from .conftest import Target

HEAD = b"POST /api/v1/namespaces/default/configmaps?dryRun=All HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}X\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
        HEAD + b"Content-Length: -5\r\n\r\n{}",
        HEAD + b"Content-Length: 2x\r\n\r\n{}",
        HEAD + b"Content-Length: 99999999999999999999\r\n\r\n{}",
        HEAD + b"X-Long: " + b"a" * 100_000 + b"\r\n\r\n",
        HEAD + b"".join(b"X-%d: y\r\n" % number for number in range(20_000)) + b"\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon here\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n folded: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHo\x00st: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: \xff\xfe\r\n\r\n",
        b"G\xc3\x89T / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://[::1/x HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /api HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n",
        b"GET /api HTTP/1.1\r\nHost: x\r\nExpect: the-unexpected\r\n\r\n",
        b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"\r\n\r\n\r\n",
        b"\x16\x03\x01" + b"\x00" * 100,
        b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n" * 50,
        b"GET /version\r\n\r\n",
    ],
    ids=range(30),
)
def test_broken_requests_get_an_answer_or_a_closed_connection(target: Target, data: bytes) -> None:
    received = target.raw(data)
    assert b"HTTP/1.1 5" not in received[:20], received[:300]
    assert b"Traceback" not in received
    assert target.send("GET", "/readyz")[0] == 200


@fuzzing(25)
@given(st.binary(max_size=400), st.integers(0, 200))
@example(b"", 0)
def test_noise(target: Target, noise: bytes, cut: int) -> None:
    request = HEAD + b"Content-Length: 2\r\n\r\n{}"
    received = target.raw(request[: cut % len(request)] + noise + b"\r\n\r\n")
    assert b"HTTP/1.1 5" not in received[:20], received[:300]
    assert b"Traceback" not in received


def test_noise_instead_of_tls(target: Target) -> None:
    for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 1000, b"\x16\x03\x01\xff\xff" + b"\x01" * 500, b""):
        # Closed, one way or the other, and perhaps before we have said everything.
        with socket.create_connection(("127.0.0.1", target.port), timeout=60) as plain, contextlib.suppress(ConnectionError):
            plain.sendall(noise)
            with contextlib.suppress(OSError):
                plain.shutdown(socket.SHUT_WR)
            while plain.recv(65536):
                pass
    assert target.send("GET", "/readyz")[0] == 200
    target.check()


def test_unfinished_requests_do_not_keep_other_clients_out(target: Target) -> None:
    """A hundred connections that say a little and then nothing: others are served meanwhile."""
    idle = []
    for number in range(100):
        plain = socket.create_connection(("127.0.0.1", target.port), timeout=30)
        connection = target.context.wrap_socket(plain, server_hostname="127.0.0.1")
        connection.sendall((b"GET /api/v1/po", HEAD + b"Content-Length: 10000\r\n\r\n{", HEAD)[number % 3])
        idle.append(connection)
    for _ in range(20):
        assert target.send("GET", "/api/v1/namespaces")[0] == 200
    for connection in idle:
        connection.close()
    end = time.monotonic() + 60
    while target.send("GET", "/readyz")[0] != 200:
        assert time.monotonic() < end
    target.check()
