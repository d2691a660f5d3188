"""managedFields: what every kind of write by every kind of manager leaves in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .builders import CMS, DEPLOYMENTS, LEASES, PODS, cm, deployment, lease, pod
from .definitions import Obj, crd, defined, instance, patched_apart, path_of, version
from .harness import JSON_PATCH, STRATEGIC, Endpoint, Pair

AGENTS = {
    "curl": "curl/8.0",
    "kubectl": "kubectl/v1.36.3 (linux/amd64) kubernetes/abc",
    "Go": "Go-http-client/2.0",
    "blank": " x/1",
    "no slash": "agent",
    "long": "a" * 200 + "/1",
    "odd characters": "we\u00efrd/1",
    "control characters": "a\tb/1",
}


@pytest.mark.parametrize("agent", AGENTS)
def test_the_manager_is_the_user_agents_first_part(pair: Pair, agent: str) -> None:
    text = AGENTS[agent].encode().decode("latin-1")
    pair.post(CMS, cm("a", x="1"), headers={"User-Agent": text})
    pair.patch(CMS + "/a?fieldManager=named", {"data": {"y": "2"}}, headers={"User-Agent": text})


def test_create_then_changes_by_others(pair: Pair) -> None:
    pair.post(CMS + "?fieldManager=one", cm("a", x="1", y="1"))
    pair.patch(CMS + "/a?fieldManager=two", {"data": {"x": "2"}})
    pair.patch(CMS + "/a?fieldManager=three", {"data": {"z": "3"}}, STRATEGIC)
    pair.patch(CMS + "/a?fieldManager=four", [{"op": "remove", "path": "/data/x"}], JSON_PATCH)
    now = pair.get(CMS + "/a")
    pair.put(CMS + "/a?fieldManager=five", lambda side: {**now[side].json, "data": {"y": "5"}})
    pair.put(CMS + "/a?fieldManager=six", cm("a", y="5", q="6"))


def test_an_update_that_changes_nothing_takes_nothing(pair: Pair) -> None:
    pair.post(CMS + "?fieldManager=one", cm("a", x="1"))
    pair.put(CMS + "/a?fieldManager=two", cm("a", x="1"))
    pair.patch(CMS + "/a?fieldManager=three", {"data": {"x": "1"}})


RESETS: dict[str, Any] = {"empty list": [], "one empty entry": [{}], "null": None}


@pytest.mark.parametrize("how", RESETS)
def test_reset_by_put(pair: Pair, how: str) -> None:
    made = pair.post(CMS, cm("a", x="1"))

    def body(side: str) -> Obj:
        found: Obj = made[side].json
        return {**found, "metadata": {**found["metadata"], "managedFields": RESETS[how]}, "data": {"x": "2"}}

    pair.put(CMS + "/a", body)
    pair.patch(CMS + "/a?fieldManager=later", {"data": {"y": "3"}})


@pytest.mark.parametrize("how", RESETS)
@pytest.mark.parametrize("form", ["merge", "json"])
def test_reset_by_patch(pair: Pair, kind: Obj, how: str, form: str) -> None:
    for at, body in ((CMS, cm("a", x="1")), (path_of(kind), instance(kind, spec={"a": "1"}))):
        pair.post(at, body)
        if form == "merge":
            pair.patch(at + "/a", {"metadata": {"managedFields": RESETS[how]}})
        else:
            pair.patch(at + "/a", [{"op": "replace", "path": "/metadata/managedFields", "value": RESETS[how]}], JSON_PATCH)
        pair.get(at + "/a")


ENTRY: Obj = {
    "manager": "x",
    "operation": "Update",
    "apiVersion": "v1",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:data": {"f:x": {}}},
    "time": "2020-01-01T00:00:00Z",
}
ENTRIES: dict[str, Obj] = {
    "as it should be": {},
    "unknown operation": {"operation": "Guess"},
    "no operation": {"operation": None},
    "unknown fields type": {"fieldsType": "FieldsV9"},
    "no fields type": {"fieldsType": None},
    "broken fields": {"fieldsV1": {"q:x": {}}},
    "fields that are no object": {"fieldsV1": {"f:data": 1}},
    "long manager": {"manager": "x" * 129},
    "another version": {"apiVersion": "v9"},
    "broken version": {"apiVersion": "a/b/c"},
    "a subresource": {"subresource": "status"},
    "a bad time": {"time": "yesterday"},
}


@pytest.mark.parametrize("what", ENTRIES)
def test_entries_set_by_hand(pair: Pair, what: str) -> None:
    pair.post(CMS, cm("a", x="1"))
    entry = {key: value for key, value in {**ENTRY, **ENTRIES[what]}.items() if value is not None}
    pair.patch(CMS + "/a", {"metadata": {"managedFields": [entry]}}, ignore=patched_apart)
    pair.post(CMS, {**cm("b", x="1"), "metadata": {"name": "b", "managedFields": [entry]}})


@pytest.fixture(scope="module")
def kind(endpoints: dict[str, Endpoint]) -> Iterator[Obj]:
    pair = Pair(endpoints, ns="default")
    schema = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {
            "spec": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {"replicas": {"type": "integer"}},
            },
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    parts = {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}
    with defined(pair, crd(pair, version(schema=schema, subresources=parts), plural="owned", kind="Owned")) as definition:
        yield definition


def test_status_and_scale_are_told_apart(pair: Pair, kind: Obj) -> None:
    at = path_of(kind) + "/a"
    pair.post(path_of(kind) + "?fieldManager=one", instance(kind, spec={"replicas": 1, "x": "1"}))
    pair.patch(at + "/status?fieldManager=one", {"status": {"replicas": 1, "s": "1"}})
    pair.patch(at + "/scale?fieldManager=scaler", {"spec": {"replicas": 3}})
    pair.get(at)
    pair.patch(at + "?fieldManager=one", {"spec": {"replicas": 4}})
    pair.apply(at, instance(kind, spec={"replicas": 4}), "applier")
    pair.patch(at + "/scale?fieldManager=scaler", {"spec": {"replicas": 5}})
    pair.get(at)
    pair.apply(at, instance(kind, spec={"replicas": 6}), "applier")


def test_a_deployment_scaled_and_applied(pair: Pair) -> None:
    pair.apply(DEPLOYMENTS + "/d", deployment("d", 1), "applier")
    pair.patch(DEPLOYMENTS + "/d/scale?fieldManager=scaler", {"spec": {"replicas": 3}})
    pair.get(DEPLOYMENTS + "/d")
    pair.apply(DEPLOYMENTS + "/d", deployment("d", 1), "applier")
    without = deployment("d", 1)
    del without["spec"]["replicas"]
    pair.apply(DEPLOYMENTS + "/d", without, "applier")
    pair.patch(DEPLOYMENTS + "/d/status?fieldManager=controller", {"status": {"replicas": 3, "observedGeneration": 1}})


def test_lists_of_a_pod(pair: Pair) -> None:
    body = pod("p", node="n", volumes=[{"name": "v", "emptyDir": {}}], tolerations=[{"key": "k", "operator": "Exists"}])
    pair.post(PODS + "?fieldManager=one", body)
    pair.patch(PODS + "/p?fieldManager=two", {"spec": {"containers": [{"name": "c", "image": "example.com/c:2"}]}}, STRATEGIC)
    pair.patch(
        PODS + "/p/status?fieldManager=three",
        {"status": {"conditions": [{"type": "Ready", "status": "True"}], "podIPs": [{"ip": "10.0.0.1"}]}},
        STRATEGIC,
    )


def test_a_lease_renewed_often(pair: Pair) -> None:
    pair.post(LEASES + "?fieldManager=one", lease("l"))
    for holder in ("a", "b"):
        pair.patch(
            LEASES + f"/l?fieldManager={holder}", {"spec": {"holderIdentity": holder, "renewTime": "2020-01-01T00:00:00.000000Z"}}
        )


def test_many_updaters_are_put_together(pair: Pair) -> None:
    pair.post(CMS + "?fieldManager=m0", cm("a", k0="0"))
    for number in range(1, 13):
        pair.patch(CMS + f"/a?fieldManager=m{number:02}", {"data": {f"k{number}": "1"}}, ignore=_sorted_union)


def _sorted_union(body: Any) -> Any:
    """Which of the oldest are put together depends on the second in which they wrote."""
    fields = [entry["manager"] for entry in body["metadata"]["managedFields"]]
    return {"data": body["data"], "many": len(fields), "united": "ancient-changes" in fields}


def test_metadata_is_owned_too(pair: Pair) -> None:
    pair.post(
        CMS + "?fieldManager=one",
        {**cm("a"), "metadata": {"name": "a", "labels": {"a": "1"}, "annotations": {"b": "2"}, "finalizers": ["e.com/f"]}},
    )
    pair.patch(CMS + "/a?fieldManager=two", {"metadata": {"labels": {"a": None, "c": "3"}, "finalizers": ["e.com/g"]}})
    pair.patch(CMS + "/a?fieldManager=two", {"metadata": {"annotations": None, "finalizers": None}})
