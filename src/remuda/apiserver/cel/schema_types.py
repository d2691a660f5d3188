"""CEL types from OpenAPI schemas, with the size bounds that the cost estimator needs.

A `SchemaNode` represents one place in a structural schema. It is evaluated lazily, so that a large or even recursive schema
costs only what an expression uses. Data of a node is read through `views`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeAlias

from .static_types import BOOL, BYTES, DOUBLE, DURATION, DYN, INT, STRING, TIMESTAMP, CelType, list_of, map_of, struct

Schema: TypeAlias = dict[str, Any]
Resolve: TypeAlias = Callable[[str], Schema]

MAX_REQUEST_BYTES = 3 * 1024 * 1024

_RESERVED = frozenset(
    [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
_ESCAPABLE = re.compile(r"[a-zA-Z_.\-/][a-zA-Z0-9_.\-/]*")
_SPECIAL = re.compile(r"__|[-./]")
_ESCAPED = re.compile(r"__[^_]+__")
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_UNESCAPES = {"underscores": "__", "dot": ".", "dash": "-", "slash": "/"}


def escape(name: str) -> str | None:
    """A property name as a CEL identifier, or None if it cannot be one."""
    if name in _RESERVED:
        return f"__{name}__"
    if not _ESCAPABLE.fullmatch(name):
        return None
    return _SPECIAL.sub(lambda match: _ESCAPES[match.group()], name)


def unescape(name: str) -> str | None:
    """The property name of a CEL identifier, or None if no property can have that identifier."""
    if "__" not in name:
        return name
    if name.startswith("__") and name.endswith("__") and name[2:-2] in _RESERVED:
        return name[2:-2]
    fine = True

    def back(match: re.Match[str]) -> str:
        nonlocal fine
        found = _UNESCAPES.get(match.group()[2:-2])
        fine = fine and found is not None
        return found or ""

    plain = _ESCAPED.sub(back, name)
    return plain if fine else None


_TYPE_META: Schema = {"type": "string"}
_OBJECT_META: Schema = {"type": "object", "properties": {"name": _TYPE_META, "generateName": _TYPE_META}}
_FORMATS = {"byte": ("bytes", BYTES, 2), "duration": ("duration", DURATION, 3)}
_FORMATS |= {"date": ("date", TIMESTAMP, 12), "date-time": ("date-time", TIMESTAMP, 21)}
_TIME_SIZES = {"duration": 32, "date": 12, "date-time": 32}


class SchemaNode:
    """One place in a schema. `kind` is the kind of its values: object, map, list, string, int, double, bool, bytes,
    duration, date, date-time, dyn (int-or-string)."""

    def __init__(self, schema: Schema, kind: str, path: str, resolve: Resolve | None) -> None:
        self.schema = schema
        self.kind = kind
        self.path = path
        self.nullable = bool(schema.get("nullable"))
        self.list_type = str(schema.get("x-kubernetes-list-type") or "") if kind == "list" else ""
        self.list_keys: tuple[str, ...] = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        self._resolve = resolve
        self._min_size = 0

    def __repr__(self) -> str:
        return f"SchemaNode({self.path}, {self.kind})"

    # --- structure

    @cached_property
    def element(self) -> SchemaNode | None:
        """Items of a list, values of a map."""
        if self.kind == "list":
            return node_for(self.schema.get("items"), self._resolve, path=f"{self.path}.@idx")
        if self.kind == "map":
            return node_for(self.schema.get("additionalProperties"), self._resolve, path=f"{self.path}.@elem")
        return None

    @cached_property
    def properties(self) -> dict[str, SchemaNode]:
        """Properties by their name in the data; only those visible to CEL."""
        found: dict[str, SchemaNode] = {}
        for name, schema in (self.schema.get("properties") or {}).items():
            escaped = escape(name)
            node = node_for(schema, self._resolve, path=f"{self.path}.{escaped or name}")
            if node is not None:
                found[name] = node
        return found

    @cached_property
    def fields(self) -> dict[str, tuple[str, SchemaNode]]:
        """Properties by their name in CEL: the name in the data, and the node."""
        found: dict[str, tuple[str, SchemaNode]] = {}
        for name, node in self.properties.items():
            escaped = escape(name)
            if escaped is not None:
                found[escaped] = (name, node)
        return found

    def field(self, name: str) -> tuple[str, SchemaNode] | None:
        found = self.fields.get(name)
        if found is None and name in _RESERVED:
            found = self.fields.get(f"__{name}__")
        return found

    def field_type(self, name: str) -> CelType | None:
        found = self.field(name)
        return found[1].type if found is not None else None

    @cached_property
    def type(self) -> CelType:
        if self.kind == "object":
            return struct(self.path, self)
        if self.kind == "list":
            return list_of(self.element.type if self.element is not None else DYN)
        if self.kind == "map":
            return map_of(STRING, self.element.type if self.element is not None else DYN)
        return _SCALARS[self.kind]

    # --- sizes

    @property
    def min_size(self) -> int:
        """The fewest bytes a value takes in JSON."""
        if self._min_size:
            return self._min_size
        if self.kind != "object":
            self._min_size = _MIN_SIZES[self.kind]
            return self._min_size
        self._min_size = 2  # also the size of a recursive reference to this schema
        required = set(self.schema.get("required") or ())
        total = 2
        for name, node in self.properties.items():
            if name in required and node.schema.get("default") is None:
                total += len(name.encode()) + node.min_size + 4
        self._min_size = total
        return total

    @cached_property
    def max_elements(self) -> int:
        """The most elements, entries or characters a value can have in one request."""
        schema = self.schema
        if self.kind == "list":
            return _bound(schema, "maxItems", (MAX_REQUEST_BYTES - 2) // (self.element.min_size + 1 if self.element else 1))
        if self.kind == "map":
            return _bound(schema, "maxProperties", (MAX_REQUEST_BYTES - 2) // (self.element.min_size + 6 if self.element else 6))
        if self.kind in _TIME_SIZES:
            return _TIME_SIZES[self.kind]
        if self.kind == "bytes":
            return _bound(schema, "maxLength", MAX_REQUEST_BYTES - 2)
        if self.kind == "dyn":
            return _bound(schema, "maxLength", MAX_REQUEST_BYTES - 2, factor=4)
        if self.kind == "string":
            longest = MAX_REQUEST_BYTES - 2
            if schema.get("enum"):
                longest = max((len(v.encode()) for v in schema["enum"] if isinstance(v, str)), default=0)
            return _bound(schema, "maxLength", longest, factor=4)
        return 0

    @property
    def max_cardinality(self) -> int:
        """The maximum number of such values in one request."""
        return MAX_REQUEST_BYTES // (self.min_size + 1)


_SCALARS = {
    "string": STRING,
    "int": INT,
    "double": DOUBLE,
    "bool": BOOL,
    "bytes": BYTES,
    "duration": DURATION,
    "date": TIMESTAMP,
    "date-time": TIMESTAMP,
    "dyn": DYN,
}
_MIN_SIZES = {"list": 2, "map": 2, "string": 2, "int": 1, "double": 1, "bool": 4, "bytes": 2, "dyn": 1}
_MIN_SIZES |= {"duration": 3, "date": 12, "date-time": 21}
_SIMPLE_KINDS = {"boolean": "bool", "number": "double", "integer": "int"}


def _bound(schema: Schema, keyword: str, otherwise: int, factor: int = 1) -> int:
    given = schema.get(keyword)
    return max(0, int(given)) * factor if given is not None else otherwise


def node_for(schema: Any, resolve: Resolve | None = None, *, root: bool = False, path: str = "selfType1") -> SchemaNode | None:
    """The node of a schema, or None if such data is not visible to CEL (no type, unknown items, …)."""
    schema = _dereference(schema, resolve)
    if not isinstance(schema, dict):
        return None
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
        return SchemaNode(schema, "dyn", path, resolve)
    kind = schema.get("type")
    if kind == "object" and (root or schema.get("x-kubernetes-embedded-resource")):
        schema = with_metadata(schema)
    if kind == "array":
        node = SchemaNode(schema, "list", path, resolve)
        return node if node.element is not None else None
    if kind == "object":
        if isinstance(schema.get("additionalProperties"), dict) and not (root and schema.get("properties")):
            node = SchemaNode(schema, "map", path, resolve)
            return node if node.element is not None else None
        return SchemaNode(schema, "object", path, resolve)
    if kind == "string":
        return SchemaNode(schema, _FORMATS.get(schema.get("format", ""), ("string",))[0], path, resolve)
    if kind in _SIMPLE_KINDS:
        return SchemaNode(schema, _SIMPLE_KINDS[kind], path, resolve)
    return None


def _dereference(schema: Any, resolve: Resolve | None) -> Any:
    for _ in range(10):
        if not isinstance(schema, dict):
            return schema
        reference = schema.get("$ref")
        inner = schema.get("allOf")
        if reference is None and isinstance(inner, list) and len(inner) == 1 and "type" not in schema and "$ref" in inner[0]:
            reference = inner[0]["$ref"]
        if reference is None or resolve is None:
            return schema
        schema = resolve(str(reference).rsplit("/", 1)[-1])
    return schema


def with_metadata(schema: Schema) -> Schema:
    """The schema of a whole resource: apiVersion, kind and the two names are always visible."""
    properties = schema.get("properties") or {}
    metadata = properties.get("metadata") or {}
    named = metadata.get("properties") or {}
    strings = (properties.get("kind"), properties.get("apiVersion"), named.get("name"), named.get("generateName"))
    if metadata.get("type") == "object" and all(part and part.get("type") == "string" for part in strings):
        return schema
    return {**schema, "properties": {**properties, "kind": _TYPE_META, "apiVersion": _TYPE_META, "metadata": _OBJECT_META}}
