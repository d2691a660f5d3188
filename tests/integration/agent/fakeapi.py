"""A Kubernetes API of one Secret, on loopback, that can be told to misbehave."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .builders import server

KUBECONFIG = """apiVersion: v1
clusters:
- cluster:
    server: {url}
{ca}  name: agent
contexts:
- context:
    cluster: agent
    user: agent
  name: agent
current-context: agent
kind: Config
users:
- name: agent
  user:
    token: s3cret
"""


class FakeApi:
    """The Secret, its versions, and what was asked."""

    def __init__(self, **data: bytes) -> None:
        self.changed = threading.Condition()
        self.version = 100
        self.secret: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "plan", "namespace": "ns", "uid": "u1", "resourceVersion": "100", "labels": {"keep": "me"}},
            "data": {},
        }
        self.puts: list[dict[str, str]] = []
        self.asked: list[tuple[str, str, str]] = []
        self.before_put: list[Callable[[], int | None]] = []
        self.watch_ends = False
        self.silence = 5.0
        self.set(**data)

    def set(self, **data: bytes) -> None:
        """A write of the server's."""
        texts = {key.replace("_", "-"): base64.b64encode(value).decode() for key, value in data.items()}
        with self.changed:
            self._store({**self.secret, "data": {**self.secret["data"], **texts}})

    def _store(self, secret: dict[str, Any]) -> None:
        self.version += 1
        self.secret = {**secret, "metadata": {**secret["metadata"], "resourceVersion": str(self.version)}}
        self.changed.notify_all()

    def data(self) -> dict[str, bytes]:
        return {key: base64.b64decode(value) for key, value in self.secret["data"].items()}

    def text(self, key: str) -> str:
        return self.data().get(key, b"").decode()

    def wait(self, condition: Callable[[FakeApi], bool], seconds: float = 60) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self), seconds), self.secret["data"]

    @contextlib.contextmanager
    def serving(self, context: Any = None) -> Iterator[str]:
        with server(self, context) as url:
            yield url

    def __call__(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes] | None:
        url = urlsplit(request.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        self.asked.append((request.command, url.path, request.headers.get("Authorization") or ""))
        if url.path == "/version":
            return 200, {}, b'{"gitVersion":"v1.36.3"}'
        if request.command == "PUT":
            return self._put(json.loads(body))
        if url.path == "/api/v1/namespaces/ns/secrets/plan":
            return 200, {}, json.dumps(self.secret).encode()
        if url.path == "/api/v1/namespaces/ns/secrets" and query.get("fieldSelector") == "metadata.name=plan":
            if query.get("watch"):
                return self._watch(request, int(query["resourceVersion"]))
            return 200, {}, json.dumps({"metadata": {"resourceVersion": str(self.version)}, "items": [self.secret]}).encode()
        return 404, {}, b'{"message":"nothing here"}'

    def _put(self, secret: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        if self.before_put:
            status = self.before_put.pop(0)()
            if status:
                return status, {}, b'{"message":"told to"}'
        with self.changed:
            if secret["metadata"]["resourceVersion"] != self.secret["metadata"]["resourceVersion"]:
                return 409, {}, b'{"message":"the object has been modified"}'
            before = self.secret["data"]
            self.puts.append({key: value for key, value in secret["data"].items() if before.get(key) != value})
            self._store(secret)
            return 200, {}, json.dumps(self.secret).encode()

    def _watch(self, request: BaseHTTPRequestHandler, since: int) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        with contextlib.suppress(OSError):
            while True:
                with self.changed:
                    if not self.changed.wait_for(
                        lambda seen=since: int(self.secret["metadata"]["resourceVersion"]) > seen, self.silence
                    ):
                        break
                    since = int(self.secret["metadata"]["resourceVersion"])
                    line = json.dumps({"type": "MODIFIED", "object": self.secret}).encode() + b"\n"
                request.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                if self.watch_ends:
                    break
            request.wfile.write(b"0\r\n\r\n")
        request.close_connection = True
