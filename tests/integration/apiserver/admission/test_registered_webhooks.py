"""Webhooks as users meet them: registered through the API, asked over TLS, on a real server in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource

from .hookserver import HookServer, patch, respond, serve_hooks

Obj = dict[str, Any]
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
MUTATING = GroupVersionResource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")
VALIDATING = GroupVersionResource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations")


@pytest.fixture
async def client() -> AsyncIterator[InProcessClient]:
    server = await Server.open(Config(data_dir=None))
    yield InProcessClient(server)
    await server.close()


@pytest.fixture
async def hooks(tmp_path: Path) -> AsyncIterator[HookServer]:
    async with serve_hooks(tmp_path) as running:
        yield running


def configuration(kind: str, config: Obj, **fields: Any) -> Obj:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
    entry = {
        "name": "check.example.com",
        "clientConfig": config,
        "rules": [rule],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        **fields,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": "hooks"},
        "webhooks": [entry],
    }


def config_map(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


async def test_a_mutating_webhook_changes_what_is_stored(client: InProcessClient, hooks: HookServer) -> None:
    await client.create(MUTATING, configuration("Mutating", hooks.config()))
    hooks.answer = patch({"op": "add", "path": "/data", "value": {"made": "up"}})
    made = await client.create(CONFIG_MAPS, config_map("a"))
    assert made["data"] == {"made": "up"}
    assert (await client.get(CONFIG_MAPS, "a", "default"))["data"] == {"made": "up"}
    [review] = hooks.reviews
    assert review["request"]["object"]["kind"] == "ConfigMap"
    assert review["request"]["userInfo"]["username"]


async def test_a_bad_patch_is_an_internal_error(client: InProcessClient, hooks: HookServer) -> None:
    await client.create(MUTATING, configuration("Mutating", hooks.config()))
    hooks.answer = patch({"op": "replace", "path": "/data", "value": "text"})
    with pytest.raises(ApiError) as caught:
        await client.create(CONFIG_MAPS, config_map("a"))
    assert caught.value.code == 500


async def test_a_validating_webhook_sees_deletions_and_may_refuse(client: InProcessClient, hooks: HookServer) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    await client.create(VALIDATING, configuration("Validating", hooks.config()))
    hooks.answer = lambda review: respond(review, allowed=review["request"]["operation"] != "DELETE")
    await client.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}}, "default")
    with pytest.raises(ApiError) as caught:
        await client.delete(CONFIG_MAPS, "a", "default")
    assert caught.value.message == 'admission webhook "check.example.com" denied the request without explanation'
    review = hooks.reviews[-1]["request"]
    assert review["object"] is None
    assert review["oldObject"]["data"] == {"k": "v"}


async def test_the_failure_policy_of_the_api_is_to_fail(client: InProcessClient, hooks: HookServer) -> None:
    await client.create(VALIDATING, configuration("Validating", {"url": "https://127.0.0.1:1/x"}))
    with pytest.raises(ApiError) as caught:
        await client.create(CONFIG_MAPS, config_map("a"))
    assert 'Post "https://127.0.0.1:1/x?timeout=10s": dial tcp 127.0.0.1:1: connect: connection refused' in caught.value.message


def versioned(config: Obj) -> Obj:
    def version(name: str, storage: bool) -> Obj:
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}

    webhook = {"clientConfig": config, "conversionReviewVersions": ["v1"]}
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    conditions = [
        {"type": kind, "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("NamesAccepted", "Established")
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [version("v1", True), version("v2", False)],
            "conversion": {"strategy": "Webhook", "webhook": webhook},
        },
        "status": {"acceptedNames": names, "conditions": conditions, "storedVersions": ["v1"]},
    }


async def test_a_conversion_webhook_brings_objects_to_other_versions(client: InProcessClient, hooks: HookServer) -> None:
    def convert(review: Obj) -> Obj:
        wanted = review["request"]["desiredAPIVersion"]
        before, after = ("length", "size") if wanted.endswith("v2") else ("size", "length")
        made = []
        for obj in review["request"]["objects"]:
            spec = dict(obj["spec"])
            spec[after] = spec.pop(before)
            made.append({**obj, "apiVersion": wanted, "spec": spec})
        return respond(review, result={"status": "Success"}, convertedObjects=made)

    hooks.answer = convert
    crd = versioned(hooks.config("/convert"))
    await client.create(CRDS, crd)
    live = await client.get(CRDS, "widgets.example.com")
    await client.update(CRDS, {**live, "status": crd["status"]}, subresource="status")
    first, second = (GroupVersionResource("example.com", version, "widgets") for version in ("v1", "v2"))
    for number in range(3):
        meta = {"name": f"w{number}", "namespace": "default"}
        await client.create(
            first, {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta, "spec": {"length": number}}
        )
    assert (await client.get(second, "w2", "default"))["spec"] == {"size": 2}
    hooks.reviews.clear()
    found = await client.list(second, "default")
    assert [item["spec"]["size"] for item in found["items"]] == [0, 1, 2]
    assert len(hooks.reviews) <= 1
    meta = {"name": "new", "namespace": "default"}
    await client.create(second, {"apiVersion": "example.com/v2", "kind": "Widget", "metadata": meta, "spec": {"size": 7}})
    assert (await client.get(first, "new", "default"))["spec"] == {"length": 7}
