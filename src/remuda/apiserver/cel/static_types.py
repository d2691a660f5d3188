"""CEL's static types, for the checker and for error messages.

Object types look their fields up through a `FieldSource`, so that types derived from OpenAPI schemas
(`schema_types`) resolve lazily, however large the schema is.
"""

from __future__ import annotations

from typing import Protocol


class FieldSource(Protocol):
    def field_type(self, name: str) -> CelType | None:
        """The type of a field by its CEL (escaped) name, or None if there is no such field."""


class CelType:
    """A type: its kind, its printed name, its parameters."""

    __slots__ = ("fields", "key", "kind", "name", "params", "text")

    def __init__(
        self,
        kind: str,
        name: str = "",
        params: tuple[CelType, ...] = (),
        fields: FieldSource | None = None,
    ) -> None:
        self.kind = kind
        self.name = name or kind
        self.params = params
        self.fields = fields
        inner = ", ".join(param.text for param in params)
        self.text: str = f"{self.name}({inner})" if params else self.name
        self.key: str = f"{kind}:{self.name}[{','.join(param.key for param in params)}]"

    def __repr__(self) -> str:
        return f"CelType({self.text})"

    def same(self, other: CelType) -> bool:
        return self is other or self.key == other.key

    @property
    def is_dyn(self) -> bool:
        return self.kind in ("dyn", "any")

    @property
    def is_optional(self) -> bool:
        return self.kind == "opaque" and self.name == "optional_type"


BOOL = CelType("bool")
INT = CelType("int")
UINT = CelType("uint")
DOUBLE = CelType("double")
STRING = CelType("string")
BYTES = CelType("bytes")
NULL = CelType("null")
DYN = CelType("dyn")
ERROR = CelType("error", "!error!")
TIMESTAMP = CelType("timestamp")
DURATION = CelType("duration")
TYPE = CelType("type")

# The name of a type as a value (`type(x)`), where it differs from the printed one.
RUNTIME_NAMES = {"null": "null_type", "timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration"}


def list_of(element: CelType) -> CelType:
    return CelType("list", "list", (element,))


def map_of(key: CelType, value: CelType) -> CelType:
    return CelType("map", "map", (key, value))


def type_of(inner: CelType) -> CelType:
    return CelType("type", "type", (inner,))


def optional_of(inner: CelType) -> CelType:
    return CelType("opaque", "optional_type", (inner,))


def opaque(name: str, *params: CelType) -> CelType:
    return CelType("opaque", name, params)


def param(name: str) -> CelType:
    return CelType("param", name)


class _Fields:
    def __init__(self, fields: dict[str, CelType]) -> None:
        self._fields = fields

    def field_type(self, name: str) -> CelType | None:
        return self._fields.get(name)


def struct(name: str, fields: dict[str, CelType] | FieldSource | None = None) -> CelType:
    """An object type; without fields nothing can be selected from it."""
    source: FieldSource = _Fields(fields or {}) if fields is None or isinstance(fields, dict) else fields
    return CelType("struct", name, (), source)


QUANTITY = struct("kubernetes.Quantity")
URL = struct("kubernetes.URL")
SEMVER = struct("kubernetes.Semver")
NAMED_FORMAT = struct("kubernetes.NamedFormat")
IP = opaque("net.IP")
CIDR = opaque("net.CIDR")
AUTHORIZER = struct("kubernetes.authorization.Authorizer")
PATH_CHECK = struct("kubernetes.authorization.PathCheck")
GROUP_CHECK = struct("kubernetes.authorization.GroupCheck")
RESOURCE_CHECK = struct("kubernetes.authorization.ResourceCheck")
DECISION = struct("kubernetes.authorization.Decision")

NAMED = {
    t.name: t
    for t in (
        BOOL,
        INT,
        UINT,
        DOUBLE,
        STRING,
        BYTES,
        NULL,
        DYN,
        TIMESTAMP,
        DURATION,
        TYPE,
        QUANTITY,
        URL,
        SEMVER,
        NAMED_FORMAT,
        IP,
        CIDR,
        AUTHORIZER,
        PATH_CHECK,
        GROUP_CHECK,
        RESOURCE_CHECK,
        DECISION,
    )
}


def parse_type(text: str) -> CelType:
    """A type from its printed form; single capital letters are type parameters. Used for the signature table."""
    parsed, rest = _parse(text)
    if rest:
        raise ValueError(f"trailing text in type {text!r}")
    return parsed


def _parse(text: str) -> tuple[CelType, str]:
    end = 0
    while end < len(text) and text[end] not in "(),":
        end += 1
    name, rest = text[:end].strip(), text[end:]
    params: list[CelType] = []
    if rest.startswith("("):
        while rest and rest[0] in "(,":
            inner, rest = _parse(rest[1:].lstrip())
            params.append(inner)
        rest = rest[1:]
    if name == "list":
        return list_of(params[0]), rest
    if name == "map":
        return map_of(params[0], params[1]), rest
    if name == "type" and params:
        return type_of(params[0]), rest
    if name == "optional_type":
        return optional_of(params[0]), rest
    return NAMED.get(name) or param(name), rest
