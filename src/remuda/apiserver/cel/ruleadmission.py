"""Which validation rules a CRD may bring: they must compile, make sense where they stand, and not cost too much.

Costs are estimated for the worst data the schema allows, times how often the rule could run in one object. One
expression may cost so much, all of them together so much; the texts tell the author which bound to add.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...kube.errors import FieldError, Verbatim, forbidden_field, invalid_value, not_supported, required
from ...kube.jsonio import dumps_text
from .fieldpaths import normalize
from .ranges import MAX
from .schematypes import Resolve, Schema, SchemaNode, node_for
from .validations import Rule, read_rule

EXPRESSION_LIMIT = 10_000_000
TOTAL_LIMIT = 100_000_000
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_HINT = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
)


@dataclass(slots=True)
class _Totals:
    total: int = 0
    expensive: list[tuple[int, str]] = field(default_factory=list)

    def add(self, path: str, cost: int) -> None:
        self.total = min(MAX, self.total + cost)
        if cost >= TOTAL_LIMIT // 100:
            self.expensive.append((cost, path))
            self.expensive.sort(key=lambda pair: -pair[0])
            del self.expensive[4:]


def rule_errors(schema: Schema, path: str = "", *, resolve: Resolve | None = None) -> list[FieldError]:
    """Everything wrong with the rules of the schema of a whole resource at `path`."""
    totals = _Totals()
    errors: list[FieldError] = []
    _walk(schema, node_for(schema, resolve, root=True), path, 1, "", totals, errors, resolve)
    if totals.total > TOTAL_LIMIT:
        contributed = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        errors.extend(forbidden_field(where, contributed) for _, where in totals.expensive)
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        errors.append(forbidden_field(path, over_budget(name, totals.total, TOTAL_LIMIT)))
    return errors


def over_budget(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    if factor > 100.0:
        shown = "more than 100x"
    else:
        shown = f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return f"{name} exceeds budget by factor of {shown} {_HINT}"


def _walk(
    schema: Schema,
    node: SchemaNode | None,
    path: str,
    cardinality: int | None,
    uncorrelatable: str,
    totals: _Totals,
    errors: list[FieldError],
    resolve: Resolve | None,
) -> bool:
    """Whether the rules here and below are well-formed; expressions are only looked at where they are."""
    below = _multiplied(cardinality, schema)
    fine = True
    for name, part in (schema.get("properties") or {}).items():
        child = node.properties.get(name) if node is not None else None
        fine &= _walk(part, child, f"{path}.properties[{name}]", below, uncorrelatable, totals, errors, resolve)
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        forbidden = uncorrelatable
        if schema.get("x-kubernetes-map-type") not in (None, "granular", "atomic"):
            forbidden = forbidden or path
        child = node.element if node is not None else None
        fine &= _walk(additional, child, f"{path}.additionalProperties", below, forbidden, totals, errors, resolve)
    items = schema.get("items")
    if isinstance(items, dict):
        forbidden = uncorrelatable if schema.get("x-kubernetes-list-type") == "map" else uncorrelatable or path
        child = node.element if node is not None else None
        fine &= _walk(items, child, f"{path}.items", below, forbidden, totals, errors, resolve)
    prefix = f"{path}.x-kubernetes-validations" if path else "x-kubernetes-validations"
    entries = [(entry, f"{prefix}[{index}]") for index, entry in enumerate(schema.get("x-kubernetes-validations") or ())]
    for entry, where in entries:
        problems = _shape_errors(entry, schema, where)
        errors.extend(problems)
        fine &= not problems
    if fine:
        for entry, where in entries:
            _check(read_rule(entry, schema, node, resolve), entry, where, cardinality, uncorrelatable, totals, errors)
    return fine


def _multiplied(cardinality: int | None, schema: Schema) -> int | None:
    """How often a child can occur, or None if nothing bounds that."""
    if cardinality is None:
        return None
    kind = schema.get("type")
    limit: Any = 1
    if kind == "array":
        limit = schema.get("maxItems")
    elif kind == "object" and schema.get("additionalProperties") is not None:
        limit = schema.get("maxProperties")
    return None if limit is None else min(MAX, cardinality * max(0, int(limit)))


def _has_newline(text: str) -> bool:
    return "\n" in text or "\r" in text


def _shape_errors(entry: Schema, schema: Schema, where: str) -> list[FieldError]:
    found: list[FieldError] = []
    rule, message = str(entry.get("rule") or ""), str(entry.get("message") or "")
    if not rule.strip():
        found.append(required(f"{where}.rule", "rule is not specified"))
    elif message and not message.strip():
        found.append(invalid_value(f"{where}.message", message, "must be non-empty if specified"))
    elif _has_newline(message.strip()):
        found.append(invalid_value(f"{where}.message", message, "must not contain line breaks"))
    elif _has_newline(rule.strip()) and not message.strip():
        found.append(required(f"{where}.message", "message must be specified if rule contains line breaks"))
    expression = str(entry.get("messageExpression") or "")
    if expression and not expression.strip():
        found.append(required(f"{where}.messageExpression", "messageExpression must be non-empty if specified"))
    reason = entry.get("reason")
    if reason is not None and reason not in _REASONS:
        found.append(not_supported(f"{where}.reason", reason, _REASONS))
    field_path = str(entry.get("fieldPath") or "")
    if field_path:
        if not field_path.strip():
            found.append(invalid_value(f"{where}.fieldPath", field_path, "must be non-empty if specified"))
        if _has_newline(field_path):
            found.append(invalid_value(f"{where}.fieldPath", field_path, "must not contain line breaks"))
        try:
            normalize(field_path, schema)
        except ValueError:
            found.append(invalid_value(f"{where}.fieldPath", field_path, "must be a valid path"))
    return found


def _check(
    rule: Rule,
    entry: Schema,
    where: str,
    cardinality: int | None,
    uncorrelatable: str,
    totals: _Totals,
    errors: list[FieldError],
) -> None:
    compiled = rule.compiled
    if compiled is None:
        errors.append(invalid_value(f"{where}.rule", _shown(entry), rule.problem))
        return
    times = cardinality if cardinality is not None else compiled.max_cardinality
    cost = min(MAX, compiled.estimated_cost * times)
    if cost > EXPRESSION_LIMIT:
        errors.append(forbidden_field(f"{where}.rule", over_budget("estimated rule cost", cost, EXPRESSION_LIMIT)))
    totals.add(f"{where}.rule", cost)
    if rule.message_problem:
        errors.append(invalid_value(f"{where}.messageExpression", _shown(entry), rule.message_problem))
    elif rule.message_program is not None:
        cost = rule.message_program.estimated_cost
        if cost > EXPRESSION_LIMIT:
            text = over_budget("estimated messageExpression cost", cost, EXPRESSION_LIMIT)
            errors.append(forbidden_field(f"{where}.messageExpression", text))
        totals.add(f"{where}.messageExpression", cost)
    if compiled.uses_old_self:
        if uncorrelatable:
            text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"
            errors.append(invalid_value(f"{where}.rule", rule.rule, text))
    elif entry.get("optionalOldSelf") is not None:
        text = "may not be set if oldSelf is not used in rule"
        errors.append(invalid_value(f"{where}.optionalOldSelf", bool(entry["optionalOldSelf"]), text))


def _shown(entry: Schema) -> Verbatim:
    """The rule as a bad value is printed: JSON with Go's field names and Go's caution about HTML."""
    fields = {
        "Rule": entry.get("rule") or "",
        "Message": entry.get("message") or "",
        "MessageExpression": entry.get("messageExpression") or "",
        "Reason": entry.get("reason"),
        "FieldPath": entry.get("fieldPath") or "",
        "OptionalOldSelf": entry.get("optionalOldSelf"),
    }
    text = dumps_text(fields)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Verbatim(text)
