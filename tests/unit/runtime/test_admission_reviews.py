"""Reviews answered: patches, refusals, warnings, conversions, and what is no review."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from remuda.kube.admission_attributes import Attributes
from remuda.kube.errors import FieldError, forbidden_field
from remuda.runtime import webhook_server
from remuda.runtime.admitted_types import AdmittedType
from remuda.runtime.webhook_server import WebhookAddress, mutating_configuration, path_of, validating_configuration
from tests.e2e.widgets import GROUP, TYPE, widget

Obj = dict[str, Any]


def review(obj: Obj | None, operation: str = "CREATE", old: Obj | None = None) -> Obj:
    request = {
        "uid": "u1",
        "operation": operation,
        "kind": {"group": GROUP, "version": "v2", "kind": "Widget"},
        "resource": {"group": GROUP, "version": "v2", "resource": "widgets"},
        "namespace": "default",
        "name": "a",
        "userInfo": {"username": "me", "groups": ["us"]},
        "object": obj,
        "oldObject": old,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def test_defaults_are_a_patch_and_none_is_none() -> None:
    answered = webhook_server.admission(review(widget("a")), TYPE, mutating=True)
    assert (answered["kind"], answered["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
    response = answered["response"]
    assert (response["uid"], response["allowed"], response["patchType"]) == ("u1", True, "JSONPatch")
    assert json.loads(base64.b64decode(response["patch"])) == [{"op": "add", "path": "/spec/size", "value": 1}]
    assert webhook_server.admission(review(widget("a", size=2)), TYPE, mutating=True)["response"] == {
        "uid": "u1",
        "allowed": True,
    }


def test_a_refusal_names_the_fields() -> None:
    response = webhook_server.admission(review(widget("a", size=11)), TYPE, mutating=False)["response"]
    assert not response["allowed"] and response["warnings"] == ["spec.size: this is rather large"]
    assert (response["status"]["code"], response["status"]["reason"]) == (422, "Invalid")
    assert [cause["field"] for cause in response["status"]["details"]["causes"]] == ["spec.size"]
    gone = webhook_server.admission(review(None, "DELETE", widget("a", locked=True)), TYPE, mutating=False)["response"]
    assert not gone["allowed"]


async def test_the_provider_is_asked_last() -> None:
    asked = []

    async def verify(attributes: Attributes) -> list[FieldError]:
        asked.append(attributes.name)
        return [forbidden_field("spec.key", "the provider does not take it")]

    of = replace(TYPE, verify=verify)
    assert not (await webhook_server.verified_admission(review(widget("a", size=11)), of, mutating=False))["response"]["allowed"]
    assert not asked, "something else is wrong already"
    response = (await webhook_server.verified_admission(review(widget("a", size=2)), of, mutating=False))["response"]
    assert [cause["field"] for cause in response["status"]["details"]["causes"]] == ["spec.key"]


async def test_a_change_that_takes_a_write_elsewhere_comes_after_the_defaults_and_knows_of_dry_runs() -> None:
    seen: list[tuple[Any, bool]] = []

    async def mutate(attributes: Attributes) -> Obj | None:
        assert attributes.obj is not None
        spec = attributes.obj["spec"]
        seen.append((spec.get("size"), attributes.dry_run))
        if spec.get("size") == 7:
            raise attributes.forbidden("not seven")
        return {**attributes.obj, "spec": {**spec, "kept": "elsewhere"}} if spec.get("size") == 1 else None

    of = replace(TYPE, mutate=mutate)
    asked = review(widget("a"))
    asked["request"]["dryRun"] = True
    response = (await webhook_server.verified_admission(asked, of, mutating=True))["response"]
    assert seen == [(1, True)] and response["allowed"]
    patched = {each["path"]: each["value"] for each in json.loads(base64.b64decode(response["patch"]))}
    assert patched == {"/spec/size": 1, "/spec/kept": "elsewhere"}
    plain = (await webhook_server.verified_admission(review(widget("a", size=2)), of, mutating=True))["response"]
    assert plain == {"uid": "u1", "allowed": True}
    refused = (await webhook_server.verified_admission(review(widget("a", size=7)), of, mutating=True))["response"]
    assert not refused["allowed"] and "not seven" in refused["status"]["message"]
    only = replace(of, default=None)
    (hook,) = mutating_configuration("n", [only], WebhookAddress(url="https://a:1"), b"ca")["webhooks"]
    assert hook["sideEffects"] == "NoneOnDryRun"
    (check,) = validating_configuration("n", [of], WebhookAddress(url="https://a:1"), b"ca")["webhooks"]
    assert check["sideEffects"] == "None"


def test_a_failure_of_ours_refuses_and_says_where_to_look() -> None:
    def broken(_: object) -> Obj:
        raise RuntimeError("on purpose")

    response = webhook_server.admission(
        review(widget("a")), AdmittedType(GROUP, "v2", "widgets", "Widget", broken), mutating=True
    )["response"]
    assert not response["allowed"] and response["status"]["code"] == 500
    assert "on purpose" not in response["status"]["message"]


def test_objects_are_converted_together_or_not_at_all() -> None:
    def ask(*objects: Obj) -> Obj:
        request = {"uid": "u2", "desiredAPIVersion": f"{GROUP}/v2", "objects": list(objects)}
        asked = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
        return dict(webhook_server.conversion(asked, [TYPE])["response"])

    response = ask(widget("a", "v1", count=3), widget("b", size=1))
    assert response["result"] == {"status": "Success"}
    assert [each["spec"] for each in response["convertedObjects"]] == [{"size": 3}, {"size": 1}]
    assert {each["apiVersion"] for each in response["convertedObjects"]} == {f"{GROUP}/v2"}
    refused = ask(widget("a", "v1"), {**widget("b", "v1"), "kind": "Gadget"})
    assert refused["result"] == {"status": "Failure", "message": f"Gadget.{GROUP} is not converted here"}
    assert "convertedObjects" not in refused


@pytest.mark.parametrize("body", [None, [], {}, {"kind": "AdmissionReview"}, {"kind": "Other", "request": {"uid": "u"}}])
def test_what_is_no_review_is_refused(body: Any) -> None:
    with pytest.raises(webhook_server.BadReview):
        webhook_server.admission(body, TYPE, mutating=True)


def test_the_registration_names_paths_and_operations_as_upstream_does() -> None:
    address = WebhookAddress(namespace="remuda-system", service="hooks")
    (mutating,) = mutating_configuration("x", [TYPE], address, b"CA")["webhooks"]
    assert mutating["name"] == "default.widget.hooks.example.com"
    assert mutating["clientConfig"] == {
        "service": {"namespace": "remuda-system", "name": "hooks", "port": 443, "path": "/mutate-hooks-example-com-v2-widget"},
        "caBundle": base64.b64encode(b"CA").decode(),
    }
    (validating,) = validating_configuration("x", [TYPE], address, b"CA")["webhooks"]
    assert validating["rules"][0]["operations"] == ["CREATE", "UPDATE", "DELETE"]
    assert path_of("validate", TYPE) == "/validate-hooks-example-com-v2-widget"
    assert address.names() == ("hooks.remuda-system.svc", "hooks.remuda-system.svc.cluster.local")
    assert WebhookAddress(url="https://127.0.0.1:9443").names() == ("127.0.0.1",)


def test_what_is_in_some_namespaces_alone_says_so() -> None:
    of = AdmittedType("", "v1", "secrets", "Secret", validate=lambda attributes: [], namespaces=("cattle-global-data",))
    (hook,) = validating_configuration("x", [of], WebhookAddress(url="https://h:1"), b"CA")["webhooks"]
    assert hook["name"] == "validation.secret.core"
    (wanted,) = hook["namespaceSelector"]["matchExpressions"]
    assert wanted == {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["cattle-global-data"]}
