"""What nodes and pods add up to, and whose Kubernetes it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remuda.access.health.cluster_resources import (
    NO_LOAD,
    ResourceTotals,
    asked_for,
    load_of,
    provider_of,
    read,
    roles_of,
    shown,
    slim_node,
    slim_pod,
    summary_of,
)
from remuda.access.health.nodesync import management_node

Obj = dict[str, Any]
CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}


def node(name: str, labels: dict[str, str] | None = None, taints: list[Obj] | None = None, **has: str) -> Obj:
    amounts = {"cpu": "2", "memory": "4Gi", "pods": "110", **has}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", **(labels or {})}},
        "spec": {"taints": taints or []},
        "status": {"capacity": {**amounts, "hugepages-2Mi": "0"}, "allocatable": amounts},
    }


def container(cpu: str = "", memory: str = "", **more: Any) -> Obj:
    asked = {name: value for name, value in (("cpu", cpu), ("memory", memory)) if value}
    return {"name": "x", "resources": {"requests": asked, "limits": asked}, **more}


@pytest.mark.parametrize(
    ("spec", "asked"),
    [
        ({}, {}),
        ({"containers": [container("100m", "64Mi"), container("200m")]}, {"cpu": "300m", "memory": "64Mi"}),
        ({"containers": [container("100m")], "initContainers": [container("500m", "1Gi")]}, {"cpu": "500m", "memory": "1Gi"}),
        (
            {
                "containers": [container("100m")],
                "initContainers": [container("50m", restartPolicy="Always"), container("120m")],
            },
            {"cpu": "170m"},
        ),
        ({"containers": [container("100m")], "overhead": {"cpu": "10m", "memory": "1Mi"}}, {"cpu": "110m", "memory": "1Mi"}),
        ({"containers": [container("nonsense")]}, {}),
    ],
)
def test_what_a_pod_asks_for(spec: Obj, asked: dict[str, str]) -> None:
    assert shown(asked_for(spec, "requests")) == asked


def test_overhead_limits_nothing_by_itself() -> None:
    spec = {"containers": [container("100m")], "overhead": {"cpu": "10m", "memory": "1Mi"}}
    assert shown(asked_for(spec, "limits")) == {"cpu": "110m"}


def test_little_is_kept_of_a_pod_and_of_a_node() -> None:
    pod = {
        "metadata": {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "1", "annotations": {"secret": "x"}},
        "spec": {"nodeName": "n", "containers": [{**container("1"), "env": [{"name": "PASSWORD", "value": "x"}]}]},
    }
    assert slim_pod(pod) == {
        "metadata": {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "1"},
        "node": "n",
        "requests": {"cpu": "1"},
        "limits": {"cpu": "1"},
    }
    full = node("n")
    full["status"] |= {
        "images": [{"names": ["x"]}],
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}],
    }
    kept = slim_node(full)
    assert "images" not in kept["status"]
    assert kept["status"]["conditions"] == [{"type": "Ready", "status": "True"}]


@pytest.mark.parametrize(
    ("labels", "taints", "roles"),
    [
        ({}, [], (False, False, True)),
        ({"node-role.kubernetes.io/worker": "true"}, [], (False, False, True)),
        ({"node-role.kubernetes.io/control-plane": ""}, [CONTROL_PLANE], (True, False, False)),
        ({"node-role.kubernetes.io/control-plane": "true", "node-role.kubernetes.io/etcd": "true"}, [], (True, True, True)),
        ({"node-role.kubernetes.io/master": "true"}, [CONTROL_PLANE], (True, False, False)),
        ({"node-role.kubernetes.io/etcd": "true"}, [{"key": "x", "effect": "NoExecute"}], (False, True, False)),
        ({"node-role.kubernetes.io/control-plane": "false"}, [], (False, False, True)),
    ],
)
def test_roles_are_in_labels(labels: dict[str, str], taints: list[Obj], roles: tuple[bool, bool, bool]) -> None:
    found = roles_of(node("n", labels, taints))
    assert (found.control_plane, found.etcd, found.worker) == roles


@pytest.mark.parametrize(
    ("version", "labels", "provider"),
    [
        ("v1.33.1+k3s1", {}, "k3s"),
        ("v1.33.1+rke2r1", {}, "rke2"),
        ("v1.33.1+rke2r1", {"node.harvesterhci.io/managed": "true"}, "harvester"),
        ("v1.33.1-eks-a1b2c3", {}, "eks"),
        ("v1.33.1-gke.100", {}, "gke"),
        ("v1.33.1", {"kubernetes.azure.com/cluster": "mc"}, "aks"),
        ("v1.33.1", {"minikube.k8s.io/name": "m"}, "minikube"),
        ("v1.33.1", {}, ""),
    ],
)
def test_whose_kubernetes_it_is(version: str, labels: dict[str, str], provider: str) -> None:
    assert provider_of(version, [node("n", labels)]) == provider


def test_a_cluster_is_the_sum_of_the_nodes_that_take_work() -> None:
    nodes = [
        node("a"),
        node("b", {"kubernetes.io/arch": "arm64"}, cpu="500m"),
        node("c", {"node-role.kubernetes.io/control-plane": ""}, [CONTROL_PLANE]),
        node("d", {"kubernetes.io/os": "windows"}),
    ]
    nodes[0]["spec"]["providerID"] = "k3s://a"
    nodes[1]["spec"]["providerID"] = "aws:///eu-west-1a/i-1"
    pods = [slim_pod({"spec": {"nodeName": "a", "containers": [container("100m", "1Gi")]}}) for _ in range(3)]
    found = summary_of("v1.33.1+k3s1", nodes, {"a": load_of(pods), "c": load_of(pods), "b": ResourceTotals({}, {})})
    assert (found.nodes, found.linux_workers, found.windows_workers) == (4, 2, 1)
    assert (found.architecture, found.systems, found.cloud, found.provider) == ("mixed", ("linux", "windows"), "aws", "k3s")
    assert found.capacity == {"cpu": "4500m", "memory": "12Gi", "pods": "330"}
    assert found.allocatable == found.capacity
    assert found.requested == {"cpu": "300m", "memory": "3Gi", "pods": "3"}
    assert found.limits == {"cpu": "300m", "memory": "3Gi"}


def test_a_cluster_without_nodes() -> None:
    found = summary_of("v1.33.1", [], {})
    assert (found.nodes, found.architecture, found.capacity, found.requested) == (0, "", {}, {})


# --- what a hostile cluster says --------------------------------------------------------------------------------------------


def hostile() -> Obj:
    """A Node as an API could tell it that was made to fill its server."""
    long = "x" * 300_000
    return {
        "metadata": {
            "name": "n1",
            "resourceVersion": "1",
            "labels": {f"example.com/{number}": "y" * 5000 for number in range(5000)},
            "annotations": {f"example.com/{number}": "z" * 4000 for number in range(5000)} | {"example.com/long": long},
            "managedFields": [{"manager": long}],
            "selfLink": long,
        },
        "spec": {"taints": [{"key": long, "effect": "NoSchedule"}] * 5000, "providerID": long, "more": {"a": [long] * 100}},
        "status": {
            "conditions": [{"type": f"T{number}", "status": "True", "message": long} for number in range(1000)] + ["none"],
            "addresses": [{"type": "InternalIP", "address": long}] * 1000,
            "nodeInfo": {"architecture": long, "operatingSystem": long, "kubeletVersion": long},
            "capacity": {"cpu": "9" * 100_000, "memory": "1e999999999", "pods": "1E400"},
            "allocatable": {f"example.com/{number}": "1" for number in range(5000)},
        },
    }


def test_a_node_is_kept_within_its_bounds_and_says_that_it_was_cut() -> None:
    slim = slim_node(hostile())
    assert len(json.dumps(slim, ensure_ascii=False)) < 64 << 10
    assert slim["truncated"] == ["annotations", "labels", "spec", "status"]
    made = management_node("c-one", slim, NO_LOAD, None, 0.0)
    assert len(json.dumps(made, ensure_ascii=False)) < 96 << 10
    assert made["metadata"]["annotations"] == {"remuda.io/truncated": "annotations,labels,spec,status"}
    again = management_node("c-one", slim_node(node("n1")), NO_LOAD, made, 0.0)
    assert "annotations" not in again["metadata"], "the notice goes with its reason"


def test_sums_of_what_no_machine_has_are_none() -> None:
    one = slim_node(hostile())
    found = summary_of("v1.34.1", [one, slim_node(node("n2"))], {})
    assert found.capacity == summary_of("v1.34.1", [slim_node(node("n2"))], {}).capacity
    assert len(found.architecture) <= 64 and all(len(each) <= 64 for each in found.systems)
    for amount in ("1", "250m", "1.5Gi", "128974848", "129e6", "0.1", "1E"):
        assert read({"cpu": amount}).keys() == {"cpu"}, amount
    for amount in ("1e400", "9" * 50, "", "abc", "1e", "1 "):
        assert not read({"cpu": amount}), amount


def test_many_systems_are_not_all_told() -> None:
    nodes = [slim_node({"metadata": {"name": f"n{at}", "labels": {"kubernetes.io/os": f"os{at}"}}}) for at in range(100)]
    assert len(summary_of("v1.34.1", nodes, {}).systems) == 16
