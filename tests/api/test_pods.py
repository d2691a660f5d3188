"""Pods: what may change once they exist, how they get a node, what a kubelet says about them."""

from __future__ import annotations

from typing import Any

import pytest

from .builders import PODS, pod
from .harness import JSON_PATCH, STRATEGIC, Pair

BINDINGS = "/api/v1/namespaces/{ns}/bindings"


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"containers": [{"name": "c", "image": "example.com/c:2"}]}},
        {"spec": {"containers": [{"name": "c", "image": ""}]}},
        {"spec": {"containers": [{"name": "d", "image": "example.com/c:1"}]}},
        {"spec": {"containers": [{"name": "c", "image": "example.com/c:1", "command": ["x"]}]}},
        {"spec": {"containers": []}},
        {"spec": {"nodeName": "n1"}},
        {"spec": {"hostname": "x"}},
        {"spec": {"serviceAccountName": "other"}},
        {"spec": {"restartPolicy": "Never"}},
        {"spec": {"priority": 7}},
        {"spec": {"activeDeadlineSeconds": 60}},
        {"spec": {"activeDeadlineSeconds": -1}},
        {"spec": {"terminationGracePeriodSeconds": 1}},
        {"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}},
        {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
        {"spec": {"nodeSelector": {"a": "b"}}},
        {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}},
        {"metadata": {"generation": 7}},
        {"status": {"phase": "Running"}},
        {"spec": {"schedulingGates": [{"name": "example.com/g"}]}},
        {"spec": {"dnsPolicy": "None"}},
        {"spec": {"enableServiceLinks": False}},
    ],
    ids=lambda change: str(change)[:70],
)
def test_most_of_a_pod_can_not_change(pair: Pair, change: dict[str, Any]) -> None:
    pair.post(PODS, pod("p"))
    pair.patch(PODS + "/p", change)


def test_tolerations_may_only_be_added(pair: Pair) -> None:
    pair.post(PODS, pod("p"))
    added = [{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "x", "operator": "Exists", "effect": "NoSchedule"}}]
    assert pair.patch(PODS + "/p", added, JSON_PATCH).status == 200
    removed = [{"op": "remove", "path": "/spec/tolerations/2"}]
    assert pair.patch(PODS + "/p", removed, JSON_PATCH).status == 422
    # The server's own come back.
    assert pair.patch(PODS + "/p", [{"op": "remove", "path": "/spec/tolerations/0"}], JSON_PATCH).status == 200


def test_a_deadline_may_only_shrink(pair: Pair) -> None:
    pair.post(PODS, pod("p", activeDeadlineSeconds=100))
    assert pair.patch(PODS + "/p", {"spec": {"activeDeadlineSeconds": 50}}).status == 200
    assert pair.patch(PODS + "/p", {"spec": {"activeDeadlineSeconds": 60}}).status == 422
    assert pair.patch(PODS + "/p", {"spec": {"activeDeadlineSeconds": None}}).status == 422


def test_gates_may_only_be_removed(pair: Pair) -> None:
    pair.post(PODS, pod("p", schedulingGates=[{"name": "example.com/a"}, {"name": "example.com/b"}]))
    bind(pair, "p", "n1")
    assert pair.patch(PODS + "/p", {"spec": {"schedulingGates": [{"name": "example.com/b"}]}}).status == 200
    assert pair.patch(PODS + "/p", {"spec": {"schedulingGates": [{"name": "example.com/c"}]}}).status == 422
    assert pair.patch(PODS + "/p", {"spec": {"nodeSelector": {"a": "b"}}}).status == 200
    assert pair.patch(PODS + "/p", {"spec": {"schedulingGates": None}}).status == 200


def test_a_put_of_an_unchanged_pod(pair: Pair) -> None:
    made = pair.post(PODS, pod("p"))
    pair.put(PODS + "/p", lambda side: made[side].json)
    pair.put(PODS + "/p", pod("p"))


# --- binding ------------------------------------------------------------------------------------------------------------


def binding(name: str, node: str, **target: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node, **target},
    }


def bind(pair: Pair, name: str, node: str) -> Any:
    return pair.post(f"{PODS}/{name}/binding", binding(name, node))


def test_a_pod_is_bound_once(pair: Pair) -> None:
    pair.post(PODS, pod("p"))
    assert bind(pair, "p", "n1").status == 201
    pair.get(PODS + "/p")
    assert bind(pair, "p", "n2").status == 409


def test_the_old_way_to_bind(pair: Pair) -> None:
    pair.post(PODS, pod("p"))
    assert pair.post(BINDINGS, binding("p", "n1")).status == 201
    pair.get(PODS + "/p")
    pair.post(BINDINGS, binding("p", "n2"))
    pair.post(BINDINGS, binding("missing", "n1"))
    pair.post(BINDINGS, {"apiVersion": "v1", "kind": "Binding", "target": {"name": "n1"}})


@pytest.mark.parametrize(
    "body",
    [
        binding("p", ""),
        binding("p", "n1", kind="Pod"),
        binding("p", "n1", kind=""),
        binding("other", "n1"),
        {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}},
        {"target": {"name": "n1"}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}},
        {**binding("p", "n1"), "metadata": {"name": "p", "namespace": "elsewhere"}},
        {**binding("p", "n1"), "metadata": {"name": "p", "uid": "11111111-2222-3333-4444-555555555555"}},
        {**binding("p", "n1"), "metadata": {"name": "p", "annotations": {"a": "b"}, "labels": {"c": "d"}}},
    ],
    ids=["no-node", "a-pod", "no-kind", "other-name", "no-target", "bare", "kind", "namespace", "uid", "annotations"],
)
def test_a_binding_is_checked(pair: Pair, body: dict[str, Any]) -> None:
    pair.post(PODS, pod("p"))
    pair.post(PODS + "/p/binding", body)
    pair.get(PODS + "/p")


def test_a_missing_pod_is_not_bound(pair: Pair) -> None:
    assert bind(pair, "missing", "n1").status == 404


def test_a_binding_may_be_tried(pair: Pair) -> None:
    pair.post(PODS, pod("p"))
    assert pair.post(PODS + "/p/binding?dryRun=All", binding("p", "n1")).status == 201
    assert "nodeName" not in pair.get(PODS + "/p").json["spec"]


def test_a_pod_that_is_going_is_not_bound(pair: Pair) -> None:
    made = pod("p")
    made["metadata"]["finalizers"] = ["example.com/hold"]
    pair.post(PODS, made)
    pair.delete(PODS + "/p")
    bind(pair, "p", "n1")
    pair.patch(PODS + "/p", {"metadata": {"finalizers": None}}, compare=False)


# --- status -------------------------------------------------------------------------------------------------------------


def ready(**more: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": "2024-01-01T00:00:00Z"}]
    return {"phase": "Running", "conditions": conditions, "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], **more}


def test_a_status_is_set_through_its_own_door(pair: Pair) -> None:
    made = pair.post(PODS, pod("p", node="n1"))
    pair.put(
        PODS + "/p/status",
        lambda side: {**made[side].json, "status": ready(), "metadata": {**made[side].json["metadata"], "labels": {"x": "y"}}},
    )
    pair.get(PODS + "/p/status")
    pair.patch(PODS + "/p/status", {"status": {"message": "hello"}, "spec": {"hostname": "no"}}, STRATEGIC)
    pair.get(PODS + "/p")


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Dancing"},
        {"podIP": "nonsense"},
        {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]},
        {"conditions": [{"type": "bad type", "status": "True"}]},
        {"qosClass": "Guaranteed"},
        {"containerStatuses": [{"name": "c", "image": "x", "imageID": "", "ready": True, "restartCount": 1}]},
        {"nominatedNodeName": "n2"},
        {"hostIP": "x"},
    ],
    ids=lambda status: str(status)[:50],
)
def test_a_status_is_checked(pair: Pair, status: dict[str, Any]) -> None:
    pair.post(PODS, pod("p", node="n1"))
    pair.patch(PODS + "/p/status", {"status": status})


def test_conditions_are_merged_by_type(pair: Pair) -> None:
    pair.post(PODS, pod("p", node="n1"))
    for kind, status in (("Ready", "False"), ("Initialized", "True"), ("Ready", "True")):
        condition = {"type": kind, "status": status, "lastTransitionTime": "2024-01-01T00:00:00Z"}
        pair.patch(PODS + "/p/status", {"status": {"conditions": [condition]}}, STRATEGIC)
    pair.get(PODS + "/p")


def test_a_restart_count_may_not_shrink(pair: Pair) -> None:
    pair.post(PODS, pod("p", node="n1", restartPolicy="Never"))
    running = {"name": "c", "image": "x", "imageID": "", "ready": True, "restartCount": 0}
    done = {**running, "state": {"terminated": {"exitCode": 0}}}
    pair.patch(PODS + "/p/status", {"status": {"containerStatuses": [done]}})
    again = {**running, "state": {"running": {}}}
    pair.patch(PODS + "/p/status", {"status": {"containerStatuses": [again]}})


# --- creation -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": []},
        {"containers": [{"name": "Bad", "image": "x"}]},
        {"containers": [{"name": "a", "image": "x"}, {"name": "a", "image": "x"}]},
        {"containers": [{"name": "a"}]},
        {"containers": [{"name": "a", "image": "x:latest"}]},
        {"containers": [{"name": "a", "image": "x", "imagePullPolicy": "Maybe"}]},
        {"containers": [{"name": "a", "image": "x", "ports": [{"containerPort": 0}, {"containerPort": 80, "hostPort": 80}]}]},
        {"containers": [{"name": "a", "image": "x", "env": [{"name": "", "value": "x"}]}]},
        {"containers": [{"name": "a", "image": "x", "volumeMounts": [{"name": "none", "mountPath": "/x"}]}]},
        {"containers": [{"name": "a", "image": "x", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]},
        {"containers": [{"name": "a", "image": "x", "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}}}]},
        {"containers": [{"name": "a", "image": "x", "livenessProbe": {"httpGet": {"port": 80}}}]},
        {"containers": [{"name": "a", "image": "x", "livenessProbe": {}}]},
        {"restartPolicy": "Sometimes"},
        {"dnsPolicy": "Own"},
        {"nodeSelector": {"bad key": "x"}},
        {"hostNetwork": True, "containers": [{"name": "a", "image": "x", "ports": [{"containerPort": 80}]}]},
        {"volumes": [{"name": "v"}, {"name": "w", "emptyDir": {}, "hostPath": {"path": "/"}}]},
        {"volumes": [{"name": "v", "secret": {"secretName": "s", "defaultMode": 9999}}]},
        {"terminationGracePeriodSeconds": -5},
        {"activeDeadlineSeconds": 0},
        {"hostname": "Bad_Host", "subdomain": "x"},
        {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Never"}]},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}},
        {"tolerations": [{"operator": "Exists", "value": "x"}]},
        {"ephemeralContainers": [{"name": "e", "image": "x"}]},
    ],
    ids=lambda spec: str(spec)[:80],
)
def test_a_pod_is_checked(pair: Pair, spec: dict[str, Any]) -> None:
    pair.post(PODS, pod("p", **spec))


def test_pods_are_selected_by_node_and_phase(pair: Pair) -> None:
    pair.post(PODS, pod("a", node="n1"))
    pair.post(PODS, pod("b"))
    for query in (
        "spec.nodeName%3Dn1",
        "spec.nodeName%3D",
        "status.phase%3DPending",
        "status.phase%21%3DPending",
        "spec.restartPolicy%3DAlways",
        "spec.nothing%3Dx",
    ):
        pair.get(f"{PODS}?fieldSelector={query}")


@pytest.mark.parametrize("query", ["", "?gracePeriodSeconds=0", "?gracePeriodSeconds=5", "?gracePeriodSeconds=-1"])
@pytest.mark.parametrize("node", ["", "n1"])
def test_a_pod_has_time_to_end(pair: Pair, query: str, node: str) -> None:
    pair.post(PODS, pod("p", node=node))
    pair.delete(PODS + "/p" + query)
    pair.get(PODS + "/p")
    pair.delete(PODS + "/p?gracePeriodSeconds=0")
    assert pair.get(PODS + "/p").status == 404
