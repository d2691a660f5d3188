"""Webhooks of our own: one HTTPS server per API server, in the test process, answering as a test tells them to.

Each side has a server (and so a port) of its own, which shows who asked; the path is the same, so that texts with the URL
compare equal. A new configuration reaches kube-apiserver's webhooks a moment after it is stored: :meth:`Hooks.register` adds
a webhook for a probe object to it, and returns when that one is asked.
"""

from __future__ import annotations

import base64
import copy
import json
import re
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.real.pki import Authority
from tests.real.ports import free_port

from . import recording
from .harness import ON_ETCD, OURS, REAL, SIDES, Body, Both, Pair, difference
from .masks import masked

Obj = dict[str, Any]
Answer = Callable[[Obj], Any]

PROBE = {"probe": "yes"}


class Raw:
    """An answer that is not JSON, or not 200."""

    def __init__(self, status: int, body: bytes = b"", content_type: str = "application/json", **headers: str) -> None:
        self.status, self.body, self.content_type, self.headers = status, body, content_type, headers


class Hang:
    """No answer at all, until the caller has given up."""


class HookServer:
    """`answers[path]` gives what to say; `asked` keeps (path, body) in order."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, Obj]] = []
        self.queries: list[str] = []
        self.released = threading.Event()
        self._lock = threading.Lock()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        self._thread.start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        body = json.loads(request.rfile.read(int(request.headers.get("Content-Length") or 0)))
        path, _, query = request.path.partition("?")
        with self._lock:
            self.asked.append((path, body))
            self.queries.append(query)
        said = self.answers.get(path, allow)(body)
        if isinstance(said, Hang):
            self.released.wait(30)
            return
        if not isinstance(said, Raw):
            said = Raw(200, json.dumps(said, separators=(",", ":"), sort_keys=True).encode())
        request.send_response(said.status)
        request.send_header("Content-Type", said.content_type)
        request.send_header("Content-Length", str(len(said.body)))
        for name, value in said.headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(said.body)

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


# The collection of an object, at the beginning of a path to the object or to a part of it.
_COLLECTION = re.compile(r"(?:/api/v1|/apis/[^/]+/[^/]+)/(?:namespaces/[^/]+/)?(?!namespaces/[^/]+/)[^/?]+(?=/)")


@dataclass
class InStep(Pair):
    """A pair whose changes wait until both servers' caches show the changes before them.

    kube-apiserver begins an update or a deletion with the object that its watch cache has, and asks webhooks about that one; if
    the store turns out to have a newer one, it asks about the newer one, too.
    """

    changed: set[str] = field(default_factory=set)

    def send(self, method: str, path: Body, *args: Any, **kwargs: Any) -> Both:
        found = _COLLECTION.match(path(REAL) if callable(path) else path)
        if method != "GET" and found:
            if found[0] in self.changed:
                self._catch_up(found[0].format(ns=self.ns))
            self.changed.add(found[0])
        return super().send(method, path, *args, **kwargs)

    def _catch_up(self, collection: str) -> None:
        for side in SIDES:
            ask = self.endpoints[side].request
            newest = ask("GET", f"{collection}?limit=1").json["metadata"]["resourceVersion"]
            # A read at a revision waits for it, a few seconds at a time.
            for attempt in recording.attempts(f"{side}: the cache of {collection} at {newest}"):
                found = ask("GET", f"{collection}/none?resourceVersion={newest}").status
                if found != 504:
                    break
                attempt.saw(found)


def _once(asked: list[Obj]) -> list[Obj]:
    """Without repetitions: where others may write to the store, a refusal is only told after a second attempt."""
    return [each for place, each in enumerate(asked) if each not in asked[:place]]


class Hooks:
    def __init__(self, directory: Path) -> None:
        authority = Authority(directory, "hook-ca")
        pair = authority.serving("hook", ("127.0.0.1",))
        self.ca = base64.b64encode(authority.pair.cert.read_bytes()).decode()
        self.servers = {side: HookServer(pair.cert, pair.key) for side in SIDES}
        self._registered: list[tuple[Pair, str]] = []

    def close(self) -> None:
        for server in self.servers.values():
            server.close()

    def client_config(self, side: str, path: str) -> Obj:
        return {"url": f"https://127.0.0.1:{self.servers[side].port}{path}", "caBundle": self.ca}

    def on(self, path: str, answer: Answer) -> None:
        for server in self.servers.values():
            server.answers[path] = answer

    def asked(self, path: str | None = None) -> dict[str, list[Obj]]:
        """What each side asked, probes left out."""
        return self._by_side(
            f"webhooks asked {path}",
            lambda server: [copy.deepcopy(body) for where, body in server.asked if where != "/probe" and path in (None, where)],
        )

    def paths(self) -> dict[str, list[str]]:
        return self._by_side("webhooks' paths", lambda server: [where for where, _ in server.asked if where != "/probe"])

    def queries(self) -> dict[str, list[str]]:
        return self._by_side("webhooks' queries", lambda server: list(server.queries))

    def _by_side(self, what: str, read: Callable[[HookServer], Any]) -> dict[str, Any]:
        """What each side's webhooks know; those of the real side as it was recorded."""
        return {OURS: read(self.servers[OURS]), REAL: recording.value(what, lambda: read(self.servers[REAL]))}

    def forget(self) -> None:
        for server in self.servers.values():
            server.asked.clear()
            server.queries.clear()

    def compare(self, path: str | None = None, count: int | None = None) -> list[Obj]:
        """Both servers asked the same questions."""
        found = self.asked(path)
        ours, real = (masked(found[side]) for side in SIDES)
        for each in (*ours, *real):
            # Each side's administrator has a certificate, and so a name, of its own.
            each["request"].pop("userInfo", None) if "request" in each else None
        told = [_once(side) if ON_ETCD else side for side in (ours, real)]
        recording.current().compared(f"webhooks asked {path}", real)
        assert told[0] == told[1], difference(*told, "what the webhook was asked")
        if count is not None:
            assert len(real) == count, [each.get("request", each) for each in real]
        return list(real)

    def register(self, pair: Pair, kind: str, *webhooks: Obj, name: str = "hooks") -> str:
        """A configuration with these webhooks (`path` in place of a client configuration) that both servers act on."""
        full = f"{pair.ns}-{name}"
        where = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"

        def body(side: str) -> Obj:
            return {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": f"{kind.capitalize()}WebhookConfiguration",
                "metadata": {"name": full},
                "webhooks": [self._entry(side, pair, each) for each in (*webhooks, _probe(full))],
            }

        both = pair.post(where, body, compare=False)
        assert both.ours.status == both.real.status == 201, (both.ours.body, both.real.body)
        self._registered.append((pair, f"{where}/{full}"))
        self._wait(pair, full)
        return f"{where}/{full}"

    def _entry(self, side: str, pair: Pair, webhook: Obj) -> Obj:
        entry = {key: value for key, value in webhook.items() if key != "path"}
        entry.setdefault("clientConfig", self.client_config(side, webhook.get("path", "/hook")))
        entry.setdefault("admissionReviewVersions", ["v1"])
        entry.setdefault("sideEffects", "None")
        entry.setdefault("namespaceSelector", {"matchLabels": {"kubernetes.io/metadata.name": pair.ns}})
        return entry

    def _wait(self, pair: Pair, full: str) -> None:
        probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe", "labels": {**PROBE, "of": full}}}
        for server in self.servers.values():
            server.asked.clear()
        for attempt in recording.attempts("a webhook configuration that has an effect"):
            pair.post("/api/v1/namespaces/{ns}/configmaps?dryRun=All", probe, compare=False)
            probed = self._by_side("webhooks probed", lambda server: any(path == "/probe" for path, _ in server.asked))
            if all(probed.values()):
                self.forget()
                return
            attempt.saw(probed)

    def clean(self) -> None:
        for pair, path in self._registered:
            pair.delete(path, compare=False)
        self._registered.clear()
        for server in self.servers.values():
            server.answers.clear()
        self.forget()


def _probe(full: str) -> Obj:
    return {
        "name": "probe.example.com",
        "path": "/probe",
        "rules": [rule(["CREATE"], ["configmaps"])],
        "objectSelector": {"matchLabels": {**PROBE, "of": full}},
    }


def rule(operations: list[str], resources: list[str], groups: tuple[str, ...] = ("",), **more: Any) -> Obj:
    return {"operations": operations, "apiGroups": list(groups), "apiVersions": ["v1"], "resources": resources, **more}


def webhook(name: str = "one", path: str = "/hook", rules: list[Obj] | None = None, **more: Any) -> Obj:
    rules = [rule(["*"], ["configmaps"])] if rules is None else rules
    # The probe must reach its own webhook and no other.
    selector = {"matchExpressions": [{"key": "probe", "operator": "DoesNotExist"}]}
    return {"name": f"{name}.example.com", "path": path, "rules": rules, "objectSelector": selector, **more}


def respond(review: Obj, **response: Any) -> Obj:
    answer = {"uid": review["request"]["uid"], "allowed": True, **response}
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}


def allow(review: Obj) -> Obj:
    return respond(review) if "request" in review and "uid" in review["request"] else review


def patching(*operations: Obj) -> Answer:
    encoded = base64.b64encode(json.dumps(list(operations)).encode()).decode()
    return lambda review: respond(review, patchType="JSONPatch", patch=encoded)


def refusing(**status: Any) -> Answer:
    return lambda review: respond(review, allowed=False, **({"status": status} if status else {}))


def closed_port() -> int:
    """One where nobody listens, and that nobody else is given meanwhile."""
    return free_port()
