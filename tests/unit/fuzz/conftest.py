"""One server on loopback for all of this, fed with whatever hypothesis comes up with.

It runs in a thread with an event loop of its own, so that examples can be sent with plain blocking calls and the
whole of the server is in the way of each: HTTP, decoding, admission, validation, the store.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from remuda.apiserver.server import Config, Server
from remuda.embedded import running
from tests.api.ways import HORSE_CRD
from tests.e2e.conftest import SOAK

settings.register_profile(
    "fuzz",
    max_examples=2000 if SOAK else 60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@pytest.fixture(autouse=True, scope="session")
def _profile() -> Iterator[None]:
    before = settings.get_current_profile_name()
    settings.load_profile("fuzz")
    yield
    settings.load_profile(before)


class Complaints(logging.Handler):
    """What the server has logged at ERROR or with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.exc_info:
            self.found.append(self.format(record))


@dataclass
class Target:
    port: int
    context: ssl.SSLContext
    complaints: Complaints
    _connection: http.client.HTTPSConnection | None = None

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
        assert response.status < 500, (method, path, body, headers, response.status, data[:2000])
        if response.status >= 400 and data.startswith(b"{"):
            told = json.loads(data)
            assert (told["kind"], told["code"]) == ("Status", response.status)
        return response.status, data

    def check(self) -> None:
        found, self.complaints.found = self.complaints.found, []
        assert not found, "\n".join(found)

    def raw(self, data: bytes, seconds: float = 10.0) -> bytes:
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
    directory = Path(tmp_path_factory.mktemp("fuzz"))
    complaints = Complaints()
    complaints.setFormatter(logging.Formatter("%(name)s %(message)s"))
    logging.getLogger().addHandler(complaints)
    ready = threading.Event()
    state: dict[str, Any] = {}

    async def serve() -> None:
        state["stop"], state["loop"] = asyncio.Event(), asyncio.get_running_loop()
        async with running(Config(data_dir=directory, port=0)) as server:
            state["server"] = server
            ready.set()
            await state["stop"].wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(60)
    server: Server = state["server"]
    assert server.pki is not None
    context = ssl.create_default_context(cafile=str(server.pki.ca_certificate))
    context.load_cert_chain(server.pki.admin_certificate, server.pki.admin_key)
    found = Target(int(server.url.rpartition(":")[2]), context, complaints)
    _prepare(found)
    yield found
    status, _ = found.send("GET", "/readyz")
    assert status == 200
    state["loop"].call_soon_threadsafe(state["stop"].set)
    thread.join(60)
    assert not thread.is_alive()
    logging.getLogger().removeHandler(complaints)
    found.check()


def _prepare(target: Target) -> None:
    kind = {"Content_Type": "application/json"}
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert target.send("POST", crds, json.dumps(HORSE_CRD).encode(), **kind)[0] == 201
    for _ in range(200):
        if target.send("GET", "/apis/ranch.example.com/v1/horses")[0] == 200:
            return
        threading.Event().wait(0.05)
    raise AssertionError("the horses are not served")
