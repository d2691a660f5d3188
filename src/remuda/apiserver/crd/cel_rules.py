"""CEL rules in a CRD's schema: whether they compile, and their worst-case cost.

The language is :mod:`remuda.apiserver.cel`; this module knows how often a rule may run (lists and maps multiply) and the
errors for a rule that is wrong or too expensive.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from remuda.kube.errors import INTERNAL, FieldError, forbidden_field, invalid_value

from ..cel.errors import CompileError
from ..cel.programs import compile_message, compile_rule
from ..cel.schema_types import SchemaNode, node_for
from .internal_version import Obj, dict_of, shown_rule

RULE_COST_LIMIT = 10_000_000
SCHEMA_COST_LIMIT = 100_000_000
_MAX_COST = (1 << 64) - 1
_MOST_EXPENSIVE = 4


@dataclass(slots=True)
class Total:
    """The worst-case cost of all rules of a schema together, and the most expensive of them."""

    cost: int = 0
    expensive: list[tuple[str, int]] = field(default_factory=list)

    def observe(self, path: str, cost: int) -> None:
        self.cost = min(self.cost + cost, _MAX_COST)
        if cost >= SCHEMA_COST_LIMIT // 100:
            self.expensive.append((path, cost))
            self.expensive = sorted(self.expensive, key=lambda each: -each[1])[:_MOST_EXPENSIVE]


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """The result of compiling one rule."""

    problem: str = ""
    cost: int = 0
    max_cardinality: int = 1
    uses_old_self: bool = False
    message_problem: str = ""
    message_cost: int = 0


@dataclass(frozen=True, slots=True)
class Context:
    """A place in the schema: its CEL type, the maximum number of values there (None: no limit), and the cost so far."""

    schema: Obj
    node: SchemaNode | None
    times: int | None = 1
    total: Total = field(default_factory=Total)

    @classmethod
    def root(cls, schema: Obj) -> Context:
        return cls(schema, node_for(schema, root=True))

    def child(self, schema: Obj, name: str | None = None) -> Context:
        """The place of a property, or (without a name) of items and additional properties."""
        most = None if self.times is None else _most_elements(self.schema)
        times = None if most is None or self.times is None else min(self.times * most, _MAX_COST)
        node = None
        if self.node is not None:
            node = self.node.properties.get(name) if name is not None else self.node.element
        return Context(schema, node or node_for(schema), times, self.total)


def _most_elements(schema: Obj) -> int | None:
    kind = schema.get("type")
    if kind == "object" and schema.get("additionalProperties") is not None:
        limit = schema.get("maxProperties")
    elif kind == "array":
        limit = schema.get("maxItems")
    else:
        return 1
    return max(limit, 0) if isinstance(limit, int) else None


def rule_errors(rules: list[Any], path: str, context: Context, uncorrelatable: str, ignore_cost: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    if context.node is None:
        why = "internal error: failed to construct type information for x-kubernetes-validations rules"
        return [FieldError(INTERNAL, path, "", f"{why}: unable to convert structural schema to CEL declarations")]
    for index, given in enumerate(rules):
        rule = dict_of(given)
        result = check_rule(rule, context.node)
        at = f"{path}[{index}]"
        times = context.times if context.times is not None else result.max_cardinality
        cost = min(result.cost * times, _MAX_COST)
        if not ignore_cost and cost > RULE_COST_LIMIT:
            errors.append(forbidden_field(f"{at}.rule", cost_message("estimated rule cost", cost, RULE_COST_LIMIT)))
        context.total.observe(f"{at}.rule", cost)
        if result.problem:
            errors.append(invalid_value(f"{at}.rule", shown_rule(rule), result.problem))
        errors += _message_errors(rule, result, at, context, ignore_cost)
        errors += _old_self_errors(rule, result, at, uncorrelatable)
    return errors


def check_rule(rule: Obj, node: SchemaNode) -> RuleCheck:
    optional = bool(rule.get("optionalOldSelf"))
    try:
        compiled = compile_rule(rule.get("rule") or "", node, optional_old_self=optional)
    except CompileError as error:
        return RuleCheck(problem=error.detail)
    found = RuleCheck("", compiled.estimated_cost, compiled.max_cardinality, compiled.uses_old_self)
    expression = rule.get("messageExpression")
    if not expression:
        return found
    try:
        message = compile_message(expression, node, optional_old_self=optional)
    except CompileError as error:
        return replace(found, message_problem=error.detail)
    return replace(found, message_cost=message.estimated_cost)


def _message_errors(rule: Obj, result: RuleCheck, at: str, context: Context, ignore_cost: bool) -> list[FieldError]:
    where = f"{at}.messageExpression"
    if result.message_problem:
        return [invalid_value(where, shown_rule(rule), result.message_problem)]
    if not rule.get("messageExpression"):
        return []
    context.total.observe(where, result.message_cost)
    if ignore_cost or result.message_cost <= RULE_COST_LIMIT:
        return []
    return [forbidden_field(where, cost_message("estimated messageExpression cost", result.message_cost, RULE_COST_LIMIT))]


def _old_self_errors(rule: Obj, result: RuleCheck, at: str, uncorrelatable: str) -> list[FieldError]:
    if result.uses_old_self:
        if not uncorrelatable:
            return []
        why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"
        return [invalid_value(f"{at}.rule", rule.get("rule", ""), why)]
    if rule.get("optionalOldSelf") is None:
        return []
    why = "may not be set if oldSelf is not used in rule"
    return [invalid_value(f"{at}.optionalOldSelf", rule["optionalOldSelf"], why)]


def total_errors(context: Context, path: str) -> list[FieldError]:
    total = context.total
    if total.cost <= SCHEMA_COST_LIMIT:
        return []
    why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
    errors = [forbidden_field(each, why) for each, _ in total.expensive]
    what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
    return [*errors, forbidden_field(path, cost_message(what, total.cost, SCHEMA_COST_LIMIT))]


def cost_message(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    if factor > 100:
        shown = "more than 100x"
    else:
        shown = f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return (
        f"{what} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, and "
        "maxLength where arrays, maps, and strings are declared)"
    )
