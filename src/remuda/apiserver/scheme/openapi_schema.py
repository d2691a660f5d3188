"""OpenAPI v3 schemas of built-in types, made from their Go types plus the additions of `builtins.json`.

Most of a schema follows from the Go type: an `int32` is an integer of that format, a slice an array, a field that is
always written has its zero value as default. `derive_field` is that rule. The rest of a served document (list
types and keys, enums, patch strategies, other defaults) is the field's addition. The generator uses the same rule to
find the additions, so both sides agree by construction, and a test compares the result with a real server's documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .description import Definition, Description, Field, GoType

REFERENCE = "#/components/schemas/"
KINDS = "x-kubernetes-group-version-kind"

# Types that every group version registers as a kind of its own.
IN_EVERY_GROUP = frozenset(
    {"io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent"}
)

_SCALARS: Mapping[str, Mapping[str, Any]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "int": {"type": "integer", "format": "int32"},
    "float64": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "any": {"type": "object"},
}
_ZERO: Mapping[str, Any] = {"string": "", "bool": False, "int32": 0, "int64": 0, "int": 0, "float64": 0}


def derive_field(field: Field, description: Description) -> dict[str, Any]:
    """The part of a field's schema that follows from its Go type."""
    always_written = not (field.omitempty or field.omitzero)
    if field.type.kind == "struct" or field.type.value.kind == "struct":
        reference = {"$ref": REFERENCE + field.type.value.definition}
        # A reference with siblings is wrapped; a field nearly always has one, its description.
        schema: dict[str, Any] = {"allOf": [reference]}
        if _defaults_to_empty(field.type, description):
            schema["default"] = {}
        return schema
    schema = _value(field.type.value, description)
    if always_written and field.type.kind in _ZERO:
        schema["default"] = _ZERO[field.type.kind]
    return schema


def _defaults_to_empty(kind: GoType, description: Description) -> bool:
    return kind.kind == "struct" and not description.definition(kind.definition).custom


def _value(kind: GoType, description: Description) -> dict[str, Any]:
    match kind.kind:
        case "list" | "wrapped":
            assert kind.elem is not None
            return {"type": "array", "items": _element(kind.elem, description)}
        case "map":
            assert kind.elem is not None
            return {"type": "object", "additionalProperties": _element(kind.elem, description)}
    return dict(_SCALARS[kind.kind])


def _element(kind: GoType, description: Description) -> dict[str, Any]:
    inner = kind.value
    if inner.kind == "struct":
        reference = {"$ref": REFERENCE + inner.definition}
        return {"default": {}, "allOf": [reference]} if _defaults_to_empty(kind, description) else reference
    schema = _value(inner, description)
    if kind.kind in _ZERO:
        schema["default"] = _ZERO[kind.kind]
    return schema


def merged(schema: Mapping[str, Any], addition: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with its addition; None removes a key, a dict under `items` or `additionalProperties` is merged."""
    result = dict(schema)
    for key, value in addition.items():
        if value is None:
            result.pop(key, None)
        elif key in ("items", "additionalProperties") and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def flat_fields(definition: Definition, description: Description) -> Iterator[Field]:
    """The fields of the JSON form: those of inlined structs in their place."""
    for field in definition.fields or ():
        if field.inline:
            yield from flat_fields(description.definition(field.type.value.definition), description)
        else:
            yield field


def derive(definition: Definition, description: Description) -> dict[str, Any]:
    """The whole schema of one definition."""
    schema: dict[str, Any] = {}
    if not definition.custom and definition.fields is not None:
        schema = _struct(definition, description)
    return merged(schema, definition.addition)


def _struct(definition: Definition, description: Description) -> dict[str, Any]:
    fields = list(flat_fields(definition, description))
    schema: dict[str, Any] = {"type": "object"}
    required = [field.name for field in fields if field.required]
    if required:
        schema["required"] = required
    properties = {field.name: merged(derive_field(field, description), field.addition) for field in fields}
    if properties:
        schema["properties"] = dict(sorted(properties.items()))
    return schema


def kinds_in_document(name: str, group: str, version: str) -> list[dict[str, str]]:
    """The kinds of a type of every group in one document: the core kind, and the document's own."""
    kind = name.rpartition(".")[2]
    places = [("", "v1")] if (group, version) == ("", "v1") else [("", "v1"), (group, version)]
    return [{"group": each_group, "kind": kind, "version": each_version} for each_group, each_version in places]
