"""Sums over a cluster's nodes and pods. Pure.

Only a small part of a cluster's objects is kept (`slim_node`, `slim_pod`): a pod is its node and its requests, already added up,
so that a cluster with many pods costs little here. A cluster may report anything about its nodes, so each is cut to a size
(:data:`NODE_BOUNDS`). Sums are Rancher's: nodes that take no work and are no workers don't count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

from remuda.kube.bounding import SizeLimits, bounded
from remuda.kube.objects import annotations_of, dig, labels_of, metadata, name_of
from remuda.kube.quantity import ZERO, Quantity, QuantityError, from_json

Obj = dict[str, Any]
Amounts = Mapping[str, Quantity]

# The resources that are reported; nodes have more (hugepages, devices), which no client needs.
COUNTED: Final = ("cpu", "memory", "pods")
PODS_AT_WORK: Final = "status.phase!=Succeeded,status.phase!=Failed"
_ROLE = "node-role.kubernetes.io/"
_YES = ("true", "")
_VERSIONS = (
    (re.compile(r"[+-]k3s"), "k3s"),
    (re.compile(r"[+-]rke2"), "rke2"),
    (re.compile(r"-eks-"), "eks"),
    (re.compile(r"-gke\."), "gke"),
    (re.compile(r"[+-]k0s"), "k0s"),
)
_LABELS = (
    ("node.harvesterhci.io/managed", "harvester"),
    ("harvesterhci.io/managed", "harvester"),
    ("kubernetes.azure.com/cluster", "aks"),
    ("eks.amazonaws.com/nodegroup", "eks"),
    ("cloud.google.com/gke-nodepool", "gke"),
    ("minikube.k8s.io/name", "minikube"),
)
# Bounds for each part of a Node. A real Node has a few KiB in all.
NODE_BOUNDS: Final = {
    "labels": SizeLimits(text=512, items=256, total=8 << 10),
    "annotations": SizeLimits(text=4096, items=256, total=16 << 10),
    "spec": SizeLimits(total=8 << 10),
    "status": SizeLimits(total=16 << 10),
}
LONGEST_ANNOTATION: Final = 4096
_KEPT_META = frozenset(("name", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"))
# A quantity that can be added up: sums of others take more memory than there is.
_AMOUNT = re.compile(r"[+-]?[0-9]{0,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,2}|[numkMGTPE]|[KMGTPE]i)?", re.ASCII)
_LONGEST_AMOUNT = 48
_LONGEST_WORD, _MOST_SYSTEMS = 64, 16
_CLOUD = re.compile(r"([a-z0-9][a-z0-9-]{0,40})://", re.ASCII)
# Prefixes that distributions write without a cloud.
_NO_CLOUDS = ("k3s", "rke2", "kind", "k0s", "docker")


# --- reduced objects ------------------------------------------------------------------------------------------------------


def slim_node(node: Obj) -> Obj:
    """A Node without parts that change all the time, are long or not needed here; the rest is cut to its bounds. `truncated`
    names the parts that were cut."""
    meta, status = metadata(node), dict(node.get("status") or {})
    for name in ("images", "volumesInUse", "volumesAttached", "config"):
        status.pop(name, None)
    conditions = status.get("conditions")
    if isinstance(conditions, list):
        status["conditions"] = [
            {name: value for name, value in each.items() if name != "lastHeartbeatTime"}
            for each in conditions
            if isinstance(each, dict)
        ]
    kept = {name: value for name, value in meta.items() if name in _KEPT_META}
    parts = {"labels": labels_of(node), "annotations": _annotations(node), "spec": node.get("spec") or {}, "status": status}
    cut = {name: bounded(value, NODE_BOUNDS[name]) for name, value in parts.items()}
    kept |= {name: cut[name][0] for name in ("labels", "annotations") if parts[name]}
    made = {"apiVersion": "v1", "kind": "Node", "metadata": kept, "spec": cut["spec"][0], "status": cut["status"][0]}
    truncated = sorted(name for name, (_, was_cut) in cut.items() if was_cut)
    if len(parts["annotations"]) < len(annotations_of(node)):
        truncated = sorted({*truncated, "annotations"})
    return {**made, "truncated": truncated} if truncated else made


def _annotations(node: Obj) -> dict[str, str]:
    """The annotations without long ones: half of one is of no use to a reader."""
    return {name: value for name, value in annotations_of(node).items() if len(value) <= LONGEST_ANNOTATION}


def slim_pod(pod: Obj) -> Obj:
    """A pod reduced to its requests and limits."""
    meta, spec = metadata(pod), pod.get("spec") or {}
    kept = {name: meta[name] for name in ("name", "namespace", "uid", "resourceVersion") if name in meta}
    return {
        "metadata": kept,
        "node": spec.get("nodeName") or "",
        "requests": shown(asked_for(spec, "requests")),
        "limits": shown(asked_for(spec, "limits")),
    }


def asked_for(spec: Obj, what: str) -> Amounts:
    """The requests (or limits) of a pod: the sum of its containers, or the peak of its start if that is more."""
    running: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = read(dig(container, "resources", what), COUNTED[:2])
        if container.get("restartPolicy") == "Always":
            running = added(running, own)
            peak = most(peak, running)
        else:
            peak = most(peak, added(running, own))
    for container in spec.get("containers") or ():
        running = added(running, read(dig(container, "resources", what), COUNTED[:2]))
    total = most(running, peak)
    overhead = read(spec.get("overhead"), COUNTED[:2])
    if what == "limits":
        # Overhead limits only resources that have a limit.
        overhead = {name: amount for name, amount in overhead.items() if name in total}
    return added(total, overhead)


def added(left: Amounts, right: Amounts) -> Amounts:
    return {name: left.get(name, ZERO).add(right.get(name, ZERO)) for name in left.keys() | right.keys()}


def most(left: Amounts, right: Amounts) -> Amounts:
    return {name: max(left.get(name, ZERO), right.get(name, ZERO)) for name in left.keys() | right.keys()}


def shown(amounts: Amounts) -> dict[str, str]:
    return {name: str(amounts[name]) for name in sorted(amounts)}


def read(said: Any, names: Iterable[str] = COUNTED) -> Amounts:
    """Amounts in a slim pod or in a node's status; impossible ones count as none."""
    found: dict[str, Quantity] = {}
    for name in names:
        value = said.get(name) if isinstance(said, dict) else None
        if value is not None and _AMOUNT.fullmatch(str(value)[: _LONGEST_AMOUNT + 1]):
            try:
                found[name] = from_json(value)
            except QuantityError:
                continue
    return found


# --- a node ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RoleCounts:
    control_plane: bool
    etcd: bool
    worker: bool


def roles_of(node: Obj) -> RoleCounts:
    """Roles by a node's labels. A node without any is a worker, and so is any other node that admits ordinary pods."""
    labels = labels_of(node)

    def has(*names: str) -> bool:
        return any(labels.get(_ROLE + name) in _YES for name in names if _ROLE + name in labels)

    etcd, control_plane, worker = has("etcd"), has("controlplane", "control-plane", "master"), has("worker")
    return RoleCounts(control_plane, etcd, worker or not (etcd or control_plane) or not is_closed(node))


def is_closed(node: Obj) -> bool:
    """True for a node with a taint that keeps pods away."""
    taints = dig(node, "spec", "taints")
    found = taints if isinstance(taints, list) else []
    return any(isinstance(each, dict) and each.get("effect") in ("NoSchedule", "NoExecute") for each in found)


@dataclass(frozen=True, slots=True)
class ResourceTotals:
    """The sum of requests and limits of the pods of a node, or of all."""

    requested: Amounts
    limits: Amounts

    def and_(self, other: ResourceTotals) -> ResourceTotals:
        return ResourceTotals(added(self.requested, other.requested), added(self.limits, other.limits))


NO_LOAD: Final = ResourceTotals({}, {})


def load_of(pods: Iterable[Obj]) -> ResourceTotals:
    requested: Amounts = {}
    limits: Amounts = {}
    count = 0
    for pod in pods:
        requested = added(requested, read(pod.get("requests")))
        limits = added(limits, read(pod.get("limits")))
        count += 1
    return ResourceTotals(added(requested, {"pods": Quantity(count)}), limits)


# --- a cluster ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterCapacity:
    nodes: int
    linux_workers: int
    windows_workers: int
    architecture: str
    systems: tuple[str, ...]
    cloud: str
    provider: str
    capacity: dict[str, str]
    allocatable: dict[str, str]
    requested: dict[str, str] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)


def summary_of(version: str, nodes: Iterable[Obj], loads: Mapping[str, ResourceTotals]) -> ClusterCapacity:
    """`version` is the API's gitVersion; `loads` are by name of node."""
    listed = sorted(nodes, key=name_of)
    counting = [node for node in listed if roles_of(node).worker or not is_closed(node)]
    load = reduce(ResourceTotals.and_, (loads.get(name_of(node), NO_LOAD) for node in counting), NO_LOAD)
    workers = [_system(node) for node in listed if roles_of(node).worker]
    architectures = {
        (_label(node, "arch") or str(dig(node, "status", "nodeInfo", "architecture") or ""))[:_LONGEST_WORD] for node in listed
    } - {""}
    return ClusterCapacity(
        nodes=len(listed),
        linux_workers=workers.count("linux"),
        windows_workers=workers.count("windows"),
        architecture=architectures.pop() if len(architectures) == 1 else "mixed" if architectures else "",
        systems=tuple(sorted({_system(node) for node in listed} - {""}))[:_MOST_SYSTEMS],
        cloud=cloud_of(listed),
        provider=provider_of(version, listed),
        capacity=_sum(counting, "capacity"),
        allocatable=_sum(counting, "allocatable"),
        requested=shown(load.requested),
        limits=shown(load.limits),
    )


def _sum(nodes: Iterable[Obj], what: str) -> dict[str, str]:
    return shown(reduce(added, (read(dig(node, "status", what)) for node in nodes), {}))


def _label(node: Obj, name: str) -> str:
    labels = labels_of(node)
    return labels.get(f"kubernetes.io/{name}") or labels.get(f"beta.kubernetes.io/{name}") or ""


def _system(node: Obj) -> str:
    return (_label(node, "os") or str(dig(node, "status", "nodeInfo", "operatingSystem") or ""))[:_LONGEST_WORD]


def provider_of(version: str, nodes: Iterable[Obj]) -> str:
    """The Kubernetes distribution or service, as far as it can be recognised; empty if it is none in particular."""
    listed = list(nodes)
    for label, provider in _LABELS[:2]:
        if any(labels_of(node).get(label) == "true" for node in listed):
            return provider
    for pattern, provider in _VERSIONS:
        if pattern.search(version):
            return provider
    for label, provider in _LABELS[2:]:
        if any(label in labels_of(node) for node in listed):
            return provider
    if any(name_of(node) == "docker-desktop" for node in listed):
        return "docker"
    return ""


def cloud_of(nodes: Iterable[Obj]) -> str:
    """The cloud of the cluster's nodes, by their provider ids."""
    for node in nodes:
        matched = _CLOUD.match(str(dig(node, "spec", "providerID") or ""))
        if matched is not None and matched[1] not in _NO_CLOUDS:
            return matched[1]
    return ""
