"""What the server's own plug-ins add or refuse: priorities, tolerations, taints, protection, namespaces."""

from __future__ import annotations

from typing import Any

import pytest

from .builders import CMS, NAMESPACES, PODS, cm, namespace, pod, with_meta
from .callers import until
from .harness import SIDES, Pair
from .recording import attempts

PRIORITY = "/apis/scheduling.k8s.io/v1/priorityclasses"
NODES = "/api/v1/nodes"


def priority(name: str, value: int = 5, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value, **fields}


def test_a_pods_priority_comes_from_its_class(pair: Pair) -> None:
    name = f"{pair.ns}-high"
    pair.post(PRIORITY, priority(name, 1000, preemptionPolicy="Never", description="important"))

    until(lambda: pair.post(PODS + "?dryRun=All", pod("probe", priorityClassName=name), compare=False), 201)
    pair.post(PODS, pod("p", priorityClassName=name))
    assert pair.post(PODS, pod("q", priorityClassName=name, priority=7)).status == 403
    assert pair.post(PODS, pod("q", priorityClassName=name, preemptionPolicy="PreemptLowerPriority")).status == 403
    assert pair.post(PODS, pod("q", priorityClassName=name, priority=1000)).status == 201
    pair.delete(f"{PRIORITY}/{name}")


def test_a_pod_without_a_class_has_none(pair: Pair) -> None:
    pair.post(PODS, pod("p"))
    assert pair.post(PODS, pod("q", priority=3)).status == 403
    pair.post(PODS, pod("r", priority=0))


def test_a_class_that_is_missing_is_named(pair: Pair) -> None:
    assert pair.post(PODS, pod("p", priorityClassName="missing")).status == 403


@pytest.mark.parametrize("name", ["system-cluster-critical", "system-node-critical"])
def test_the_systems_classes_are_there(pair: Pair, name: str) -> None:
    def without_manager(body: Any) -> Any:
        for entry in body["metadata"].get("managedFields", ()):
            entry["manager"] = "<server>"
        return body

    pair.get(f"{PRIORITY}/{name}", ignore=without_manager)
    pair.post(PODS, pod("p", priorityClassName=name))


@pytest.mark.parametrize(
    "body",
    [
        priority("x", 1_000_000_001),
        priority("system-x", 5),
        priority("x", 5, preemptionPolicy="Sometimes"),
        {k: v for k, v in priority("x").items() if k != "value"},
        priority("x", -5),
    ],
    ids=["too-high", "system-prefix", "policy", "no-value", "negative"],
)
def test_a_priority_class_is_checked(pair: Pair, body: dict[str, Any]) -> None:
    pair.post(PRIORITY + "?dryRun=All", body)


def test_a_priority_class_keeps_its_value(pair: Pair) -> None:
    name = f"{pair.ns}-fixed"
    pair.post(PRIORITY, priority(name, 5))
    assert pair.patch(f"{PRIORITY}/{name}", {"value": 6}).status == 422
    assert pair.patch(f"{PRIORITY}/{name}", {"preemptionPolicy": "Never"}).status == 422
    assert pair.patch(f"{PRIORITY}/{name}", {"description": "words"}).status == 200
    pair.delete(f"{PRIORITY}/{name}")


def test_only_one_class_is_the_default(pair: Pair) -> None:
    first, second = f"{pair.ns}-first", f"{pair.ns}-second"
    pair.post(PRIORITY, priority(first, 77, globalDefault=True))
    until_given(pair, 77)
    assert pair.post(PRIORITY, priority(second, 5, globalDefault=True)).status == 403
    pair.post(PODS, pod("p"))
    assert pair.patch(f"{PRIORITY}/{first}", {"description": "words"}).status == 200
    pair.delete(f"{PRIORITY}/{first}")
    # Others would get it, too.
    until_given(pair, 0)


def until_given(pair: Pair, priority: int) -> None:
    """Both give this priority to a pod that asks for none: kube-apiserver hears of a class a moment after it is stored."""
    for attempt in attempts(f"priority {priority}"):
        both = pair.post(PODS + "?dryRun=All", pod("probe"), compare=False)
        given = {side: both[side].json["spec"].get("priority") for side in SIDES}
        if set(given.values()) == {priority}:
            return
        attempt.saw(given)


@pytest.mark.parametrize(
    "tolerations",
    [
        None,
        [],
        [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
        [{"key": "node.kubernetes.io/unreachable", "operator": "Exists"}],
        [{"operator": "Exists"}],
        [{"operator": "Exists", "effect": "NoSchedule"}],
        [{"key": "other", "operator": "Equal", "value": "x"}],
    ],
    ids=str,
)
def test_a_pod_tolerates_a_lost_node_for_a_while(pair: Pair, tolerations: Any) -> None:
    pair.post(PODS, pod("p", **({} if tolerations is None else {"tolerations": tolerations})))


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]},
        {"taints": [{"key": "x", "effect": "NoExecute"}]},
    ],
    ids=["none", "same", "other"],
)
def test_a_new_node_is_not_ready(pair: Pair, spec: dict[str, Any]) -> None:
    name = f"{pair.ns}-node"
    pair.post(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec})
    pair.delete(f"{NODES}/{name}")


def test_volumes_and_claims_are_protected(pair: Pair) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    pair.post("/api/v1/namespaces/{ns}/persistentvolumeclaims", claim)
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{pair.ns}-v"},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/tmp"}},
    }
    pair.post("/api/v1/persistentvolumes?dryRun=All", volume)


# --- namespaces ---------------------------------------------------------------------------------------------------------


def test_nothing_is_made_in_a_namespace_that_is_not_there(pair: Pair) -> None:
    assert pair.post("/api/v1/namespaces/not-there/configmaps", cm("a")).status == 404
    assert pair.apply("/api/v1/namespaces/not-there/configmaps/a", cm("a")).status == 404
    assert pair.get("/api/v1/namespaces/not-there/configmaps").status == 200
    assert pair.get("/api/v1/namespaces/not-there/configmaps/a").status == 404


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_the_systems_namespaces_stay(pair: Pair, name: str) -> None:
    assert pair.delete(f"{NAMESPACES}/{name}").status == 403


def test_the_systems_namespaces_are_there(pair: Pair) -> None:
    def shown(body: Any) -> Any:
        for entry in body["metadata"].get("managedFields", ()):
            entry["manager"] = "<server>"
        return body

    for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
        # A controller of kube-apiserver makes them, and looks again after a minute where it could not.
        pair.eventually(f"{NAMESPACES}/{name}", lambda answer: answer.status == 200, ignore=shown)


def test_a_namespace_can_not_be_renamed_by_its_label(pair: Pair) -> None:
    body = with_meta(namespace(f"{pair.ns}-l"), labels={"kubernetes.io/metadata.name": "other", "a": "b"})
    pair.post(NAMESPACES, body)
    pair.patch(f"{NAMESPACES}/{pair.ns}-l", {"metadata": {"labels": {"kubernetes.io/metadata.name": None}}})
    pair.delete(f"{NAMESPACES}/{pair.ns}-l", compare=False)


def test_finalize_takes_only_the_finalizers(pair: Pair) -> None:
    name = f"{pair.ns}-f"
    made = pair.post(NAMESPACES, {**namespace(name), "spec": {"finalizers": ["example.com/mine", "kubernetes"]}})
    pair.put(
        f"{NAMESPACES}/{name}/finalize",
        lambda side: {**made[side].json, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Terminating"}},
    )
    pair.get(f"{NAMESPACES}/{name}")
    pair.put(f"{NAMESPACES}/{name}/finalize", {**namespace(name), "spec": {"finalizers": ["bad finalizer"]}})
    pair.put(f"{NAMESPACES}/{name}/finalize", {**namespace("other"), "spec": {}})
    pair.put(f"{NAMESPACES}/{name}/finalize", lambda side: {**made[side].json, "spec": {}})
    pair.delete(f"{NAMESPACES}/{name}", compare=False)


def test_a_namespaces_spec_is_not_changed_by_update(pair: Pair) -> None:
    pair.patch(f"{NAMESPACES}/{{ns}}", {"spec": {"finalizers": []}})
    pair.patch(f"{NAMESPACES}/{{ns}}", {"status": {"phase": "Terminating"}})
    pair.patch(f"{NAMESPACES}/{{ns}}/status", {"status": {"conditions": [condition()]}})
    pair.get(f"{NAMESPACES}/{{ns}}")


def condition() -> dict[str, str]:
    return {"type": "Example", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z", "reason": "R", "message": "m"}


def test_a_namespace_that_is_not_there_has_nothing_to_finalize(pair: Pair) -> None:
    assert pair.put(f"{NAMESPACES}/not-there/finalize", namespace("not-there")).status == 404


# --- generated names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base", ["a-", "x" * 62 + "-", "x" * 248 + "-", "Bad", "a." * 30, "a--"], ids=lambda base: base[:12] + str(len(base))
)
def test_a_name_is_generated_within_its_limits(pair: Pair, base: str) -> None:
    def shown(body: Any) -> Any:
        if body.get("kind") == "ConfigMap":
            body["metadata"]["name"] = (len(body["metadata"]["name"]), body["metadata"]["name"][:-5])
            return body
        return [body["reason"], body["code"]]

    pair.post(CMS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": base}}, ignore=shown)


def test_a_given_name_wins_over_a_generated_one(pair: Pair) -> None:
    pair.post(CMS, with_meta(cm("given"), generateName="base-"))
