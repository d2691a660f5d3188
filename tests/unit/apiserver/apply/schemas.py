"""Small schemas and builders that the tests of this folder share."""

from __future__ import annotations

from typing import Any

from remuda.apiserver.apply import FieldManager
from remuda.apiserver.apply.managed_fields import ManagedFieldsError, decode
from remuda.kube.clock import VirtualClock

Obj = dict[str, Any]

_DEFINITIONS: dict[str, Obj] = {
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "namespace": {"type": "string"},
            "uid": {"type": "string"},
            "resourceVersion": {"type": "string"},
            "generation": {"type": "integer"},
            "creationTimestamp": {"type": "string", "format": "date-time"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
            "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        },
    },
    "Item": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "protocol": {"type": "string", "default": "TCP"},
            "value": {"type": "integer"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    },
}


def resolve(name: str) -> Obj:
    return _DEFINITIONS[name]


WIDGET: Obj = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer"},
                "text": {"type": "string"},
                "size": {"x-kubernetes-int-or-string": True},
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "items": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name", "protocol"],
                    "items": {"$ref": "#/components/schemas/Item"},
                },
                "plain": {"type": "array", "items": {"type": "string"}},
                "selector": {"$ref": "#/components/schemas/Item", "x-kubernetes-map-type": "atomic"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    },
}

RESET = {"": [("status",)], "status": [("metadata",), ("spec",)]}


def widgets(clock: VirtualClock | None = None, schema: Obj | None = WIDGET, version: str = "v1", **more: Any) -> FieldManager:
    return FieldManager(
        schema,
        resolve,
        group="example.io",
        version=version,
        kind="Widget",
        reset_fields=RESET,
        clock=clock or VirtualClock(),
        **more,
    )


def widget(spec: Obj | None = None, version: str = "v1", **metadata: Any) -> Obj:
    obj: Obj = {
        "apiVersion": f"example.io/{version}",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "default", **metadata},
    }
    if spec is not None:
        obj["spec"] = spec
    return obj


def stored(obj: Obj) -> Obj:
    """The object as it would come back from the store."""
    return {**obj, "metadata": {**obj["metadata"], "uid": "1", "resourceVersion": "7", "generation": 1}}


def edited(obj: Obj, **spec: Any) -> Obj:
    return {**obj, "spec": {**obj.get("spec", {}), **spec}}


def owned(obj: Obj) -> dict[str, Any]:
    """Who owns what: `manager` or `manager/subresource` to its set."""
    entries = obj["metadata"].get("managedFields", [])
    return {"/".join(filter(None, (entry["manager"], entry.get("subresource")))): entry["fieldsV1"] for entry in entries}


def managed_fields_problem(obj: Obj) -> str:
    """The error in an object's managedFields; "" if they are valid."""
    metadata = obj.get("metadata")
    try:
        decode(metadata.get("managedFields") if isinstance(metadata, dict) else None)
    except ManagedFieldsError as error:
        return str(error)
    return ""
