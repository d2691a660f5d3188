"""A checked tree to closures, which run when a rule is evaluated.

Every node becomes a function of one argument, the frame: a list of the cost spent so far, the variables, and a slot for
each loop variable. At run time, nothing is looked up by name and no scope is allocated.

Two things make this fast. Chains of selections on schema data read raw data and convert only the final result
(`Plan.raw`). And costs that do not depend on data are added up here, at compile time: a plan has a fixed cost
(`Plan.cost`), its parent adds that to its own, and only branches and loops count costs at run time.
Loops are in `comprehensions`, calls of functions in `calls`, selections in `selections`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import EvalError, no_such_overload
from ..schema_types import SchemaNode
from ..static_types import RUNTIME_NAMES, CelType
from ..values import NONE, Optional, TypeValue, Value, is_list, is_map
from .calls import plan_call
from .checker import TYPE_NAMES, qualified_name
from .comprehensions import plan_loop
from .plans import COST, NOTHING, Fn, Frame, Plan, Variable, constant, from_raw
from .selections import plan_index, plan_optional_select, plan_select
from .syntax_tree import Call, Comprehension, Expr, Ident, ListExpr, Literal, MapExpr, Select, StructExpr

_LIST_COST = 10
_MAP_COST = 30


class Planner:
    """Plans one expression; afterwards `slots` is the required length of its frame."""

    def __init__(self, variables: dict[str, SchemaNode | None]) -> None:
        self.scopes: list[dict[str, Variable]] = [{}]
        self.slots = 1
        self.dotted = frozenset(name for name in variables if "." in name)
        for name, node in variables.items():
            self.scopes[0][name] = Variable(self.slots, node)
            self.slots += 1
        self.visit: dict[type, Callable[[Any], Plan]] = {
            Literal: lambda node: constant(node.value),
            Ident: self._ident,
            Select: self._select,
            Call: self._call,
            ListExpr: self._list,
            MapExpr: self._map,
            StructExpr: self._struct,
            Comprehension: self._comprehension,
        }

    def plan(self, node: Expr) -> Plan:
        return self.visit[node.__class__](node)

    def new_slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def _ident(self, node: Ident) -> Plan:
        if node.type_value is not None:
            return constant(_type_constant(node.type_value))
        for scope in reversed(self.scopes):
            if node.name in scope:
                return _variable(scope[node.name])
        raise EvalError(f"no such attribute(s): {node.name}")

    def _struct(self, node: StructExpr) -> Plan:
        raise EvalError(f"unknown type: {node.type_name}")

    def _select(self, node: Select) -> Plan:
        name = qualified_name(node)
        if name is not None and name in self.dotted:
            return _variable(self.scopes[0][name])
        if name in TYPE_NAMES and node.type.kind == "type":
            return constant(_type_constant(TYPE_NAMES[name]))
        return plan_select(self.plan(node.operand), node.field_name, node.test_only)

    def _call(self, node: Call) -> Plan:
        function = node.function
        if function in ("_&&_", "_||_"):
            return self._logic(node)
        if function == "_?_:_":
            return self._ternary(node)
        if function == "_?._":
            field = node.args[1]
            return plan_optional_select(self.plan(node.args[0]), str(field.value) if isinstance(field, Literal) else "")
        if function in ("_[_]", "_[?_]"):
            return plan_index(self.plan(node.args[0]), self.plan(node.args[1]), optional=function == "_[?_]")
        if function in ("or", "orValue") and node.target is not None:
            return self._or(self.plan(node.target), self.plan(node.args[0]), unwrap=function == "orValue")
        exprs = [node.target, *node.args] if node.target is not None else node.args
        return plan_call(node, [self.plan(expr) for expr in exprs], [expr.type for expr in exprs])

    # --- branches

    def _logic(self, node: Call) -> Plan:
        """A chain of one operator: the first decisive term wins, errors count only if no term is decisive."""
        terms: list[Expr] = []
        pending: list[Expr] = [node]
        while pending:
            expr = pending.pop()
            if isinstance(expr, Call) and expr.function == node.function:
                pending.extend(reversed(expr.args))
            else:
                terms.append(expr)
        plans = [self.plan(term) for term in terms]
        decisive = node.function == "_||_"
        if len(plans) == 2:
            return Plan(_pair(plans[0].run, plans[1].run, plans[1].cost, decisive), plans[0].cost)
        rest = [(plan.run, plan.cost) for plan in plans[1:]]
        return Plan(_chain(plans[0].run, rest, decisive), plans[0].cost)

    def _ternary(self, node: Call) -> Plan:
        condition, then, otherwise = (self.plan(arg) for arg in node.args)
        test, yes, no = condition.run, then.run, otherwise.run
        # The first step of a bare path in a branch is free.
        yes_cost, no_cost = then.cost - then.is_path, otherwise.cost - otherwise.is_path

        def run(frame: Frame) -> Value:
            chosen = test(frame)
            if chosen is True:
                frame[COST] += yes_cost
                return yes(frame)
            if chosen is False:
                frame[COST] += no_cost
                return no(frame)
            raise no_such_overload()

        return Plan(run, condition.cost, is_path=False)

    @staticmethod
    def _or(left: Plan, right: Plan, unwrap: bool) -> Plan:
        first, second, cost = left.run, right.run, right.cost

        def run(frame: Frame) -> Value:
            value = first(frame)
            if type(value) is not Optional:
                return value  # only reached through dyn: a value that is not an optional is itself the result
            if value.present:
                return value.value if unwrap else value
            frame[COST] += cost
            return second(frame)

        return Plan(run, left.cost)

    # --- literals

    def _list(self, node: ListExpr) -> Plan:
        plans = [self.plan(element) for element in node.elements]
        if not node.optional and all(plan.constant is not NOTHING for plan in plans):
            return constant([plan.constant for plan in plans])
        cost = sum(plan.cost for plan in plans) + _LIST_COST
        parts = [plan.run for plan in plans]
        if not node.optional:
            return Plan(lambda frame: [part(frame) for part in parts], cost)
        optional = node.optional

        def run(frame: Frame) -> Value:
            found: list[Value] = []
            for index, part in enumerate(parts):
                value = part(frame)
                if index in optional:
                    if type(value) is not Optional:
                        raise EvalError("cannot initialize optional list element from non-optional value")
                    if not value.present:
                        continue
                    value = value.value
                found.append(value)
            return found

        return Plan(run, cost)

    def _map(self, node: MapExpr) -> Plan:
        keys = [self.plan(entry.key) for entry in node.entries]
        values = [self.plan(entry.value) for entry in node.entries]
        parts = [(k.run, v.run, e.optional) for k, v, e in zip(keys, values, node.entries, strict=True)]
        run = _map_builder(parts)
        if all(p.constant is not NOTHING for p in (*keys, *values)) and not any(e.optional for e in node.entries):
            return constant(run([0]))
        return Plan(run, sum(p.cost for p in (*keys, *values)) + _MAP_COST)

    # --- comprehensions

    def _comprehension(self, node: Comprehension) -> Plan:
        if node.loop is None:
            return self._bind(node)
        source = self.plan(node.iter_range)
        first, second = self.new_slot(), self.new_slot()
        element = source.node.element if source.node is not None and source.node.kind in ("list", "map") else None
        by_item = source.node is not None and source.node.kind == "list"
        scope: dict[str, Variable] = {}
        if node.iter_var2 is None:
            scope[node.iter_var] = Variable(first, element if by_item else None)
        else:
            scope[node.iter_var] = Variable(first)
            scope[node.iter_var2] = Variable(second, element)
        self.scopes.append(scope)
        body = self.plan(node.loop.body)
        kept = self.plan(node.loop.filter) if node.loop.filter is not None else None
        self.scopes.pop()
        slots = (first, second if node.iter_var2 is not None else None)
        return plan_loop(node.loop.kind, source, slots, body, kept)

    def _bind(self, node: Comprehension) -> Plan:
        value = self.plan(node.accu_init)
        slot = self.new_slot()
        self.scopes.append({node.accu_var: Variable(slot)})
        result = self.plan(node.result)
        self.scopes.pop()
        init, run_result = value.run, result.run

        def run(frame: Frame) -> Value:
            frame[slot] = init(frame)
            return run_result(frame)

        return Plan(run, value.cost + result.cost)


def _type_constant(kind: CelType) -> TypeValue:
    return TypeValue(RUNTIME_NAMES.get(kind.kind, kind.name))


def _variable(variable: Variable) -> Plan:
    slot = variable.slot

    def read(frame: Frame) -> Value:
        return frame[slot]

    if variable.node is not None:
        return from_raw(read, variable.node, 1)
    return Plan(read, 1, is_path=True)


def _pair(first: Fn, second: Fn, second_cost: int, decisive: bool) -> Fn:
    other = not decisive

    def run(frame: Frame) -> Value:
        try:
            value = first(frame)
        except EvalError:
            frame[COST] += second_cost
            try:
                if second(frame) is decisive:
                    return decisive
            except EvalError:
                pass
            raise
        if value is decisive:
            return decisive
        frame[COST] += second_cost
        if value is other:
            value = second(frame)
            if value is True or value is False:
                return value
            raise no_such_overload()
        if second(frame) is decisive:
            return decisive
        raise no_such_overload()

    return run


def _chain(first: Fn, rest: list[tuple[Fn, int]], decisive: bool) -> Fn:
    other = not decisive
    terms = [(first, 0), *rest]

    def run(frame: Frame) -> Value:
        problem: EvalError | None = None
        for term, cost in terms:
            frame[COST] += cost
            try:
                value = term(frame)
            except EvalError as error:
                problem = problem or error
                continue
            if value is decisive:
                return decisive
            if value is not other:
                problem = problem or no_such_overload()
        if problem is not None:
            raise problem
        return other

    return run


_KEYS = frozenset({str, int, bool})


def _map_builder(parts: list[tuple[Fn, Fn, bool]]) -> Fn:
    def run(frame: Frame) -> Value:
        built: dict[Value, Value] = {}
        for key_of, value_of, optional in parts:
            key = key_of(frame)
            value = value_of(frame)
            if optional:
                if type(value) is not Optional:
                    raise EvalError("cannot initialize optional entry from non-optional value")
                if value is NONE or not value.present:
                    continue
                value = value.value
            if is_list(key) or is_map(key) or key is None:
                raise EvalError("unsupported key type")
            built[key] = value
        return built

    return run
