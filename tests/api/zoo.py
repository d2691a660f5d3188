"""One of each kind that kubectl shows, for the cases that only look."""

from __future__ import annotations

from typing import Any

from .builders import cm, deployment, lease, pod
from .harness import SIDES
from .kubectl import Kubectl

Obj = dict[str, Any]

SERVER_ADDRESS = "10.96.0.1"


def crd(ns: str, plural: str = "ponies", kind: str = "Pony", short: str = "pn") -> Obj:
    """A kind with columns, short names, a category, status and scale. Its group belongs to the namespace `ns`."""
    group = f"{ns}.example.com"
    schema = {
        "type": "object",
        "description": "A pony is a small horse.",
        "properties": {
            "spec": {
                "type": "object",
                "description": "What is wanted of the pony.",
                "required": ["breed"],
                "properties": {
                    "breed": {"type": "string", "description": "Where its parents are from.", "enum": ["Shetland", "Exmoor"]},
                    "replicas": {"type": "integer", "format": "int32", "default": 1, "minimum": 0},
                    "height": {"type": "number"},
                    "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                    "meals": {
                        "type": "array",
                        "description": "When and what it eats.",
                        "items": {
                            "type": "object",
                            "required": ["at"],
                            "properties": {"at": {"type": "string"}, "hay": {"type": "integer"}},
                        },
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["at"],
                    },
                    "notes": {"type": "object", "additionalProperties": {"type": "string"}},
                    "port": {"x-kubernetes-int-or-string": True},
                    "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            },
            "status": {
                "type": "object",
                "properties": {
                    "phase": {"type": "string"},
                    "replicas": {"type": "integer"},
                    "selector": {"type": "string"},
                    "conditions": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "type": {"type": "string"},
                                "status": {"type": "string"},
                                "reason": {"type": "string"},
                                "message": {"type": "string"},
                                "lastTransitionTime": {"type": "string", "format": "date-time"},
                            },
                        },
                    },
                },
            },
        },
    }
    columns = [
        {"name": "Breed", "type": "string", "jsonPath": ".spec.breed"},
        {"name": "Height", "type": "number", "jsonPath": ".spec.height", "priority": 1},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
        "additionalPrinterColumns": columns,
        "selectableFields": [{"jsonPath": ".spec.breed"}],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "plural": plural,
                "singular": kind.lower(),
                "kind": kind,
                "shortNames": [short],
                "categories": ["all", "stable"],
            },
            "versions": [version],
        },
    }


def pony(ns: str, name: str, kind: str = "Pony", **spec: Any) -> Obj:
    return {
        "apiVersion": f"{ns}.example.com/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {"app": "zoo"}},
        "spec": {"breed": "Shetland", **spec},
    }


def service(name: str, **spec: Any) -> Obj:
    given = {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": given}


def secret(name: str, **data: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def node(name: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "node-role.kubernetes.io/worker": ""}},
        "spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"], "providerID": f"test://{name}"},
    }


def event(name: str, ns: str, reason: str = "Fed", kind: str = "Pod", about: str = "p") -> Obj:
    when = "2026-01-01T10:00:00Z"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": {"apiVersion": "v1", "kind": kind, "name": about, "namespace": ns},
        "reason": reason,
        "message": f"{about} was seen to",
        "type": "Normal",
        "count": 3,
        "firstTimestamp": when,
        "lastTimestamp": when,
        "source": {"component": "keeper"},
    }


def some_of_each(ns: str) -> list[Obj]:
    rules = [{"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]}]
    subject = {"kind": "ServiceAccount", "name": "keeper", "namespace": ns}
    template = {"metadata": {"labels": {"app": "j"}}, "spec": {"restartPolicy": "Never", "containers": [_container()]}}
    return [
        cm("cm-a", {"app": "zoo", "tier": "one"}, x="1", y="line one\nline two\n"),
        cm("cm-b", {"app": "zoo"}, x="2"),
        cm("cm-c", z="3"),
        secret("sec", password="hunter2"),
        pod("p", labels={"app": "zoo"}),
        pod("p2", node="elsewhere", labels={"app": "two"}),
        deployment("web", 2),
        service("svc"),
        service("svc-headless", clusterIP="None"),
        service("svc-node", type="NodePort"),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "keeper"}},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "feeder"}, "rules": rules},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "feeds"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "feeder"},
            "subjects": [subject],
        },
        lease("lease", "somebody"),
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "pdb"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "zoo"}}},
        },
        event("seen.1", ns),
        event("seen.2", ns, "Groomed", "ConfigMap", "cm-a"),
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "job"},
            "spec": {"template": template, "backoffLimit": 2, "suspend": True},
        },
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": "cron"},
            "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": template}}},
        },
        {**deployment("rs", 0), "kind": "ReplicaSet"},
        _daemon_set(),
        _stateful_set(),
        _ingress(),
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "np"},
            "spec": {"podSelector": {"matchLabels": {"app": "zoo"}}, "policyTypes": ["Ingress"]},
        },
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "quota"},
            "spec": {"hard": {"configmaps": "10", "requests.cpu": "2"}},
        },
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "limits"},
            "spec": {"limits": [{"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}}]},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "claim"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "x"},
        },
        {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"name": "svc"},
            "subsets": [{"addresses": [{"ip": "10.9.9.9"}], "ports": [{"port": 8080}]}],
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "svc-1", "labels": {"kubernetes.io/service-name": "svc"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.9.9.9"], "conditions": {"ready": True}}],
            "ports": [{"port": 8080, "protocol": "TCP"}],
        },
    ]


def _container() -> Obj:
    return {"name": "c", "image": "example.com/c:1"}


def _daemon_set() -> Obj:
    made = deployment("ds")
    made["kind"] = "DaemonSet"
    del made["spec"]["replicas"]
    return made


def _stateful_set() -> Obj:
    made = deployment("sts", 3)
    made["kind"] = "StatefulSet"
    made["spec"]["serviceName"] = "svc-headless"
    return made


def _ingress() -> Obj:
    backend = {"service": {"name": "svc", "port": {"number": 80}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "ing"},
        "spec": {"rules": [{"host": "zoo.example.com", "http": {"paths": paths}}]},
    }


def define(kubectl: Kubectl) -> None:
    """Ponies, ready for use on both sides."""
    kubectl.apply(crd(kubectl.ns))
    name = f"crd/ponies.{kubectl.ns}.example.com"
    for side in SIDES:
        said = kubectl.on(side, "wait", "--for=condition=Established", "--timeout=80s", name)
        assert said.code == 0, said.err
    # kube-apiserver serves it a moment before it tells of it.
    kubectl.until("api-resources", "--api-group={ns}.example.com", "-o", "name", shows="ponies")
    kubectl.forget()


def undefine(kubectl: Kubectl) -> None:
    kubectl("delete", "crd", f"ponies.{kubectl.ns}.example.com", "--ignore-not-found", compare=False)
    kubectl.forget()


def fill(kubectl: Kubectl) -> None:
    """Make the zoo on both sides, its own kind and a node included."""
    ns = kubectl.ns
    define(kubectl)
    kubectl.apply(*some_of_each(ns), node(f"{ns}-node"))
    kubectl.apply(pony(ns, "merry", height=1.2, tags=["a", "b"]), pony(ns, "fatty", breed="Exmoor", replicas=3))


def await_server_address(kubectl: Kubectl) -> None:
    """kube-apiserver makes a service of itself after it is ready, and tries again only seconds later when that fails."""
    kubectl.until("get", "svc", "kubernetes", "-n", "default", shows=SERVER_ADDRESS)


def empty(kubectl: Kubectl) -> None:
    undefine(kubectl)
    kubectl("delete", "node", f"{kubectl.ns}-node", compare=False)
