"""Stored objects, served kinds and requests for admission tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from remuda.apiserver.admission.webhook_matching import ServedKind
from remuda.kube.admission_attributes import CREATE, Attributes
from remuda.kube.authorization.users import User
from remuda.kube.objects import GroupVersionKind, GroupVersionResource, Listener

Obj = dict[str, Any]


class Stored:
    """Objects by (group, resource); `put` and `remove` tell the listeners, as the watch cache does."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], dict[tuple[str, str], Obj]] = {}
        self._listeners: dict[tuple[str, str], list[Listener]] = {}

    def put(self, group: str, resource: str, obj: Obj) -> None:
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        kept = self._objects.setdefault((group, resource), {})
        old = kept.get(key)
        kept[key] = obj
        for listener in self._listeners.get((group, resource), ()):
            listener(obj, old)

    def remove(self, group: str, resource: str, namespace: str, name: str) -> None:
        old = self._objects[group, resource].pop((namespace, name))
        for listener in self._listeners.get((group, resource), ()):
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


class Widgets:
    """One custom resource with two versions: v2 calls `size` what v1 calls `length`. Defaults `colour` to grey."""

    revision = 1
    _versions = ("v1", "v2")

    def equivalents(self, resource: GroupVersionResource, subresource: str) -> Sequence[ServedKind]:
        if resource.group != "example.com":
            return []
        return [
            ServedKind(
                GroupVersionResource("example.com", version, "widgets"), GroupVersionKind("example.com", version, "Widget")
            )
            for version in self._versions
        ]

    async def convert(self, obj: Obj, to: GroupVersionKind) -> Obj:
        spec = dict(obj.get("spec") or {})
        before, after = ("length", "size") if to.version == "v2" else ("size", "length")
        if before in spec:
            spec[after] = spec.pop(before)
        return {**obj, "apiVersion": to.api_version, "spec": spec}

    def default(self, obj: Obj, resource: GroupVersionResource, subresource: str) -> Obj:
        if resource.group == "example.com":
            obj.setdefault("spec", {}).setdefault("colour", "grey")
        return obj


ALICE = User("alice", uid="42", groups=("system:authenticated",))


def namespace(name: str, phase: str = "Active", labels: dict[str, str] | None = None) -> Obj:
    meta: Obj = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta, "status": {"phase": phase}}


def request(obj: Obj | None, resource: str, operation: str = CREATE, *, old: Obj | None = None, **fields: Any) -> Attributes:
    some = obj or old or {}
    group, _, version = some.get("apiVersion", "v1").rpartition("/")
    meta = some.get("metadata", {})
    values = {
        "group": group,
        "version": version,
        "resource": resource,
        "kind": some.get("kind", ""),
        "namespace": meta.get("namespace", ""),
        "name": meta.get("name", ""),
        "user": ALICE,
        **fields,
    }
    return Attributes(operation=operation, obj=obj, old=old, **values)


def pod(name: str = "web", **spec: Any) -> Obj:
    spec.setdefault("containers", [{"name": "c", "image": "i"}])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"}, "spec": spec}


def widget(version: str = "v1", labels: dict[str, str] | None = None, **spec: Any) -> Obj:
    meta: Obj = {"name": "w", "namespace": "shop", **({"labels": labels} if labels else {})}
    return {"apiVersion": f"example.com/{version}", "kind": "Widget", "metadata": meta, "spec": spec}
