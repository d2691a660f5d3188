"""Webhooks that answer anything: a request is admitted or refused with an ApiError, an object converted or refused likewise."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import example, given
from hypothesis import strategies as st

from remuda.apiserver.crd.conversion import WebhookConverter
from remuda.apiserver.webhook_client import CallError, WebhookEndpoint
from remuda.kube.clock import Entropy
from remuda.kube.errors import ApiError, ConversionError
from tests.integration.apiserver.admission.hookserver import HookServer, respond, serve_hooks
from tests.integration.apiserver.admission.test_webhooks import World, hook
from tests.unit.apiserver.admission.stored import request, widget

from .budget import fuzzing
from .shapes import encoded, mangled, shaped, texts, values

Obj = dict[str, Any]


class Place:
    """Webhooks that are asked, and one server that answers for all of them."""

    def __init__(self, runner: asyncio.Runner, directory: Path) -> None:
        self.runner = runner
        self.stack = contextlib.AsyncExitStack()
        self.directory = directory
        self.server: HookServer
        self.world: World

    async def open(self) -> None:
        self.server = await self.stack.enter_async_context(serve_hooks(self.directory))
        self.world = World()
        self.world.mutating(hook(self.server.config()))
        self.world.validating(hook(self.server.config()))

    async def close(self) -> None:
        await self.world.client.close()
        await self.stack.aclose()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with asyncio.Runner() as runner:
        found = Place(runner, tmp_path_factory.mktemp("hooks"))
        runner.run(found.open())
        yield found
        runner.run(found.close())


names = st.sampled_from(
    ["uid", "allowed", "status", "patch", "patchType", "auditAnnotations", "warnings", "code", "message", "reason"]
)
operations = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["add", "remove", "replace", "copy", "test", "x"]),
            "path": st.sampled_from(
                ["/spec", "/spec/x", "/metadata/labels/a", "/metadata", "", "/kind", "x", "/spec/-", "/apiVersion"]
            ),
        },
        optional={"value": values, "from": st.sampled_from(["/spec", "", "/metadata"])},
    ),
    max_size=3,
)
patches = st.one_of(
    operations.map(encoded).map(base64.b64encode).map(bytes.decode),
    values.map(encoded).map(base64.b64encode).map(bytes.decode),
    values,
    st.sampled_from(["W10", "!", "", "bnVsbA==", base64.b64encode(b"[" * 2000).decode()]),
)
statuses = st.one_of(
    values,
    st.fixed_dictionaries(
        {},
        optional={
            "code": st.one_of(st.integers(0, 1000), values),
            "message": st.one_of(texts, values),
            "reason": st.one_of(texts, values),
            "details": values,
            "status": values,
            "metadata": values,
        },
    ),
)
responses = st.fixed_dictionaries(
    {"allowed": st.one_of(st.just(True), st.just(False), values)},
    optional={
        "uid": values,
        "patch": patches,
        "patchType": st.one_of(st.just("JSONPatch"), values),
        "status": statuses,
        "warnings": st.one_of(st.lists(texts, max_size=3), values),
        "auditAnnotations": st.one_of(st.dictionaries(texts, texts, max_size=2), values),
    },
)
raw = st.one_of(st.binary(max_size=60), values.map(encoded), shaped(names).map(encoded))
http = st.sampled_from([200, 200, 201, 204, 206, 300, 301, 400, 404, 409, 500, 503, 599])
media = st.sampled_from(["application/json", "text/plain", "text/html; charset=utf-7", "application/octet-stream", "x", "a/b;c"])


@fuzzing(60)
@given(responses)
@example({"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(b"[" * 2000).decode()})
@example({"allowed": False, "status": {"code": 10**30, "message": ["x"]}})
@example({"allowed": False, "status": {"code": True, "reason": {"a": 1}, "details": [3]}})
@example({"allowed": True, "warnings": ["\x00\r\nX: y"] * 3, "auditAnnotations": {"": ""}})
def test_answers_of_admission(place: Place, response: Obj) -> None:
    place.server.answer = lambda review: respond(review, **response)
    _write(place)


@fuzzing(60)
@given(raw, http, media)
@example(b'{"kind":"Status","status":"Failure","code":"x","message":5,"reason":[],"details":3}', 400, "application/json")
@example(b"[" * 100_000, 200, "application/json")
@example(b"[" * 100_000, 500, "application/json")
def test_answers_that_are_none(place: Place, body: bytes, status: int, kind: str) -> None:
    place.server.answer = lambda _: web.Response(
        body=b"" if status == 204 else body, status=status, headers={"Content-Type": kind}
    )
    _write(place)


def _write(place: Place) -> None:
    attributes = request(widget(), "widgets")

    async def write() -> None:
        try:
            await place.world.write(attributes)
        except ApiError as error:
            assert isinstance(error.code, int) and 400 <= error.code < 600, error.code
            assert isinstance(error.message, str) and error.message
            encoded(error.status())

    place.runner.run(write())
    place.server.reviews.clear()


ORIGINAL: Obj = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "metadata": {"name": "a", "namespace": "n", "uid": "u", "labels": {"a": "b"}},
    "spec": {"x": 1},
}
metas = st.one_of(
    values,
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.one_of(st.just("a"), values),
            "namespace": st.one_of(st.just("n"), values),
            "uid": st.one_of(st.just("u"), values),
            "labels": st.one_of(values, st.dictionaries(texts, texts, max_size=2)),
            "annotations": st.one_of(values, st.dictionaries(texts, texts, max_size=2)),
        },
    ),
)
objects = st.one_of(
    values,
    st.fixed_dictionaries(
        {"apiVersion": st.one_of(st.just("example.com/v2"), values), "kind": st.one_of(st.just("Widget"), values)},
        optional={"metadata": metas, "spec": values},
    ),
)
reviews = st.fixed_dictionaries(
    {},
    optional={
        "uid": values,
        "convertedObjects": st.one_of(objects.map(lambda found: [found]), values),
        "result": st.one_of(st.just({"status": "Success"}), statuses),
    },
)


@fuzzing(60)
@given(st.one_of(reviews, values))
@example({"result": {"status": "Success"}, "convertedObjects": [{"apiVersion": 3, "kind": [], "metadata": {}}]})
@example({"result": {"status": "Success"}, "convertedObjects": [{"apiVersion": "a/b/c", "kind": "Widget", "metadata": {}}]})
def test_answers_of_conversion(place: Place, answered: Any) -> None:
    def answer(review: Obj) -> Any:
        inner = {"uid": review["request"]["uid"], **answered} if isinstance(answered, dict) else answered
        return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": inner}

    place.server.answer = answer
    conversion = {"clientConfig": place.server.config(), "conversionReviewVersions": ["v1"]}

    async def convert() -> None:
        converter = WebhookConverter(conversion, place.world.client, Entropy(1))
        try:
            found = await converter.convert([copy.deepcopy(ORIGINAL)], "v2")
        except ConversionError as error:
            assert str(error)
            return
        kept = {name: found[0]["metadata"].get(name) for name in ("name", "namespace", "uid")}
        assert kept == {"name": "a", "namespace": "n", "uid": "u"}

    place.runner.run(convert())
    place.server.reviews.clear()


@fuzzing(60)
@given(
    st.text(alphabet="htps:/[]?#% 019", max_size=20).map(lambda rest: f"https://127.0.0.1{rest}"),
    st.one_of(st.binary(max_size=40).map(base64.b64encode).map(bytes.decode), st.just("")),
)
@example("https://[::1", "")
@example("https://127.0.0.1:99999/", "")
@example("https://127.0.0.1:x/", "")
def test_addresses(place: Place, url: str, bundle: str) -> None:
    """Validation lets few of them in; whichever does come so far is an error of the call."""

    async def call() -> None:
        try:
            endpoint = WebhookEndpoint.of({"url": url, "caBundle": bundle})
        except ValueError:
            return
        try:
            async with asyncio.timeout(60):
                await place.world.client.post(endpoint, {"apiVersion": "v1", "kind": "X"}, 1)
        except CallError as error:
            assert str(error)

    place.runner.run(call())


mangled_answers = mangled(
    encoded({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"allowed": True}})
)


@fuzzing(60)
@given(mangled_answers)
def test_answers_that_were_right_once(place: Place, body: bytes) -> None:
    place.server.answer = lambda _: web.Response(body=body, headers={"Content-Type": "application/json"})
    _write(place)
