"""Fields, keys and indexes: `a.b`, `has(a.b)`, `a.?b`, `a[b]`, `a[?b]`.

On schema data a path stays raw: a chain of dict lookups, with one conversion at the end. Elsewhere the meaning of a
selection depends on the value at run time.
"""

from __future__ import annotations

from typing import Any

from ..errors import EvalError, no_such_key, no_such_overload
from ..schema_types import SchemaNode
from ..values import INT_MAX, NONE, ListLike, MapLike, Optional, Uint, Value, find_key, is_list, is_map, kind_of, some
from ..views import converter, lookup
from .plans import COST, NOTHING, Fn, Frame, Plan, from_raw

_MISSING = object()


def _path_cost(operand: Plan) -> int:
    """The cost with one more step: a step costs one, and the first step from anything but a name one more."""
    return operand.cost + (1 if operand.is_path else 2)


def plan_select(operand: Plan, field: str, test_only: bool) -> Plan:
    if operand.raw is not None and operand.node is not None and operand.node.kind in ("object", "map"):
        return _raw_select(operand.raw, operand.node, operand.cost, field, test_only)
    base = operand.run
    if test_only:
        return Plan(lambda frame: _has(base(frame), field), operand.cost + (0 if operand.is_path else 1))

    def run(frame: Frame) -> Value:
        value = base(frame)
        if type(value) is dict:
            found = value.get(field, _MISSING)
            if found is _MISSING:
                raise no_such_key(field)
            return found
        return select(value, field)

    return Plan(run, _path_cost(operand), is_path=True)


def _raw_select(raw: Fn, node: SchemaNode, cost: int, field: str, test_only: bool) -> Plan:
    if node.kind == "object":
        named = node.field(field)
        if named is None:
            raise EvalError(f"no such key: {field}")
        name, below = named
        if test_only:
            return Plan(lambda frame: raw(frame).get(name) is not None, cost)

        def read(frame: Frame) -> Any:
            found = raw(frame).get(name)
            if found is None:
                raise no_such_key(field)
            return found

        return from_raw(read, below, cost + 1)
    if test_only:
        return Plan(lambda frame: field in raw(frame), cost)
    assert node.element is not None

    def read_entry(frame: Frame) -> Any:
        found = raw(frame).get(field, _MISSING)
        if found is _MISSING:
            raise no_such_key(field)
        return found

    return from_raw(read_entry, node.element, cost + 1)


def select(value: Value, field: str) -> Value:
    if isinstance(value, Optional):
        return optional_select(value, field)
    if is_map(value):
        found, entry = lookup(value, field)
        if found:
            return entry
    raise no_such_key(field)


def _has(value: Value, field: str) -> bool:
    if isinstance(value, Optional):
        return value.present and _has(value.value, field)
    if is_map(value):
        return lookup(value, field)[0]
    return False


def optional_select(value: Value, field: str) -> Optional:
    while isinstance(value, Optional):
        if not value.present:
            return NONE
        value = value.value
    if is_map(value):
        found, entry = lookup(value, field)
        return some(entry) if found else NONE
    raise no_such_overload()


def plan_optional_select(operand: Plan, field: str) -> Plan:
    cost = _path_cost(operand)
    raw, node = operand.raw, operand.node
    if raw is None or node is None or node.kind != "object":
        base = operand.run

        def select_any(frame: Frame) -> Value:
            found = optional_select(base(frame), field)
            if not found.present:
                frame[COST] -= 1  # a step that is not taken costs nothing
            return found

        return Plan(select_any, cost, is_path=True)
    named = node.field(field)
    if named is None:
        return Plan(lambda frame: NONE, cost, is_path=True)
    name, below = named
    convert = converter(below)

    def run(frame: Frame) -> Value:
        found = raw(frame).get(name)
        if found is None:
            frame[COST] -= 1
            return NONE
        return some(convert(found))

    return Plan(run, cost, is_path=True)


def plan_index(operand: Plan, index: Plan, optional: bool) -> Plan:
    # The first step of an index that is itself a path is free.
    cost = _path_cost(operand) + index.cost - index.is_path
    raw, node, at = operand.raw, operand.node, index.run
    if raw is not None and node is not None and node.element is not None and not optional:
        if node.kind == "list":
            return from_raw(_item_reader(raw, at), node.element, cost)
        if node.kind == "map":
            return from_raw(_entry_reader(raw, at), node.element, cost)
    base = operand.run
    if optional:

        def run_optional(frame: Frame) -> Value:
            found = optional_index(base(frame), at(frame))
            if not found.present:
                frame[COST] -= 1
            return found

        return Plan(run_optional, cost, is_path=True)
    if index.constant is not NOTHING and type(index.constant) is str:
        key = index.constant

        def by_name(frame: Frame) -> Value:
            value = base(frame)
            if type(value) is dict:
                found = value.get(key, _MISSING)
                if found is not _MISSING:
                    return found
            return get_index(value, key)

        return Plan(by_name, cost, is_path=True)
    return Plan(lambda frame: get_index(base(frame), at(frame)), cost, is_path=True)


def _item_reader(raw: Fn, at: Fn) -> Fn:
    def read(frame: Frame) -> Any:
        items = raw(frame)
        index = _list_index(at(frame))
        if 0 <= index < len(items):
            return items[index]
        raise EvalError(f"index out of bounds: {index}")

    return read


def _entry_reader(raw: Fn, at: Fn) -> Fn:
    def read(frame: Frame) -> Any:
        entries = raw(frame)
        key = at(frame)
        if type(key) is not str:
            raise no_such_overload()
        found = entries.get(key, _MISSING)
        if found is _MISSING:
            raise no_such_key(key)
        return found

    return read


def _list_index(index: Value) -> int:
    """A list index from an integral number of any numeric type."""
    kind = type(index)
    if kind is int:
        return index  # type: ignore[no-any-return]
    if kind is Uint:
        if index > INT_MAX:
            raise EvalError(f"unsupported index value {index} in list")
        return int(index)
    if kind is float:
        if index.is_integer() and abs(index) < INT_MAX:
            return int(index)
        raise EvalError(f"unsupported index value {index} in list")
    raise EvalError(f"unsupported index type '{kind_of(index)}' in list")


def get_index(value: Value, index: Value) -> Value:
    if isinstance(value, Optional):
        return optional_index(value, index)
    if is_list(value):
        place = _list_index(index)
        if not 0 <= place < len(value):
            raise EvalError(f"index out of bounds: {place}")
        return value[place] if type(value) is list else value.item(place)
    if is_map(value):
        found, entry = find_key(value, index) if type(value) is dict else value.find(index)
        if found:
            return entry
    raise no_such_key(index)


def optional_index(value: Value, index: Value) -> Optional:
    while isinstance(value, Optional):
        if not value.present:
            return NONE
        value = value.value
    if isinstance(value, list | ListLike):
        place = _list_index(index)
        if not 0 <= place < len(value):  # type: ignore[arg-type]
            return NONE
        return some(value[place] if type(value) is list else value.item(place))  # type: ignore[union-attr]
    if isinstance(value, dict | MapLike):
        found, entry = lookup(value, index)
        return some(entry) if found else NONE
    raise no_such_overload()
