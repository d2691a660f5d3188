"""Whatever hypothesis comes up with, for everything that reads what others wrote; :mod:`.budget` says for how long.

`target` is one server on loopback, a process of its own as a user starts it: a crash is then seen as one, and its log is what
a user would find. The whole of the server is in the way of each example: TLS, HTTP, decoding, admission, validation, the
store. Parts that talk to others than users (etcd, webhooks, agents) are fed by themselves, in this process.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.api.ways import HORSE_CRD
from tests.e2e.serving import Served

from . import budget

# A server that has answered a million odd requests has forgotten them.
MOST_RESIDENT = 800 << 20


def pytest_itemcollected(item: pytest.Item) -> None:
    if budget.is_fuzzer(item):
        item.add_marker(pytest.mark.soak)


def pytest_collection_finish(session: pytest.Session) -> None:
    budget.divide(session)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not budget.is_fuzzer(pyfuncitem):
        return None
    budget.run(pyfuncitem)
    return True


@dataclass
class Target:
    served: Served
    context: ssl.SSLContext
    _connection: http.client.HTTPSConnection | None = None
    _read: int = 0
    _checks: int = 0

    @property
    def port(self) -> int:
        return self.served.port

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        """Any request; whatever is in it, the answer is no 5xx and the log stays clean."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        for attempt in (1, 2):
            if self._connection is None:
                self._connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context, timeout=60)
            try:
                self._connection.request(method, path, body, named)
                response = self._connection.getresponse()
                data = response.read()
                break
            except (http.client.HTTPException, OSError):
                # The server may close after a request that it could not read; it must not do so twice in a row.
                self._connection.close()
                self._connection = None
                if attempt == 2:
                    raise
        self.check()
        if response.status >= 500 and not _told_so_by_kubernetes(response.status, data):
            pytest.fail(f"{method} {path} {headers} {body!r:.2000}: {response.status} {data[:2000]!r}", pytrace=False)
        if response.status >= 400 and data.startswith(b"{"):
            told = json.loads(data)
            assert (told["kind"], told["code"]) == ("Status", response.status)
        return response.status, data

    def check(self) -> None:
        """Still alive, and nothing new in the log that tells of an error of its own."""
        assert self.served.alive, self.served.told()[-3000:]
        self._checks += 1
        if self._checks % 100 == 0:
            assert self.served.memory() < MOST_RESIDENT
        size = self.served.log.stat().st_size
        if size == self._read:
            return
        with self.served.log.open("rb") as log:
            log.seek(self._read)
            new = log.read().decode(errors="replace")
        self._read = size
        if "Traceback" in new or "ERROR" in new:
            pytest.fail(new[:4000], pytrace=False)

    def raw(self, data: bytes, seconds: float = 60.0) -> bytes:
        """Bytes of any kind on a connection of their own, and what comes back until the server closes or falls silent."""
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=seconds)
        with self.context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
            received = b""
            try:
                connection.sendall(data)
                connection.settimeout(0.5)
                while part := connection.recv(65536):
                    received += part
            except (TimeoutError, OSError):
                pass
        self.check()
        return received


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    served = Served(Path(tmp_path_factory.mktemp("fuzz")) / "data")
    served.start()
    try:
        found = Target(served, served.endpoint.context)
        _prepare(found)
        yield found
        assert found.send("GET", "/readyz")[0] == 200
        assert served.stop() == 0
        assert served.tracebacks() == []
    finally:
        served.end()


def _told_so_by_kubernetes(status: int, data: bytes) -> bool:
    """kube-apiserver has a few 5xx for bad input, and so have we; what is our own failure says so.

    A version that cannot be read is a 500 without a reason, one that has not come yet a 504.
    """
    told = json.loads(data)
    if status == 504:
        return b"ResourceVersionTooLarge" in data
    return status == 500 and told.get("reason", "") == "" and b"an error of its own" not in data


def _prepare(target: Target) -> None:
    kind = {"Content_Type": "application/json"}
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert target.send("POST", crds, json.dumps(HORSE_CRD).encode(), **kind)[0] == 201
    end = time.monotonic() + 90
    while target.send("GET", "/apis/ranch.example.com/v1/horses")[0] != 200:
        assert time.monotonic() < end, "the horses are not served"
        time.sleep(0.05)
