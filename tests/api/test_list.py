"""GET on a collection: selectors, versions, order, and the shape of items."""

from __future__ import annotations

from typing import Any

import pytest

from .builders import CMS, DEPLOYMENTS, MINE, NAMESPACES, PODS, SECRETS, cm, deployment, namespace, pod, with_meta
from .harness import OURS, REAL, Pair

SIDES = (OURS, REAL)


def furnished(pair: Pair) -> None:
    pair.post(CMS, cm("a", {"tier": "front", "env": "prod"}))
    pair.post(CMS, cm("b", {"tier": "back", "env": "prod"}))
    pair.post(CMS, cm("c", {"tier": "back", "env": "test", "odd": ""}))
    pair.post(CMS, cm("d"))


def names(answer: Any) -> list[str]:
    return [item["metadata"]["name"] for item in answer.json["items"]]


@pytest.mark.parametrize(
    "selector",
    [
        "tier=front",
        "tier==front",
        "tier!=front",
        "tier",
        "!tier",
        "tier in (front,back)",
        "tier in (front)",
        "tier notin (front)",
        "tier notin (front, back)",
        "tier=back,env=prod",
        "tier=back, env!=prod",
        "odd=",
        "odd",
        "odd in ()",
        "env in (prod),!odd",
        "tier=",
        "a.b/c=d",
        ",tier=front",
        "tier=front,",
        " tier = front ",
        "in",
        "x gt 1",
        "n>1",
        "n<5",
        "n>x",
        "",
    ],
)
def test_label_selectors(pair: Pair, selector: str) -> None:
    furnished(pair)
    pair.get(
        CMS
        + "?"
        + MINE
        + "&labelSelector="
        + selector.replace(" ", "%20").replace("!", "%21").replace("<", "%3C").replace(">", "%3E")
    )


@pytest.mark.parametrize(
    "selector",
    [
        "=front",
        "tier=(front)",
        "tier in front",
        "tier in (front",
        "tier in",
        "tier=a=b",
        "bad key=x",
        "a/b/c=d",
        "tier=bad!value",
        "UPPER.dom/x=y",
        "tier=" + "x" * 64,
        "!",
        "!tier=front",
        "(a)",
        "a,,b",
        "tier!front",
        "a b",
        "notin (x)",
        "-x=y",
    ],
    ids=lambda s: s[:24],
)
def test_a_bad_label_selector_is_refused(pair: Pair, selector: str) -> None:
    assert pair.get(CMS + "?labelSelector=" + selector.replace(" ", "%20").replace("!", "%21")).status == 400


@pytest.mark.parametrize(
    "selector",
    [
        "metadata.name=a",
        "metadata.name==a",
        "metadata.name!=a,metadata.name!=kube-root-ca.crt",
        "metadata.name=none",
        "metadata.name=a,metadata.name=b",
        "metadata.name=a,metadata.name!=b",
        "metadata.namespace=nowhere",
        "metadata.name=a\\,b",
    ],
)
def test_field_selectors(pair: Pair, selector: str) -> None:
    furnished(pair)
    pair.get(CMS + "?fieldSelector=" + selector.replace("!", "%21").replace("\\", "%5C"))


@pytest.mark.parametrize(
    "selector",
    [
        "data.x=1",
        "metadata.labels=x",
        "spec.nodeName=x",
        "metadata.name",
        "metadata.name>a",
        "=a",
        "metadata.name=a\\x",
        "metadata.uid=1",
        "status.phase=x",
    ],
)
def test_a_bad_field_selector_is_refused(pair: Pair, selector: str) -> None:
    assert pair.get(CMS + "?fieldSelector=" + selector.replace("\\", "%5C").replace(">", "%3E")).status == 400


@pytest.mark.parametrize(
    ("path", "selector"),
    [
        (PODS, "spec.nodeName="),
        (PODS, "spec.nodeName=n1"),
        (PODS, "status.phase=Pending"),
        (PODS, "status.phase!=Pending"),
        (PODS, "spec.restartPolicy=Always,spec.schedulerName=default-scheduler"),
        (PODS, "spec.serviceAccountName=default"),
        (PODS, "spec.hostNetwork=true"),
        (PODS, "status.podIP="),
        (PODS, "status.nominatedNodeName="),
        (PODS, "status.podIPs=x"),
        (PODS, "spec.containers=x"),
        (SECRETS, "type=Opaque"),
        (SECRETS, "type!=Opaque"),
        (SECRETS, "data=x"),
        (DEPLOYMENTS, "metadata.name=x"),
        (DEPLOYMENTS, "spec.replicas=1"),
        ("/api/v1/namespaces/{ns}/events", "involvedObject.name=x,reason=y,type=Normal"),
        ("/api/v1/namespaces/{ns}/events", "message=x"),
        ("/apis/apps/v1/namespaces/{ns}/replicasets", "status.replicas=0"),
        ("/api/v1/namespaces/{ns}/replicationcontrollers", "status.replicas=0"),
        ("/apis/batch/v1/namespaces/{ns}/jobs", "status.successful=0"),
        ("/api/v1/namespaces/{ns}/services", "spec.clusterIP=None,spec.type=ClusterIP"),
        ("/api/v1/nodes", "spec.unschedulable=false,metadata.name=none"),
        ("/api/v1/nodes", "spec.taints=x"),
        (NAMESPACES, "status.phase=Terminating,metadata.name=none"),
        (NAMESPACES, "name=none"),
    ],
)
def test_field_selectors_of_a_kind(pair: Pair, path: str, selector: str) -> None:
    pair.post(PODS, pod("p"))
    pair.post(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}})
    pair.get(f"{path}?fieldSelector={selector.replace('!', '%21')}")


def test_items_of_a_built_in_list_have_no_kind(pair: Pair) -> None:
    pair.post(DEPLOYMENTS, deployment("d"))
    found = pair.get(DEPLOYMENTS)
    for side in SIDES:
        assert "kind" not in found[side].json["items"][0] and "apiVersion" not in found[side].json["items"][0]


def test_an_empty_list(pair: Pair) -> None:
    assert pair.get(DEPLOYMENTS).json["items"] == []


def test_a_list_of_a_namespace_that_does_not_exist_is_empty(pair: Pair) -> None:
    assert pair.get(f"/api/v1/namespaces/{pair.ns}-none/configmaps").status == 200


def test_a_list_over_all_namespaces_is_in_order_of_namespace_and_name(pair: Pair) -> None:
    first, second = f"{pair.ns}-1", f"{pair.ns}-2"
    label = {"case": pair.ns}
    for name in (second, first):
        pair.post(NAMESPACES, namespace(name))
    for where, name in ((second, "a"), (first, "b"), (first, "a"), (first, "a-b"), (first, "a.b")):
        pair.post(f"/api/v1/namespaces/{where}/configmaps", cm(name, label))
    found = pair.get(f"/api/v1/configmaps?labelSelector=case={pair.ns}")
    assert names(found.ours) == ["a", "a-b", "a.b", "b", "a"]


def test_a_list_over_all_namespaces_can_be_selected_by_namespace(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    pair.get(f"/api/v1/configmaps?fieldSelector=metadata.namespace={pair.ns},metadata.name=a")


def test_the_items_of_a_list_are_in_order_of_their_names(pair: Pair) -> None:
    for name in ("b", "a", "10", "9", "a-a", "a.a", "aa"):
        pair.post(CMS, cm(name))
    assert names(pair.get(CMS + "?" + MINE).ours) == ["10", "9", "a", "a-a", "a.a", "aa", "b"]


def latest(pair: Pair) -> dict[str, str]:
    found = pair.get(CMS, compare=False)
    return {side: found[side].json["metadata"]["resourceVersion"] for side in SIDES}


@pytest.mark.parametrize(
    "query",
    [
        "resourceVersion=0",
        "resourceVersion=0&resourceVersionMatch=NotOlderThan",
        "resourceVersion={rv}",
        "resourceVersion={rv}&resourceVersionMatch=NotOlderThan",
        "resourceVersion={rv}&resourceVersionMatch=Exact",
        "resourceVersion=&resourceVersionMatch=",
        "resourceVersion=1",
        "resourceVersion=1&resourceVersionMatch=NotOlderThan&limit=2",
        "resourceVersion=0&limit=1",
    ],
)
def test_resource_versions(pair: Pair, query: str) -> None:
    furnished(pair)
    at = latest(pair)
    pair.get(lambda side: f"{CMS}?{MINE}&" + query.replace("{rv}", at[side]))


def test_an_exact_resource_version_shows_the_past(pair: Pair) -> None:
    furnished(pair)
    at = latest(pair)
    pair.post(CMS, cm("e"))
    pair.delete(CMS + "/a")
    pair.patch(CMS + "/b", {"data": {"x": "new"}})
    past = pair.get(lambda side: f"{CMS}?{MINE}&resourceVersion={at[side]}&resourceVersionMatch=Exact")
    assert names(past.ours) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "query",
    [
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=NotOlderThan",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersion=1&resourceVersionMatch=Sometimes",
        "resourceVersion=abc",
        "resourceVersion=-1",
        "resourceVersion=abc&resourceVersionMatch=Exact",
        "sendInitialEvents=true",
        "sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch=Exact&continue=abc",
        "resourceVersion=5&continue=abc",
        "limit=abc",
        "limit=1.5",
        "limit=99999999999999999999",
        "timeoutSeconds=abc",
        "continue=abc",
        "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjIiLCJydiI6MSwic3RhcnQiOiJhIn0",
        "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIifQ",
        "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi9hIn0",
        "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiJhIn0",
    ],
    ids=lambda q: q[:60],
)
def test_a_bad_list_option_is_refused(pair: Pair, query: str) -> None:
    pair.get(f"{CMS}?{query}")


def test_a_resource_version_of_the_future_times_out(pair: Pair) -> None:
    both = pair.get(CMS + "?resourceVersion=999999999&resourceVersionMatch=NotOlderThan")
    assert both.status == 504
    for side in SIDES:
        assert both[side].headers["retry-after"] == "1"


def test_an_exact_resource_version_of_the_future(pair: Pair) -> None:
    pair.get(CMS + "?resourceVersion=999999999&resourceVersionMatch=Exact")


def test_a_get_at_a_resource_version(pair: Pair) -> None:
    made = pair.post(CMS, cm("a"))
    pair.get(lambda side: f"{CMS}/a?resourceVersion={made[side].json['metadata']['resourceVersion']}")
    # Version zero is whatever kube-apiserver's cache has by now, so only after a read that waited for the cache.
    pair.get(CMS + "/a?resourceVersion=0")
    pair.get(CMS + "/a?resourceVersion=abc")
    pair.get(CMS + "/a?resourceVersion=999999999")


@pytest.mark.parametrize("query", ["pretty=true", "pretty=1", "pretty=false", "pretty=", "pretty=maybe"])
def test_pretty(pair: Pair, query: str) -> None:
    pair.post(CMS, cm("a"))
    both = pair.get(f"{CMS}/a?{query}")
    assert (b"\n  " in both.ours.raw) == (b"\n  " in both.real.raw)


def test_a_negative_limit_is_no_limit(pair: Pair) -> None:
    furnished(pair)
    pair.get(f"{CMS}?{MINE}&limit=-1")


def test_unknown_query_parameters_are_ignored(pair: Pair) -> None:
    furnished(pair)
    pair.get(f"{CMS}?{MINE}&nonsense=1&labelSelector=tier")


def test_the_first_of_a_repeated_parameter_counts(pair: Pair) -> None:
    furnished(pair)
    pair.get(f"{CMS}?labelSelector=tier=front&labelSelector=tier=back")


def test_a_list_does_not_show_what_was_never_selected(pair: Pair) -> None:
    pair.post(CMS, with_meta(cm("a"), labels={"x": "y"}))
    found = pair.get(f"{CMS}?{MINE}&labelSelector=x=z")
    assert found.json["items"] == []
