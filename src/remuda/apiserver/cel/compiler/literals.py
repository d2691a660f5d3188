"""Checks on a typed tree beyond types: literals that are always invalid.

Durations, timestamps and regular expressions written as literals must be valid, lists and maps must hold one type,
and a format string must fit its arguments. Runs after `checker`, on trees without type errors.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import EvalError, Issues
from ..library.strings import VERBS, FormatError, clauses, runtime_name, unknown_verb, wrong_argument
from ..re2 import RegexError, compile_pattern
from ..static_types import CelType
from .calls import IMPLEMENTATIONS
from .syntax_tree import Call, Comprehension, Expr, ListExpr, Literal, MapExpr, Select


def check_literals(tree: Expr, issues: Issues) -> None:
    nodes = list(_walk(tree))
    for function in ("duration", "timestamp"):
        for node, _ in nodes:
            if isinstance(node, Call) and node.function == function:
                _check_time(node, issues)
    for node, _ in nodes:
        if isinstance(node, Call) and node.function == "matches":
            _check_regex(node, issues)
    for node, formatted in nodes:
        if isinstance(node, ListExpr) and not formatted:
            _check_list(node, issues)
    for node, formatted in nodes:
        if isinstance(node, MapExpr) and not formatted:
            _check_map(node, issues)
    for node, _ in nodes:
        if isinstance(node, Call) and node.overloads == ("string_format",):
            _check_format(node, issues)


def _walk(tree: Expr) -> Iterator[tuple[Expr, bool]]:
    """All nodes, each with a flag for arguments of `format`, where mixed lists are allowed."""
    pending: list[tuple[Expr, bool]] = [(tree, False)]
    while pending:
        node, formatted = pending.pop()
        yield node, formatted
        below: list[Expr] = []
        if isinstance(node, Select):
            below = [node.operand]
        elif isinstance(node, Call):
            formatted = formatted or node.function == "format"
            below = [*([node.target] if node.target is not None else []), *node.args]
        elif isinstance(node, ListExpr):
            below = node.elements
        elif isinstance(node, MapExpr):
            below = [part for entry in node.entries for part in (entry.key, entry.value)]
        elif isinstance(node, Comprehension):
            below = [node.iter_range, node.accu_init, node.condition, node.step, node.result]
        pending.extend((child, formatted) for child in reversed(below))


def _check_time(node: Call, issues: Issues) -> None:
    arg = node.args[0] if node.args else None
    if not isinstance(arg, Literal):
        return
    try:
        for overload in node.overloads:
            IMPLEMENTATIONS[overload](arg.value)
    except EvalError:
        issues.report(arg.position, f"invalid {node.function} argument")


def _check_regex(node: Call, issues: Issues) -> None:
    arg = node.args[0] if node.args else None
    if not isinstance(arg, Literal) or not isinstance(arg.value, str):
        return
    try:
        compile_pattern(arg.value)
    except RegexError:
        issues.report(arg.position, "invalid matches argument")


def _mismatch(node: Expr, expected: CelType, found: CelType, issues: Issues) -> None:
    issues.report(node.position, f"expected type '{expected.text}' but found '{found.text}'")


def _inner(kind: CelType, optional: bool) -> CelType:
    return kind.params[0] if optional and kind.is_optional else kind


def _check_list(node: ListExpr, issues: Issues) -> None:
    expected: CelType | None = None
    for index, element in enumerate(node.elements):
        kind = _inner(element.type, index in node.optional)
        if expected is None:
            expected = kind
        elif not expected.same(kind):
            _mismatch(element, expected, kind, issues)
            return


def _check_map(node: MapExpr, issues: Issues) -> None:
    if not node.entries:
        return
    keys = node.entries[0].key.type
    values = _inner(node.entries[0].value.type, node.entries[0].optional)
    for entry in node.entries[1:]:
        if not keys.same(entry.key.type):
            _mismatch(entry.key, keys, entry.key.type, issues)
        kind = _inner(entry.value.type, entry.optional)
        if not values.same(kind):
            _mismatch(entry.value, values, kind, issues)


_ACCEPTED = {
    "d": frozenset({"int", "uint"}),
    "f": frozenset({"double", "string"}),
    "e": frozenset({"double", "string"}),
    "b": frozenset({"int", "uint", "bool"}),
    "x": frozenset({"int", "uint", "string", "bytes"}),
    "o": frozenset({"int", "uint"}),
    "s": frozenset(
        ["list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null"],
    ),
}


def _check_format(node: Call, issues: Issues) -> None:
    args = node.args[0]
    if not isinstance(node.target, Literal) or not isinstance(node.target.value, str) or not isinstance(args, ListExpr):
        return None
    used = 0
    try:
        for clause in clauses(node.target.value):
            if isinstance(clause, str):
                continue
            verb = clause[0]
            if not verb:
                return issues.report(node.position, "unexpected end of string")
            if used >= len(args.elements):
                return issues.report(node.position, f"index {used} out of range")
            if verb not in VERBS:
                return issues.report(node.position, unknown_verb(verb))
            bad = _unfit(args.elements[used], verb.lower())
            if bad is not None:
                name = bad.type.name if bad.type.kind in ("struct", "opaque") else bad.type.kind
                return issues.report(bad.position, wrong_argument(verb, runtime_name(name)))
            used += 1
    except FormatError as error:
        return issues.report(node.position, str(error))
    if len(args.elements) > used:
        message = f"too many arguments supplied to string.format (expected {used}, got {len(args.elements)})"
        issues.report(node.position, message)
    return None


def _unfit(arg: Expr, verb: str) -> Expr | None:
    """The node that a verb cannot print, if any."""
    if arg.type.kind != "dyn" and arg.type.kind not in _ACCEPTED[verb]:
        return arg
    if verb != "s":
        return None
    parts: list[Expr] = []
    if isinstance(arg, ListExpr):
        parts = arg.elements
    elif isinstance(arg, MapExpr):
        parts = [part for entry in arg.entries for part in (entry.key, entry.value)]
    for part in parts:
        bad = _unfit(part, verb)
        if bad is not None:
            return bad
    return None
