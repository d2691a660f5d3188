"""Conversion between the versions of a CRD: by name only, and through a real webhook over TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from remuda.apiserver.crd.conversion import InProcess, NoConversion, WebhookConverter
from remuda.apiserver.webhook_client import WebhookClient
from remuda.kube.clock import Entropy, SystemClock
from remuda.kube.errors import ConversionError
from tests.integration.apiserver.admission.hookserver import HookServer, respond, serve_hooks

Obj = dict[str, Any]


def crontab(name: str, version: str = "v1", **fields: Any) -> Obj:
    meta = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "finalizers": ["keep"], "labels": {"a": "b"}}
    return {"apiVersion": f"stable.example.com/{version}", "kind": "CronTab", "metadata": meta, **fields}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[HookServer]:
    async with serve_hooks(tmp_path) as running:
        yield running


@pytest.fixture
async def converter(server: HookServer) -> AsyncIterator[WebhookConverter]:
    client = WebhookClient(SystemClock())
    settings = {"clientConfig": server.config("/convert"), "conversionReviewVersions": ["v9", "v1"]}
    yield WebhookConverter(settings, client, Entropy(1))
    await client.close()


def converted(review: Obj, change: Any = lambda obj: obj) -> Obj:
    wanted = review["request"]["desiredAPIVersion"]
    objects = [change({**obj, "apiVersion": wanted, "moved": True}) for obj in review["request"]["objects"]]
    return respond(review, result={"status": "Success"}, convertedObjects=objects)


@pytest.mark.parametrize("version", ["v2", "stable.example.com/v2"])
async def test_without_a_strategy_only_the_version_changes(version: str) -> None:
    given = crontab("a", spec={"x": 1})
    [made] = await NoConversion().convert([given], version)
    assert made == {**given, "apiVersion": "stable.example.com/v2"}
    assert made["spec"] is given["spec"]
    assert given["apiVersion"] == "stable.example.com/v1"


async def test_a_list_costs_one_call_and_keeps_its_order(converter: WebhookConverter, server: HookServer) -> None:
    server.answer = converted
    objs = [crontab("a"), crontab("b", "v2"), crontab("c")]
    made = await converter.convert(objs, "stable.example.com/v2")
    assert [obj["metadata"]["name"] for obj in made] == ["a", "b", "c"]
    assert made[1] is objs[1]
    assert [obj.get("moved", False) for obj in made] == [True, False, True]
    assert len(server.reviews) == 1
    assert server.urls == ["/convert?timeout=30s"]
    assert len(server.reviews[0]["request"]["objects"]) == 2


async def test_only_labels_and_annotations_of_metadata_are_believed(converter: WebhookConverter, server: HookServer) -> None:
    def meddle(obj: Obj) -> Obj:
        meta = {**obj["metadata"], "finalizers": [], "labels": {"new": "label"}, "annotations": {"n": "1"}, "generation": 9}
        return {**obj, "metadata": meta}

    server.answer = lambda review: converted(review, meddle)
    [made] = await converter.convert([crontab("a")], "v2")
    assert made["metadata"] == {**crontab("a")["metadata"], "labels": {"new": "label"}, "annotations": {"n": "1"}}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kind": "Other"}, "returned invalid object at index 0: invalid kind (expected CronTab, received Other)"),
        (
            {"apiVersion": "stable.example.com/v3"},
            "returned invalid object at index 0: invalid groupVersion "
            "(expected stable.example.com/v2, received stable.example.com/v3)",
        ),
        ({"metadata": {"name": "b", "namespace": "shop", "uid": "uid-a"}}, "must have the same name: a != b"),
        ({"metadata": {"name": "a", "namespace": "shop", "uid": "x"}}, "must have the same UID: uid-a != x"),
        (
            {"metadata": {"name": "a", "namespace": "shop", "uid": "uid-a", "labels": {"x": 1}}},
            "returned invalid metadata: metadata.labels[x] must be a string, but is int64 in converted object",
        ),
        (
            {"metadata": {"name": "a", "namespace": "shop", "uid": "uid-a", "labels": {"!": "x"}}},
            'returned invalid metadata: metadata.labels: Invalid value: "!"',
        ),
    ],
)
async def test_objects_that_became_another_are_refused(
    converter: WebhookConverter, server: HookServer, change: Obj, text: str
) -> None:
    server.answer = lambda review: converted(review, lambda obj: {**obj, **change})
    with pytest.raises(ConversionError) as caught:
        await converter.convert([crontab("a")], "stable.example.com/v2")
    assert str(caught.value).startswith("conversion webhook for stable.example.com/v1, Kind=CronTab returned")
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda r: respond(r, result={"status": "Failure", "message": "can't"}), "failed: can't"),
        (lambda r: respond(r, result={}), "failed: response.result.status was '', not 'Success'"),
        (lambda r: {"kind": r["kind"], "apiVersion": r["apiVersion"]}, "failed: no response provided"),
        (lambda r: respond(r, result={"status": "Success"}), "returned 0 objects, expected 1"),
        (lambda r: web.Response(status=503), "failed: the server is currently unable to handle the request"),
    ],
)
async def test_answers_that_are_none(converter: WebhookConverter, server: HookServer, answer: Any, text: str) -> None:
    server.answer = answer
    with pytest.raises(ConversionError) as caught:
        await converter.convert([crontab("a")], "v2")
    assert str(caught.value) == f"conversion webhook for stable.example.com/v1, Kind=CronTab {text}"


def test_our_own_types_convert_in_process() -> None:
    registry = InProcess()
    mine = NoConversion()
    registry.register("example.com", "widgets", mine)
    assert registry.get("example.com", "widgets") is mine
    assert registry.get("example.com", "others") is None
