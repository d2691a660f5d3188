"""Compilation of source text to rules, message expressions and conditions.

This module runs all steps: parse, check, check literals, plan, estimate. Compiled objects are immutable and can be shared;
each evaluation gets a frame of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .compiler.checker import check
from .compiler.cost_estimate import estimate_cost
from .compiler.literals import check_literals
from .compiler.parser import parse
from .compiler.planner import Planner
from .compiler.plans import COST, Fn
from .compiler.syntax_tree import Call, Comprehension, Expr, Ident, ListExpr, MapExpr, Select
from .errors import CelError, CompileError, CostExceeded, EvalError, Issues
from .schema_types import Resolve, Schema, SchemaNode, node_for
from .static_types import (
    AUTHORIZER,
    BOOL,
    DYN,
    INT,
    RESOURCE_CHECK,
    STRING,
    TIMESTAMP,
    CelType,
    list_of,
    map_of,
    optional_of,
    struct,
)
from .values import NONE, Value, some
from .views import converter

SELF = "self"
OLD_SELF = "oldSelf"
# The cost limit of all rules of one object together at run time.
RUNTIME_BUDGET = 10_000_000
# The same for the match conditions of one webhook.
MATCH_CONDITIONS_BUDGET = 2_500_000


class BudgetExceeded(CelError):
    """The rules of one object exceeded their common budget."""


class Budget:
    """The remaining common cost budget of evaluations."""

    __slots__ = ("remaining",)

    def __init__(self, total: int = RUNTIME_BUDGET) -> None:
        self.remaining = total

    def spend(self, cost: int) -> None:
        if cost > self.remaining:
            self.remaining = -1
            raise BudgetExceeded("validation failed due to running out of cost budget, no further validation rules will be run")
        self.remaining -= cost


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression over numbered variables."""

    run: Fn
    base_cost: int
    padding: tuple[None, ...]

    def evaluate(self, values: list[Any], budget: Budget) -> Value:
        frame = [self.base_cost, *values, *self.padding]
        try:
            value = self.run(frame)
        except CelError:
            budget.spend(frame[COST])
            raise
        except RecursionError:
            raise CelError("evaluation nests too deeply") from None
        except (TypeError, AttributeError, KeyError, IndexError, ValueError, OverflowError, AssertionError):
            # The data does not fit its schema: types were checked against the schema, not against the data.
            budget.spend(frame[COST])
            raise EvalError("no such overload") from None
        cost = frame[COST]
        if cost > budget.remaining:
            budget.spend(cost)
        budget.remaining -= cost
        return value


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A validation rule, ready to run on `self` (and `oldSelf`)."""

    expression: str
    program: Program
    uses_old_self: bool
    estimated_cost: int
    # The maximum number of runs in one request, if no parent of its place in the schema has a bound.
    max_cardinality: int
    optional_old_self: bool
    node: SchemaNode

    def evaluate(self, self_value: Any, old_value: Any, budget: Budget) -> bool:
        """True when the rule holds. Raises CelError."""
        if self.optional_old_self:
            old_value = some(converter(self.node)(old_value)) if old_value is not None else NONE
        return self.program.evaluate([self_value, old_value], budget) is True


@dataclass(frozen=True, slots=True)
class CompiledMessage:
    """A message expression: the text to show when its rule fails."""

    expression: str
    program: Program
    estimated_cost: int
    optional_old_self: bool
    node: SchemaNode

    def evaluate(self, self_value: Any, old_value: Any, budget: Budget) -> str:
        if self.optional_old_self:
            old_value = some(converter(self.node)(old_value)) if old_value is not None else NONE
        value = self.program.evaluate([self_value, old_value], budget)
        if type(value) is not str:
            raise EvalError("messageExpression failed to convert to string")
        return value


@dataclass(frozen=True, slots=True)
class CompiledCondition:
    """An expression over named variables: a webhook's match condition, a policy's validation."""

    expression: str
    program: Program
    variables: tuple[str, ...]
    type: CelType

    def evaluate(self, variables: dict[str, Value], budget: Budget) -> Value:
        """The value. A variable that is not given is null."""
        return self.program.evaluate([variables.get(name) for name in self.variables], budget)


def compile_rule(
    expression: str,
    schema: Schema | SchemaNode,
    *,
    resolve: Resolve | None = None,
    optional_old_self: bool = False,
    stored: bool = False,
    root: bool = False,
) -> CompiledRule:
    """A rule of `x-kubernetes-validations`. Set `root` for the schema of a whole resource.

    Stored expressions must compile for as long as they are stored; since new and stored expressions get the same
    libraries in this version, `stored` has no effect yet.
    """
    del stored
    node = _node(schema, resolve, root)
    tree, program = _compile(expression, _rule_types(node, optional_old_self), _rule_nodes(node, optional_old_self), "")
    if not tree.type.same(BOOL):
        raise CompileError("cel expression must evaluate to a bool")
    return CompiledRule(
        expression,
        program,
        _mentions(tree, OLD_SELF),
        estimate_cost(tree, node).high,
        node.max_cardinality,
        optional_old_self,
        node,
    )


def compile_message(
    expression: str,
    schema: Schema | SchemaNode,
    *,
    resolve: Resolve | None = None,
    optional_old_self: bool = False,
    stored: bool = False,
    root: bool = False,
) -> CompiledMessage:
    """A `messageExpression`."""
    del stored
    node = _node(schema, resolve, root)
    types, nodes = _rule_types(node, optional_old_self), _rule_nodes(node, optional_old_self)
    tree, program = _compile(expression, types, nodes, "messageExpression ")
    if not tree.type.same(STRING):
        raise CompileError("messageExpression must evaluate to a string")
    return CompiledMessage(expression, program, estimate_cost(tree, node).high, optional_old_self, node)


def compile_condition(expression: str, variables: dict[str, CelType], *, result: CelType | None = BOOL) -> CompiledCondition:
    """An expression over `variables`; it must have the type `result`, or any type if that is None."""
    nodes: dict[str, SchemaNode | None] = dict.fromkeys(variables)
    tree, program = _compile(expression, variables, nodes, "")
    if result is not None and not tree.type.same(result):
        raise CompileError(f"must evaluate to {result.text} but got {tree.type.text}")
    return CompiledCondition(expression, program, tuple(variables), tree.type)


def _node(schema: Schema | SchemaNode, resolve: Resolve | None, root: bool) -> SchemaNode:
    node = schema if isinstance(schema, SchemaNode) else node_for(schema, resolve, root=root)
    if node is None:
        raise CompileError("failed to convert to declType for CEL validation rules")
    return node


def _rule_types(node: SchemaNode, optional_old_self: bool) -> dict[str, CelType]:
    return {SELF: node.type, OLD_SELF: optional_of(node.type) if optional_old_self else node.type}


def _rule_nodes(node: SchemaNode, optional_old_self: bool) -> dict[str, SchemaNode | None]:
    return {SELF: node, OLD_SELF: None if optional_old_self else node}


def _compile(
    expression: str, types: dict[str, CelType], nodes: dict[str, SchemaNode | None], prefix: str
) -> tuple[Expr, Program]:
    issues = Issues(expression)
    try:
        tree = parse(expression, issues)
        if tree is not None and not issues:
            check(tree, types, issues)
            if not issues:
                check_literals(tree, issues)
        issues.raise_if_any(f"{prefix}compilation failed: ")
        if tree is None:
            raise CompileError(f"{prefix}compilation failed: no expression")
        planner = Planner(nodes)
        plan = planner.plan(tree)
    except RecursionError:
        raise CompileError(f"{prefix}compilation failed: ERROR: <input>:-1:0: max recursion depth exceeded") from None
    except (EvalError, CostExceeded) as error:
        raise CompileError(f"{prefix}program instantiation failed: {error}") from None
    padding = (None,) * (planner.slots - 1 - len(nodes))
    return tree, Program(plan.run, plan.cost, padding)


def _mentions(tree: Expr, name: str) -> bool:
    """True when a variable of the rule is used; a loop variable of the same name is a different one."""
    pending: list[tuple[Expr, bool]] = [(tree, False)]
    while pending:
        node, hidden = pending.pop()
        if isinstance(node, Ident):
            if node.name == name and not hidden:
                return True
        elif isinstance(node, Select):
            pending.append((node.operand, hidden))
        elif isinstance(node, Call):
            pending.extend((arg, hidden) for arg in node.args)
            if node.target is not None:
                pending.append((node.target, hidden))
        elif isinstance(node, ListExpr):
            pending.extend((element, hidden) for element in node.elements)
        elif isinstance(node, MapExpr):
            pending.extend((part, hidden) for entry in node.entries for part in (entry.key, entry.value))
        elif isinstance(node, Comprehension):
            inner = hidden or name in (node.iter_var, node.iter_var2, node.accu_var)
            pending.extend(((node.iter_range, hidden), (node.accu_init, hidden), (node.step, inner), (node.result, inner)))
    return False


# --- admission variables --------------------------------------------------------------------------------------------------
#
# The variables of admission expressions (match conditions, admission policies) and their types.
#
# `object`, `oldObject` and `params` have any type; `request` and `namespaceObject` have known fields.

_STRINGS = list_of(STRING)
_KIND = struct("kubernetes.GroupVersionKind", dict.fromkeys(("group", "version", "kind"), STRING))
_RESOURCE = struct("kubernetes.GroupVersionResource", dict.fromkeys(("group", "version", "resource"), STRING))
_USER = struct(
    "kubernetes.UserInfo",
    {"username": STRING, "uid": STRING, "groups": _STRINGS, "extra": map_of(STRING, _STRINGS)},
)

REQUEST = struct(
    "kubernetes.AdmissionRequest",
    {
        "kind": _KIND,
        "resource": _RESOURCE,
        "subResource": STRING,
        "requestKind": _KIND,
        "requestResource": _RESOURCE,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": _USER,
        "dryRun": BOOL,
        "options": DYN,
    },
)
_CONDITION = struct(
    "kubernetes.NamespaceCondition",
    {"status": STRING, "type": STRING, "lastTransitionTime": TIMESTAMP, "message": STRING, "reason": STRING},
)
_METADATA = struct(
    "kubernetes.NamespaceMetadata",
    {
        **dict.fromkeys(("name", "generateName", "namespace", "UID", "resourceVersion"), STRING),
        **dict.fromkeys(("labels", "annotations"), map_of(STRING, STRING)),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), TIMESTAMP),
        **dict.fromkeys(("deletionGracePeriodSeconds", "generation"), INT),
        "finalizers": _STRINGS,
    },
)
NAMESPACE = struct(
    "kubernetes.Namespace",
    {
        "metadata": _METADATA,
        "spec": struct("kubernetes.NamespaceSpec", {"finalizers": _STRINGS}),
        "status": struct("kubernetes.NamespaceStatus", {"conditions": list_of(_CONDITION), "phase": STRING}),
    },
)

# The variables of a webhook's match condition.
MATCH_CONDITION_VARIABLES: dict[str, CelType] = {
    "object": DYN,
    "oldObject": DYN,
    "request": REQUEST,
    "authorizer": AUTHORIZER,
    "authorizer.requestResource": RESOURCE_CHECK,
}
# The variables of an admission policy.
POLICY_VARIABLES: dict[str, CelType] = {**MATCH_CONDITION_VARIABLES, "namespaceObject": NAMESPACE, "params": DYN}
