"""Results of planning: a closure, its fixed cost, and access to the raw data behind it.

Shared by `planner`, `comprehensions` and `calls`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..schema_types import SchemaNode
from ..values import Value
from ..views import converter, is_plain

# The cost spent so far, then one slot per variable.
Frame: TypeAlias = list[Any]
Fn: TypeAlias = Callable[[Frame], Value]

COST = 0
# The maximum cost of a single evaluation.
CALL_LIMIT = 1_000_000


class _Nothing:
    pass


NOTHING = _Nothing()


@dataclass(slots=True)
class Plan:
    run: Fn
    cost: int = 0
    # A value known at compile time, or NOTHING.
    constant: Any = NOTHING
    # A name or a path from one: such a path costs one unit per step and nothing more.
    is_path: bool = False
    raw: Fn | None = None
    node: SchemaNode | None = None


@dataclass(frozen=True, slots=True)
class Variable:
    slot: int
    node: SchemaNode | None = None  # the slot holds raw data of this node


def constant(value: Value) -> Plan:
    return Plan(lambda frame: value, 0, value)


def from_raw(raw: Fn, node: SchemaNode, cost: int) -> Plan:
    """A path into schema data, as a value and as raw data."""
    if is_plain(node):
        return Plan(raw, cost, is_path=True, raw=raw, node=node)
    convert = converter(node)

    def run(frame: Frame) -> Value:
        return convert(raw(frame))

    return Plan(run, cost, is_path=True, raw=raw, node=node)
