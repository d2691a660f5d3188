"""Requests as bytes, to a server in this process: odd lines, headers, framings, encodings and queries, over TLS.

Here the server's own memory is measured with the examples. Each example ends with a request that asks for the connection to
be closed: who is still in step answers it, and who is not has said so and closed.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remuda.apiserver.server import Config, Server

from .budget import fuzzing, is_ours
from .shapes import mangled, numbers, texts

MAPS = "/api/v1/namespaces/default/configmaps"
LAST = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
BODY = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"f-"},"data":{"a":"b"}}'
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if is_ours(record):
            self.said.append(self.format(record))


class Served:
    """A server on a thread of its own, and connections to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.errors = _Errors()
        self.port = 0
        self.context: ssl.SSLContext
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Served:
        logging.getLogger().addHandler(self.errors)
        self._thread.start()
        self._ready.result(120)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(120)
        logging.getLogger().removeHandler(self.errors)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(lambda _, context: self.errors.said.append(repr(context)))
        try:
            server = await Server.open(Config(self.directory, port=0))
            await server.listen()
            assert server.pki is not None
            self.context = ssl.create_default_context(cafile=str(server.pki.ca_certificate))
            self.context.load_cert_chain(server.pki.admin_certificate, server.pki.admin_key)
            self.port = int(server.url.rpartition(":")[2])
        except BaseException as error:
            self._ready.set_exception(error)
            raise
        self._ready.set_result(None)
        await self._stop.wait()
        await server.close()

    def exchange(self, data: bytes, patience: float = 0.3, watches: bool = False) -> bytes:
        """All that comes back until the server closes, or has been silent for a while since it waits for more.

        A watch that was granted is left at once: it would not end.
        """
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        received = bytearray()
        with self.context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
            try:
                connection.sendall(data)
                connection.settimeout(patience)
                while part := connection.recv(65536):
                    received += part
                    if watches and b"chunked\r\n" in received:
                        break
            except (TimeoutError, OSError):
                pass
        return bytes(received)

    def check(self, data: bytes, watches: bool = False) -> None:
        received = self.exchange(data, watches=watches)
        said, self.errors.said = self.errors.said, []
        assert said == []
        assert b"Traceback" not in received
        for status in _STATUS.findall(received):
            # 501 is a method or a coding that is not known; 504 a version that has not come yet; kube-apiserver has a 500
            # without a reason for versions that are no numbers.
            allowed = status < b"500" or status in (b"501", b"504") or b'"reason":"InternalError"' not in received
            assert allowed, received[:2000]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("http") / "data") as found:
        yield found
        assert found.exchange(LAST, 60).startswith(b"HTTP/1.1 200")


# --- lines and headers ------------------------------------------------------------------------------------------------

methods = st.sampled_from(
    [b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"HEAD", b"OPTIONS", b"TRACE", b"CONNECT", b"get", b"G\x00T", b"", b"A" * 300]
)
pieces = st.sampled_from(
    [
        "/", "//", "api", "apis", "v1", "namespaces", "default", "configmaps", "a", "%", "%2", "%zz", "%00", "%2f", "%2e%2e",
        "..", ".", "%ff", "%c3%28", "%F0%9F%90%8E", "?", "#", "&", "=", ";", "+", " ", "\t", "é", "\\", "http://x/", "*", ":",
        "@", "[", "watch", "proxy", "status",
    ]
)  # fmt: skip
targets = st.one_of(
    st.lists(pieces, max_size=10).map(lambda found: ("/" + "".join(found)).encode("utf-8")),
    st.lists(pieces, max_size=4).map(lambda found: "".join(found).encode("utf-8")),
    st.just(MAPS.encode()),
    st.just(f"{MAPS}/kube-root-ca.crt".encode()),
)
versions = st.sampled_from([b"HTTP/1.1"] * 6 + [b"HTTP/1.0", b"HTTP/9.9", b"HTTP/2.0", b"", b"HTTP/1.1 x", b"http/1.1"])
MEDIA = [
    "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "*/*", "text/html", "application/cbor",
    "application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", ";;;",
    "a/b/c", "application/json;q=x", "application/json;stream=watch", "application/json;charset=utf-16",
    "application/apply-patch+yaml", ",", "", "application/merge-patch+json", "application/json-patch+json",
    "application/strategic-merge-patch+json", "multipart/form-data", "application/json;as=Table;g=meta.k8s.io;v=v1," * 20,
    'application/json;a="', "application/json;as=;v=;g=",
]  # fmt: skip
HEADERS: dict[str, list[str]] = {
    "Accept": MEDIA,
    "Content-Type": MEDIA,
    "Accept-Encoding": ["gzip", "gzip;q=0", "br,gzip;q=x", "*", "", "gzip" * 100],
    "Content-Encoding": ["gzip", "deflate", "identity", "x", "gzip, gzip"],
    "Expect": ["100-continue", "x"],
    "Connection": ["close", "keep-alive", "Upgrade", "x, close", ""],
    "Upgrade": ["websocket", "SPDY/3.1", "h2c", "x"],
    "Sec-WebSocket-Key": ["x", "dGhlIHNhbXBsZSBub25jZQ=="],
    "Sec-WebSocket-Version": ["13", "99"],
    "Sec-WebSocket-Protocol": [
        "base64url.bearer.authorization.k8s.io.eA",
        "v4.channel.k8s.io",
        ",,",
        "base64url.bearer.authorization.k8s.io.%",
    ],
    "Authorization": [
        "Bearer x",
        "Bearer",
        "Basic eA==",
        "x",
        "Bearer " + "x" * 5000,
        "Bearer a.b.c",
        "Bearer eyJhbGciOiJub25lIn0.e30.",
    ],
    "Impersonate-User": ["", "x", "%zz", "system:serviceaccount:a"],
    "Impersonate-Group": ["", "system:masters"],
    "Impersonate-Extra-%zz": ["x"],
    "If-None-Match": ["*", '"x"', "W/"],
    "Range": ["bytes=0-1", "bytes=-"],
    "X-Forwarded-For": ["x", "1.2.3.4, 5"],
    "Host": ["x", "", "[::1", "x:99999", "é"],
    "User-Agent": ["", "x" * 3000, "kubectl/v1.36"],
    "Cookie": ["a=b; ;=;", "\x01"],
    "Kubectl-Command": ["x"],
    "Audit-ID": ["x" * 3000, "a b"],
    "Last-Event-Id": ["x"],
    "Content-Length": ["2", "-2", "x", "99999999999999999999", "+2", "0x2", ""],
    "Transfer-Encoding": ["chunked", "gzip, chunked", "identity", "chunked, chunked", "x"],
    "X Space": ["y"],
    "": ["y"],
    "X\x00": ["y"],
}
header = st.sampled_from(sorted(HEADERS)).flatmap(
    lambda name: st.tuples(
        st.just(name), st.one_of(st.sampled_from(HEADERS[name]), st.text(alphabet='ab;,=/*q01 \t"\x7fé', max_size=20))
    )
)
headers = st.lists(header, max_size=5)


def rendered(found: list[tuple[str, str]]) -> bytes:
    return b"".join(f"{name}: {value}\r\n".encode() for name, value in found)


@fuzzing(80)
@given(methods, targets, versions, headers)
@example(b"GET", b"/", b"HTTP/1.1", [("Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.%")])
def test_heads(served: Served, method: bytes, target: bytes, version: bytes, said: list[tuple[str, str]]) -> None:
    served.check(b"%b %b %b\r\nHost: x\r\n%b\r\n" % (method, target, version, rendered(said)) + LAST)


# --- bodies and how they are framed -------------------------------------------------------------------------------------

chunks = st.lists(
    st.one_of(
        st.binary(max_size=20).map(lambda data: b"%x\r\n%b\r\n" % (len(data), data)),
        st.sampled_from(
            [
                b"0\r\n",
                b"0\r\n\r\n",
                b"-1\r\n",
                b"5;a=b\r\nhello\r\n",
                b"zz\r\n",
                b"\r\n",
                b"ffffffffffffffff\r\n",
                b"2\r\n{}",
                b"T: x\r\n",
            ]
        ),
    ),
    max_size=5,
).map(b"".join)
bodies = st.one_of(
    mangled(BODY),
    st.just(BODY),
    st.sampled_from([gzip.compress(BODY), gzip.compress(b" " * (20 << 20)), gzip.compress(BODY)[:-5]]),
)


@fuzzing(80)
@given(
    st.sampled_from([b"POST", b"PUT", b"PATCH", b"DELETE", b"GET"]),
    headers,
    st.one_of(bodies, chunks),
    st.sampled_from(["right", "chunked", "none", "short", "long"]),
)
@example(
    b"POST", [("Content-Type", "application/json"), ("Content-Encoding", "gzip")], gzip.compress(b" " * (200 << 20)), "right"
)
def test_bodies(served: Served, method: bytes, said: list[tuple[str, str]], body: bytes, framing: str) -> None:
    kept = [(name, value) for name, value in said if name not in ("Content-Length", "Transfer-Encoding")]
    lengths = {
        "right": b"Content-Length: %d\r\n" % len(body),
        "short": b"Content-Length: %d\r\n" % (len(body) // 2),
        "long": b"Content-Length: %d\r\n" % (len(body) + 5),
        "chunked": b"Transfer-Encoding: chunked\r\n",
        "none": b"",
    }
    path = MAPS if method == b"POST" else f"{MAPS}/none"
    head = b"%b %b?dryRun=All HTTP/1.1\r\nHost: x\r\n%b%b\r\n" % (method, path.encode(), lengths[framing], rendered(kept))
    served.check(head + body + LAST)


# --- queries, watches -------------------------------------------------------------------------------------------------

OPTIONS = [
    "watch", "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "allowWatchBookmarks", "timeoutSeconds",
    "labelSelector", "fieldSelector", "limit", "continue", "pretty", "includeObject", "fieldManager", "dryRun", "force",
    "gracePeriodSeconds", "x",
]  # fmt: skip
said_values = st.one_of(
    st.sampled_from(
        [
            "",
            "1",
            "0",
            "true",
            "false",
            "-1",
            "9" * 5000,
            "Exact",
            "NotOlderThan",
            "1e3",
            "0x1",
            "a=b",
            "a in (",
            "%",
            "metadata.name=x",
        ]
    ),
    texts,
    numbers.map(str),
)
queries = st.lists(
    st.tuples(
        st.sampled_from(OPTIONS),
        st.one_of(said_values.map(lambda text: quote(text, errors="replace")), st.sampled_from(["%zz", "%", "+", "a&b", "="])),
    ),
    max_size=6,
).map(lambda found: "&".join(f"{name}={value}" for name, value in found))


@fuzzing(80)
@given(
    queries,
    st.booleans(),
    st.sampled_from([MAPS, "/api/v1/watch/namespaces/default/configmaps", "/api/v1/pods", "/apis"]),
    headers,
)
def test_queries(served: Served, query: str, watches: bool, path: str, said: list[tuple[str, str]]) -> None:
    kept = [each for each in said if each[0] in ("Accept", "Accept-Encoding", "Range", "If-None-Match")]
    target = f"{path}?{'watch=1&' if watches else ''}{query}"
    data = f"GET {target} HTTP/1.1\r\nHost: x\r\n".encode("utf-8", "replace") + rendered(kept) + b"\r\n"
    served.check(data + LAST, watches="watch" in target)
