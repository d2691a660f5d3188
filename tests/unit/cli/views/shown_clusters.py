"""Clusters and machines as the server shows them, with the conditions that a test is about."""

from __future__ import annotations

from typing import Any

from remuda.gateway.explain.states import ClusterView
from remuda.kube.clock import parse_rfc3339, rfc3339
from remuda.kube.waits import Actor, Code, Ref, Wait

Obj = dict[str, Any]

NOW = parse_rfc3339("2026-01-01T01:00:00Z")
FLEET, DEMO, ID, VERSION = "fleet-default", "demo", "c-m-bcdfg245", "v1.34.1+remuda1"
PLANE = Ref("rke.cattle.io", "RKEControlPlane", FLEET, DEMO)


def ago(seconds: float) -> str:
    return rfc3339(NOW - seconds)


def condition(kind: str, status: str, message: str = "", reason: str = "", since: float = 60) -> Obj:
    return {"type": kind, "status": status, "message": message, "reason": reason, "lastTransitionTime": ago(since)}


def wanted(*conditions: Obj, ready: bool = False, deleting: bool = False, **spec: Any) -> Obj:
    """Custom, unless the spec says otherwise; `rkeConfig=None` is an imported one."""
    metadata: Obj = {"name": DEMO, "namespace": FLEET, "creationTimestamp": ago(600)}
    if deleting:
        metadata["deletionTimestamp"] = ago(5)
    spec = {"kubernetesVersion": VERSION, "rkeConfig": {}, **spec}
    status = {"clusterName": ID, "ready": ready, "conditions": list(conditions)}
    return {"metadata": metadata, "spec": spec, "status": status}


def managed(*conditions: Obj, **status: Any) -> Obj:
    return {"metadata": {"name": ID}, "status": {"conditions": list(conditions), **status}}


def plane(*conditions: Obj) -> Obj:
    return {"metadata": {"name": DEMO, "namespace": FLEET}, "status": {"conditions": list(conditions)}}


def machine(name: str, *conditions: Obj, roles: str = "worker", node: str = "", deleting: bool = False) -> Obj:
    labels = {f"rke.cattle.io/{role}-role": "true" for role in roles.split(",") if role}
    metadata: Obj = {"name": name, "namespace": FLEET, "labels": labels, "creationTimestamp": ago(300)}
    if deleting:
        metadata["deletionTimestamp"] = ago(5)
    status: Obj = {"conditions": list(conditions)}
    if node:
        status |= {"nodeRef": {"name": node}, "nodeInfo": {"kubeletVersion": VERSION}}
        status["addresses"] = [{"type": "InternalIP", "address": "127.64.0.1"}]
    return {"metadata": metadata, "spec": {"clusterName": DEMO}, "status": status}


def done(name: str, roles: str = "worker", node: str = "h0") -> Obj:
    return machine(name, condition("Reconciled", "True"), condition("Ready", "True"), roles=roles, node=node)


def waiting(name: str, message: str, roles: str = "worker", since: float = 60) -> Obj:
    return machine(name, condition("Reconciled", "Unknown", message, "Waiting", since), roles=roles)


def machine_ref(name: str) -> Ref:
    return Ref("cluster.x-k8s.io", "Machine", FLEET, name)


def wait(code: Code, subject: Ref, actor: Actor, text: str, on: Ref | None = None, since: float = 60) -> Wait:
    return Wait(code, subject, actor, on, text, ago(since))


def sight(cluster: Obj, *machines: Obj, **others: Any) -> ClusterView:
    return ClusterView(cluster, machines=machines, **others)
