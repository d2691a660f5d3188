"""Descriptions of the built-in kinds: schemas, Go names, protobuf numbers, and their discovery entries.

All of it comes from one generated file, `builtins.json`, read at first use. Kubernetes' texts are not included; ours are in
`discovery/openapi_schemas`. `remuda.apiserver.scheme.protobuf` decodes bodies with it. Returned values are shared and must not
be changed.

The file is generated (`tests/real/describe_types.py`) from a real kube-apiserver's OpenAPI and discovery documents and
from the Go types behind them. It is compact because every program start may read it: arrays instead of objects, types
and schema additions listed once and named by index. Its parts:

    t   types: ["string"], ["string", "v1.Protocol"] (named), ["*", t], ["[]", t], ["{}", key, t], ["w", t, name] (a
        list that protobuf wraps in a message), ["#", definition]; a trailing string is the Go name
    x   additions: parts of a schema that do not follow from its Go type (:func:`derive` has the rule); null removes
    d   definitions: [OpenAPI name, Go name, flags, fields or null, addition]
        field: [JSON name, type, flags, protobuf number, addition]; missing tail items are zero
    g   kinds: [group, version, kind, definition]
    r   resources: [group, version, name, kind, singular, flags, verbs, short names, categories, subresources]
        subresource: [name, group, version, kind, verbs]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

FIELD_REQUIRED = 1
FIELD_OMITEMPTY = 2
FIELD_OMITZERO = 4
FIELD_INLINE = 8

DEFINITION_CUSTOM = 1
DEFINITION_HIDDEN = 2

RESOURCE_NAMESPACED = 1

# The values of a field's omitted tail.
_NOTHING = ["", 0, 0, 0, 0]


class GoType(msgspec.Struct, frozen=True):
    """The Go type of a field: its element, its protobuf form, and the name that decoding errors print."""

    kind: str
    """A scalar (`string`, `bool`, `int32`, `int64`, `int`, `float64`, `bytes`, `any`), or `pointer`, `list`, `wrapped`
    (a list in a protobuf message of its own), `map`, `struct`."""
    name: str
    """As Go prints it: `int32`, `v1.Protocol`, `[]v1.Container`, `map[string]string`, `*v1.PodSpec`."""
    elem: GoType | None = None
    """The type that a pointer points to, or that a list or map holds."""
    definition: str = ""
    """For a struct: the name of its definition."""

    @property
    def value(self) -> GoType:
        """The type with its pointer removed, as decoding errors name it."""
        return self.elem if self.kind == "pointer" and self.elem is not None else self


class Field(msgspec.Struct, frozen=True):
    """One field of a built-in struct."""

    name: str
    """JSON name; empty for an inlined struct."""
    type: GoType
    required: bool
    omitempty: bool
    omitzero: bool
    inline: bool
    number: int
    """Protobuf field number; 0 when protobuf does not carry it."""
    addition: Mapping[str, Any]
    """Schema keys that do not follow from the type; a None value removes a key."""

    @property
    def always_written(self) -> bool:
        """Go writes the field even when it is zero: a struct as `{}`, a nil pointer, list or map as null."""
        return not self.omitzero and (not self.omitempty or self.type.kind == "struct")


class Definition(msgspec.Struct, frozen=True):
    """One built-in struct, its fields in Go's order."""

    name: str
    """OpenAPI name, such as `io.k8s.api.apps.v1.Deployment`."""
    go_name: str
    """`v1.Deployment`."""
    custom: bool
    """It writes its own JSON (Time, Quantity, …), so that its fields describe only protobuf."""
    hidden: bool
    """Only ever inlined in others: no OpenAPI document has it."""
    fields: tuple[Field, ...] | None
    """None when it is no struct that we know (only its schema is)."""
    addition: Mapping[str, Any]


class Subresource(msgspec.Struct, frozen=True):
    """One subresource as discovery shows it; group, version and kind are those of its body."""

    name: str
    group: str
    version: str
    kind: str
    verbs: tuple[str, ...]


class Resource(msgspec.Struct, frozen=True):
    """One resource as discovery shows it."""

    group: str
    version: str
    name: str
    kind: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...]
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    subresources: tuple[Subresource, ...]


class Description:
    """The parsed file; definitions become values when first asked for."""

    def __init__(self, content: bytes) -> None:
        document: dict[str, Any] = msgspec.json.decode(content)
        self._raw_types: list[list[Any]] = document["t"]
        self._raw_definitions: list[list[Any]] = document["d"]
        self._additions: list[dict[str, Any]] = document["x"]
        self._index = {raw[0]: position for position, raw in enumerate(self._raw_definitions)}
        self._types: dict[int, GoType] = {}
        self._definitions: dict[str, Definition] = {}
        self.kinds: dict[tuple[str, str, str], str] = {
            (group, version, kind): self._raw_definitions[position][0] for group, version, kind, position in document["g"]
        }
        self.resources: tuple[Resource, ...] = tuple(_resource(raw) for raw in document["r"])

    @property
    def names(self) -> list[str]:
        """Names of all definitions, hidden ones included."""
        return list(self._index)

    def definition(self, name: str) -> Definition:
        """One definition; KeyError when there is none of that name."""
        found = self._definitions.get(name)
        if found is None:
            found = self._definitions[name] = self._make(self._raw_definitions[self._index[name]])
        return found

    def _make(self, raw: list[Any]) -> Definition:
        name, go_name, flags, fields, addition = raw
        return Definition(
            name=name,
            go_name=go_name,
            custom=bool(flags & DEFINITION_CUSTOM),
            hidden=bool(flags & DEFINITION_HIDDEN),
            fields=None if fields is None else tuple(self._field(each) for each in fields),
            addition=self._additions[addition],
        )

    def _field(self, raw: list[Any]) -> Field:
        name, position, flags, number, addition = raw + _NOTHING[len(raw) :]
        return Field(
            name=name,
            type=self._type(position),
            required=bool(flags & FIELD_REQUIRED),
            omitempty=bool(flags & FIELD_OMITEMPTY),
            omitzero=bool(flags & FIELD_OMITZERO),
            inline=bool(flags & FIELD_INLINE),
            number=number,
            addition=self._additions[addition],
        )

    def _type(self, position: int) -> GoType:
        found = self._types.get(position)
        if found is None:
            found = self._types[position] = self._make_type(self._raw_types[position])
        return found

    def _make_type(self, raw: list[Any]) -> GoType:
        match raw:
            case ["#", int(position)]:
                name, go_name = self._raw_definitions[position][:2]
                return GoType("struct", go_name, definition=name)
            case ["*", int(elem)]:
                inner = self._type(elem)
                return GoType("pointer", f"*{inner.name}", inner)
            case ["[]" | "w" as sign, int(elem), *named]:
                inner = self._type(elem)
                return GoType("list" if sign == "[]" else "wrapped", named[0] if named else f"[]{inner.name}", inner)
            case ["{}", int(key), int(elem), *named]:
                inner = self._type(elem)
                return GoType("map", named[0] if named else f"map[{self._type(key).name}]{inner.name}", inner)
            case ["bytes", *named]:
                return GoType("bytes", named[0] if named else "[]uint8")
            case [str(kind), *named]:
                return GoType(kind, named[0] if named else kind)
        raise ValueError(f"builtins.json has a type that this version does not know: {raw!r}")


def _resource(raw: list[Any]) -> Resource:
    group, version, name, kind, singular, flags, verbs, short_names, categories, subresources = raw
    return Resource(
        group=group,
        version=version,
        name=name,
        kind=kind,
        singular=singular,
        namespaced=bool(flags & RESOURCE_NAMESPACED),
        verbs=tuple(verbs),
        short_names=tuple(short_names),
        categories=tuple(categories),
        subresources=tuple(Subresource(each[0], each[1], each[2], each[3], tuple(each[4])) for each in subresources),
    )


__all__ = [
    "REFERENCE",
    "Definition",
    "Field",
    "GoType",
    "Resource",
    "Subresource",
    "definition",
    "definition_in",
    "definition_names",
    "fields",
    "flat_fields",
    "go_type",
    "kinds",
    "structure",
    "type_of",
]


@cache
def _description() -> Description:
    return Description(resources.files(__package__).joinpath("builtins.json").read_bytes())


def kinds() -> tuple[Resource, ...]:
    """Every built-in resource, in the order of a real server's discovery."""
    return _description().resources


def type_of(group: str, version: str, kind: str) -> str | None:
    """The definition name of a kind (lists and `DeleteOptions` included), or None."""
    return _description().kinds.get((group, version, kind))


def definition_names() -> list[str]:
    """Names of the definitions that OpenAPI documents have."""
    description = _description()
    return [name for name in description.names if not description.definition(name).hidden]


@cache
def definition(name: str) -> dict[str, Any]:
    """The OpenAPI v3 schema of one component, without descriptions; KeyError when there is none.

    `x-kubernetes-group-version-kind` is left out for types that every group has (`DeleteOptions`, `WatchEvent`), since it
    depends on the document; `definition_in` has it.
    """
    description = _description()
    return derive(description.definition(name), description)


def definition_in(name: str, group: str, version: str) -> dict[str, Any]:
    """The same for the document of one group version."""
    if name not in IN_EVERY_GROUP:
        return definition(name)
    return {**definition(name), KINDS: kinds_in_document(name, group, version)}


def structure(name: str) -> Definition:
    """The Go struct behind a definition; KeyError when there is none."""
    return _description().definition(name)


def fields(name: str) -> tuple[Field, ...]:
    """The fields of a definition in Go's order, inlined structs as one field each (as protobuf has them)."""
    return _description().definition(name).fields or ()


@cache
def flat_fields(name: str) -> tuple[Field, ...]:
    """The fields of a definition in Go's order as JSON has them: inlined structs opened up."""
    description = _description()
    return tuple(_flattened(description.definition(name), description))


def go_type(name: str) -> str:
    """The Go name of a definition, such as `v1.DeploymentSpec`; error texts use the part after the dot."""
    return _description().definition(name).go_name


# --- empty objects --------------------------------------------------------------------------------------------------------
#
# The zero value of a built-in object.
#
# Go writes some fields of an empty struct anyway: structs within structs, and lists, maps and scalars without `omitempty`.
# A create is compared with such an object, which is why no manager ever owns `spec` itself in a Deployment, but one does in a
# custom resource.

_ZERO: Mapping[str, Any] = {"string": "", "bool": False, "int32": 0, "int64": 0, "int": 0, "float64": 0}
# Structs with their own JSON encoding, and the JSON of their zero value.
_CUSTOM: dict[str, Any] = {"Quantity": "0", "IntOrString": 0}


def empty_builtin(name: str) -> dict[str, Any]:
    """The zero value of a definition, as JSON."""
    found: dict[str, Any] = {}
    for field in flat_fields(name):
        kind = field.type.kind
        if kind == "struct":
            if not field.omitzero:
                found[field.name] = _empty_struct(field.type.definition)
        elif not (field.omitempty or field.omitzero):
            found[field.name] = _ZERO.get(kind)
    return found


def _empty_struct(name: str) -> Any:
    if structure(name).custom:
        return _CUSTOM.get(name.rpartition(".")[2])
    return empty_builtin(name)


# --- OpenAPI schemas from Go types ----------------------------------------------------------------------------------------
#
# OpenAPI v3 schemas of built-in types, made from their Go types plus the additions of `builtins.json`.
#
# Most of a schema follows from the Go type: an `int32` is an integer of that format, a slice an array, a field that is
# always written has its zero value as default. `derive_field` is that rule. The rest of a served document (list
# types and keys, enums, patch strategies, other defaults) is the field's addition. The generator uses the same rule to
# find the additions, so both sides agree by construction, and a test compares the result with a real server's documents.


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


def _flattened(definition: Definition, description: Description) -> Iterator[Field]:
    """The fields of the JSON form: those of inlined structs in their place."""
    for field in definition.fields or ():
        if field.inline:
            yield from _flattened(description.definition(field.type.value.definition), description)
        else:
            yield field


def derive(definition: Definition, description: Description) -> dict[str, Any]:
    """The whole schema of one definition."""
    schema: dict[str, Any] = {}
    if not definition.custom and definition.fields is not None:
        schema = _struct(definition, description)
    return merged(schema, definition.addition)


def _struct(definition: Definition, description: Description) -> dict[str, Any]:
    fields = list(_flattened(definition, description))
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
