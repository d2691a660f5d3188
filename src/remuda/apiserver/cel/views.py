"""Schema data as CEL values, converted only where an expression reads it.

A `SchemaNode` decides what its data means in CEL: a string of format date-time is a timestamp, a number without a
fraction is still a double, null counts as absent. Scalars are converted on access. Objects, maps and lists get a view
unless their data already has CEL's form (`is_plain`); then the Python object is used as it is.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, TypeAlias

from .errors import EvalError, no_such_overload
from .schema_types import SchemaNode, escape, unescape
from .timestamps import parse_date, parse_duration, parse_timestamp
from .values import ListLike, MapLike, Timestamp, Value, elements, equal, find_key, is_list, is_map

Converter: TypeAlias = Callable[[Any], Value]

_GO_TYPES: dict[type, str] = {bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}"}
_NULL = "invalid data, got null for schema with nullable=false"


def _go_type(raw: Any) -> str:
    return _GO_TYPES.get(type(raw), "map[string]interface {}")


def is_plain(node: SchemaNode) -> bool:
    """True when data of this node needs no view: its Python value is the CEL value."""
    cached = node.__dict__.get("_plain")
    if cached is None:
        node.__dict__["_plain"] = cached = _is_plain(node)
    return bool(cached)


def _is_plain(node: SchemaNode) -> bool:
    if node.nullable:
        return False
    if node.kind in ("string", "int", "bool"):
        return True
    if node.kind == "map" or (node.kind == "list" and node.list_type not in ("set", "map")):
        return node.element is not None and is_plain(node.element)
    return False


def converter(node: SchemaNode) -> Converter:
    """The function that turns raw data of the node into a CEL value."""
    cached: Converter | None = node.__dict__.get("_converter")
    if cached is None:
        node.__dict__["_converter"] = cached = _converter(node)
    return cached


def _converter(node: SchemaNode) -> Converter:
    kind = node.kind
    make = _MAKERS[kind](node)
    nullable = node.nullable

    def convert(raw: Any) -> Value:
        if raw is None:
            if nullable:
                return None
            raise EvalError(_NULL)
        return make(raw)

    return convert


def _typed(kind: type, name: str) -> Callable[[SchemaNode], Converter]:
    def maker(node: SchemaNode) -> Converter:
        def make(raw: Any) -> Value:
            if type(raw) is not kind:
                raise EvalError(f"invalid data, expected {name}, got {_go_type(raw)}")
            return raw

        return make

    return maker


def _double(node: SchemaNode) -> Converter:
    def make(raw: Any) -> Value:
        if type(raw) is float:
            return raw
        if type(raw) is int:
            return float(raw)
        raise EvalError(f"invalid data, expected float, got {_go_type(raw)}")

    return make


def _int_or_string(node: SchemaNode) -> Converter:
    def make(raw: Any) -> Value:
        if type(raw) is int or type(raw) is str:
            return raw
        raise EvalError("invalid data, expected XIntOrString value to be either a string or integer")

    return make


def _parsed(read: Callable[[str], Value], complaint: str) -> Callable[[SchemaNode], Converter]:
    def maker(node: SchemaNode) -> Converter:
        def make(raw: Any) -> Value:
            if type(raw) is not str:
                raise EvalError(f"invalid data, expected string, got {_go_type(raw)}")
            value = read(raw)
            if value is None:
                raise EvalError(complaint.format(raw))
            return value

        return make

    return maker


def _read_date_time(text: str) -> Timestamp | None:
    return parse_timestamp(text.replace("t", "T").replace("z", "Z"))


def _read_bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        return None


def _object(node: SchemaNode) -> Converter:
    def make(raw: Any) -> Value:
        if type(raw) is not dict:
            raise EvalError("invalid data, expected a map for the provided schema with type=object")
        return ObjectView(raw, node)

    return make


def _map(node: SchemaNode) -> Converter:
    plain = is_plain(node)

    def make(raw: Any) -> Value:
        if type(raw) is not dict:
            raise EvalError("invalid data, expected a map for the provided schema with type=object")
        return raw if plain else MapView(raw, node)

    return make


def _list(node: SchemaNode) -> Converter:
    plain = is_plain(node)
    view = {"set": SetView, "map": MapListView}.get(node.list_type, ListView)

    def make(raw: Any) -> Value:
        if type(raw) is not list:
            raise EvalError("invalid data, expected an array for the provided schema with type=array")
        return raw if plain else view(raw, node)

    return make


_MAKERS: dict[str, Callable[[SchemaNode], Converter]] = {
    "string": _typed(str, "string"),
    "int": _typed(int, "int"),
    "bool": _typed(bool, "bool"),
    "double": _double,
    "dyn": _int_or_string,
    "duration": _parsed(parse_duration, "Invalid duration {}: unable to parse"),
    "date": _parsed(parse_date, "Invalid date formatted string {}: unable to parse"),
    "date-time": _parsed(_read_date_time, "Invalid date-time formatted string {}: unable to parse"),
    "bytes": _parsed(_read_bytes, "Invalid byte formatted string {}: illegal base64 data"),
    "object": _object,
    "map": _map,
    "list": _list,
}


class ObjectView(MapLike):
    """An object with declared properties. Undeclared properties are invisible, but count for equality."""

    __slots__ = ("node", "raw")

    def __init__(self, raw: dict[str, Any], node: SchemaNode) -> None:
        self.raw = raw
        self.node = node

    def __len__(self) -> int:
        return len(self.raw)

    def find(self, key: Value) -> tuple[bool, Value]:
        if type(key) is not str:
            raise no_such_overload()
        name = unescape(key)
        raw = self.raw.get(name) if name is not None else None
        node = self.node.properties.get(name) if name is not None else None
        if raw is None or node is None:
            return False, None
        return True, converter(node)(raw)

    def keys(self) -> list[Value]:
        return [escape(name) or name for name in self.raw if name in self.node.properties]

    def as_dict(self) -> dict[Value, Value]:
        found: dict[Value, Value] = {}
        for key in self.keys():
            present, value = self.find(key)
            if present:
                found[key] = value
        return found

    def equals(self, other: Value) -> bool:
        if not is_map(other):
            raise no_such_overload()
        if isinstance(other, ObjectView) and other.node is self.node and self.raw == other.raw:
            return True
        if len(self.raw) != len(other):
            return False
        for name in self.raw:
            if name in self.node.properties:
                mine, theirs = self.find(escape(name) or name), lookup(other, escape(name) or name)
                if mine[0] != theirs[0] or (mine[0] and not equal(mine[1], theirs[1])):
                    return False
            elif isinstance(other, ObjectView) and name in other.raw and not same_json(self.raw[name], other.raw[name]):
                return False
        return True


class MapView(MapLike):
    """A map (additionalProperties) whose values need converting."""

    __slots__ = ("node", "raw")

    def __init__(self, raw: dict[str, Any], node: SchemaNode) -> None:
        self.raw = raw
        self.node = node

    def __len__(self) -> int:
        return len(self.raw)

    def find(self, key: Value) -> tuple[bool, Value]:
        if type(key) is not str:
            raise no_such_overload()
        if key not in self.raw or self.node.element is None:
            return False, None
        return True, converter(self.node.element)(self.raw[key])

    def keys(self) -> list[Value]:
        return list(self.raw)

    def as_dict(self) -> dict[Value, Value]:
        return {key: self.find(key)[1] for key in self.raw}

    def equals(self, other: Value) -> bool:
        if not is_map(other):
            raise no_such_overload()
        if len(self.raw) != len(other):
            return False
        for key in self.raw:
            found, value = lookup(other, key)
            if not found or not equal(self.find(key)[1], value):
                return False
        return True


class ListView(ListLike):
    """A list whose items need converting."""

    __slots__ = ("node", "raw")

    def __init__(self, raw: list[Any], node: SchemaNode) -> None:
        self.raw = raw
        self.node = node

    def __len__(self) -> int:
        return len(self.raw)

    def item(self, index: int) -> Value:
        return self._convert(self.raw[index])

    def _convert(self, raw: Any) -> Value:
        return converter(self.node.element)(raw) if self.node.element is not None else raw

    def as_list(self) -> list[Value]:
        if self.node.element is None:
            return self.raw
        convert = converter(self.node.element)
        return [convert(raw) for raw in self.raw]

    def equals(self, other: Value) -> bool:
        if not is_list(other):
            raise no_such_overload()
        return len(self.raw) == len(other) and all(equal(a, b) for a, b in zip(self.as_list(), elements(other), strict=True))

    def plus(self, other: Value) -> Value:
        return self.as_list() + elements(other)


class SetView(ListView):
    """x-kubernetes-list-type: set. Order does not matter for equality, and adding is a union."""

    __slots__ = ()

    def equals(self, other: Value) -> bool:
        if not is_list(other):
            raise no_such_overload()
        mine = {(type(value), value) for value in map(to_raw, self.raw)}
        return len(self.raw) == len(other) and all((type(raw), raw) in mine for raw in map(to_raw, elements(other)))

    def plus(self, other: Value) -> Value:
        seen = {(type(raw), raw) for raw in self.raw}
        merged = list(self.raw)
        for raw in map(to_raw, elements(other)):
            if (type(raw), raw) not in seen:
                seen.add((type(raw), raw))
                merged.append(raw)
        return SetView(merged, self.node)


class MapListView(ListView):
    """x-kubernetes-list-type: map. Items are matched by their keys, not by position."""

    __slots__ = ()

    def _key(self, raw: Any) -> tuple[Any, ...]:
        if not isinstance(raw, dict):
            raise EvalError(f"unexpected data format for element of array with x-kubernetes-list-type=map: {_go_type(raw)}")
        return tuple((type(raw.get(name)), raw.get(name)) for name in self.node.list_keys)

    def equals(self, other: Value) -> bool:
        if not is_list(other):
            raise no_such_overload()
        if len(self.raw) != len(other):
            return False
        mine = {self._key(raw): raw for raw in self.raw}
        for value in elements(other):
            key = self._key(to_raw(value))
            if key not in mine or not equal(self._convert(mine[key]), value):
                return False
        return True

    def plus(self, other: Value) -> Value:
        merged = list(self.raw)
        places = {self._key(raw): index for index, raw in enumerate(merged)}
        for raw in map(to_raw, elements(other)):
            place = places.get(self._key(raw))
            if place is None:
                merged.append(raw)
            else:
                merged[place] = raw
        return MapListView(merged, self.node)


def lookup(value: Value, key: Value) -> tuple[bool, Value]:
    """A key in any kind of map value."""
    if type(value) is dict:
        return find_key(value, key)
    return value.find(key)  # type: ignore[no-any-return]


def to_raw(value: Value) -> Any:
    """The data that a value was converted from, as far as it came from data."""
    if isinstance(value, ObjectView | MapView | ListView):
        return value.raw
    if type(value) is list:
        return [to_raw(item) for item in value]
    if type(value) is dict:
        return {key: to_raw(item) for key, item in value.items()}
    return value


def same_json(left: Any, right: Any) -> bool:
    """Deep equality of data, with true and 1 kept apart."""
    if type(left) is dict and type(right) is dict:
        return left.keys() == right.keys() and all(same_json(value, right[key]) for key, value in left.items())
    if type(left) is list and type(right) is list:
        return len(left) == len(right) and all(same_json(a, b) for a, b in zip(left, right, strict=True))
    return type(left) is type(right) and bool(left == right)


def keys_of(value: Value) -> list[Value]:
    return list(value) if type(value) is dict else list(value.keys())
