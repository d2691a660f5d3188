"""List and set functions: Kubernetes' own (sum, min, isSorted, …) and CEL's extensions (sort, slice, sets, …)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key

from ..errors import EvalError, no_such_overload
from ..values import NONE, Duration, Optional, Uint, Value, compare, elements, equal, is_list, kind_of, some
from .signatures import FUNCTIONS as _SIGNATURES
from .standard import FUNCTIONS as _STANDARD
from .standard import contains


def _is_sorted(items: Value) -> bool:
    values = elements(items)
    return all(compare(values[i], values[i + 1]) <= 0 for i in range(len(values) - 1))


def _sum(zero: Value, add: Callable[[Value, Value], Value]) -> Callable[[Value], Value]:
    def total(items: Value) -> Value:
        result = zero
        for item in elements(items):
            if type(item) is not type(zero):
                raise no_such_overload()
            result = add(result, item)
        return result

    return total


def _extreme(name: str, keep: int) -> Callable[[Value], Value]:
    def pick(items: Value) -> Value:
        values = elements(items)
        if not values:
            raise EvalError(f"{name} called on empty list")
        best = values[0]
        for item in values[1:]:
            if compare(item, best) == keep:
                best = item
        return best

    return pick


def _index_of(items: Value, wanted: Value) -> int:
    for index, item in enumerate(elements(items)):
        if equal(item, wanted):
            return index
    return -1


def _last_index_of(items: Value, wanted: Value) -> int:
    values = elements(items)
    for index in range(len(values) - 1, -1, -1):
        if equal(values[index], wanted):
            return index
    return -1


def _first(items: Value) -> Optional:
    values = elements(items)
    return some(values[0]) if values else NONE


def _last(items: Value) -> Optional:
    values = elements(items)
    return some(values[-1]) if values else NONE


def _sort_by(items: Value, keys: Value) -> Value:
    values, order = elements(items), elements(keys)
    if len(values) != len(order):
        message = "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got"
        raise EvalError(f"{message} {len(values)} and {len(order)} elements respectively")
    if not values:
        return values
    kinds = {kind_of(key) for key in order}
    if len(kinds) > 1:
        raise EvalError("list elements must have the same type")
    by_key = cmp_to_key(compare)
    return [values[index] for index in sorted(range(len(values)), key=lambda index: by_key(order[index]))]


def _slice(items: Value, start: int, end: int) -> Value:
    values = elements(items)
    if start < 0 or end < 0:
        raise EvalError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvalError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(values) < end:
        raise EvalError(f"cannot slice({start}, {end}), list is length {len(values)}")
    return values[start:end]


def _flatten(items: Value, depth: int = 1) -> Value:
    if depth < 0:
        raise EvalError("level must be non-negative")
    found: list[Value] = []
    for item in elements(items):
        if depth and is_list(item):
            found.extend(_flatten(item, depth - 1))
        else:
            found.append(item)
    return found


def _distinct(items: Value) -> Value:
    seen: list[Value] = []
    for item in elements(items):
        if not contains(seen, item):
            seen.append(item)
    return seen


def _sets_contain(items: Value, wanted: Value) -> bool:
    return all(contains(items, item) for item in elements(wanted))


def _for_all(function: str, implementation: Callable[..., Value]) -> dict[str, Callable[..., Value]]:
    return {signature.id: implementation for signature in _SIGNATURES[function] if signature.args[0].kind == "list"}


FUNCTIONS: dict[str, Callable[..., Value]] = {
    **_for_all("isSorted", _is_sorted),
    **_for_all("min", _extreme("min", -1)),
    **_for_all("max", _extreme("max", 1)),
    **_for_all("indexOf", _index_of),
    **_for_all("lastIndexOf", _last_index_of),
    **_for_all("sort", lambda items: _sort_by(items, items)),
    **_for_all("@sortByAssociatedKeys", _sort_by),
    "list_int_sum_int": _sum(0, _STANDARD["add_int64"]),
    "list_uint_sum_uint": _sum(Uint(0), _STANDARD["add_uint64"]),
    "list_double_sum_double": _sum(0.0, _STANDARD["add_double"]),
    "list_duration_sum_duration": _sum(Duration(0), _STANDARD["add_duration_duration"]),
    "list_first": _first,
    "list_last": _last,
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "list_reverse": lambda items: elements(items)[::-1],
    "list_distinct": _distinct,
    "lists_range": lambda count: list(range(count)),
    "list_sets_contains_list": _sets_contain,
    "list_sets_intersects_list": lambda left, right: any(contains(right, item) for item in elements(left)),
    "list_sets_equivalent_list": lambda left, right: _sets_contain(left, right) and _sets_contain(right, left),
}
