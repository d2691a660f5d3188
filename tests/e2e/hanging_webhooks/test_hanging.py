"""A webhook that hangs, that never stops talking, or that answers with a bomb harms nobody but who is asked about by it.

More requests hang than there are connections for a webhook; others go on writing and reading, and the server stops when it is
told to. That seats are given up meanwhile is shown in tests/unit/apiserver/limits.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.harness import Answer, Endpoint, RemudaProcess
from tests.real.pki import Authority

CMS = "/api/v1/namespaces/{}/configmaps"
# More than the server has connections for one webhook.
HANGING = 130
MAX_MEMORY_GROWTH = 600 * 1024 * 1024


class Webhook:
    """HTTPS by hand: what comes back is up to `behave`, a byte at a time if need be."""

    def __init__(self, directory: Path) -> None:
        authority = Authority(directory, "hook-ca")
        pair = authority.serving("hook", ("127.0.0.1",))
        self.ca = base64.b64encode(authority.pair.cert.read_bytes()).decode()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(pair.cert, pair.key)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = int(self.listener.getsockname()[1])
        self.asked = 0
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                found, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(found,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        try:
            with self.context.wrap_socket(raw, server_side=True) as found:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += found.recv(65536)
                with self._lock:
                    self.asked += 1
                self.behave(found, head.split(b" ", 2)[1].partition(b"?")[0].decode())
        except (OSError, ValueError, IndexError):
            pass

    def behave(self, found: ssl.SSLSocket, path: str) -> None:
        if path == "/hang":
            self.stopping.wait(120)
        elif path == "/drip":
            found.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n")
            while not self.stopping.wait(0.05):
                found.sendall(b" ")
        elif path == "/endless":
            found.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            while not self.stopping.is_set():
                found.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
        elif path == "/bomb":
            bomb = gzip.compress(b" " * 40_000_000)
            found.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"
                b"Content-Length: %d\r\n\r\n" % len(bomb) + bomb
            )

    def close(self) -> None:
        self.stopping.set()
        self.listener.close()


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    made = Webhook(Path(tmp_path_factory.mktemp("hook")))
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemudaProcess]:
    process = RemudaProcess(Path(tmp_path_factory.mktemp("remuda")))
    process.start()
    yield process
    if process.process is not None and process.process.poll() is None:
        process.stop()


def send(endpoint: Endpoint, method: str, path: str, body: Any = None) -> Answer:
    data = None if body is None else json.dumps(body).encode()
    return endpoint.request(method, path, data, {"Content-Type": "application/json"})


def namespace(endpoint: Endpoint, name: str) -> None:
    made = send(endpoint, "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    assert made.status == 201, made.body


def register(server: RemudaProcess, hook: Webhook, name: str, path: str, timeout: int) -> None:
    """A webhook for all ConfigMaps of the namespace of that name."""
    namespace(server.endpoint, name)
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": f"{name}.example.com",
                "clientConfig": {"url": f"https://127.0.0.1:{hook.port}{path}", "caBundle": hook.ca},
                "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "timeoutSeconds": timeout,
            }
        ],
    }
    where = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    made = send(server.endpoint, "POST", where, configuration)
    assert made.status == 201, made.body


def cm(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def memory(server: RemudaProcess) -> int:
    assert server.process is not None
    fields = Path(f"/proc/{server.process.pid}/statm").read_text().split()
    return int(fields[1]) * 4096


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/drip", "context deadline exceeded"),
        ("/endless", "response is larger than 16777216 bytes"),
        ("/bomb", "response is larger than 16777216 bytes"),
    ],
)
def test_an_answer_without_end(server: RemudaProcess, hook: Webhook, path: str, why: str) -> None:
    name = path.strip("/")
    register(server, hook, name, path, timeout=30 if "larger" in why else 2)
    before = memory(server)
    answer = send(server.endpoint, "POST", CMS.format(name), cm("a"))
    assert answer.status == 500
    assert why in answer.json["message"]
    assert memory(server) - before < MAX_MEMORY_GROWTH


def test_others_write_while_a_webhook_hangs(server: RemudaProcess, hook: Webhook) -> None:
    register(server, hook, "hang", "/hang", timeout=30)
    namespace(server.endpoint, "free")
    asked = hook.asked
    answers: list[int] = []

    def hang(number: int) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            answers.append(send(server.endpoint, "POST", CMS.format("hang"), cm(f"c{number}")).status)

    threads = [threading.Thread(target=hang, args=(number,), daemon=True) for number in range(HANGING)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 60
    while hook.asked < asked + 40:
        assert time.monotonic() < end, "the webhook was not asked"
        time.sleep(0.05)
    endpoint = server.endpoint
    for number in range(20):
        assert send(endpoint, "POST", CMS.format("free"), cm(f"c{number}")).status == 201
    assert len(send(endpoint, "GET", CMS.format("free")).json["items"]) >= 20
    # And they do not keep the server from stopping.
    assert server.stop() == 0
    for thread in threads:
        thread.join(60)
    assert 201 not in answers
