"""Objects that many cases start from, and the paths where they live."""

from __future__ import annotations

import uuid
from typing import Any

Obj = dict[str, Any]

CMS = "/api/v1/namespaces/{ns}/configmaps"
# Each namespace gets a ConfigMap of its own, at a moment of its own and with each server's certificate in it.
MINE = "fieldSelector=metadata.name!=kube-root-ca.crt"
PODS = "/api/v1/namespaces/{ns}/pods"
SECRETS = "/api/v1/namespaces/{ns}/secrets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{ns}/deployments"
REPLICA_SETS = "/apis/apps/v1/namespaces/{ns}/replicasets"
NAMESPACES = "/api/v1/namespaces"


def cm(name: str, labels: dict[str, str] | None = None, **data: str) -> Obj:
    meta: Obj = {"name": name}
    if labels:
        meta["labels"] = labels
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def pod(name: str, node: str = "", labels: dict[str, str] | None = None, **spec: Any) -> Obj:
    meta: Obj = {"name": name}
    if labels:
        meta["labels"] = labels
    given: Obj = {"containers": [{"name": "c", "image": "example.com/c:1"}], "automountServiceAccountToken": False, **spec}
    if node:
        given["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": given}


def lease(name: str, holder: str = "me") -> Obj:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
    }


def deployment(name: str, replicas: int = 1) -> Obj:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "example.com/c:1"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


def replica_set(name: str, replicas: int = 0) -> Obj:
    return {**deployment(name, replicas), "kind": "ReplicaSet"}


def namespace(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def owned_by(obj: Obj, *owners: Obj, **fields: Any) -> Obj:
    """`obj` with owner references to objects that exist (their uid is known)."""
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            **fields,
        }
        for owner in owners
    ]
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": references}}


def owned_by_nobody(obj: Obj) -> Obj:
    """`obj` with an owner that never was: a collector takes it away as soon as it hears of it."""
    never = {"name": "never", "uid": str(uuid.UUID(int=0x4EBE4))}
    return owned_by(obj, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": never})


def with_meta(obj: Obj, **fields: Any) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], **fields}}


def widget_crd(group: str) -> Obj:
    """A small CRD whose group is unique to its test, since CRDs are cluster-wide."""
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"size": {"type": "integer"}, "colour": {"type": "string"}}},
            "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def widget(group: str, name: str, **spec: Any) -> Obj:
    return {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}
