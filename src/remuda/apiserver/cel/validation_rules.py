"""`x-kubernetes-validations` of a whole schema: compiled once, run over every object.

A `RuleTree` has the shape of the schema and holds only branches with rules. Validation walks object and tree together:
rules that mention `oldSelf` run where an old value can be matched (properties, map entries, items of map lists by
key), null counts as absent, and all rules share one cost budget. `crd.cel_rules` checks which rules a CRD may have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from remuda.kube.errors import OMITTED, FieldError, duplicate, forbidden_field, invalid_value, required

from ..limits import cost_budget
from .errors import COST_LIMIT_TEXT, CelError, CompileError, CostExceeded
from .programs import Budget, BudgetExceeded, CompiledMessage, CompiledRule, compile_message, compile_rule
from .schema_types import Resolve, Schema, SchemaNode, node_for
from .views import same_json

MAX_MESSAGE_BYTES = 5 * 1024
_OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
_MESSAGE_OUT_OF_BUDGET = (
    "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run"
)

# True when the new value equals the old one: errors of unchanged values become warnings.
Unchanged: TypeAlias = Callable[[Any, Any], bool]


class _Stop(Exception):
    """The budget is exhausted: no further rule runs."""


@dataclass(slots=True)
class ValidationRule:
    """One entry of `x-kubernetes-validations`."""

    rule: str
    message: str
    reason: str
    field_path: str
    optional_old_self: bool
    compiled: CompiledRule | None = None
    problem: str = ""
    message_program: CompiledMessage | None = None
    message_problem: str = ""

    @property
    def shown(self) -> str:
        return self.message.strip() or self.rule.strip()

    @property
    def default_message(self) -> str:
        return self.message.strip() if self.message else f"failed rule: {self.rule.strip()}"


@dataclass(frozen=True, slots=True)
class _Place:
    """The current path in the object, and the pairs of new and old values for ratcheting."""

    path: str
    current: tuple[Any, Any] | None = None
    parent: tuple[Any, Any] | None = None

    def at(self, path: str, pair: tuple[Any, Any] | None) -> _Place:
        if self.current is None:
            return _Place(path, None, self.parent)
        return _Place(path, pair, self.current)


@dataclass(slots=True)
class _Run:
    budget: Budget
    unchanged: Unchanged | None
    warnings: list[FieldError]
    errors: list[FieldError] = field(default_factory=list)


@dataclass(slots=True)
class RuleTree:
    """The rules at one place of a schema and below."""

    schema: Schema
    rules: list[ValidationRule]
    items: RuleTree | None = None
    properties: dict[str, RuleTree] = field(default_factory=dict)
    additional: RuleTree | None = None
    all_of: list[RuleTree] = field(default_factory=list)

    def validate(
        self,
        obj: Any,
        old: Any = None,
        path: str = "",
        budget: Budget | None = None,
        *,
        ratchet: Unchanged | None = None,
        warnings: list[FieldError] | None = None,
    ) -> list[FieldError]:
        """The errors of all rules for `obj`.

        With `ratchet` (usually `unchanged`) and an old object, errors about values that did not change are added to
        `warnings` instead.
        """
        run = _Run(budget or Budget(), ratchet, warnings if warnings is not None else [])
        place = _Place(path, (obj, old) if ratchet is not None and old is not None else None)
        try:
            with cost_budget.BOUNDED:
                self._walk(run, obj, old, place)
        except _Stop:
            run.budget.remaining = -1
        return run.errors

    def all_rules(self) -> Iterator[ValidationRule]:
        yield from self.rules
        for below in (self.items, self.additional, *self.properties.values(), *self.all_of):
            if below is not None:
                yield from below.all_rules()

    def _walk(self, run: _Run, obj: Any, old: Any, place: _Place) -> None:
        if obj is None:
            return
        if self.rules:
            self._evaluate(run, obj, old, place)
        for nested in self.all_of:
            nested._walk(run, obj, old, _Place(place.path, None, place.parent))
        if isinstance(obj, list):
            self._walk_list(run, obj, old if isinstance(old, list) else [], place)
        elif isinstance(obj, dict):
            self._walk_map(run, obj, old if isinstance(old, dict) else {}, place)

    def _walk_list(self, run: _Run, obj: list[Any], old: list[Any], place: _Place) -> None:
        if self.items is None:
            return
        keyed = _keyed(self.schema, old)
        keys = self.schema.get("x-kubernetes-list-map-keys") or ()
        for index, item in enumerate(obj):
            key = _key(item, keys) if keyed else None
            before = keyed.get(key) if key is not None else None
            self.items._walk(
                run, item, before, place.at(f"{place.path}[{index}]", (item, before) if before is not None else None)
            )

    def _walk_map(self, run: _Run, obj: dict[str, Any], old: dict[str, Any], place: _Place) -> None:
        # Iterate over the smaller one: a schema may have many properties, and a list many objects with few of them.
        found = self.properties if len(self.properties) <= len(obj) else [name for name in obj if name in self.properties]
        for name in found:
            if name in obj:
                below = self.properties[name]
                child = f"{place.path}.{name}" if place.path else name
                below._walk(run, obj[name], old.get(name), self._child(place, child, name, obj, old))
        if self.additional is not None:
            for name, value in obj.items():
                child = f"{place.path}[{name}]"
                self.additional._walk(run, value, old.get(name), self._child(place, child, name, obj, old))

    @staticmethod
    def _child(place: _Place, path: str, name: str, obj: dict[str, Any], old: dict[str, Any]) -> _Place:
        if place.current is not None and place.parent is None and name in ("apiVersion", "kind"):
            # Both objects were converted to the same version, which hides changes of these fields.
            return _Place(path)
        return place.at(path, (obj[name], old[name]) if name in old else None)

    # --- rules of one place

    def _evaluate(self, run: _Run, obj: Any, old: Any, place: _Place) -> None:
        path = place.path or "<nil>"
        kind = str(self.schema.get("type") or "")
        if run.budget.remaining <= 0:
            run.errors.append(invalid_value(path, kind, _OUT_OF_BUDGET))
            raise _Stop
        for rule in self.rules:
            if rule.problem:
                run.errors.append(invalid_value(path, kind, f"rule compile error: {rule.problem}"))
                continue
            compiled = rule.compiled
            if compiled is None or (compiled.uses_old_self and old is None and not rule.optional_old_self):
                continue
            cost_budget.spend(10)
            try:
                if compiled.evaluate(obj, old, run.budget):
                    continue
            except BudgetExceeded:
                run.errors.append(invalid_value(path, kind, _OUT_OF_BUDGET))
                raise _Stop from None
            except CelError as error:
                run.errors.append(invalid_value(path, kind, _explain(error, rule)))
                if isinstance(error, CostExceeded):
                    raise _Stop from None
                continue
            self._fail(run, rule, obj, old, place)

    def _fail(self, run: _Run, rule: ValidationRule, obj: Any, old: Any, place: _Place) -> None:
        kind = str(self.schema.get("type") or "")
        path = place.path
        if rule.field_path:
            path = f"{path}.{rule.field_path}" if path else rule.field_path
        path = path or "<nil>"
        compiled = rule.compiled
        ratcheted = compiled is not None and not compiled.uses_old_self and _is_ratcheted(run, place)
        into = run.warnings if ratcheted else run.errors
        detail = ""
        if rule.message_program is not None:
            try:
                detail = _message(rule.message_program, obj, old, run.budget)
            except BudgetExceeded:
                into.append(invalid_value(path, kind, _MESSAGE_OUT_OF_BUDGET))
                raise _Stop from None
            except CostExceeded:
                text = "no further validation rules will be run due to call cost exceeds limit for messageExpression:"
                into.append(invalid_value(path, kind, f'{text} "{rule.message_program.expression}"'))
                raise _Stop from None
        value = OMITTED if kind in ("object", "array") else obj
        into.append(_error(rule.reason, path, value, detail or rule.default_message))


def unchanged(new: Any, old: Any) -> bool:
    """The usual ratchet: nothing changed at all."""
    return new is old or same_json(new, old)


def _is_ratcheted(run: _Run, place: _Place) -> bool:
    if run.unchanged is None:
        return False
    pair = place.current or place.parent
    return pair is not None and run.unchanged(*pair)


def _explain(error: CelError, rule: ValidationRule) -> str:
    text = str(error)
    if text.startswith("no such overload"):
        return f"'{text}': call arguments did not match a supported operator, function or macro signature for rule: {rule.shown}"
    if isinstance(error, CostExceeded):
        return (
            f"'{COST_LIMIT_TEXT}': no further validation rules will be run due to call cost exceeds limit for rule: {rule.shown}"
        )
    return f"{text} evaluating rule: {rule.shown}"


def _message(program: CompiledMessage, obj: Any, old: Any, budget: Budget) -> str:
    """The text of a message expression, or nothing if it is not usable."""
    try:
        text = program.evaluate(obj, old, budget).strip()
    except (BudgetExceeded, CostExceeded):
        raise
    except CelError:
        return ""
    if "\n" in text or len(text.encode("utf-8", "surrogatepass")) > MAX_MESSAGE_BYTES:
        return ""
    return text


def _error(reason: str, path: str, value: Any, detail: str) -> FieldError:
    if reason == "FieldValueForbidden":
        return forbidden_field(path, detail)
    if reason == "FieldValueRequired":
        return required(path, detail)
    if reason == "FieldValueDuplicate":
        return duplicate(path, value)
    return invalid_value(path, value, detail)


def _keyed(schema: Schema, items: list[Any]) -> dict[tuple[Any, ...], Any]:
    """Old items by their keys; empty unless the list is a map list."""
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    found: dict[tuple[Any, ...], Any] = {}
    if schema.get("x-kubernetes-list-type") != "map" or not keys:
        return found
    for item in items:
        key = _key(item, keys)
        if key is not None:
            found.setdefault(key, item)
    return found


def _key(item: Any, keys: Any) -> tuple[Any, ...] | None:
    if not isinstance(item, dict):
        return None
    values = [item.get(name) for name in keys]
    if any(type(value) not in (str, int, float, bool) for value in values):
        return None
    return tuple((type(value), value) for value in values)


# --- compiling


def compile_schema_rules(schema: Schema, *, resolve: Resolve | None = None, root: bool = True) -> RuleTree | None:
    """The rules of a structural schema, or None if there are none. Rules that do not compile become validation errors."""
    if not _has_rules(schema):
        return None
    return _tree(schema, schema, node_for(schema, resolve, root=root), resolve)


def _has_rules(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    if schema.get("x-kubernetes-validations"):
        return True
    below = [schema.get("items"), schema.get("additionalProperties"), *(schema.get("properties") or {}).values()]
    return any(_has_rules(part) for part in (*below, *(schema.get("allOf") or ())))


def _tree(rules: Schema, schema: Schema, node: SchemaNode | None, resolve: Resolve | None) -> RuleTree | None:
    """`rules` contains the rules, `schema` the structure; they differ inside an allOf."""
    found = RuleTree(schema, [read_rule(entry, schema, node, resolve) for entry in rules.get("x-kubernetes-validations") or ()])
    if isinstance(rules.get("items"), dict) and isinstance(schema.get("items"), dict):
        found.items = _tree(rules["items"], schema["items"], node.element if node is not None else None, resolve)
    for name, part in (rules.get("properties") or {}).items():
        inner = (schema.get("properties") or {}).get(name)
        if inner is None or not _has_rules(part):
            continue
        below = node.properties.get(name) if node is not None else None
        if below is None:
            continue
        subtree = _tree(part, inner, below, resolve)
        if subtree is not None:
            found.properties[name] = subtree
    if isinstance(rules.get("additionalProperties"), dict) and isinstance(schema.get("additionalProperties"), dict):
        below = node.element if node is not None else None
        found.additional = _tree(rules["additionalProperties"], schema["additionalProperties"], below, resolve)
    for nested in rules.get("allOf") or ():
        subtree = _tree(nested, schema, node, resolve) if _has_rules(nested) else None
        if subtree is not None:
            found.all_of.append(subtree)
    useful = found.rules or found.items or found.properties or found.additional or found.all_of
    return found if useful else None


def read_rule(entry: Schema, schema: Schema, node: SchemaNode | None, resolve: Resolve | None) -> ValidationRule:
    rule = ValidationRule(
        str(entry.get("rule") or ""),
        str(entry.get("message") or ""),
        str(entry.get("reason") or ""),
        "",
        bool(entry.get("optionalOldSelf")),
    )
    if not rule.rule.strip():
        return rule
    if node is None:
        rule.problem = "failed to convert to declType for CEL validation rules"
        return rule
    try:
        rule.compiled = compile_rule(rule.rule, node, resolve=resolve, optional_old_self=rule.optional_old_self)
    except CompileError as error:
        rule.problem = error.detail
        return rule
    expression = entry.get("messageExpression")
    if expression:
        try:
            rule.message_program = compile_message(expression, node, resolve=resolve, optional_old_self=rule.optional_old_self)
        except CompileError as error:
            rule.message_problem = error.detail
    if entry.get("fieldPath"):
        try:
            rule.field_path = normalize(str(entry["fieldPath"]), schema)
        except ValueError:
            rule.field_path = ""
    return rule


# --- rule field paths -----------------------------------------------------------------------------------------------------
#
# The `fieldPath` of a rule: a small JSON path into the rule's schema, checked and normalized.
#
# Errors of the rule are reported at that field instead of at the rule's own place.

_TOKEN = re.compile(r"'(?:\\.|[^'\\])*'|[.\[\]]|[^.\[\]]+", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


def normalize(path: str, schema: dict[str, Any]) -> str:
    """`.spec['a'].b` as `spec.a.b` (or `spec[a]` for keys of maps). Raises ValueError for paths that are not in the schema."""
    tokens = _TOKEN.findall(path)
    found = ""
    at = 0
    while at < len(tokens):
        opening = tokens[at]
        if opening not in ("[", "."):
            raise ValueError(f"expected [ or . but got: {opening}")
        if at + 1 >= len(tokens):
            raise ValueError("unexpected end of JSON path")
        name = tokens[at + 1]
        at += 2
        if opening == "[":
            name = _quoted(name)
            if at >= len(tokens):
                raise ValueError("unexpected end of JSON path")
            if tokens[at] != "]":
                raise ValueError(f"expected ] but got {tokens[at]}")
            at += 1
        found, schema = _step(found, schema, name)
    return found


def _quoted(token: str) -> str:
    if len(token) < 2 or token[0] != "'" or token[-1] != "'":
        raise ValueError(f"expected single quoted string but got {token}")

    def plain(match: re.Match[str]) -> str:
        if match[1] not in _PLAIN:
            raise ValueError(f"invalid string literal: invalid escape char {match[0]}")
        return _PLAIN[match[1]]

    return _ESCAPE.sub(plain, token[1:-1])


def _step(found: str, schema: dict[str, Any], name: str) -> tuple[str, dict[str, Any]]:
    properties = schema.get("properties")
    if properties:
        if name not in properties:
            raise ValueError("does not refer to a valid field")
        return (f"{found}.{name}" if found else name), properties[name]
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        return f"{found}[{name}]", additional
    raise ValueError("does not refer to a valid field")
