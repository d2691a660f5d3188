"""An example of a type of our own: two versions, defaults, rules, and the CRD for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.kube.admission_attributes import Attributes
from remuda.kube.errors import FieldError, forbidden_field, invalid_value
from remuda.kube.objects import GroupVersionResource, dig, with_path
from remuda.runtime.admitted_types import AdmittedType

Obj = dict[str, Any]
GROUP = "hooks.example.com"
WIDGETS = GroupVersionResource(GROUP, "v2", "widgets")
OLD_WIDGETS = GroupVersionResource(GROUP, "v1", "widgets")


def default(attributes: Attributes) -> Obj | None:
    """v2: a widget without size has size 1."""
    obj = attributes.obj
    if obj is None or dig(obj, "spec", "size") is not None:
        return None
    return with_path(obj, ("spec", "size"), 1)


def validate(attributes: Attributes) -> Iterable[FieldError]:
    if attributes.operation == "DELETE":
        if dig(attributes.old, "spec", "locked"):
            yield forbidden_field("spec.locked", "a locked widget stays")
        return
    size = dig(attributes.obj, "spec", "size")
    if size > 10:
        yield invalid_value("spec.size", size, "must be at most 10")
    if attributes.old is not None and dig(attributes.old, "spec", "color") != dig(attributes.obj, "spec", "color"):
        yield forbidden_field("spec.color", "field is immutable")
    if size > 8:
        attributes.warnings.append("spec.size: this is rather large")


def convert(obj: Obj, api_version: str) -> Obj:
    """v1 says `spec.count` where v2 says `spec.size`."""
    old, new = ("count", "size") if api_version.endswith("/v2") else ("size", "count")
    spec = dict(obj.get("spec") or {})
    if old in spec:
        spec[new] = spec.pop(old)
    return {**obj, "apiVersion": api_version, "spec": spec}


TYPE = AdmittedType(GROUP, "v2", "widgets", "Widget", default, validate, convert, validates_deletion=True)


def _version(name: str, number: str, storage: bool) -> Obj:
    fields = {number: {"type": "integer"}, "color": {"type": "string"}, "locked": {"type": "boolean"}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}


CRD: Obj = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [_version("v1", "count", False), _version("v2", "size", True)],
    },
}


def widget(name: str, version: str = "v2", **spec: Any) -> Obj:
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "Widget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }
