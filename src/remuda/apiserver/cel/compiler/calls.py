"""Calls: the function of an overload, its cost at run time, and the choice among overloads where types are only known then.

Where the checker chose one overload and all argument types are known, the closure calls the function directly.
Otherwise the kinds of the actual values pick the first overload that fits, as the reference implementation does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..errors import COST_LIMIT_TEXT, CompileError, CostExceeded, EvalError, no_such_overload
from ..library import kubernetes, lists, network, standard, strings
from ..library.signatures import BY_ID, Signature
from ..library.strings import runtime_name
from ..re2 import Pattern, RegexError, compile_pattern
from ..static_types import CelType
from ..values import Value, compare, elements, equal, kind_of, size
from .call_costs import CALL_COSTS
from .plans import CALL_LIMIT, COST, NOTHING, Fn, Frame, Plan, constant
from .syntax_tree import Call

_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})
# Functions whose errors do not name the types of invalid arguments.
_TERSE = frozenset({"startsWith", "endsWith", "contains", "matches"})
_OPEN = frozenset({"dyn", "any", "param", "error"})
_SCALARS = frozenset({"bool", "int", "uint", "double", "timestamp", "duration", "bytes", "string"})
_ORDER: dict[str, Callable[[int], bool]] = {
    "_<_": lambda order: order < 0,
    "_<=_": lambda order: order <= 0,
    "_>_": lambda order: order > 0,
    "_>=_": lambda order: order >= 0,
}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}


def plan_call(node: Call, args: list[Plan], types: list[CelType]) -> Plan:
    function = node.function
    if function in ("_==_", "_!=_"):
        return _equality(args, types, negated=function == "_!=_")
    if function in _ORDER:
        return _comparison(function, args, types)
    if function == "@in" and node.overloads == ("in_list",) and isinstance(args[1].constant, list):
        return _membership(args[0], args[1].constant, types[0])
    if function in ("matches", "find", "findAll") and isinstance(args[1].constant, str):
        return _with_regex(node, args, types)
    if function in _CONVERSIONS and len(args) == 1 and args[0].constant is not NOTHING:
        return _folded(node, args[0], types)
    implementations = {overload: IMPLEMENTATIONS[overload] for overload in node.overloads}
    return _dispatching(node, args, types, implementations)


def _folded(node: Call, arg: Plan, types: list[CelType]) -> Plan:
    plan = _dispatching(node, [arg], types, {overload: IMPLEMENTATIONS[overload] for overload in node.overloads})
    try:
        return constant(plan.run([0]))
    except EvalError as error:
        raise CompileError(f"program instantiation failed: {error}") from None


def _dispatching(
    node: Call,
    args: list[Plan],
    types: list[CelType],
    implementations: dict[str, Callable[..., Value]],
) -> Plan:
    cost = sum(arg.cost for arg in args)
    parts = [arg.run for arg in args]
    if len(node.overloads) == 1 and not any(kind.kind in _OPEN for kind in types):
        overload = node.overloads[0]
        price = CALL_COSTS.get(overload)
        if price is None:
            return Plan(_direct(implementations[overload], parts), cost + 1)
        if isinstance(price, int):
            return Plan(_direct(implementations[overload], parts), cost + price)
        return Plan(_priced(implementations[overload], parts, price), cost)
    return Plan(_choosing([BY_ID[overload] for overload in node.overloads], implementations, parts), cost)


def _direct(function: Callable[..., Value], parts: list[Fn]) -> Fn:
    if len(parts) == 1:
        only = parts[0]
        return lambda frame: function(only(frame))
    if len(parts) == 2:
        first, second = parts
        return lambda frame: function(first(frame), second(frame))
    return lambda frame: function(*[part(frame) for part in parts])


def _priced(function: Callable[..., Value], parts: list[Fn], price: Callable[..., int]) -> Fn:
    """Adds the cost before the call, where it follows from the arguments: work above the limit never starts."""

    def run(frame: Frame) -> Value:
        values = [part(frame) for part in parts]
        spent = frame[COST] + price(*values)
        if spent > CALL_LIMIT:
            raise CostExceeded(COST_LIMIT_TEXT)
        frame[COST] = spent
        return function(*values)

    return run


def _runtime_kind(value: Value) -> str:
    """The kind of a value; for lists and maps with that of their first element, for the choice among overloads."""
    kind = kind_of(value)
    if kind == "list" and len(value):
        return f"list {kind_of(elements(value)[0])}"
    return kind


def _fits(signature: Signature, kinds: tuple[str, ...]) -> bool:
    return all(_accepts(wanted, kind) for wanted, kind in zip(signature.args, kinds, strict=True))


def _accepts(wanted: CelType, kind: str) -> bool:
    if wanted.kind in _OPEN:
        return True
    outer, _, inner = kind.partition(" ")
    if outer != (wanted.name if wanted.kind in ("struct", "opaque") else wanted.kind):
        return False
    if wanted.kind != "list" or not inner:
        return True
    # A list of lists accepts any list, since `flatten` accepts flat ones too.
    return wanted.params[0].kind in (*_OPEN, "list", inner)


def _no_overload(function: str, kinds: tuple[str, ...]) -> EvalError:
    if function[0] in "_!-@" or function in _TERSE:
        return no_such_overload()
    if function == "size":
        return EvalError("no such overload: size")
    shown = ", ".join(runtime_name(kind.partition(" ")[0]) for kind in kinds)
    return EvalError(f"no such overload: {function}({shown})")


def _choosing(signatures: list[Signature], implementations: dict[str, Callable[..., Value]], parts: list[Fn]) -> Fn:
    known: dict[tuple[str, ...], tuple[Callable[..., Value], Any]] = {}

    def run(frame: Frame) -> Value:
        values = [part(frame) for part in parts]
        kinds = tuple(map(_runtime_kind, values))
        chosen = known.get(kinds)
        if chosen is None:
            for signature in signatures:
                if _fits(signature, kinds):
                    chosen = known[kinds] = (implementations[signature.id], CALL_COSTS.get(signature.id, 1))
                    break
            else:
                frame[COST] += 1
                raise _no_overload(signatures[0].function, kinds)
        function, price = chosen
        spent = frame[COST] + (price if type(price) is int else price(*values))
        if spent > CALL_LIMIT:
            raise CostExceeded(COST_LIMIT_TEXT)
        frame[COST] = spent
        return function(*values)

    return run


# --- operators with closures of their own


def _tenths(count: int) -> int:
    return -(-count // 10)


def _equality(args: list[Plan], types: list[CelType], negated: bool) -> Plan:
    first, second = args[0].run, args[1].run
    cost = args[0].cost + args[1].cost
    kinds = {types[0].kind, types[1].kind}
    if len(kinds) == 1 and kinds <= _SCALARS:
        compared = operator.ne if negated else operator.eq
        if kinds <= {"string", "bytes"}:

            def run_text(frame: Frame) -> Value:
                left, right = first(frame), second(frame)
                frame[COST] += _tenths(min(len(left), len(right)))
                return compared(left, right)

            return Plan(run_text, cost)
        return Plan(lambda frame: compared(first(frame), second(frame)), cost + 1)

    def run(frame: Frame) -> Value:
        left, right = first(frame), second(frame)
        spent = frame[COST] + _tenths(min(size(left), size(right)))
        if spent > CALL_LIMIT:
            raise CostExceeded(COST_LIMIT_TEXT)
        frame[COST] = spent
        return equal(left, right) is not negated

    return Plan(run, cost)


def _comparison(function: str, args: list[Plan], types: list[CelType]) -> Plan:
    first, second = args[0].run, args[1].run
    cost = args[0].cost + args[1].cost
    kinds = {types[0].kind, types[1].kind}
    compared = _OPERATORS[function]
    if kinds <= {"int", "uint"} or (len(kinds) == 1 and kinds <= {"bool", "timestamp", "duration"}):
        fixed = args[1].constant
        if fixed is not NOTHING and "int" in kinds:
            return Plan(lambda frame: compared(first(frame), fixed), cost + 1)
        return Plan(lambda frame: compared(first(frame), second(frame)), cost + 1)
    holds = _ORDER[function]

    def run(frame: Frame) -> Value:
        left, right = first(frame), second(frame)
        if type(left) is str or type(left) is bytes:
            frame[COST] += _tenths(min(size(left), size(right)))
        else:
            frame[COST] += 1
        if type(left) is str and type(right) is str:
            # Go compares the bytes of the text; UTF-8 keeps the order of code points.
            return compared(left, right)
        return holds(compare(left, right))

    return Plan(run, cost)


def _membership(arg: Plan, items: list[Value], kind: CelType) -> Plan:
    """`x in [constants]` as one lookup, at no more cost than x."""
    if not items:
        return constant(False)
    run = arg.run
    simple = all(type(item) is str for item in items) if kind.kind == "string" else False
    simple = simple or (kind.kind in ("int", "uint", "double") and not any(type(item) is bool for item in items))
    try:
        known = frozenset(items) if simple else None
    except TypeError:
        known = None
    if known is not None:
        return Plan(lambda frame: run(frame) in known, arg.cost)

    def search(frame: Frame) -> Value:
        value = run(frame)
        return any(equal(item, value) for item in items)

    return Plan(search, arg.cost)


def _with_regex(node: Call, args: list[Plan], types: list[CelType]) -> Plan:
    """A call with a constant pattern, which is compiled once."""
    try:
        pattern: Pattern = compile_pattern(args[1].constant)
    except RegexError as error:
        raise CompileError(f"program instantiation failed: {error}") from None
    name = node.function

    def search(text: Value, _: Value, limit: int = -1) -> Value:
        if type(text) is not str:
            raise no_such_overload()
        if name == "matches":
            return pattern.matches(text)
        if name == "findAll":
            return pattern.find_all(text, limit)
        span = pattern.find(text)
        return text[span[0] : span[1]] if span is not None else ""

    return _dispatching(node, args, types, dict.fromkeys(node.overloads, search))


# --- implementations of overloads -----------------------------------------------------------------------------------------
#
# The implementations of all overloads by id, from all libraries.
#
# An overload in `signatures` without an entry here would only fail when called, so completeness is checked on import.


IMPLEMENTATIONS: dict[str, Callable[..., Value]] = {
    **standard.FUNCTIONS,
    **strings.FUNCTIONS,
    **lists.FUNCTIONS,
    **network.FUNCTIONS,
    **kubernetes.FUNCTIONS,
}

# Planned by `compiler.planner`, `compiler.selections` and `compiler.calls`, without a function here.
_BUILT_IN = frozenset(
    {"logical_and", "logical_or", "conditional", "equals", "not_equals", "select_optional_field", "@mapInsert_map_map"}
    | {"optional_or_optional", "optional_orValue_value"}
)
_OPERATOR_PREFIXES = ("index_", "less_", "greater_", "optional_list_", "optional_map_", "list_optindex", "map_optindex")

missing = [
    overload
    for overload in BY_ID
    if overload not in IMPLEMENTATIONS and overload not in _BUILT_IN and not overload.startswith(_OPERATOR_PREFIXES)
]
if missing:
    raise RuntimeError(f"overloads without implementation: {missing}")
