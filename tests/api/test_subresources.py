"""Scale and status: the doors beside an object's own."""

from __future__ import annotations

from typing import Any

import pytest

from .builders import deployment, replica_set
from .harness import APPLY, JSON_PATCH, MERGE, STRATEGIC, Pair

APPS = "/apis/apps/v1/namespaces/{ns}"


def stateful_set(name: str, replicas: int = 1) -> dict[str, Any]:
    body = deployment(name, replicas)
    return {**body, "kind": "StatefulSet", "spec": {**body["spec"], "serviceName": name}}


KINDS = {"deployments": deployment, "replicasets": replica_set, "statefulsets": stateful_set}


def scale(name: str, replicas: int, **meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": name, **meta},
        "spec": {"replicas": replicas},
    }


@pytest.fixture(params=list(KINDS))
def where(pair: Pair, request: pytest.FixtureRequest) -> str:
    """The path of a new object of each scalable kind."""
    pair.post(f"{APPS}/{request.param}", KINDS[request.param]("d", 2))
    return f"{APPS}/{request.param}/d"


def test_get_a_scale(pair: Pair, where: str) -> None:
    pair.get(where + "/scale")


def test_put_a_scale(pair: Pair, where: str) -> None:
    got = pair.get(where + "/scale")
    pair.put(where + "/scale", lambda side: {**got[side].json, "spec": {"replicas": 5}})
    pair.get(where)


def test_put_a_scale_without_a_version(pair: Pair, where: str) -> None:
    pair.put(where + "/scale", lambda side: {**scale("d", 3), "metadata": {"name": "d", "namespace": pair.ns}})
    pair.put(where + "/scale", scale("d", 4))


def test_a_stale_scale_is_refused(pair: Pair, where: str) -> None:
    got = pair.get(where + "/scale")
    pair.patch(where, {"metadata": {"labels": {"a": "b"}}})
    assert pair.put(where + "/scale", lambda side: {**got[side].json, "spec": {"replicas": 5}}).status == 409


@pytest.mark.parametrize("kind", [MERGE, STRATEGIC])
def test_patch_a_scale(pair: Pair, where: str, kind: str) -> None:
    pair.patch(where + "/scale", {"spec": {"replicas": 7}}, kind)
    pair.get(where)


def test_json_patch_of_a_scale(pair: Pair, where: str) -> None:
    pair.patch(where + "/scale", [{"op": "replace", "path": "/spec/replicas", "value": 0}], JSON_PATCH)
    pair.get(where + "/scale")
    pair.patch(where + "/scale", [{"op": "test", "path": "/spec/replicas", "value": 9}], JSON_PATCH)


def test_apply_a_scale(pair: Pair, where: str) -> None:
    pair.patch(where + "/scale?fieldManager=scaler", scale("d", 3), APPLY)
    pair.patch(where + "/scale?fieldManager=scaler&force=true", scale("d", 3), APPLY)
    pair.get(where)


@pytest.mark.parametrize(
    "body",
    [
        scale("d", -1),
        scale("other", 1),
        scale("d", 1, namespace="elsewhere"),
        scale("d", 1, uid="11111111-2222-3333-4444-555555555555"),
        {**scale("d", 1), "kind": "Deployment"},
        {**scale("d", 1), "apiVersion": "autoscaling/v2"},
        {**scale("d", 1), "spec": {"replicas": "many"}},
        {**scale("d", 1), "spec": {}},
        {"spec": {"replicas": 3}},
    ],
    ids=["negative", "other-name", "namespace", "uid", "kind", "version", "text", "empty", "bare"],
)
def test_a_scale_is_checked(pair: Pair, body: dict[str, Any]) -> None:
    pair.post(f"{APPS}/deployments", deployment("d", 2))
    pair.put(f"{APPS}/deployments/d/scale", body)
    pair.get(f"{APPS}/deployments/d")


def test_a_missing_object_has_no_scale(pair: Pair) -> None:
    assert pair.get(f"{APPS}/deployments/missing/scale").status == 404
    assert pair.put(f"{APPS}/deployments/missing/scale", scale("missing", 1)).status == 404
    assert pair.patch(f"{APPS}/deployments/missing/scale", {"spec": {"replicas": 1}}).status == 404


def test_a_scale_may_be_tried(pair: Pair, where: str) -> None:
    pair.patch(where + "/scale?dryRun=All", {"spec": {"replicas": 9}})
    pair.get(where + "/scale")


def test_unknown_fields_of_a_scale(pair: Pair) -> None:
    pair.post(f"{APPS}/deployments", deployment("d", 2))
    body = {**scale("d", 1), "spec": {"replicas": 1, "extra": 2}}
    for level in ("Strict", "Warn", "Ignore"):
        pair.put(f"{APPS}/deployments/d/scale?fieldValidation={level}", body)


def test_a_scale_as_a_table(pair: Pair) -> None:
    pair.post(f"{APPS}/deployments", deployment("d", 2))
    pair.get(
        f"{APPS}/deployments/d/scale",
        headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"},
        ignore=lambda body: [body["kind"], body.get("columnDefinitions"), [row["cells"][0] for row in body.get("rows", [])]],
    )


def test_a_selector_with_expressions_is_shown_as_text(pair: Pair) -> None:
    body = deployment("d", 1)
    body["spec"]["selector"] = {
        "matchLabels": {"app": "d"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["web", "api"]},
            {"key": "old", "operator": "DoesNotExist"},
            {"key": "env", "operator": "NotIn", "values": ["prod"]},
            {"key": "zone", "operator": "Exists"},
        ],
    }
    body["spec"]["template"]["metadata"]["labels"] = {"app": "d", "tier": "web", "zone": "a"}
    pair.post(f"{APPS}/deployments", body)
    pair.get(f"{APPS}/deployments/d/scale")


# --- status -------------------------------------------------------------------------------------------------------------


def test_a_deployments_status(pair: Pair) -> None:
    made = pair.post(f"{APPS}/deployments", {**deployment("d", 2), "status": {"replicas": 9}})
    condition = {
        "type": "Available",
        "status": "True",
        "reason": "R",
        "message": "m",
        "lastUpdateTime": "2024-01-01T00:00:00Z",
        "lastTransitionTime": "2024-01-01T00:00:00Z",
    }
    status = {"replicas": 2, "readyReplicas": 2, "availableReplicas": 1, "observedGeneration": 1, "conditions": [condition]}
    pair.put(
        f"{APPS}/deployments/d/status",
        lambda side: {**made[side].json, "spec": {**made[side].json["spec"], "replicas": 9}, "status": status},
    )
    pair.get(f"{APPS}/deployments/d/scale")
    pair.patch(f"{APPS}/deployments/d", {"status": {"replicas": 5}, "spec": {"paused": True}})
    pair.patch(f"{APPS}/deployments/d/status", {"status": {"replicas": 3}, "metadata": {"labels": {"a": "b"}}})
    pair.patch(f"{APPS}/deployments/d/status?fieldManager=x", {**deployment("d"), "spec": None, "status": {"replicas": 4}}, APPLY)


@pytest.mark.parametrize(
    "status",
    [
        {"replicas": -1},
        {"replicas": 1, "readyReplicas": 2},
        {"replicas": 1, "availableReplicas": 2},
        {"observedGeneration": -1},
        {"collisionCount": -1},
        {"unavailableReplicas": -2},
    ],
    ids=str,
)
def test_a_deployments_status_is_checked(pair: Pair, status: dict[str, Any]) -> None:
    pair.post(f"{APPS}/deployments", deployment("d", 2))
    pair.patch(f"{APPS}/deployments/d/status", {"status": status})


@pytest.mark.parametrize("status", [{"replicas": 1, "readyReplicas": 2}, {"replicas": 2, "fullyLabeledReplicas": 1}], ids=str)
def test_a_replica_sets_status(pair: Pair, status: dict[str, Any]) -> None:
    pair.post(f"{APPS}/replicasets", replica_set("d", 2))
    pair.patch(f"{APPS}/replicasets/d/status", {"status": status})
    pair.get(f"{APPS}/replicasets/d/scale")


def test_a_scale_counts_as_a_new_generation(pair: Pair, where: str) -> None:
    pair.patch(where + "/scale", {"spec": {"replicas": 3}})
    assert pair.get(where).json["metadata"]["generation"] == 2


@pytest.mark.parametrize("path", ["/api/v1/namespaces/{ns}/services/s/status", "/apis/batch/v1/namespaces/{ns}/jobs/j/status"])
def test_a_missing_objects_status(pair: Pair, path: str) -> None:
    assert pair.get(path).status == 404
    assert pair.patch(path, {"status": {}}).status == 404
