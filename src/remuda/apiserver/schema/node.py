"""The parsed form of a schema for this package: one :class:`Node` per place in the structure, fields named and typed.

Nodes are made once from the OpenAPI dict of a CRD version (or, with `resolve`, of a built-in kind) and never change. Formats
that Kubernetes does not know and `x-kubernetes-int-or-string` are resolved here, so that other modules need not handle them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import formats

Obj = dict[str, Any]
Resolve = Callable[[str], Obj]

REF_PREFIX = "#/components/schemas/"


class _Missing:
    """Stands for "no default", since null can't be one but other falsy values can."""


MISSING = _Missing()


@dataclass(slots=True, eq=False)
class Node:
    type: str = ""
    # The allowed JSON types: the type, or integer and string for x-kubernetes-int-or-string.
    types: tuple[str, ...] = ()
    nullable: bool = False
    default: Any = MISSING
    properties: dict[str, Node] = field(default_factory=dict)
    # additionalProperties: absent (None), a bool, or a schema (then allowed, and `additional` is set).
    additional_allowed: bool | None = None
    additional: Node | None = None
    items: Node | None = None

    preserve: bool = False
    embedded: bool = False
    int_or_string: bool = False
    list_type: str = ""
    map_keys: tuple[str, ...] = ()
    map_type: str = ""

    format: str = ""
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str = ""
    min_items: int | None = None
    max_items: int | None = None
    unique_items: bool = False
    min_properties: int | None = None
    max_properties: int | None = None
    required: tuple[str, ...] = ()
    enum: tuple[Any, ...] = ()
    all_of: tuple[Node, ...] = ()
    any_of: tuple[Node, ...] = ()
    one_of: tuple[Node, ...] = ()
    not_: Node | None = None
    # Made from `enum` when first needed: its texts, and their list in errors.
    enum_texts: frozenset[str] | None = None
    enum_shown: str | None = None


def build(schema: Obj, resolve: Resolve | None = None, literal: bool = False) -> Node:
    """`literal` is for checking defaults: any format counts, int-or-string adds no type."""
    return _Builder(resolve, literal).node(schema)


class _Builder:
    def __init__(self, resolve: Resolve | None, literal: bool = False) -> None:
        self._resolve = resolve
        self._literal = literal
        self._named: dict[str, Node] = {}

    def node(self, schema: Any) -> Node:
        if not isinstance(schema, dict):
            return Node()
        name = self._reference(schema)
        if not name:
            return self._fill(Node(), schema)
        known = self._named.get(name)
        if known is None:
            assert self._resolve is not None
            # Registered before it is filled: a schema may contain itself.
            known = self._named[name] = Node()
            self._fill(known, self._resolve(name))
        if "default" in schema:
            return _with_default(known, schema["default"])
        return known

    def _reference(self, schema: Obj) -> str:
        if self._resolve is None:
            return ""
        ref = schema.get("$ref")
        if ref is None and len(schema.get("allOf") or ()) == 1:
            # Built-in schemas wrap a reference like this to add a description or a default to it.
            ref = schema["allOf"][0].get("$ref")
        return str(ref).removeprefix(REF_PREFIX) if ref else ""

    def _fill(self, node: Node, schema: Obj) -> Node:
        node.type = _text(schema, "type")
        node.int_or_string = schema.get("x-kubernetes-int-or-string") is True
        both = node.int_or_string and not self._literal
        node.types = ("integer", "string") if both else (node.type,) if node.type else ()
        node.nullable = schema.get("nullable") is True
        default = schema.get("default")
        node.default = MISSING if default is None else default
        node.preserve = schema.get("x-kubernetes-preserve-unknown-fields") is True
        node.embedded = schema.get("x-kubernetes-embedded-resource") is True
        node.list_type = _text(schema, "x-kubernetes-list-type")
        node.map_type = _text(schema, "x-kubernetes-map-type")
        node.map_keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        self._fill_structure(node, schema)
        self._fill_values(node, schema)
        return node

    def _fill_structure(self, node: Node, schema: Obj) -> None:
        properties = schema.get("properties")
        if isinstance(properties, dict):
            node.properties = {name: self.node(child) for name, child in properties.items()}
        items = schema.get("items")
        if isinstance(items, dict):
            node.items = self.node(items)
        additional = schema.get("additionalProperties")
        if isinstance(additional, dict):
            node.additional_allowed = True
            node.additional = self.node(additional)
        elif isinstance(additional, bool):
            node.additional_allowed = additional

    def _fill_values(self, node: Node, schema: Obj) -> None:
        wanted = _text(schema, "format")
        kind = node.types[0] if len(node.types) == 1 else ""
        if wanted and (self._literal or formats.recognised(kind, wanted)):
            node.format = wanted
        node.minimum = _number(schema, "minimum")
        node.maximum = _number(schema, "maximum")
        node.exclusive_minimum = schema.get("exclusiveMinimum") is True
        node.exclusive_maximum = schema.get("exclusiveMaximum") is True
        node.multiple_of = _number(schema, "multipleOf")
        node.min_length = _count(schema, "minLength")
        node.max_length = _count(schema, "maxLength")
        node.pattern = _text(schema, "pattern")
        node.min_items = _count(schema, "minItems")
        node.max_items = _count(schema, "maxItems")
        node.unique_items = schema.get("uniqueItems") is True
        node.min_properties = _count(schema, "minProperties")
        node.max_properties = _count(schema, "maxProperties")
        node.required = tuple(schema.get("required") or ())
        node.enum = tuple(schema.get("enum") or ())
        node.all_of = tuple(self.node(child) for child in schema.get("allOf") or ())
        node.any_of = tuple(self.node(child) for child in schema.get("anyOf") or ())
        node.one_of = tuple(self.node(child) for child in schema.get("oneOf") or ())
        if isinstance(schema.get("not"), dict):
            node.not_ = self.node(schema["not"])


def _with_default(node: Node, default: Any) -> Node:
    changed = Node(**{name: getattr(node, name) for name in Node.__slots__})
    changed.default = MISSING if default is None else default
    return changed


def _text(schema: Obj, name: str) -> str:
    found = schema.get(name)
    return found if isinstance(found, str) else ""


def _number(schema: Obj, name: str) -> float | None:
    found = schema.get(name)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def _count(schema: Obj, name: str) -> int | None:
    found = schema.get(name)
    return int(found) if isinstance(found, int | float) and not isinstance(found, bool) else None
