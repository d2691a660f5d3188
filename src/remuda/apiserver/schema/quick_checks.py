"""Quick yes-or-no checks, compiled from a schema to closures: whether an object needs cleaning, and whether it is valid.

Nearly every write is valid, and these functions detect that in a few microseconds. They may say no too often, never yes too
often: after a no the caller uses the full modules (:mod:`.pruning`, :mod:`.validation`,
:mod:`.list_types`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..cel import re2
from ..limits import cost_budget
from . import formats, validation
from .node import Node
from .pruning import META_FIELDS

Check = Callable[[Any], bool]

_REMEMBERED, _REMEMBERED_LENGTH = 512, 128
_FEW = 8
_MIN, _MAX = validation.MIN_INT64, validation.MAX_INT64


def _never(value: Any) -> bool:
    return False


def _clean_leaf(value: Any) -> bool:
    """A scalar that decoding does not change."""
    kind = type(value)
    if kind is str or kind is bool:
        return True
    if kind is int:
        return bool(_MIN <= value <= _MAX)
    return kind is float and bool(value % 1)


def _clean_anything(value: Any) -> bool:
    """Any tree, unknown to the schema but kept: only its numbers matter."""
    kind = type(value)
    if kind is dict:
        return all(type(child) is str or _clean_anything(child) for child in value.values())
    if kind is list:
        return all(type(child) is str or _clean_anything(child) for child in value)
    return value is None or _clean_leaf(value)


class ShapeChecks:
    """No unknown field, no null, no number to rewrite: decoding would change nothing."""

    def __init__(self) -> None:
        self._known: dict[int, Check] = {}

    def root(self, node: Node) -> Check:
        """For a whole resource, whose metadata is checked elsewhere."""
        return self._object(node, skip_meta=True)

    def of(self, node: Node | None) -> Check:
        if node is None:
            return _never
        known = self._known.get(id(node))
        if known is None:
            late: list[Check] = []
            self._known[id(node)] = lambda value: late[0](value)
            known = self._make(node)
            if node.nullable:
                known = _or_null(known)
            late.append(known)
            self._known[id(node)] = known
        return known

    def _make(self, node: Node) -> Check:
        if node.embedded:
            return _never
        has_fields = bool(node.properties) or node.additional_allowed is not None or node.preserve
        if not has_fields and node.items is None:
            return _clean_leaf if node.type not in ("object", "array") else _empty
        inner = self._object(node) if has_fields else _empty_object
        if node.items is None and not node.preserve:
            return inner
        items = _clean_anything if node.items is None else self.of(node.items)
        plain = node.type == "array" and not has_fields

        def check(value: Any) -> bool:
            kind = type(value)
            if kind is list:
                return all(map(items, value))
            if plain:
                return False
            return inner(value) if kind is dict else _clean_leaf(value)

        return check

    def _object(self, node: Node, skip_meta: bool = False) -> Check:
        fields: dict[str, Check] = {name: self.of(sub) for name, sub in node.properties.items()}
        if skip_meta:
            fields.update(dict.fromkeys(META_FIELDS, lambda value: True))
        rest: Check = _never
        if node.additional_allowed is not None:
            rest = self.of(node.additional) if node.additional is not None else _clean_leaf
        elif node.preserve:
            rest = _clean_anything
        find = fields.get

        def check(value: Any) -> bool:
            if type(value) is not dict:
                return _clean_leaf(value)
            for key, child in value.items():
                test = find(key, rest)
                # Most values are plain texts; they are clean in any place, if the field is known.
                if type(child) is str:
                    if test is _never:
                        return False
                elif not test(child):
                    return False
            return True

        return check


def _or_null(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _empty(value: Any) -> bool:
    return (not value) if type(value) in (dict, list) else _clean_leaf(value)


def _empty_object(value: Any) -> bool:
    return (not value) if type(value) is dict else _clean_leaf(value)


class ValueChecks:
    """Every constraint holds: validation would find nothing."""

    def __init__(self) -> None:
        self._known: dict[int, Check | type] = {}

    def of(self, node: Node) -> Check:
        found = self._entry(node)
        if isinstance(found, type):
            return lambda value: type(value) is found
        return found

    def _entry(self, node: Node) -> Check | type:
        """A check, or just a type when only the type matters."""
        known = self._known.get(id(node))
        if known is None:
            late: list[Check] = []
            self._known[id(node)] = lambda value: late[0](value)
            known = self._make(node)
            late.append(known if not isinstance(known, type) else (lambda value: type(value) is known))
            self._known[id(node)] = known
        return known

    def _make(self, node: Node) -> Check | type:
        if node.embedded:
            return _never
        base = self._base(node)
        combined = self._combinations(node)
        if not combined and not node.nullable:
            return base
        plain = base if not isinstance(base, type) else _is_type(base)
        nullable = node.nullable and not node.enum

        def check(value: Any) -> bool:
            if value is None:
                return nullable
            return plain(value) and all(test(value) for test in combined)

        return check

    def _base(self, node: Node) -> Check | type:
        if node.types == ("string",):
            return _string_check(node)
        if node.types == ("integer",):
            return _integer_check(node)
        if node.types == ("number",):
            return _number_check(node)
        if node.types == ("boolean",):
            return bool if not node.enum else _exactly(node)
        if node.types == ("object",):
            return self._object(node)
        if node.types == ("array",):
            return self._list(node)
        return self._untyped(node)

    def _untyped(self, node: Node) -> Check:
        """Several types or none: the constraints of the value's own kind apply."""
        if node.types and node.types != ("integer", "string"):
            return _exactly(node)
        if _is_bare(node):
            return (lambda value: value is not None and type(value) in (str, int)) if node.types else (lambda value: True)
        if node.types:
            return _exactly(node)
        inner = self._object(node)
        items = self._list(node)
        leaf = _exactly(node)

        def check(value: Any) -> bool:
            kind = type(value)
            if kind is dict:
                return inner(value)
            return items(value) if kind is list else leaf(value)

        return check

    def _combinations(self, node: Node) -> list[Check]:
        checks: list[Check] = [self.of(each) for each in node.all_of]
        if len(checks) > _FEW:
            checks = [_counted(checks, all)]
        if node.any_of:
            options = [self.of(each) for each in node.any_of]
            checks.append(
                _counted(options, any) if len(options) > _FEW else lambda value: any(option(value) for option in options)
            )
        if node.one_of or node.not_ is not None:
            # A check that says no too often would count as a yes here, so these use the full validator.
            exact = Node(one_of=node.one_of, not_=node.not_)
            checks.append(_exactly(exact))
        return checks

    def _object(self, node: Node) -> Check:
        if node.enum:
            return _exactly(node)
        fields = {name: self._entry(sub) for name, sub in node.properties.items()}
        rest = self._entry(node.additional) if node.additional is not None else None
        forbidden = node.additional_allowed is False
        required = node.required
        low = node.min_properties or 0
        high = node.max_properties if node.max_properties is not None else 1 << 62
        sized = low > 0 or node.max_properties is not None
        find = fields.get

        def check(value: Any) -> bool:
            if type(value) is not dict:
                return False
            for name in required:
                if name not in value:
                    return False
            if sized and not low <= len(value) <= high:
                return False
            for key, child in value.items():
                test = find(key, rest)
                if type(child) is test:
                    continue
                if test is None:
                    if forbidden:
                        return False
                elif test is str or test is bool or not test(child):
                    return False
            return True

        return check

    def _list(self, node: Node) -> Check:
        if node.unique_items or node.enum:
            return _exactly(node)
        item = self._entry(node.items) if node.items is not None else None
        low = node.min_items or 0
        high = node.max_items if node.max_items is not None else 1 << 62
        distinct = _distinct(node)

        def check(value: Any) -> bool:
            if type(value) is not list or not low <= len(value) <= high:
                return False
            if isinstance(item, type):
                for child in value:
                    if type(child) is not item:
                        return False
            elif item is not None:
                for child in value:
                    if not item(child):
                        return False
            return distinct is None or len(value) < 2 or distinct(value)

        return check


def _counted(checks: list[Check], combine: Callable[[Iterator[bool]], bool]) -> Check:
    """Many checks of every value: their cost is counted."""

    def check(value: Any) -> bool:
        cost_budget.spend(len(checks))
        return combine(test(value) for test in checks)

    return check


def _is_type(kind: type) -> Check:
    return lambda value: type(value) is kind


def _exactly(node: Node) -> Check:
    """Use the full validator for this one value. It also checks combinations and nullability again; no harm."""
    return lambda value: validation.is_valid(node, value)


def _is_bare(node: Node) -> bool:
    """No constraint on the value itself."""
    limits = (node.minimum, node.maximum, node.multiple_of, node.min_length, node.max_length, node.min_items)
    more = (node.max_items, node.min_properties, node.max_properties)
    if any(limit is not None for limit in (*limits, *more)):
        return False
    constrained = node.pattern or node.format or node.enum or node.required or node.unique_items
    return not (constrained or node.properties or node.items or node.additional_allowed is not None or node.list_type)


def _distinct(node: Node) -> Check | None:
    if node.list_type == "set":
        return _distinct_items
    if node.list_type != "map":
        return None
    keys = node.map_keys
    if len(keys) == 1:
        return lambda value: _distinct_items([item.get(keys[0]) for item in value])
    return lambda value: _distinct_items([tuple(map(item.get, keys)) for item in value])


def _distinct_items(items: list[Any]) -> bool:
    try:
        return len(set(items)) == len(items)
    except TypeError:
        return False


def _string_check(node: Node) -> Check | type:
    known = formats.check_for(node.format) if node.format else None
    low = node.min_length or 0
    high = node.max_length if node.max_length is not None else 1 << 62
    allowed = frozenset(item for item in node.enum if isinstance(item, str))
    try:
        matches = re2.compile_pattern(node.pattern).matches if node.pattern else None
    except re2.RegexError:
        return _never
    if node.enum:
        if known is None and matches is None and not low and node.max_length is None:
            return lambda value: type(value) is str and value in allowed
    elif known is None and matches is None and not low and node.max_length is None:
        return str

    if matches is None and known is None:
        return lambda value: type(value) is str and low <= len(value) <= high and (not allowed or value in allowed)
    # Names, reasons and times repeat with every write: a few valid ones are remembered.
    good: set[str] = set()

    def check(value: Any) -> bool:
        if type(value) is not str:
            return False
        if value in good:
            return True
        if not low <= len(value) <= high or (allowed and value not in allowed):
            return False
        if matches is not None and not matches(value):
            return False
        if known is not None and not known(value):
            return False
        if len(value) <= _REMEMBERED_LENGTH:
            if len(good) >= _REMEMBERED:
                good.clear()
            good.add(value)
        return True

    return check


def _integer_check(node: Node) -> Check:
    if node.enum or node.multiple_of is not None:
        return _exactly(node)
    low, high = (-(1 << 31), (1 << 31) - 1) if node.format == "int32" else (_MIN, _MAX)
    if node.minimum is not None:
        if node.minimum != int(node.minimum):
            return _exactly(node)
        low = max(low, int(node.minimum) + node.exclusive_minimum)
    if node.maximum is not None:
        if node.maximum != int(node.maximum):
            return _exactly(node)
        high = min(high, int(node.maximum) - node.exclusive_maximum)
    return lambda value: type(value) is int and low <= value <= high


def _number_check(node: Node) -> Check:
    bounds = [bound for bound in (node.minimum, node.maximum) if bound is not None]
    if node.enum or node.multiple_of is not None or node.format == "float" or any(bound != int(bound) for bound in bounds):
        return _exactly(node)
    low = float("-inf") if node.minimum is None else node.minimum
    high = float("inf") if node.maximum is None else node.maximum
    open_low, open_high = node.exclusive_minimum, node.exclusive_maximum

    def check(value: Any) -> bool:
        # A whole float is valid, but has to be normalised, which needs the full decoding.
        if not (type(value) is int or (type(value) is float and value % 1)):
            return False
        if not low <= value <= high or not _MIN <= value <= _MAX:
            return False
        return not (open_low and value == low) and not (open_high and value == high)

    return check
