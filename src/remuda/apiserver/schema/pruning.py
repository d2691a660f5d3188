"""The conversion of a body to the schema: unknown fields and stray nulls are dropped, defaults added, numbers normalised.

All of it works in place on a private object. The steps and their order are those of kube-apiserver's decoder for custom
resources; :mod:`.compiler` skips them when a quick check finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda.kube.encoding.jsonio import copy, dumps
from remuda.kube.errors import FieldError, invalid_value

from ..limits import cost_budget
from . import metadata_coercion
from .node import MISSING, Node

Obj = dict[str, Any]

META_FIELDS = frozenset(("apiVersion", "kind", "metadata"))
_SAFE = float(1 << 53)
_INT64 = 1 << 63


class DecodeError(ValueError):
    """An object that can't be decoded at all; the message is kube-apiserver's."""


# --- unknown fields -----------------------------------------------------------------------------------------------


def prune(value: Any, node: Node | None, unknown: list[str], path: str = "", embedded: bool = False) -> None:
    """Drop fields that `node` does not specify, noting the paths. `embedded`: this is a resource, so its metadata stays."""
    if node is not None and node.preserve:
        _skip(value, node, unknown, path, embedded)
    elif type(value) is dict:
        if node is None:
            unknown.extend(_join(path, key) for key in value)
            value.clear()
        else:
            _prune_object(value, node, unknown, path, embedded or node.embedded)
    elif type(value) is list:
        items = node.items if node is not None else None
        for index, item in enumerate(value):
            if type(item) is dict or type(item) is list:
                prune(item, items, unknown, f"{path}[{index}]")


def _prune_object(value: Obj, node: Node, unknown: list[str], path: str, embedded: bool) -> None:
    gone: list[str] = []
    for key, child in value.items():
        if embedded and key in META_FIELDS:
            continue
        sub = node.properties.get(key)
        if sub is None:
            if node.additional_allowed is None:
                if path or key not in META_FIELDS:
                    unknown.append(_join(path, key))
                gone.append(key)
                continue
            sub = node.additional
        if type(child) is dict or type(child) is list:
            prune(child, sub, unknown, _join(path, key))
    for key in gone:
        del value[key]


def _skip(value: Any, node: Node, unknown: list[str], path: str, embedded: bool = False) -> None:
    """Unknown fields are kept here, but specified ones are pruned inside."""
    if type(value) is dict:
        embedded = embedded or node.embedded
        for key, child in value.items():
            if embedded and key in META_FIELDS:
                continue
            sub = node.properties.get(key)
            if sub is None:
                if node.additional_allowed is None:
                    continue
                sub = node.additional
            prune(child, sub, unknown, _join(path, key))
    elif type(value) is list and node.items is not None:
        for index, item in enumerate(value):
            _skip(item, node.items, unknown, f"{path}[{index}]")


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


# --- nulls and numbers --------------------------------------------------------------------------------------------


def drop_nulls(value: Any, node: Node | None) -> None:
    """Drop nulls of fields that can't be null and have no default to take their place."""
    if type(value) is dict:
        gone: list[str] = []
        for key, child in value.items():
            sub = None if node is None else node.properties.get(key) or node.additional
            if child is None:
                if sub is not None and not sub.nullable and sub.default is MISSING:
                    gone.append(key)
            elif type(child) is dict or type(child) is list:
                drop_nulls(child, sub)
        for key in gone:
            del value[key]
    elif type(value) is list:
        items = node.items if node is not None else None
        for item in value:
            drop_nulls(item, items)


def settle_numbers(value: Any) -> None:
    """Convert numbers to the form in which Go stores them: whole floats as integers, integers beyond int64 as floats."""
    if type(value) is dict:
        for key, child in value.items():
            kind = type(child)
            if kind is dict or kind is list:
                settle_numbers(child)
            elif kind is float or kind is int:
                value[key] = _settled(child)
    elif type(value) is list:
        for index, child in enumerate(value):
            kind = type(child)
            if kind is dict or kind is list:
                settle_numbers(child)
            elif kind is float or kind is int:
                value[index] = _settled(child)


def settle_unknown(value: Any, node: Node) -> None:
    """The same, but only where the schema says nothing: elsewhere validation still needs the original value."""
    if type(value) is dict:
        for key, child in value.items():
            sub = node.properties.get(key) or node.additional
            value[key] = _settle_one(child, sub)
    elif type(value) is list:
        for index, child in enumerate(value):
            value[index] = _settle_one(child, node.items)


def _settle_one(child: Any, node: Node | None) -> Any:
    kind = type(child)
    if kind is dict or kind is list:
        if node is None:
            settle_numbers(child)
        else:
            settle_unknown(child, node)
    elif kind is int or (kind is float and (node is None or (node.preserve and not node.types))):
        return _settled(child)
    return child


def _settled(number: float) -> float:
    if type(number) is float:
        return int(number) if -_SAFE <= number <= _SAFE and number == int(number) else number
    return number if -_INT64 <= number < _INT64 else float(number)


# --- embedded resources -------------------------------------------------------------------------------------------


def coerce(value: Any, node: Node | None, unknown: list[str], path: str = "", drop_invalid: bool = False) -> FieldError | None:
    """Decode the metadata of embedded resources; the first error stops, unless invalid fields are to be dropped."""
    if node is None:
        return None
    if type(value) is list:
        for index, item in enumerate(value):
            error = coerce(item, node.items, unknown, f"{path}[{index}]", drop_invalid)
            if error is not None:
                return error
        return None
    if type(value) is not dict:
        return None
    if node.embedded:
        error = _coerce_resource(value, unknown, path, drop_invalid)
        if error is not None:
            return error
    for key, child in value.items():
        sub = node.properties.get(key)
        at = _join(path, key) if sub is not None else f"{path}[{key}]"
        error = coerce(child, sub or node.additional, unknown, at, drop_invalid)
        if error is not None:
            return error
    return None


def _coerce_resource(value: Obj, unknown: list[str], path: str, drop_invalid: bool) -> FieldError | None:
    for name in ("apiVersion", "kind"):
        if name in value and type(value[name]) is not str:
            if not drop_invalid:
                return invalid_value(_join(path, name), value[name], "must be a string")
            del value[name]
    if "metadata" not in value:
        return None
    at = _join(path, "metadata")
    try:
        value["metadata"], extra = metadata_coercion.decode_meta(value["metadata"], at, drop_invalid)
    except metadata_coercion.MetaError as error:
        return None if drop_invalid else invalid_value(at, value["metadata"], str(error))
    unknown.extend(extra)
    return None


# --- defaults -----------------------------------------------------------------------------------------------------

Fill = Callable[[Any], None]


def filler(node: Node | None, known: dict[int, Fill | None] | None = None) -> Fill | None:
    """A function that fills in defaults below `node`, or None when there are none."""
    if node is None:
        return None
    known = {} if known is None else known
    if id(node) in known:
        return known[id(node)]
    # A schema that contains itself finds this entry and calls the function that is filled in later.
    late: list[Fill | None] = [None]
    known[id(node)] = lambda value: late[0](value) if late[0] is not None else None
    late[0] = known[id(node)] = _make_filler(node, known)
    return late[0]


def _make_filler(node: Node, known: dict[int, Fill | None]) -> Fill | None:
    defaults = [
        (name, sub.default, sub.nullable, len(dumps(sub.default)) + len(name) + 4)
        for name, sub in node.properties.items()
        if sub.default is not MISSING
    ]
    inner = {name: found for name, sub in node.properties.items() if (found := filler(sub, known)) is not None}
    rest = filler(node.additional, known)
    rest_default = node.additional.default if node.additional is not None and not node.additional.nullable else MISSING
    items = filler(node.items, known)
    item_default = node.items.default if node.items is not None and not node.items.nullable else MISSING
    properties = node.properties
    rest_size, item_size = (0 if each is MISSING else len(dumps(each)) for each in (rest_default, item_default))
    fill_rest = rest is not None or rest_default is not MISSING
    fill_items = items is not None or item_default is not MISSING
    if not (defaults or inner or fill_rest or fill_items):
        return None

    def fill(value: Any) -> None:
        if type(value) is dict:
            for name, default, nullable, size in defaults:
                if name not in value or (value[name] is None and not nullable):
                    cost_budget.grow(size)
                    value[name] = copy(default)
            if len(inner) > len(value):
                for name in value:
                    if name in inner:
                        inner[name](value[name])
            else:
                for name, nested in inner.items():
                    if name in value:
                        nested(value[name])
            if fill_rest:
                for key in value:
                    if key not in properties:
                        if value[key] is None and rest_default is not MISSING:
                            cost_budget.grow(rest_size)
                            value[key] = copy(rest_default)
                        if rest is not None:
                            rest(value[key])
        elif type(value) is list and fill_items:
            for index, item in enumerate(value):
                if item is None and item_default is not MISSING:
                    cost_budget.grow(item_size)
                    value[index] = item = copy(item_default)
                if items is not None:
                    items(item)

    return fill
