"""A small set of stored objects for tests: what the watch cache shows to authorizers and authenticators."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.kube.objects import Listener

Obj = dict[str, Any]

RBAC = "rbac.authorization.k8s.io"
RESOURCES = {
    "Role": (RBAC, "roles"),
    "ClusterRole": (RBAC, "clusterroles"),
    "RoleBinding": (RBAC, "rolebindings"),
    "ClusterRoleBinding": (RBAC, "clusterrolebindings"),
    "ServiceAccount": ("", "serviceaccounts"),
    "Secret": ("", "secrets"),
    "Pod": ("", "pods"),
    "Node": ("", "nodes"),
}


class Stored:
    """Implements ObjectSource; `put` and `remove` tell the listeners as the cache does."""

    def __init__(self, *objects: Obj) -> None:
        self._objects: dict[tuple[str, str], dict[tuple[str, str], Obj]] = {}
        self._listeners: dict[tuple[str, str], list[Listener]] = {}
        for obj in objects:
            self.put(obj)

    def put(self, obj: Obj) -> None:
        where, key = RESOURCES[obj["kind"]], _key(obj)
        kept = self._objects.setdefault(where, {})
        old = kept.get(key)
        kept[key] = obj
        for listener in self._listeners.get(where, ()):
            listener(obj, old)

    def remove(self, kind: str, namespace: str, name: str) -> None:
        where = RESOURCES[kind]
        old = self._objects[where].pop((namespace, name))
        for listener in self._listeners.get(where, ()):
            listener(None, old)

    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        return self._objects.get((group, resource), {}).get((namespace, name))

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Obj]:
        found = self._objects.get((group, resource), {})
        return [obj for (where, _), obj in found.items() if namespace in ("", where)]

    def subscribe(self, group: str, resource: str, listener: Listener) -> None:
        for obj in self.list(group, resource):
            listener(obj, None)
        self._listeners.setdefault((group, resource), []).append(listener)


def _key(obj: Obj) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


# ---------------------------------------------------------------------------------------------------------------------
# Builders


def rule(verbs: str, groups: str, resources: str, names: str = "") -> Obj:
    """Words are separated by spaces; the core group is `core`."""
    made: Obj = {"verbs": verbs.split(), "apiGroups": ["" if g == "core" else g for g in groups.split()]}
    made["resources"] = resources.split()
    return {**made, "resourceNames": names.split()} if names else made


def urls(verbs: str, paths: str) -> Obj:
    return {"verbs": verbs.split(), "nonResourceURLs": paths.split()}


def role(name: str, *rules: Obj, namespace: str = "", labels: dict[str, str] | None = None) -> Obj:
    meta: Obj = {"name": name, **({"namespace": namespace} if namespace else {}), **({"labels": labels} if labels else {})}
    return {"kind": "Role" if namespace else "ClusterRole", "metadata": meta, "rules": list(rules)}


def binding(name: str, ref: str, *subjects: str, namespace: str = "") -> Obj:
    """`ref` is `Kind name`; a subject is `User x`, `Group x`, `ServiceAccount ns name` or `ServiceAccount name`."""
    kind, ref_name = ref.split(" ")
    meta: Obj = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": ref_name},
        "subjects": [_subject(subject) for subject in subjects],
    }


def _subject(text: str) -> Obj:
    kind, *where, name = text.split(" ")
    if kind == "ServiceAccount":
        return {"kind": kind, "name": name, **({"namespace": where[0]} if where else {})}
    return {"kind": kind, "apiGroup": RBAC, "name": name}


def plain(kind: str, name: str, namespace: str = "", uid: str = "", **fields: Any) -> Obj:
    meta: Obj = {"name": name, "uid": uid or f"uid-of-{name}", **({"namespace": namespace} if namespace else {})}
    return {"kind": kind, "metadata": meta, **fields}
