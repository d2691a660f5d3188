"""Estimates for single calls: the cost of a function for arguments of given sizes, and the size of its result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..static_types import CelType
from .call_costs import AUTHORIZATION_COST, MAX, UNKNOWN, Range, fixed
from .syntax_tree import Expr, Literal

TRAVERSAL = 0.1
REGEX = 0.25
_MAX_FORMAT_REGEX = 128


@dataclass(frozen=True, slots=True)
class CallEstimate:
    cost: Range
    size: Range | None = None


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument: its tree, its size if known, and the schema's bounds for it and its items."""

    expr: Expr
    size: Range | None
    schema_size: Range | None
    item_size: Range | None

    @property
    def known(self) -> Range:
        return self.size or self.schema_size or UNKNOWN

    @property
    def item_type(self) -> CelType | None:
        params = self.expr.type.params
        return params[0] if params else None

    @property
    def items(self) -> Range:
        return self.item_size or UNKNOWN


_Estimate = Callable[[str, Operand | None, list[Operand]], CallEstimate | None]
_ONE = fixed(1)


def estimate_call(function: str, overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate:
    by_overload = _BY_OVERLOAD.get(overload)
    found = by_overload(overload, target, args) if by_overload is not None else None
    if found is None:
        by_function = _BY_FUNCTION.get(function)
        found = by_function(overload, target, args) if by_function is not None else None
    if found is None:
        standard = _STANDARD.get(overload)
        found = standard(overload, target, args) if standard is not None else None
    return found if found is not None else CallEstimate(_ONE)


def _nominal(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return CallEstimate(_ONE)


def _check(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return CallEstimate(fixed(AUTHORIZATION_COST))


def _selector(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    length = args[0].known
    return CallEstimate(fixed(10).add(length.scale(TRAVERSAL)).add(length.scale(0.5).scale(50.0)))


def _traverse_list(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    kind = target.item_type
    if kind is None:
        return CallEstimate(target.known.scale(TRAVERSAL))
    per = _ONE
    if kind.kind in ("string", "bytes"):
        per = per.add(target.items.scale(TRAVERSAL))
    return CallEstimate(target.known.times(per))


def _read_arg(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return CallEstimate(args[0].known.scale(TRAVERSAL)) if args else None


def _read_url(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return CallEstimate(args[0].known.scale(TRAVERSAL), args[0].known)


def _read_ip(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return CallEstimate(_ONE) if overload == "cidr_ip" else _read_arg(overload, target, args)


def _read_twice(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return CallEstimate(args[0].known.scale(2 * TRAVERSAL))


def _same_size(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    return CallEstimate(target.known.scale(TRAVERSAL), target.known)


def _replace(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None or len(args) < 2:
        return None
    size, old, new = target.known, args[0].known, args[1].known
    low_count = low_kept = high_count = high_kept = 0
    if old.low == 0:
        high_count, high_kept = min(MAX, size.high + 1), size.high
    elif new.high <= old.low:
        high_kept = size.high
    else:
        high_count = math.ceil(size.high / old.low)
    if old.high == 0:
        low_count, low_kept = min(MAX, size.low + 1), size.low
    elif old.high <= new.low:
        low_kept = size.low
    else:
        low_count = math.ceil(size.low / old.high)
    result = Range(low_count, high_count).times(new).add(Range(low_kept, high_kept))
    return CallEstimate(size.scale(2 * TRAVERSAL), result)


def _split(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    most = target.known.high
    if len(args) > 1 and isinstance(args[1].expr, Literal) and isinstance(args[1].expr.value, int):
        most = args[1].expr.value % 2**64
    return CallEstimate(target.known.scale(2 * TRAVERSAL), Range(0, most))


def _join(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    count = target.known
    size = count.times(target.items) if target.item_type is not None else fixed(0)
    if args:
        size = size.add(args[0].known.times(Range(max(0, count.low - 1), max(0, count.high - 1))))
    return CallEstimate(size.scale(TRAVERSAL), size)


def _regex_cost(text: Range, pattern: Range) -> Range:
    return text.add(_ONE).scale(TRAVERSAL).times(pattern.scale(REGEX))


def _find(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None or not args:
        return None
    return CallEstimate(_regex_cost(target.known, args[0].known), Range(0, target.known.high))


_ADDRESS = Range(4, 16)


def _contains_ip(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    cost = _ADDRESS.add(_ADDRESS).scale(TRAVERSAL)
    if overload == "cidr_contains_ip_string":
        cost = cost.add(args[0].known.scale(TRAVERSAL))
    return CallEstimate(cost)


def _contains_cidr(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    cost = _ADDRESS.add(_ADDRESS).scale(TRAVERSAL).add(_ADDRESS.scale(TRAVERSAL)).add(_ONE)
    if overload == "cidr_contains_cidr_string":
        cost = cost.add(args[0].known.scale(TRAVERSAL))
    return CallEstimate(cost)


def _validate(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return CallEstimate(args[0].known.scale(TRAVERSAL).scale(_MAX_FORMAT_REGEX * REGEX))


_O1 = frozenset({"net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver"})


def _equals(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    kind = args[0].expr.type
    if not kind.same(args[1].expr.type):
        return None
    if kind.name in _O1 or kind.name.startswith("kubernetes.authorization."):
        return CallEstimate(_ONE)
    if kind.name == "kubernetes.NamedFormat":
        return CallEstimate(Range(1, 64).scale(TRAVERSAL))
    if kind.name == "kubernetes.URL":
        size = args[1].size
        return CallEstimate(Range(1, size.high if size is not None else 1).scale(TRAVERSAL))
    return None


_NOMINAL = (
    "serviceAccount path group resource subresource namespace name allowed reason error errored masked prefixLength family "
    "isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast format.named sign asInteger isInteger "
    "asApproximateFloat isGreaterThan isLessThan compareTo add sub major minor patch getScheme getHostname getHost getPort "
    "getEscapedPath getQuery"
)

_BY_FUNCTION: dict[str, _Estimate] = {
    **dict.fromkeys(_NOMINAL.split(), _nominal),
    "check": _check,
    "fieldSelector": _selector,
    "labelSelector": _selector,
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _traverse_list),
    "url": _read_url,
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _same_size),
    "replace": _replace,
    "split": _split,
    "join": _join,
    "find": _find,
    "findAll": _find,
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _read_arg),
    "ip": _read_ip,
    "ip.isCanonical": _read_twice,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equals,
}


# --- CEL's own functions


def _of(operand: Operand) -> Range:
    return operand.size or UNKNOWN


def _format(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return CallEstimate(_of(target).scale(TRAVERSAL)) if target is not None else None


def _to_bytes(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    size = _of(args[0])
    return CallEstimate(size.scale(TRAVERSAL), Range(size.low, size.high * 4 % 2**64))


def _from_bytes(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    size = _of(args[0])
    return CallEstimate(size.scale(TRAVERSAL), Range(size.low // 4, size.high))


def _quote(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    size = _of(args[0])
    return CallEstimate(size.scale(TRAVERSAL), Range((size.low + 2) % 2**64, (size.high * 2 + 2) % 2**64))


def _affix(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return CallEstimate(_of(args[0]).scale(TRAVERSAL))


def _in_list(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return CallEstimate(_of(args[1]).scale(1.0))


def _matches(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    return CallEstimate(_regex_cost(_of(target), _of(args[0])))


def _contains(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    return CallEstimate(_of(target).scale(TRAVERSAL).times(_of(args[0]).scale(TRAVERSAL)))


def _concat(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    size = _of(args[0]).add(_of(args[1]))
    return CallEstimate(_ONE if overload == "add_list" else size.scale(TRAVERSAL), size)


def _compare(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    most = min(_of(args[0]).high, _of(args[1]).high)
    return CallEstimate(Range(1 if most else 0, most).scale(TRAVERSAL))


_STANDARD: dict[str, _Estimate] = {
    "string_format": _format,
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _from_bytes,
    "strings_quote": _quote,
    "starts_with_string": _affix,
    "ends_with_string": _affix,
    "in_list": _in_list,
    "matches_string": _matches,
    "contains_string": _contains,
    **dict.fromkeys(("add_string", "add_bytes", "add_list"), _concat),
    **{
        f"{name}_{kind}": _compare
        for name in ("less", "greater", "less_equals", "greater_equals")
        for kind in ("string", "bytes")
    },
    "equals": _compare,
    "not_equals": _compare,
}


# --- the list extension


def _literal_int(operand: Operand, otherwise: int) -> int:
    value = operand.expr.value if isinstance(operand.expr, Literal) else None
    return max(0, value) if type(value) is int else otherwise


def _allocating(factor: float, size: Range) -> CallEstimate:
    return CallEstimate(size.scale(factor).add(_ONE).add(fixed(10)), size)


def _slice(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    start, end = _literal_int(args[0], 0), _literal_int(args[1], target.known.high)
    return _allocating(1.0, fixed((end - start) % 2**64))


def _range(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return _allocating(1.0, fixed(_literal_int(args[0], MAX)))


def _reverse(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return _allocating(1.0, target.known) if target is not None else None


def _flatten(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    depth = _literal_int(args[0], MAX) if args else 1
    return _allocating(float(depth), target.known)


def _squared(operand: Operand, kind: str) -> CallEstimate:
    factor = 2.0 + (TRAVERSAL if kind in ("string", "bytes") else 0.0)
    return _allocating(factor, operand.known.times(operand.known))


def _distinct(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return _squared(target, "") if target is not None else None


def _sort(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return _squared(target, overload.split("_")[1]) if target is not None else None


def _sort_by(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    return _squared(args[0], overload.split("_")[1])


def _sets(overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    factor = 2.0 if overload == "list_sets_equivalent_list" else 1.0
    return CallEstimate(args[0].known.times(args[1].known).scale(factor).add(_ONE))


_SORTABLE = ["int", "uint", "double", "bool", "google.protobuf.Duration", "google.protobuf.Timestamp", "string", "bytes"]
_BY_OVERLOAD: dict[str, _Estimate] = {
    "list_slice": _slice,
    "lists_range": _range,
    "list_reverse": _reverse,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "list_distinct": _distinct,
    **{f"list_{kind}_sort": _sort for kind in _SORTABLE},
    **{f"list_{kind}_sortByAssociatedKeys": _sort_by for kind in _SORTABLE},
    **dict.fromkeys(("list_sets_contains_list", "list_sets_intersects_list", "list_sets_equivalent_list"), _sets),
}
