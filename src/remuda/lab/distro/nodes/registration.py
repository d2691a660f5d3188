"""The Node object of a simulated node: pure, made of its :class:`~.config.NodeConfig`. :mod:`.heartbeat` writes it."""

from __future__ import annotations

import hashlib
import platform
from typing import Any

from remuda.kube.clock import rfc3339
from remuda.kube.objects import annotations_of, dig, labels_of

from .config import SIMULATED, NodeConfig

Obj = dict[str, Any]

HOSTNAME = "kubernetes.io/hostname"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PRESSURES = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
_READY = ("Ready", "KubeletReady", "kubelet is posting ready status")


def architecture() -> str:
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


def own_labels(config: NodeConfig) -> dict[str, str]:
    """The labels of every kubelet, then those from this node's configuration."""
    system = {"arch": architecture(), "os": "linux"}
    return {
        **{f"beta.kubernetes.io/{name}": value for name, value in system.items()},
        **{f"kubernetes.io/{name}": value for name, value in system.items()},
        HOSTNAME: config.hostname or config.name,
        **config.labels,
        SIMULATED: "true",
    }


def role_labels(*, control_plane: bool, etcd: bool) -> dict[str, str]:
    """The role labels of a server's node; the cluster's manager sets the worker role."""
    roles = {"control-plane": control_plane, "etcd": etcd}
    return {f"node-role.kubernetes.io/{role}": "true" for role, held in roles.items() if held}


def new_node(config: NodeConfig, now: float) -> Obj:
    spec: Obj = {"providerID": config.provider_id or f"remuda://{config.name}"}
    if config.taints:
        spec["taints"] = [taint.to_object() for taint in config.taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": config.name, "labels": own_labels(config), "annotations": dict(config.annotations)},
        "spec": spec,
        "status": status(config, {}, now),
    }


def metadata_changes(config: NodeConfig, node: Obj) -> Obj:
    """A merge patch that brings an existing Node up to date; empty when it is. Its taints stay as they are."""
    labels = {name: value for name, value in own_labels(config).items() if labels_of(node).get(name) != value}
    annotations = {name: value for name, value in config.annotations.items() if annotations_of(node).get(name) != value}
    changes: Obj = {}
    if labels or annotations:
        parts = {"labels": labels, "annotations": annotations}
        changes["metadata"] = {name: value for name, value in parts.items() if value}
    if not dig(node, "spec", "providerID"):
        changes["spec"] = {"providerID": config.provider_id or f"remuda://{config.name}"}
    return changes


def status(config: NodeConfig, before: Obj, now: float) -> Obj:
    """All of the status that a kubelet writes; conditions of others stay."""
    return {
        "capacity": dict(config.capacity),
        "allocatable": dict(config.capacity),
        "addresses": _addresses(config),
        "nodeInfo": _info(config),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "conditions": _conditions(dig(before, "status", "conditions") or [], now),
    }


def says_something_else(config: NodeConfig, node: Obj) -> bool:
    """Tells whether the Node's status differs from the kubelet's own, heartbeats aside."""
    found = node.get("status") or {}
    wanted = status(config, node, 0.0)
    if any(found.get(field) != wanted[field] for field in ("capacity", "allocatable", "addresses", "nodeInfo")):
        return True
    said = {each.get("type"): each.get("status") for each in found.get("conditions") or ()}
    return said.get("Ready") != "True" or any(said.get(kind) != "False" for kind, _, _ in _PRESSURES)


def _addresses(config: NodeConfig) -> list[Obj]:
    found = [{"type": "InternalIP", "address": config.internal_ip}]
    if config.external_ip:
        found.append({"type": "ExternalIP", "address": config.external_ip})
    return [*found, {"type": "Hostname", "address": config.hostname or config.name}]


def _info(config: NodeConfig) -> Obj:
    identity = hashlib.sha256(config.name.encode()).hexdigest()[:32]
    return {
        "machineID": identity,
        "systemUUID": identity,
        "bootID": identity,
        "kernelVersion": platform.release(),
        "osImage": "Remuda (simulated)",
        "containerRuntimeVersion": "remuda-simulated://0",
        "kubeletVersion": config.version,
        "kubeProxyVersion": config.version,
        "operatingSystem": "linux",
        "architecture": architecture(),
    }


def _conditions(before: list[Obj], now: float) -> list[Obj]:
    mine = [_condition(before, kind, "False", reason, message, now) for kind, reason, message in _PRESSURES]
    mine.append(_condition(before, _READY[0], "True", _READY[1], _READY[2], now))
    kinds = {each["type"] for each in mine}
    return [*(each for each in before if each.get("type") not in kinds), *mine]


def _condition(before: list[Obj], kind: str, status_: str, reason: str, message: str, now: float) -> Obj:
    old: Obj = next((each for each in before if each.get("type") == kind), {})
    since = old.get("lastTransitionTime") if old.get("status") == status_ else None
    time = rfc3339(now)
    return {
        "type": kind,
        "status": status_,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": time,
        "lastTransitionTime": since or time,
    }
