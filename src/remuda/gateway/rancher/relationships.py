"""The relationships of an object to others: its owners, the object that it was generated from, what it uses. Pure.

Each names the other object: `fromId` and `fromType` for one that this object comes from, `toId` and `toType` for one that it
refers to, and a selector where it refers to all that match.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from remuda.kube.objects import annotations_of, dig, namespace_of, owner_references_of
from remuda.kube.wrangler import OWNER_GVK, OWNER_NAME, OWNER_NAMESPACE

from .kinds import Kinds, type_id

Obj = dict[str, Any]

_PROVISIONED: Final = "provisioning.cattle.io.cluster"
_MANAGED: Final = "management.cattle.io.cluster"
# Where the pods of a kind are described.
_POD_TEMPLATES: Final = {
    ("apps", "Deployment"): ("spec", "template", "spec"),
    ("apps", "DaemonSet"): ("spec", "template", "spec"),
    ("apps", "ReplicaSet"): ("spec", "template", "spec"),
    ("apps", "StatefulSet"): ("spec", "template", "spec"),
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template", "spec"),
    ("batch", "Job"): ("spec", "template", "spec"),
    ("", "Pod"): ("spec",),
}


def relationships_of(group: str, kind: str, obj: Obj, kinds: Kinds) -> list[Obj]:
    found = [*_owners(obj, kinds), *_origins(obj)]
    if (group, kind) in _POD_TEMPLATES:
        found += _pods(group, kind, obj)
    elif (group, kind) == ("", "Service"):
        selector = dig(obj, "spec", "selector")
        found += [_selected(obj, "pod", "selects", selector)] if selector else []
    elif type_id(group, kind) == _PROVISIONED and (managed := dig(obj, "status", "clusterName")):
        found.append(_to("", str(managed), _MANAGED, "creates"))
    return found


def _state(message: str = "") -> Obj:
    return {"state": "active", "message": message, "error": False, "transitioning": False}


def _id(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _from(namespace: str, name: str, type_: str, rel: str) -> Obj:
    return {"fromId": _id(namespace, name), "fromType": type_, "rel": rel, **_state()}


def _to(namespace: str, name: str, type_: str, rel: str) -> Obj:
    return {"toId": _id(namespace, name), "toType": type_, "rel": rel, **_state()}


def _owners(obj: Obj, kinds: Kinds) -> Iterator[Obj]:
    for owner in owner_references_of(obj):
        group = str(owner.get("apiVersion") or "").rpartition("/")[0]
        kind = str(owner.get("kind") or "")
        known = kinds.of(group, kind)
        namespace = namespace_of(obj) if known is None or known.namespaced else ""
        yield _from(namespace, str(owner.get("name") or ""), type_id(group, kind), "owner")


def _origins(obj: Obj) -> Iterator[Obj]:
    """The object of whose set this one is."""
    said = annotations_of(obj)
    if said.get(OWNER_NAME):
        version, _, kind = said.get(OWNER_GVK, "").partition(", Kind=")
        type_ = type_id(version.rpartition("/")[0], kind)
        yield _from(said.get(OWNER_NAMESPACE, ""), said[OWNER_NAME], type_, "applies")


def _selected(obj: Obj, type_: str, rel: str, labels: Any) -> Obj:
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items())) if isinstance(labels, dict) else ""
    return {"toType": type_, "toNamespace": namespace_of(obj), "selector": selector, "rel": rel, **_state()}


def _pods(group: str, kind: str, obj: Obj) -> Iterator[Obj]:
    """What the pods of a workload use, and the pods that it creates."""
    namespace = namespace_of(obj)
    spec = dig(obj, *_POD_TEMPLATES[group, kind]) or {}
    for type_, name in dict.fromkeys(_used(spec)):
        yield _to(namespace, name, type_, "uses")
    if kind == "Pod":
        if node := spec.get("nodeName"):
            yield _to("", str(node), "node", "uses")
        return
    if labels := dig(obj, "spec", "selector", "matchLabels"):
        yield _selected(obj, "pod", "creates", labels)


def _used(spec: Obj) -> Iterator[tuple[str, str]]:
    if account := spec.get("serviceAccountName"):
        yield "serviceaccount", str(account)
    for each in spec.get("imagePullSecrets") or ():
        yield "secret", str(each.get("name") or "")
    for volume in spec.get("volumes") or ():
        for field, key, type_ in (
            ("secret", "secretName", "secret"),
            ("configMap", "name", "configmap"),
            ("persistentVolumeClaim", "claimName", "persistentvolumeclaim"),
        ):
            if name := (volume.get(field) or {}).get(key):
                yield type_, str(name)
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for source in container.get("envFrom") or ():
            yield from _references(source, "secretRef", "configMapRef")
        for variable in container.get("env") or ():
            yield from _references(variable.get("valueFrom") or {}, "secretKeyRef", "configMapKeyRef")


def _references(source: Obj, secret: str, config: str) -> Iterator[tuple[str, str]]:
    for field, type_ in ((secret, "secret"), (config, "configmap")):
        if name := (source.get(field) or {}).get("name"):
            yield type_, str(name)
