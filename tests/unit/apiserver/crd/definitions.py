"""Builders of CRDs for the tests in this room."""

from __future__ import annotations

from typing import Any

from remuda.apiserver.crd.definition_strategy import set_defaults
from remuda.kube.encoding.jsonio import copy

Obj = dict[str, Any]


def version(schema: Obj | None = None, name: str = "v1", storage: bool = True, **more: Any) -> Obj:
    found: Obj = {"name": name, "served": True, "storage": storage, **more}
    if schema is not None:
        found["schema"] = {"openAPIV3Schema": schema}
    return found


def with_schema(schema: Obj, **more: Any) -> Obj:
    return crd(versions=[version(schema, **more)])


def with_field(schema: Obj) -> Obj:
    return with_schema({"type": "object", "properties": {"f": schema}})


def crd(metadata: Obj | None = None, status: Obj | None = None, **spec: Any) -> Obj:
    given: Obj = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "foos", "kind": "Foo"},
        "versions": [version({"type": "object", "properties": {"spec": {"type": "object"}}})],
        **spec,
    }
    made: Obj = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com", **(metadata or {})},
        "spec": copy(given),
    }
    if status is not None:
        made["status"] = status
    set_defaults(made)
    return made


def established(definition: Obj) -> Obj:
    status = {**definition.get("status", {}), "conditions": [{"type": "Established", "status": "True"}]}
    return {**definition, "status": status}
