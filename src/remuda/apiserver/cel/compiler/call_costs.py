"""Run-time costs of calls that do not cost exactly one.

A number is a fixed cost; a function computes the cost from the arguments before the call, so that work that is too
expensive is rejected instead of measured afterwards. The units and factors are those that Kubernetes documents through
its limits: a tenth of a unit per character read, a quarter per character of a regular expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..library.signatures import FUNCTIONS
from ..values import Value, elements, is_list, is_map, mapping, size

AUTHORIZATION_COST = 350_000
_LIST_CREATE = 10


def _tenths(count: int) -> int:
    return -(-count // 10)


def _first(value: Value, *_: Value) -> int:
    return _tenths(size(value))


def _twice(value: Value, *_: Value) -> int:
    return _tenths(2 * size(value))


def _regex(text: Value, pattern: Value, *_: Value) -> int:
    return math.ceil((1 + size(text)) / 10) * math.ceil(size(pattern) / 4)


def _contains(text: Value, part: Value) -> int:
    return _tenths(size(text)) * _tenths(size(part))


def _both(left: Value, right: Value) -> int:
    return _tenths(size(left) + size(right))


def traversal(value: Value) -> int:
    """The cost of visiting everything in a value."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass")) // 10
    if isinstance(value, bytes):
        return len(value) // 10
    if is_list(value):
        return sum(map(traversal, elements(value)))
    if is_map(value):
        return sum(traversal(key) + traversal(entry) for key, entry in mapping(value).items())
    return 1


def _traversed(value: Value, *_: Value) -> int:
    return traversal(value)


def _joined(items: Value, separator: Value = "") -> int:
    """The cost by the size of the result, computed before it is built."""
    total = sum(size(item) for item in elements(items)) + size(separator) * max(0, size(items) - 1)
    return _tenths(2 * total)


def _allocated(count: int, factor: float = 1.0) -> int:
    return int(count * factor) + 1 + _LIST_CREATE


def _self_compared(items: Value) -> int:
    count = size(items)
    factor = 2.0
    if count and isinstance(elements(items)[0], str | bytes):
        factor += 0.1
    return _allocated(count * count, factor)


def _sliced(items: Value, start: Value, end: Value) -> int:
    return _allocated(max(0, min(int(end), size(items)) - max(0, int(start))))


def _flattened(items: Value, depth: Value = 1) -> int:
    return _allocated(size(items), float(depth)) if depth >= 0 else 1


def _ranged(count: Value) -> int:
    return _allocated(max(0, int(count)))


def _selector(_: Value, text: Value) -> int:
    return _LIST_CREATE + _tenths(size(text)) + math.ceil(math.ceil(size(text) * 0.5) * 50)


def _validated(kind: Value, text: Value) -> int:
    regex_size = getattr(kind, "regex_size", 128)
    return math.ceil((1 + size(text)) / 10) * math.ceil(regex_size / 4)


def _contains_ip(cidr: Value, other: Value) -> int:
    cost = _tenths(2 * size(cidr))
    return cost + (_tenths(size(other)) if isinstance(other, str) else 0)


def _contains_cidr(cidr: Value, other: Value) -> int:
    cost = _tenths(2 * size(cidr)) + _tenths(size(cidr)) + 1
    return cost + (_tenths(size(other)) if isinstance(other, str) else 0)


def _sets(factor: int) -> Callable[..., int]:
    return lambda left, right: 1 + size(left) * size(right) * factor


def _in_list(_: Value, items: Value) -> int:
    return size(items)


_BY_FUNCTION: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _traversed),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _first),
    **dict.fromkeys(("replace", "split"), _twice),
    "join": _joined,
    **dict.fromkeys(("find", "findAll"), _regex),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _first),
    "ip.isCanonical": _twice,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validated,
    **dict.fromkeys(("fieldSelector", "labelSelector"), _selector),
    "sort": _self_compared,
    "distinct": _self_compared,
    "slice": _sliced,
    "flatten": _flattened,
    "lists.range": _ranged,
    "@sortByAssociatedKeys": lambda items, keys: _self_compared(keys),
    "sets.contains": _sets(1),
    "sets.intersects": _sets(1),
    "sets.equivalent": _sets(2),
    "check": lambda *_: AUTHORIZATION_COST,
}

CALL_COSTS: dict[str, Any] = {
    signature.id: price for function, price in _BY_FUNCTION.items() for signature in FUNCTIONS[function]
} | {
    **dict.fromkeys(("starts_with_string", "ends_with_string", "string_to_bytes", "bytes_to_string"), _first),
    **dict.fromkeys(("strings_quote", "string_format", "string_to_ip"), _first),
    "cidr_ip": 1,
    "in_list": _in_list,
    "add_string": _both,
    "add_bytes": _both,
    "matches": _regex,
    "matches_string": _regex,
    "contains_string": _contains,
    "list_reverse": lambda items: _allocated(size(items)),
    "string_lower_ascii": _first,
    # Formats are looked up, not computed.
    **{signature.id: 1 for name, found in FUNCTIONS.items() if name.startswith("format.") for signature in found},
}


# --- cost ranges ----------------------------------------------------------------------------------------------------------
#
# Ranges of sizes and costs: a lower and an upper bound, added and multiplied in 64 bits without overflow.

MAX = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Range:
    low: int
    high: int

    def add(self, other: Range) -> Range:
        return Range(min(MAX, self.low + other.low), min(MAX, self.high + other.high))

    def times(self, other: Range) -> Range:
        return Range(min(MAX, self.low * other.low), min(MAX, self.high * other.high))

    def scale(self, factor: float) -> Range:
        return Range(_scaled(self.low, factor), _scaled(self.high, factor))

    def union(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))


def _scaled(count: int, factor: float) -> int:
    product = float(count) * factor
    return MAX if product >= 2.0**64 else math.ceil(product)


def fixed(count: int) -> Range:
    return Range(count, count)


UNKNOWN = Range(0, MAX)
