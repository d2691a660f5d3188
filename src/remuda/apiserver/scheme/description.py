"""The shape of `builtins.json` and the values read from it; `builtin_types.py` makes OpenAPI schemas of them.

The file is generated (`tests/real/describe_types.py`) from a real kube-apiserver's OpenAPI and discovery documents and
from the Go types behind them. It is compact because every program start may read it: arrays instead of objects, types
and schema additions listed once and named by index. Its parts:

    t   types: ["string"], ["string", "v1.Protocol"] (named), ["*", t], ["[]", t], ["{}", key, t], ["w", t, name] (a
        list that protobuf wraps in a message), ["#", definition]; a trailing string is the Go name
    x   additions: parts of a schema that do not follow from its Go type (`builtin_types.py` has the rule); null removes
    d   definitions: [OpenAPI name, Go name, flags, fields or null, addition]
        field: [JSON name, type, flags, protobuf number, addition]; missing tail items are zero
    g   kinds: [group, version, kind, definition]
    r   resources: [group, version, name, kind, singular, flags, verbs, short names, categories, subresources]
        subresource: [name, group, version, kind, verbs]

Nothing here is written to after it is made: callers share the values.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """What a pointer points to, or a list or map holds."""
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
