"""Webhooks that mean harm, or that are badly written: both servers refuse the same, in the same words."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .builders import CMS, cm
from .harness import ON_ETCD, Pair
from .hooks import Hooks, Obj, Raw, patching, respond, webhook
from .recording import value

VALIDATING, MUTATING = "validating", "mutating"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hooks]:
    hooks = Hooks(Path(tmp_path_factory.mktemp("hostile")))
    yield hooks
    hooks.close()


@pytest.fixture
def hooks(server: Hooks) -> Iterator[Hooks]:
    yield server
    server.clean()


def encoded(review: Obj, **response: Any) -> bytes:
    return json.dumps(respond(review, **response)).encode()


# --- answers in an odd form ---------------------------------------------------------------------------------------------

FORMS: dict[str, Callable[[Obj], Any]] = {
    "compressed": lambda review: Raw(200, gzip.compress(encoded(review)), Content_Encoding="gzip"),
    "said to be text": lambda review: Raw(200, encoded(review), "text/plain"),
    "said to be a picture": lambda review: Raw(200, encoded(review), "image/png"),
    "said to be nothing": lambda review: Raw(200, encoded(review), ""),
    "with more behind it": lambda review: Raw(200, encoded(review) + b"{}"),
    "with spaces around it": lambda review: Raw(200, b"\n \t" + encoded(review) + b"\n\n"),
    "with a key twice": lambda review: Raw(200, encoded(review).replace(b'"allowed"', b'"allowed": false, "allowed"')),
    "unknown fields": lambda review: {**respond(review, more={"a": [1]}), "metadata": {"name": "x"}, "other": 1},
    "status 201": lambda review: Raw(201, encoded(review)),
    "status 204": lambda review: Raw(204),
    "status 300": lambda review: Raw(300, encoded(review)),
    "status 400": lambda review: Raw(400, b"a" * 5000, "text/plain"),
    "status 429": lambda review: Raw(429, b"later", "text/plain"),
    "status 504": lambda review: Raw(504, b"", "text/plain"),
    "a refusal with code 200": lambda review: respond(review, allowed=False, status={"code": 200, "message": "no"}),
    "a refusal with code 99999": lambda review: respond(review, allowed=False, status={"code": 599, "message": "no"}),
    "an answer to nothing": lambda review: {**respond(review), "response": {}},
    "an answer as a list": lambda review: {**respond(review), "response": []},
}


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_in_an_odd_form(pair: Pair, hooks: Hooks, form: str) -> None:
    hooks.on("/hook", FORMS[form])
    hooks.register(pair, VALIDATING, webhook(failurePolicy="Fail"))
    pair.post(CMS, cm("a", x="1"))


# --- patches that lie ---------------------------------------------------------------------------------------------------


def change(path: str, value: Any) -> Obj:
    return {"op": "add", "path": path, "value": value}


LIES: dict[str, list[Obj]] = {
    "uid": [change("/metadata/uid", "11111111-2222-3333-4444-555555555555")],
    "name": [change("/metadata/name", "other")],
    "namespace": [change("/metadata/namespace", "kube-system")],
    "an old resourceVersion": [change("/metadata/resourceVersion", "1")],
    "creation": [change("/metadata/creationTimestamp", "2001-01-01T00:00:00Z")],
    "deletion": [change("/metadata/deletionTimestamp", "2001-01-01T00:00:00Z")],
    "generation": [change("/metadata/generation", 99)],
    "owner": [change("/metadata/ownerReferences", [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": ""}])],
    "no metadata": [{"op": "remove", "path": "/metadata"}],
    "metadata as text": [change("/metadata", "text")],
    "data as a list": [change("/data", [1])],
    "data too deep": [change("/data", {"a": {"b": {}}})],
    "copies of copies": [change("/data", {"x": "1" * 100})]
    + [{"op": "copy", "from": "/data", "path": f"/metadata/annotations/{n}"} for n in range(3)],
    "too many copies": [change("/data", {"a": "1" * 100_000})]
    + [{"op": "copy", "from": "/data/a", "path": f"/data/b{n}"} for n in range(40)],
    "a bad index": [change("/data/-1/x", 1)],
    "no path": [{"op": "add", "value": 1}],
    "a path of a number": [{"op": "add", "path": 7, "value": 1}],
}


@pytest.mark.parametrize("lie", LIES)
def test_a_patch_that_lies(pair: Pair, hooks: Hooks, lie: str) -> None:
    pair.post(CMS, cm("a", x="1"))
    hooks.on("/hook", patching(*LIES[lie]))
    hooks.register(pair, MUTATING, webhook())
    pair.put(CMS + "/a", cm("a", x="2"), ignore=_without_numbers)
    hooks.clean()
    pair.get(CMS + "/a")


def _without_numbers(body: Any) -> Any:
    """The number of the object that was there differs."""
    if isinstance(body, dict) and body.get("kind") == "Status":
        body["message"] = "".join(char for char in body["message"] if not char.isdigit())
    return body


def test_a_patch_of_very_many_operations(pair: Pair, hooks: Hooks) -> None:
    """A webhook is trusted with more operations than a client."""
    hooks.on("/hook", patching(*(change(f"/data/k{number % 50}", "v") for number in range(12_000))))
    hooks.register(pair, MUTATING, webhook())
    assert pair.post(CMS, cm("a", x="1")).status == 201


# --- conditions that cost too much --------------------------------------------------------------------------------------

CONDITIONS = {
    "cheap": "object.data.all(k, k != 'q')",
    "too dear by itself": "object.data.all(a, object.data.all(b, object.data.all(c, a + b != c)))",
    "too dear together": "object.data.all(a, object.data.all(b, a + b != 'q'))",
    "a sum that grows": "[1, 2, 3].map(x, 'aaaaaaaa').map(x, x+x+x+x+x+x+x+x).map(x, x+x+x+x+x+x+x+x).map(x, x+x+x+x+x+x+x+x)"
    ".map(x, x+x+x+x+x+x+x+x).map(x, x+x+x+x+x+x+x+x).size() == 3",
    "a pattern from the object": "object.data.all(k, !object.data[k].matches('(' + object.data[k] + '*)*$') || true)",
}


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.parametrize("what", CONDITIONS)
def test_a_condition_that_costs(pair: Pair, hooks: Hooks, what: str, policy: str) -> None:
    times = 12 if what.endswith("together") else 1
    conditions = [{"name": f"c{number}", "expression": CONDITIONS[what]} for number in range(times)]
    hooks.register(pair, VALIDATING, webhook(matchConditions=conditions, failurePolicy=policy))
    pair.post(CMS, cm("a", **{f"k{number}": "v" * 20 for number in range(120)}))
    asked = {side: len(found) for side, found in hooks.asked().items()}
    # Where others may write to the store, an attempt may have to be made again.
    assert asked["ours"] == asked["real"] or (ON_ETCD and asked["ours"] > asked["real"] > 0)


# --- who a webhook is ---------------------------------------------------------------------------------------------------


def test_a_webhook_under_another_name(pair: Pair, hooks: Hooks) -> None:
    config = {"url": "https://ip6-localhost.example.invalid:8443/hook", "caBundle": hooks.ca}
    hooks.register(pair, VALIDATING, webhook(clientConfig=config, failurePolicy="Ignore"))
    assert pair.post(CMS, cm("a")).status == 201


def test_a_webhook_that_speaks_no_tls(pair: Pair, hooks: Hooks) -> None:
    import socketserver
    from threading import Thread

    class Plain(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Plain) as plain:
        Thread(target=plain.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        config = {"url": f"https://127.0.0.1:{plain.server_address[1]}/hook", "caBundle": hooks.ca}
        hooks.register(pair, VALIDATING, webhook(clientConfig=config, failurePolicy="Fail"))
        assert pair.post(CMS, cm("a")).status == 500
        plain.shutdown()


def test_a_webhook_that_asks_back(pair: Pair, hooks: Hooks) -> None:
    """It writes what it is asked about, and so is asked again: the innermost answer ends it."""
    depth = {"ours": 0, "real": 0}

    def asking(side: str) -> Callable[[Obj], Any]:
        def answer(review: Obj) -> Any:
            depth[side] += 1
            if depth[side] < 4:
                name = f"inner{depth[side]}"
                where = CMS.format(ns=pair.ns)
                pair.endpoints[side].fresh().request(
                    "POST", where, json.dumps(cm(name)).encode(), {"Content-Type": "application/json"}
                )
            return respond(review)

        return answer

    for side, hook in hooks.servers.items():
        hook.answers["/hook"] = asking(side)
    hooks.register(pair, VALIDATING, webhook(timeoutSeconds=30))
    assert pair.post(CMS, cm("outer")).status == 201
    assert value("depth", lambda: depth["real"]) == 4
    assert depth["ours"] == 4 or (ON_ETCD and depth["ours"] > 4)
    listed = pair.get(CMS, compare=False)
    names = {side: {each["metadata"]["name"] for each in listed[side].json["items"]} for side in ("ours", "real")}
    assert {"outer", "inner1", "inner2", "inner3"} <= names["ours"] == names["real"]


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


BROKEN_PATCHES: dict[str, bytes] = {
    "null": b"null",
    "a null in it": b"[null]",
    "two documents": b"[][]",
    "not UTF-8": b'[{"op":"add","path":"/data/\xff","value":"1"}]',
    "deep": b'[{"op":"add","path":"/data","value":' + b"[" * 200 + b"]" * 200 + b"}]",
}


@pytest.mark.parametrize("what", BROKEN_PATCHES)
def test_a_patch_that_is_broken(pair: Pair, hooks: Hooks, what: str) -> None:
    hooks.on("/hook", lambda review: respond(review, patchType="JSONPatch", patch=b64(BROKEN_PATCHES[what])))
    hooks.register(pair, MUTATING, webhook())
    pair.post(CMS, cm("a", x="1"))
