"""The scale subresource, of workloads and of custom resources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .builders import DEPLOYMENTS, REPLICA_SETS, deployment, replica_set
from .definitions import Obj, crd, defined, instance, path_of, version
from .harness import APPLY, JSON_PATCH, MERGE, STRATEGIC, Endpoint, Pair

INTEGER = {"type": "integer"}


@pytest.fixture(scope="module")
def kind(endpoints: dict[str, Endpoint]) -> Iterator[Obj]:
    pair = Pair(endpoints, ns="default")
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "object", "properties": {"count": {**INTEGER, "maximum": 100}}},
                    "other": {"type": "string"},
                },
            },
            "status": {"type": "object", "properties": {"count": INTEGER, "selector": {"type": "string"}}},
        },
    }
    paths = {
        "specReplicasPath": ".spec.size.count",
        "statusReplicasPath": ".status.count",
        "labelSelectorPath": ".status.selector",
    }
    definition = crd(pair, version(schema=schema, subresources={"status": {}, "scale": paths}), plural="scaled", kind="Scaled")
    with defined(pair, definition):
        yield definition


def scale(name: str, replicas: Any, **meta: Any) -> Obj:
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name, **meta}, "spec": {"replicas": replicas}}


def test_a_custom_resource(pair: Pair, kind: Obj) -> None:
    at = path_of(kind)
    pair.post(at, instance(kind, spec={"size": {"count": 2}}))
    pair.get(at + "/a/scale")
    pair.patch(at + "/a/status", {"status": {"count": 1, "selector": "a=b"}})
    now = pair.get(at + "/a/scale")
    pair.put(at + "/a/scale", lambda side: {**now[side].json, "spec": {"replicas": 5}})
    pair.get(at + "/a")
    pair.put(at + "/a/scale", lambda side: {**now[side].json, "spec": {"replicas": 6}})


def test_a_custom_resource_without_numbers(pair: Pair, kind: Obj) -> None:
    at = path_of(kind)
    pair.post(at, instance(kind))
    pair.get(at + "/a/scale")
    pair.patch(at + "/a/scale", {"spec": {"replicas": 3}})
    pair.get(at + "/a")
    pair.get(at + "/none/scale")
    pair.patch(at + "/none/scale", {"spec": {"replicas": 3}})


CHANGES: dict[str, tuple[str, Any]] = {
    "merge": (MERGE, {"spec": {"replicas": 3}}),
    "json": (JSON_PATCH, [{"op": "replace", "path": "/spec/replicas", "value": 3}]),
    "strategic": (STRATEGIC, {"spec": {"replicas": 3}}),
    "apply": (APPLY, scale("d", 3)),
    "to zero": (MERGE, {"spec": {"replicas": 0}}),
    "to nothing": (MERGE, {"spec": {"replicas": None}}),
    "below zero": (MERGE, {"spec": {"replicas": -1}}),
    "not a number": (MERGE, {"spec": {"replicas": "many"}}),
    "status": (MERGE, {"status": {"replicas": 9}}),
    "unknown field": (MERGE, {"spec": {"size": 1}}),
    "stale": (MERGE, {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 3}}),
    "another name": (MERGE, {"metadata": {"name": "other"}}),
    "another kind": (MERGE, {"kind": "Deployment"}),
    "labels": (MERGE, {"metadata": {"labels": {"a": "b"}}}),
    "unknown form": ("application/what", {}),
    "empty": (MERGE, {}),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("custom", [False, True], ids=["deployment", "custom"])
def test_patch(pair: Pair, kind: Obj, what: str, custom: bool) -> None:
    at = path_of(kind) if custom else DEPLOYMENTS
    pair.post(at, instance(kind, "d", spec={"size": {"count": 1}}) if custom else deployment("d", 1))
    form, body = CHANGES[what]
    query = "?fieldManager=scaler" if form == APPLY else ""
    pair.patch(at + "/d/scale" + query, body, form, ignore=_without_patched)
    pair.get(at + "/d")


def _without_patched(body: Any) -> Any:
    from .definitions import patched_apart

    return patched_apart(body)


BODIES: dict[str, Any] = {
    "plain": scale("d", 3),
    "without version": {"kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 3}},
    "without kind": {"apiVersion": "autoscaling/v1", "metadata": {"name": "d"}, "spec": {"replicas": 3}},
    "another kind": deployment("d", 3),
    "another name": scale("e", 3),
    "no name": {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 3}},
    "another namespace": scale("d", 3, namespace="other"),
    "negative": scale("d", -3),
    "text": scale("d", "3"),
    "no spec": {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}},
    "unknown": {**scale("d", 3), "colour": "red"},
    "stale": scale("d", 3, resourceVersion="1"),
    "another uid": scale("d", 3, uid="11111111-1111-4111-8111-111111111111"),
    "a list": [],
}


@pytest.mark.parametrize("what", BODIES)
def test_update(pair: Pair, what: str) -> None:
    pair.post(DEPLOYMENTS, deployment("d", 1))
    pair.put(DEPLOYMENTS + "/d/scale", BODIES[what])
    pair.get(DEPLOYMENTS + "/d/scale")


def test_validation_of_the_parent_counts(pair: Pair, kind: Obj) -> None:
    at = path_of(kind)
    pair.post(at, instance(kind, spec={"size": {"count": 2}}))
    pair.patch(at + "/a/scale", {"spec": {"replicas": 101}})


def test_dry_run(pair: Pair) -> None:
    pair.post(DEPLOYMENTS, deployment("d", 1))
    pair.patch(DEPLOYMENTS + "/d/scale?dryRun=All", {"spec": {"replicas": 3}})
    pair.get(DEPLOYMENTS + "/d/scale")


def test_selectors_show_as_text(pair: Pair) -> None:
    body = deployment("d", 1)
    body["spec"]["selector"] = {
        "matchLabels": {"app": "d", "b": "c"},
        "matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["2", "1"]}, {"key": "a", "operator": "DoesNotExist"}],
    }
    body["spec"]["template"]["metadata"]["labels"] = {"app": "d", "b": "c"}
    pair.post(DEPLOYMENTS, body)
    pair.get(DEPLOYMENTS + "/d/scale")


def test_replica_and_stateful_sets(pair: Pair) -> None:
    pair.post(REPLICA_SETS, replica_set("r", 0))
    pair.get(REPLICA_SETS + "/r/scale")
    pair.patch(REPLICA_SETS + "/r/scale", {"spec": {"replicas": 2}})
    sets = "/apis/apps/v1/namespaces/{ns}/statefulsets"
    body = {**replica_set("s", 1), "kind": "StatefulSet"}
    body["spec"]["serviceName"] = "s"
    pair.post(sets, body)
    pair.patch(sets + "/s/scale", {"spec": {"replicas": 2}})
    pair.get(sets + "/s")


def test_only_reading_and_changing(pair: Pair) -> None:
    pair.post(DEPLOYMENTS, deployment("d", 1))
    pair.delete(DEPLOYMENTS + "/d/scale")
    pair.post(DEPLOYMENTS + "/d/scale", scale("d", 1))


@pytest.mark.parametrize("value", [-1, 2147483648, "x", 1.5])
def test_numbers_that_do_not_fit_are_refused_in_the_object(pair: Pair, kind: Obj, value: Any) -> None:
    pair.post(path_of(kind) + "?dryRun=All", instance(kind, spec={"size": {"count": value}}))
