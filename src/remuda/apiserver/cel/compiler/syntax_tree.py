"""The syntax tree of a CEL expression.

The parser builds it with macros already expanded, the checker writes types and chosen overloads into it, and the planner
and the cost estimator read it. Nodes have the offset in the source text for error messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from ..static_types import DYN, CelType
from ..values import Uint

Constant: TypeAlias = "bool | int | Uint | float | str | bytes | None"


@dataclass(slots=True, eq=False)
class Node:
    position: int
    type: CelType = field(default=DYN, init=False)


@dataclass(slots=True, eq=False)
class Literal(Node):
    value: Constant


@dataclass(slots=True, eq=False)
class Ident(Node):
    name: str
    # The type, if the name is one of a type (`int`, `string`): set by the checker; the planner makes it a constant.
    type_value: CelType | None = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Select(Node):
    operand: Expr
    field_name: str
    test_only: bool = False


@dataclass(slots=True, eq=False)
class Call(Node):
    function: str
    target: Expr | None
    args: list[Expr]
    overloads: tuple[str, ...] = field(default=(), init=False)


@dataclass(slots=True, eq=False)
class ListExpr(Node):
    elements: list[Expr]
    optional: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class MapEntry:
    position: int
    key: Expr
    value: Expr
    optional: bool


@dataclass(slots=True, eq=False)
class MapExpr(Node):
    entries: list[MapEntry]


@dataclass(slots=True, eq=False)
class StructExpr(Node):
    type_name: str
    fields: list[tuple[str, Expr]]


@dataclass(slots=True, eq=False)
class Loop:
    """The original macro of a comprehension, so that it can run as a plain loop instead of a generic fold."""

    kind: str  # all, exists, one, list, map, entries
    body: Expr
    filter: Expr | None = None


@dataclass(slots=True, eq=False)
class Comprehension(Node):
    """A fold; with an empty range and a false condition it binds `accu_var` for `result` instead."""

    iter_range: Expr
    iter_var: str
    iter_var2: str | None
    accu_var: str
    accu_init: Expr
    condition: Expr
    step: Expr
    result: Expr
    loop: Loop | None


Expr: TypeAlias = Literal | Ident | Select | Call | ListExpr | MapExpr | StructExpr | Comprehension


def clone(node: Expr) -> Expr:
    """A fresh copy, for macros that use an argument twice: each use gets types of its own."""
    if isinstance(node, Literal):
        return Literal(node.position, node.value)
    if isinstance(node, Ident):
        return Ident(node.position, node.name)
    if isinstance(node, Select):
        return Select(node.position, clone(node.operand), node.field_name, node.test_only)
    if isinstance(node, Call):
        target = clone(node.target) if node.target is not None else None
        return Call(node.position, node.function, target, [clone(arg) for arg in node.args])
    if isinstance(node, ListExpr):
        return ListExpr(node.position, [clone(element) for element in node.elements], node.optional)
    if isinstance(node, MapExpr):
        entries = [MapEntry(e.position, clone(e.key), clone(e.value), e.optional) for e in node.entries]
        return MapExpr(node.position, entries)
    if isinstance(node, StructExpr):
        return StructExpr(node.position, node.type_name, [(name, clone(value)) for name, value in node.fields])
    return _clone_fold(node)


def _clone_fold(node: Comprehension) -> Comprehension:
    """A copy of a fold. The loop's parts are nodes inside the step, so their copies are looked up by identity."""
    copies: dict[int, Expr] = {}
    step = _tracked(node.step, node.loop, copies)
    loop = None
    if node.loop is not None:
        kept = node.loop.filter
        loop = Loop(node.loop.kind, copies[id(node.loop.body)], copies[id(kept)] if kept is not None else None)
    return Comprehension(
        node.position,
        clone(node.iter_range),
        node.iter_var,
        node.iter_var2,
        node.accu_var,
        clone(node.accu_init),
        clone(node.condition),
        step,
        clone(node.result),
        loop,
    )


def _tracked(node: Expr, loop: Loop | None, copies: dict[int, Expr]) -> Expr:
    if loop is not None and (node is loop.body or node is loop.filter):
        copied = clone(node)
        copies[id(node)] = copied
        return copied
    if isinstance(node, Call):
        return Call(node.position, node.function, None, [_tracked(arg, loop, copies) for arg in node.args])
    if isinstance(node, ListExpr):
        return ListExpr(node.position, [_tracked(element, loop, copies) for element in node.elements])
    return clone(node)
