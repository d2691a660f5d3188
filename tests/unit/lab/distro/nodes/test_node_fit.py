"""Which node a pod gets, without an API."""

from __future__ import annotations

from typing import Any

from remuda.lab.distro.nodes.node_fit import Slot, asked_by, choose, room_of

Obj = dict[str, Any]


def _slot(name: str, *, cpu: str = "4", pods: str = "110", labels: dict[str, str] | None = None, **spec: Any) -> Slot:
    node = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}, "spec": spec}
    return Slot(node, room_of({"cpu": cpu, "memory": "8Gi", "pods": pods}))


def _pod(name: str = "p", *, owner: str = "", cpu: str = "", labels: dict[str, str] | None = None, **spec: Any) -> Obj:
    container: Obj = {"name": "main"}
    if cpu:
        container["resources"] = {"requests": {"cpu": cpu}}
    meta: Obj = {"name": name, "namespace": "default", "labels": labels or {}}
    if owner:
        meta["ownerReferences"] = [{"uid": owner, "controller": True}]
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


def _all(*slots: Slot) -> dict[str, Slot]:
    return {slot.node["metadata"]["name"]: slot for slot in slots}


def test_what_is_asked_for_is_counted_as_kubernetes_does() -> None:
    pod = _pod(cpu="500m")
    pod["spec"]["containers"].append({"name": "side", "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}})
    pod["spec"]["initContainers"] = [{"name": "first", "resources": {"requests": {"cpu": "2"}}}]
    found = asked_by(pod)
    assert (found.cpu, found.memory, found.pods) == (2000, 2**30, 1)


def test_pods_of_one_owner_are_spread_even_where_less_is_free() -> None:
    slots = _all(_slot("a", cpu="64"), _slot("b"))
    slots["a"].put(("default", "one"), _pod("one", owner="x"))
    assert choose(_pod(owner="x"), slots).node == "b"
    assert choose(_pod(owner="y"), _all(_slot("a"), _slot("b"))).node == "a"


def test_what_a_pod_prefers_counts_more_than_spreading() -> None:
    slots = _all(_slot("a", labels={"control": "yes"}), _slot("b"))
    slots["a"].put(("default", "one"), _pod("one", owner="x"))
    term = {"matchExpressions": [{"key": "control", "operator": "Exists"}]}
    path = "preferredDuringSchedulingIgnoredDuringExecution"
    affinity = {"nodeAffinity": {path: [{"weight": 1, "preference": term}]}}
    assert choose(_pod(owner="x", affinity=affinity), slots).node == "a"


def test_why_there_is_no_node_is_said_in_numbers() -> None:
    full = _slot("full", pods="1")
    full.put(("default", "one"), _pod("one"))
    slots = _all(
        full,
        _slot("small", cpu="1"),
        _slot("cordoned", unschedulable=True),
        _slot("tainted", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]),
    )
    verdict = choose(_pod(cpu="2"), slots)
    assert verdict.node == ""
    assert verdict.message(4) == (
        "0/4 nodes are available: 1 Insufficient cpu, 1 Too many pods, 1 node(s) had untolerated taint {k: v}, "
        "1 node(s) were unschedulable."
    )
    assert choose(_pod(), {}).message(0) == "no nodes available to schedule pods"


def test_a_pod_that_left_makes_room() -> None:
    slot = _slot("a", cpu="1")
    slot.put(("default", "one"), _pod("one", cpu="1"))
    assert not choose(_pod(cpu="1"), _all(slot)).node
    slot.take(("default", "one"))
    assert choose(_pod(cpu="1"), _all(slot)).node == "a"


def _company(kind: str) -> Obj:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_pods_that_must_be_apart_or_together() -> None:
    slots = _all(_slot("a"), _slot("b"))
    slots["a"].put(("default", "one"), _pod("one", labels={"app": "web"}))
    assert choose(_pod(affinity=_company("podAntiAffinity")), slots).node == "b"
    assert choose(_pod(affinity=_company("podAffinity")), slots).node == "a"
    alone = _all(_slot("a"))
    assert choose(_pod(affinity=_company("podAffinity"), labels={"app": "web"}), alone).node == "a"
    assert not choose(_pod(affinity=_company("podAffinity")), alone).node
