"""Objects made from a provider's templates: what `spec.template` holds, under a name of our own.

A clone of a `FooTemplate` is a `Foo` of the template's own version. Two annotations name its origin; everything
else of the template's `spec.template` is carried over as it is. The caller writes the clone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.kube.errors import go_quote
from remuda.kube.objects import GroupVersion, GroupVersionKind, Key, annotations_of, dig, labels_of, name_of

from .well_known import CLONED_FROM_GROUP_KIND, CLONED_FROM_NAME, CLUSTER_NAME

Obj = dict[str, Any]

_SUFFIX = "Template"
# Metadata of a template that must not be carried over.
_NOT_CLONED = frozenset(["resourceVersion", "finalizers", "uid", "selfLink", "name", "namespace", "annotations", "labels"])


def is_template(kind: str) -> bool:
    return kind.endswith(_SUFFIX)


def cloned_kind(kind: str) -> str:
    """The kind of the objects that are made from a template of this kind."""
    return kind.removesuffix(_SUFFIX)


def clone(
    template: Obj,
    *,
    name: str,
    namespace: str,
    cluster: str,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: Obj | None = None,
) -> Obj:
    """A new object from `template`; `labels` and `annotations` win over the template's own."""
    found = dig(template, "spec", "template")
    made: Obj = dict(found) if isinstance(found, dict) else {}
    kind = GroupVersionKind.of(template)
    origin = {CLONED_FROM_NAME: name_of(template), CLONED_FROM_GROUP_KIND: f"{kind.kind}.{kind.group}".rstrip(".")}
    own = made.get("metadata")
    meta = {key: value for key, value in own.items() if key not in _NOT_CLONED} if isinstance(own, dict) else {}
    meta["name"], meta["namespace"] = name, namespace
    meta["annotations"] = {**_words(annotations_of(made)), **(annotations or {}), **origin}
    meta["labels"] = {**_words(labels_of(made)), **(labels or {}), CLUSTER_NAME: cluster}
    if owner is not None:
        meta["ownerReferences"] = [owner]
    made["metadata"] = meta
    made["apiVersion"] = made.get("apiVersion") or template.get("apiVersion")
    made["kind"] = made.get("kind") or cloned_kind(kind.kind)
    return made


def _words(found: Any) -> dict[str, str]:
    """Labels or annotations of a template, which no schema may have checked."""
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, str)}


def reference_to(obj: Obj) -> Obj:
    """A reference to a provider's object, in the form that core objects use."""
    return {
        "apiGroup": GroupVersion.parse(obj.get("apiVersion") or "").group,
        "kind": obj.get("kind") or "",
        "name": name_of(obj),
    }


def not_there(ref: Obj, namespace: str) -> str:
    """The conditions' message that a referenced object does not exist."""
    group, kind, name = (ref.get(field) or "" for field in ("apiGroup", "kind", "name"))
    return f"failed to retrieve {kind} {Key(namespace, name)}: {kind}.{group} {go_quote(name)} not found"
