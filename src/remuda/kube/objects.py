"""Reading and changing Kubernetes objects, which travel as plain dicts so that unknown fields survive.

Objects that come from a cache are shared and must not be changed in place: :func:`with_path` and :func:`without_path`
return a new object that shares every branch it did not touch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

Obj = dict[str, Any]


class GroupVersion(NamedTuple):
    group: str
    version: str

    @classmethod
    def parse(cls, api_version: str) -> GroupVersion:
        group, slash, version = api_version.partition("/")
        return cls(group, version) if slash else cls("", group)

    def __str__(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class GroupVersionKind(NamedTuple):
    group: str
    version: str
    kind: str

    @classmethod
    def of(cls, obj: Obj) -> GroupVersionKind:
        group, version = GroupVersion.parse(obj.get("apiVersion") or "")
        return cls(group, version, obj.get("kind") or "")

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class GroupResource(NamedTuple):
    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


class GroupVersionResource(NamedTuple):
    group: str
    version: str
    resource: str

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.resource)


class Key(NamedTuple):
    """An object's namespace ("" when cluster-scoped) and name."""

    namespace: str
    name: str

    @classmethod
    def of(cls, obj: Obj) -> Key:
        metadata = obj.get("metadata") or {}
        return cls(metadata.get("namespace") or "", metadata.get("name") or "")

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def metadata(obj: Obj) -> Obj:
    found = obj.get("metadata")
    return found if isinstance(found, dict) else {}


def name_of(obj: Obj) -> str:
    return metadata(obj).get("name") or ""


def namespace_of(obj: Obj) -> str:
    return metadata(obj).get("namespace") or ""


def uid_of(obj: Obj) -> str:
    return metadata(obj).get("uid") or ""


def resource_version_of(obj: Obj) -> str:
    return metadata(obj).get("resourceVersion") or ""


def labels_of(obj: Obj) -> dict[str, str]:
    return metadata(obj).get("labels") or {}


def annotations_of(obj: Obj) -> dict[str, str]:
    return metadata(obj).get("annotations") or {}


def finalizers_of(obj: Obj) -> list[str]:
    return metadata(obj).get("finalizers") or []


def owner_references_of(obj: Obj) -> list[Obj]:
    return metadata(obj).get("ownerReferences") or []


def is_being_deleted(obj: Obj) -> bool:
    return bool(metadata(obj).get("deletionTimestamp"))


def dig(value: Any, *path: str | int, default: Any = None) -> Any:
    """The value at `path`, or `default` when any step of it is absent or of the wrong shape."""
    for step in path:
        if isinstance(step, str):
            if not isinstance(value, dict) or step not in value:
                return default
            value = value[step]
        else:
            if not isinstance(value, list) or not -len(value) <= step < len(value):
                return default
            value = value[step]
    return value


def with_path(obj: Obj, path: Sequence[str], value: Any) -> Obj:
    """`obj` with `value` at `path`; only the dicts along the path are copied."""
    copied = dict(obj)
    if len(path) == 1:
        copied[path[0]] = value
        return copied
    child = copied.get(path[0])
    copied[path[0]] = with_path(child if isinstance(child, dict) else {}, path[1:], value)
    return copied


def without_path(obj: Obj, path: Sequence[str]) -> Obj:
    """`obj` without the value at `path`; the same object when there is none."""
    if path[0] not in obj:
        return obj
    copied = dict(obj)
    if len(path) == 1:
        del copied[path[0]]
        return copied
    child = copied[path[0]]
    if not isinstance(child, dict):
        return obj
    changed = without_path(child, path[1:])
    if changed is child:
        return obj
    copied[path[0]] = changed
    return copied


def with_metadata(obj: Obj, **fields: Any) -> Obj:
    """`obj` with metadata fields set (or removed, when the value is None)."""
    meta = dict(obj.get("metadata") or {})
    for field, value in fields.items():
        if value is None:
            meta.pop(field, None)
        else:
            meta[field] = value
    return {**obj, "metadata": meta}


def find_by(items: Iterable[Obj], field: str, value: Any) -> Obj | None:
    return next((item for item in items if item.get(field) == value), None)


_API_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


def version_order(name: str) -> tuple[int, int, int, int, str]:
    """A sort key that puts the most stable and newest version first, and odd names last by alphabet."""
    match = _API_VERSION.fullmatch(name)
    if match is None:
        return 1, 0, 0, 0, name
    stability = {None: 0, "beta": 1, "alpha": 2}[match.group(2)]
    return 0, stability, -int(match.group(1)), -int(match.group(3) or 0), name


# --- stored objects, read in process --------------------------------------------------------------------------------------
#
# The stored objects as the API server's own parts (authorizer, admission, token checks) see them.
#
# They read the watch cache in-process, synchronously, and subscribe to every change. Objects are shared: read-only.


# Called with (new, old): old is None for an object that appeared, new is None for one that is gone.
Listener = Callable[[Obj | None, Obj | None], None]


class ObjectSource(Protocol):
    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        """The newest object, in its storage version, or None."""

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Obj]:
        """All of them, or those of one namespace; empty for a resource that is not served."""

    def subscribe(self, group: str, resource: str, listener: Listener) -> None:
        """Call `listener(obj, None)` for the existing objects, then for every change, in order, on the event loop."""
