"""DELETE: policies, preconditions, grace, finalizers, collections."""

from __future__ import annotations

from typing import Any

import pytest

from .builders import CMS, DEPLOYMENTS, PODS, REPLICA_SETS, cm, deployment, pod, replica_set, with_meta
from .harness import OURS, REAL, Pair

SIDES = (OURS, REAL)
OTHER_UID = "11111111-2222-3333-4444-555555555555"
YAML = "application/yaml"


def test_a_deletion_answers_with_a_status(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    answer = pair.delete(CMS + "/a")
    assert answer.json["kind"] == "Status" and answer.json["details"]["kind"] == "configmaps"


def test_a_deletion_in_a_named_group_names_it(pair: Pair) -> None:
    pair.post(REPLICA_SETS, replica_set("r"))
    pair.delete(REPLICA_SETS + "/r?propagationPolicy=Background")


def test_deleting_twice_is_not_found(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    pair.delete(CMS + "/a")
    assert pair.delete(CMS + "/a").status == 404


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_the_policy_of_an_object_with_a_finalizer_shows_on_it(pair: Pair, policy: str) -> None:
    pair.post(CMS, with_meta(cm("a"), finalizers=["example.com/hold"]))
    answer = pair.delete(CMS + "/a", {"propagationPolicy": policy})
    assert answer.status == 200
    pair.patch(CMS + "/a", {"metadata": {"finalizers": None}}, compare=False)


@pytest.mark.parametrize("orphan", [True, False])
def test_the_old_way_to_name_a_policy(pair: Pair, orphan: bool) -> None:
    pair.post(CMS, with_meta(cm("a"), finalizers=["example.com/hold"]))
    pair.delete(CMS + "/a", {"orphanDependents": orphan})
    pair.patch(CMS + "/a", {"metadata": {"finalizers": None}}, compare=False)


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
@pytest.mark.parametrize("hold", [[], ["example.com/hold"], ["orphan", "example.com/hold"]])
def test_an_event_is_deleted_at_once_by_any_policy(pair: Pair, policy: str, hold: list[str]) -> None:
    events = "/api/v1/namespaces/{ns}/events"
    about = {"kind": "Pod", "name": "p", "namespace": pair.ns}
    made = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "finalizers": hold}, "involvedObject": about}
    pair.post(events, made)
    pair.delete(events + "/e", {"propagationPolicy": policy})
    pair.get(events + "/e")


def test_a_later_policy_replaces_an_earlier_one(pair: Pair) -> None:
    pair.post(CMS, with_meta(cm("a"), finalizers=["example.com/hold"]))
    pair.delete(CMS + "/a", {"propagationPolicy": "Orphan"}, compare=False)
    pair.eventually(CMS + "/a", lambda answer: answer.json["metadata"]["finalizers"] == ["example.com/hold"], compare=False)
    pair.delete(CMS + "/a", {"propagationPolicy": "Background"}, ignore=just_finalizers)


def just_finalizers(body: Any) -> Any:
    return body["metadata"].get("finalizers")


def test_a_policy_given_as_a_finalizer_counts(pair: Pair) -> None:
    pair.post(CMS, with_meta(cm("a"), finalizers=["orphan", "example.com/hold"]))
    pair.delete(CMS + "/a")


@pytest.mark.parametrize(
    "options",
    [
        {"propagationPolicy": "Sideways"},
        {"propagationPolicy": ""},
        {"propagationPolicy": "Orphan", "orphanDependents": True},
        {"dryRun": ["Some"]},
        {"dryRun": ["All", "Some"]},
        {"gracePeriodSeconds": "soon"},
        {"gracePeriodSeconds": 1.5},
        {"preconditions": []},
        {"orphanDependents": "yes"},
        {"propagationPolicy": "Sideways", "dryRun": ["Some"]},
    ],
    ids=str,
)
def test_bad_options_are_refused(pair: Pair, options: dict[str, Any]) -> None:
    pair.post(CMS, cm("a"))
    pair.delete(CMS + "/a", options)
    assert pair.get(CMS + "/a").status == 200


@pytest.mark.parametrize(
    "query",
    [
        "propagationPolicy=Background",
        "propagationPolicy=Sideways",
        "gracePeriodSeconds=0",
        "gracePeriodSeconds=abc",
        "gracePeriodSeconds=-1",
        "orphanDependents=false",
        "orphanDependents=true&propagationPolicy=Orphan",
        "dryRun=All",
        "dryRun=Some",
        "dryRun=All&dryRun=All",
        "pretty=true",
    ],
)
def test_options_in_the_query(pair: Pair, query: str) -> None:
    pair.post(CMS, cm("a"))
    pair.delete(f"{CMS}/a?{query}")
    pair.get(CMS + "/a", ignore=lambda body: body["kind"])


def test_options_in_the_body_win_over_the_query(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    pair.delete(CMS + "/a?dryRun=All", {"kind": "DeleteOptions", "apiVersion": "v1"})
    assert pair.get(CMS + "/a").status == 404


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "DeleteOptions", "apiVersion": "v1"},
        {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"},
        {"kind": "DeleteOptions", "apiVersion": "apps/v1"},
        {"kind": "DeleteOptions"},
        {"apiVersion": "v1"},
        {"kind": "ConfigMap", "apiVersion": "v1"},
        {"kind": "Nonsense", "apiVersion": "v1"},
        {"kind": "DeleteOptions", "apiVersion": "example.com/v1"},
        {"kind": "DeleteOptions", "apiVersion": "v1", "unknown": 1},
        {"kind": "Nonsense", "apiVersion": True},
        {"kind": 3, "apiVersion": "v1"},
        {"kind": "Nonsense", "apiVersion": "a/b/c"},
    ],
    ids=lambda body: f"{body.get('apiVersion')} {body.get('kind')} {len(body)}",
)
def test_options_of_any_group(pair: Pair, body: dict[str, Any]) -> None:
    pair.post(CMS, cm("a"))
    pair.delete(CMS + "/a", body)


@pytest.mark.parametrize("body", [b"{}", b"null", b"[]", b"{", b" ", b"nonsense", b'"x"'])
def test_a_body_that_is_no_options(pair: Pair, body: bytes) -> None:
    pair.post(CMS, cm("a"))
    pair.delete(CMS + "/a", body)


def test_options_as_yaml(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    pair.delete(CMS + "/a", b"propagationPolicy: Background\ndryRun: [All]\n", content_type=YAML)
    assert pair.get(CMS + "/a").status == 200


def test_options_in_an_unknown_form(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    assert pair.delete(CMS + "/a", {}, content_type="text/plain").status == 415


def test_a_uid_precondition(pair: Pair) -> None:
    made = pair.post(CMS, cm("a"))
    assert pair.delete(CMS + "/a", {"preconditions": {"uid": OTHER_UID}}).status == 409
    pair.delete(CMS + "/a", lambda side: {"preconditions": {"uid": made[side].json["metadata"]["uid"]}})


def test_a_resource_version_precondition(pair: Pair) -> None:
    made = pair.post(CMS, cm("a"))
    pair.patch(CMS + "/a", {"data": {"x": "1"}})
    stale = pair.delete(
        CMS + "/a", lambda side: {"preconditions": {"resourceVersion": made[side].json["metadata"]["resourceVersion"]}}
    )
    assert stale.status == 409
    now = pair.get(CMS + "/a")
    pair.delete(CMS + "/a", lambda side: {"preconditions": {"resourceVersion": now[side].json["metadata"]["resourceVersion"]}})


def test_a_dry_run_deletes_nothing(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    pair.delete(CMS + "/a", {"dryRun": ["All"]})
    assert pair.get(CMS + "/a").status == 200


def test_a_dry_run_of_an_object_with_finalizers(pair: Pair) -> None:
    pair.post(CMS, with_meta(cm("a"), finalizers=["example.com/hold"]))
    pair.delete(CMS + "/a", {"dryRun": ["All"]})
    assert "deletionTimestamp" not in pair.get(CMS + "/a").json["metadata"]


def test_an_object_with_finalizers_is_only_marked(pair: Pair) -> None:
    pair.post(CMS, with_meta(cm("a"), finalizers=["example.com/hold"]))
    first = pair.delete(CMS + "/a")
    again = pair.delete(CMS + "/a")
    for side in SIDES:
        assert first[side].json["metadata"]["deletionTimestamp"] == again[side].json["metadata"]["deletionTimestamp"]


def test_the_generation_counts_the_mark(pair: Pair) -> None:
    pair.post(DEPLOYMENTS, with_meta(deployment("d"), finalizers=["example.com/hold"]))
    assert pair.delete(DEPLOYMENTS + "/d?propagationPolicy=Background").json["metadata"]["generation"] == 2
    pair.patch(DEPLOYMENTS + "/d", {"metadata": {"finalizers": None}}, compare=False)


# --- pods ------------------------------------------------------------------------------------------------------------------


def test_a_pod_that_never_ran_goes_at_once(pair: Pair) -> None:
    pair.post(PODS, pod("p"))
    pair.delete(PODS + "/p")
    assert pair.get(PODS + "/p").status == 404


def on_a_node(pair: Pair, **spec: Any) -> None:
    pair.post(PODS, pod("p", node="n1", **spec))


def test_a_pod_on_a_node_gets_its_grace(pair: Pair) -> None:
    on_a_node(pair)
    answer = pair.delete(PODS + "/p")
    assert answer.json["metadata"]["deletionGracePeriodSeconds"] == 30


def test_a_pod_has_a_grace_of_its_own(pair: Pair) -> None:
    on_a_node(pair, terminationGracePeriodSeconds=7)
    assert pair.delete(PODS + "/p").json["metadata"]["deletionGracePeriodSeconds"] == 7


@pytest.mark.parametrize("seconds", [0, 1, 5, 100, -1])
def test_the_grace_that_is_asked_for(pair: Pair, seconds: int) -> None:
    on_a_node(pair)
    pair.delete(PODS + "/p", {"gracePeriodSeconds": seconds})
    pair.get(PODS + "/p")


def test_a_second_deletion_may_shorten_the_grace(pair: Pair) -> None:
    on_a_node(pair)
    pair.delete(PODS + "/p", {"gracePeriodSeconds": 100})
    pair.delete(PODS + "/p", {"gracePeriodSeconds": 50})
    pair.delete(PODS + "/p", {"gracePeriodSeconds": 80})
    pair.delete(PODS + "/p")
    pair.delete(PODS + "/p", {"gracePeriodSeconds": 0})
    assert pair.get(PODS + "/p").status == 404


def test_a_pod_that_has_ended_goes_at_once(pair: Pair) -> None:
    on_a_node(pair)
    pair.patch(PODS + "/p/status", {"status": {"phase": "Succeeded"}})
    pair.delete(PODS + "/p")
    assert pair.get(PODS + "/p").status == 404


def test_a_pod_with_a_finalizer_waits_for_it(pair: Pair) -> None:
    pair.post(PODS, with_meta(pod("p", node="n1"), finalizers=["example.com/hold"]))
    pair.delete(PODS + "/p", {"gracePeriodSeconds": 0})
    pair.patch(PODS + "/p", {"metadata": {"finalizers": None}})
    assert pair.get(PODS + "/p").status == 404


def test_a_pod_that_waits_for_its_node_goes_when_the_node_confirms(pair: Pair) -> None:
    on_a_node(pair)
    pair.delete(PODS + "/p")
    pair.patch(PODS + "/p", {"metadata": {"labels": {"a": "b"}}})
    pair.delete(PODS + "/p", {"gracePeriodSeconds": 0})
    assert pair.get(PODS + "/p").status == 404


def test_a_dry_run_of_a_graceful_deletion(pair: Pair) -> None:
    on_a_node(pair)
    pair.delete(PODS + "/p?dryRun=All")
    assert "deletionTimestamp" not in pair.get(PODS + "/p").json["metadata"]


# --- collections -------------------------------------------------------------------------------------------------------------


def some(pair: Pair) -> None:
    pair.post(CMS, cm("a", {"x": "1"}))
    pair.post(CMS, cm("b", {"x": "2"}))
    pair.post(CMS, cm("c", {"x": "1"}))


def left(pair: Pair) -> list[str]:
    return [item["metadata"]["name"] for item in pair.get(CMS + "?labelSelector=x").json["items"]]


def test_a_collection_is_deleted_by_label(pair: Pair) -> None:
    some(pair)
    pair.delete(CMS + "?labelSelector=x=1")
    assert left(pair) == ["b"]


def test_a_collection_is_deleted_by_field(pair: Pair) -> None:
    some(pair)
    pair.delete(CMS + "?fieldSelector=metadata.name=b")
    assert left(pair) == ["a", "c"]


def test_a_collection_with_nothing_in_it(pair: Pair) -> None:
    pair.delete(CMS + "?labelSelector=x=9")


def test_a_whole_collection(pair: Pair) -> None:
    for name in ("a", "b"):
        pair.post(REPLICA_SETS, replica_set(name))
    pair.delete(REPLICA_SETS)
    assert pair.get(REPLICA_SETS).json["items"] == []


def test_a_dry_run_of_a_collection(pair: Pair) -> None:
    some(pair)
    pair.delete(CMS + "?labelSelector=x=1&dryRun=All")
    assert left(pair) == ["a", "b", "c"]


def test_a_collection_with_options_in_the_body(pair: Pair) -> None:
    some(pair)
    pair.delete(CMS + "?labelSelector=x=1", {"dryRun": ["All"], "propagationPolicy": "Background"})
    assert left(pair) == ["a", "b", "c"]


def test_a_collection_with_finalizers_is_marked(pair: Pair) -> None:
    pair.post(CMS, with_meta(cm("a"), labels={"x": "1"}, finalizers=["example.com/hold"]))
    pair.delete(CMS + "?labelSelector=x=1")
    assert "deletionTimestamp" in pair.get(CMS + "/a").json["metadata"]


@pytest.mark.parametrize(
    "query",
    ["labelSelector=a=b=c", "fieldSelector=x=y", "propagationPolicy=No", "limit=x", "resourceVersion=1&resourceVersionMatch=Odd"],
)
def test_a_collection_with_bad_options(pair: Pair, query: str) -> None:
    some(pair)
    pair.delete(f"{CMS}?{query}")
    assert left(pair) == ["a", "b", "c"]


def test_a_collection_over_all_namespaces_is_not_served(pair: Pair) -> None:
    assert pair.delete("/api/v1/configmaps").status == 405


def test_a_collection_with_a_limit(pair: Pair) -> None:
    some(pair)
    pair.delete(CMS + "?labelSelector=x=1&limit=1")
    pair.get(CMS + "?labelSelector=x")
