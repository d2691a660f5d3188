"""Validation of a CRD's schema, field by field: allowed keywords, list and map types, places for defaults, rules.

Defaults in a schema must themselves be valid, complete and without unknown fields. The structural rules are :mod:`.structural`,
the meaning of rules :mod:`.cel_rules`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from remuda.kube.encoding.jsonio import copy
from remuda.kube.errors import FieldError, aggregate_text, forbidden_field, invalid_value, not_supported, required

from ..cel.validation_rules import compile_schema_rules
from ..schema import list_types, metadata_coercion, pruning, validation
from ..schema.node import build
from . import cel_rules, structural
from .internal_version import Obj, dict_of, list_of, shown_items
from .structural import conversion_problem

TYPES = ("array", "boolean", "integer", "number", "object", "string")
_META = ("metadata", "kind", "apiVersion")
REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_PLAIN = frozenset(
    ("type", "description", "title", "format", "enum", "pattern", "nullable", "minimum", "maximum", "minLength", "maxLength")
)
_BREAK = re.compile(r"[\n\r]")


@dataclass(frozen=True, slots=True)
class SchemaChecks:
    """The checks that apply. An update need not fix errors that the old object already had."""

    immutable_names: bool = False
    schema_required: bool = True
    valid_types: bool = True
    structural: bool = True
    pruned_defaults: bool = True
    atomic_sets: bool = True
    sound_map_keys: bool = True
    recognised_review_versions: bool = True
    invalid_ca_bundle_ok: bool = True
    too_many_selectable_ok: frozenset[str] = frozenset()
    # Versions with an unchanged schema: the costs of their rules are not checked again.
    unchanged_versions: frozenset[str] = frozenset()
    ignore_rule_cost: bool = False


@dataclass(frozen=True, slots=True)
class _Place:
    """The current place in the schema, as far as validation depends on it."""

    no_defaults: str | None = None
    inside_meta: bool = False
    # Below this path an item can't be matched with its old value, so rules can't compare the two.
    uncorrelatable: str = ""


@dataclass(slots=True)
class Findings:
    schema: list[FieldError] = field(default_factory=list)
    rules: list[FieldError] = field(default_factory=list)


def schema_errors(schema: Obj, path: str, options: SchemaChecks, context: cel_rules.Context | None) -> list[FieldError]:
    found = Findings()
    _visit(schema, path, _Place(), True, options, context, found)
    return found.schema + found.rules


def _visit(
    schema: Any, path: str, place: _Place, root: bool, options: SchemaChecks, context: cel_rules.Context | None, found: Findings
) -> None:
    if not isinstance(schema, dict) or _nothing_to_refuse(schema):
        return
    # Rules are compiled only if there is no error at or below their place, so each place collects its own errors first.
    here = Findings()
    here.schema.extend(_keyword_errors(schema, path, place, options))
    _visit_fields(schema, path, place, root, options, context, here)
    for name in ("allOf", "oneOf", "anyOf"):
        for index, each in enumerate(list_of(schema.get(name))):
            _visit(each, f"{path}.{name}[{index}]", place, False, options, None, here)
    for name, each in dict_of(schema.get("definitions")).items():
        _visit(each, f"{path}.definitions[{name}]", place, False, options, None, here)
    _visit_items(schema, path, place, options, context, here)
    for name, each in dict_of(schema.get("dependencies")).items():
        _visit(each, f"{path}.dependencies[{name}]", place, False, options, None, here)
    here.schema.extend(_extension_errors(schema, path, options))
    rules = list_of(schema.get("x-kubernetes-validations"))
    if rules:
        here.schema.extend(_rule_errors(schema, rules, f"{path}.x-kubernetes-validations"))
        if not here.schema and context is not None:
            at = f"{path}.x-kubernetes-validations"
            here.rules.extend(cel_rules.rule_errors(rules, at, context, place.uncorrelatable, options.ignore_rule_cost))
    found.schema.extend(here.schema)
    found.rules.extend(here.rules)


def _nothing_to_refuse(schema: Obj) -> bool:
    """Most schemas are leaves of which only the type matters here."""
    kind = schema.get("type")
    return kind in TYPES and _PLAIN.issuperset(schema)


def _visit_fields(
    schema: Obj,
    path: str,
    place: _Place,
    root: bool,
    options: SchemaChecks,
    context: cel_rules.Context | None,
    found: Findings,
) -> None:
    additional = schema.get("additionalProperties")
    properties = dict_of(schema.get("properties"))
    if additional is not None:
        if properties and additional is not True:
            why = "additionalProperties and properties are mutual exclusive"
            found.schema.append(forbidden_field(f"{path}.additionalProperties", why))
        inner = place
        if place.inside_meta:
            inner = replace(place, no_defaults="inside additionalProperties applying to object metadata")
        child = context.child(additional) if context and isinstance(additional, dict) else None
        _visit(additional, f"{path}.additionalProperties", inner, False, options, child, found)
    embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    for name, each in properties.items():
        inner = place
        if schema.get("x-kubernetes-map-type") not in (None, "granular", "atomic") and not place.uncorrelatable:
            inner = replace(inner, uncorrelatable=path)
        if (root or embedded) and name in _META:
            inner = replace(inner, inside_meta=True)
            if root:
                inner = replace(inner, no_defaults=f"in top-level {name}")
        child = context.child(each, name) if context and isinstance(each, dict) else None
        _visit(each, f"{path}.properties[{name}]", inner, False, options, child, found)
    _visit(schema.get("not"), f"{path}.not", place, False, options, None, found)


def _visit_items(
    schema: Obj, path: str, place: _Place, options: SchemaChecks, context: cel_rules.Context | None, found: Findings
) -> None:
    items = schema.get("items")
    if items is None:
        return
    inner = place
    if schema.get("x-kubernetes-list-type") != "map" and not place.uncorrelatable:
        inner = replace(place, uncorrelatable=path)
    for index, each in enumerate(items if isinstance(items, list) else [items]):
        child = context.child(each) if context and isinstance(each, dict) else None
        at = f"{path}.items[{index}]" if isinstance(items, list) else f"{path}.items"
        _visit(each, at, inner, False, options, child, found)


_REFUSED = (
    ("id", "id", "id is not supported"),
    ("additionalItems", "additionalItems", "additionalItems is not supported"),
    ("patternProperties", "patternProperties", "patternProperties is not supported"),
    ("definitions", "definitions", "definitions is not supported"),
    ("dependencies", "dependencies", "dependencies is not supported"),
    ("$ref", "$ref", "$ref is not supported"),
)
_REFUSED_WHEN_PRESENT = frozenset(("additionalItems", "dependencies", "$ref"))


def _keyword_errors(schema: Obj, path: str, place: _Place, options: SchemaChecks) -> list[FieldError]:
    errors: list[FieldError] = []
    kind = schema.get("type") or ""
    if options.valid_types and kind and kind not in TYPES:
        errors.append(not_supported(f"{path}.type", kind, TYPES))
    if schema.get("default") is not None and place.no_defaults is not None:
        errors.append(forbidden_field(f"{path}.default", f"must not be set {place.no_defaults}"))
    for name, shown, why in _REFUSED:
        value = schema.get(name)
        if value is not None if name in _REFUSED_WHEN_PRESENT else value:
            errors.append(forbidden_field(f"{path}.{shown}", why))
    if kind == "null":
        errors.append(forbidden_field(f"{path}.type", "type cannot be set to null, use nullable as an alternative"))
    if isinstance(schema.get("items"), list) and schema["items"]:
        errors.append(forbidden_field(f"{path}.items", "items must be a schema object and not an array"))
    if place.inside_meta and schema.get("x-kubernetes-embedded-resource"):
        why = "must not be used inside of resource meta"
        errors.append(forbidden_field(f"{path}.x-kubernetes-embedded-resource", why))
    if schema.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        errors.append(forbidden_field(f"{path}.uniqueItems", why))
    return errors


def _needs_type(schema: Obj, path: str, wanted: str, because: str) -> list[FieldError]:
    kind = schema.get("type") or ""
    if kind == wanted:
        return []
    why = f"must be {wanted} if {because} is specified"
    return [invalid_value(f"{path}.type", kind, why) if kind else required(f"{path}.type", why)]


def _extension_errors(schema: Obj, path: str, options: SchemaChecks) -> list[FieldError]:
    errors: list[FieldError] = []
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        errors.append(invalid_value(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined"))
    map_type = schema.get("x-kubernetes-map-type")
    if map_type is not None:
        errors += _needs_type(schema, path, "object", "x-kubernetes-map-type")
        if map_type not in ("atomic", "granular"):
            errors.append(not_supported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular")))
    errors += _list_errors(schema, path, options)
    if options.sound_map_keys:
        errors += map_key_errors(schema, path)
    return errors


def _list_errors(schema: Obj, path: str, options: SchemaChecks) -> list[FieldError]:
    errors: list[FieldError] = []
    list_type = schema.get("x-kubernetes-list-type")
    keys = list_of(schema.get("x-kubernetes-list-map-keys"))
    at = f"{path}.x-kubernetes-list-type"
    if list_type is not None:
        wrong = _needs_type(schema, path, "array", "x-kubernetes-list-type")
        errors += wrong
        if not wrong and options.atomic_sets:
            errors += atomic_set_errors(schema, path)
        if list_type not in ("atomic", "set", "map"):
            errors.append(not_supported(at, list_type, ("atomic", "set", "map")))
    if keys:
        why = "must be map if x-kubernetes-list-map-keys is non-empty"
        if list_type is None:
            errors.append(required(at, why))
        elif list_type != "map":
            errors.append(invalid_value(at, list_type, why))
    if list_type == "map":
        errors += _map_list_errors(schema, keys, path)
    return errors


def atomic_set_errors(schema: Obj, path: str) -> list[FieldError]:
    """Items of a set must be atomic: otherwise they can't be compared for equality."""
    items = schema.get("items")
    if schema.get("x-kubernetes-list-type") != "set" or not isinstance(items, dict):
        return []
    why = "must be atomic as item of a list with x-kubernetes-list-type=set"
    inner = items.get("x-kubernetes-list-type")
    if items.get("type") == "array" and inner not in (None, "atomic"):
        return [invalid_value(f"{path}.items.x-kubernetes-list-type", inner, why)]
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        return [invalid_value(f"{path}.items.x-kubernetes-map-type", inner, why)]
    return []


def _map_list_errors(schema: Obj, keys: list[Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    at = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        errors.append(required(at, "must not be empty if x-kubernetes-list-type is map"))
    items = schema.get("items")
    if items is None:
        errors.append(required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map"))
    if isinstance(items, list):
        why = "must only have a single schema if x-kubernetes-list-type is map"
        errors.append(invalid_value(f"{path}.items", shown_items(items), why))
    if not isinstance(items, dict):
        return errors
    kind = items.get("type") or ""
    if kind != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        return [*errors, invalid_value(f"{path}.items.type", kind, why)]
    properties = dict_of(items.get("properties"))
    seen: set[str] = set()
    for key in keys:
        if key not in properties:
            errors.append(invalid_value(at, keys, "entries must all be names of item properties"))
        elif dict_of(properties[key]).get("type") in ("array", "object"):
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            errors.append(invalid_value(f"{path}.items.properties[{key}].type", kind, why))
        if key in seen:
            errors.append(invalid_value(at, keys, "must not contain duplicate entries"))
        seen.add(key)
    return errors


def map_key_errors(schema: Obj, path: str) -> list[FieldError]:
    """The keys of a map-like list must be required and not nullable."""
    list_type = schema.get("x-kubernetes-list-type")
    items = schema.get("items")
    if not isinstance(items, dict) or list_type not in ("set", "map"):
        return []
    errors: list[FieldError] = []
    if items.get("nullable"):
        why = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        errors.append(forbidden_field(f"{path}.items.nullable", why))
    if list_type == "set":
        return errors
    properties = dict_of(items.get("properties"))
    for key in list_of(schema.get("x-kubernetes-list-map-keys")):
        if key not in properties:
            continue
        sub = dict_of(properties[key])
        at = f"{path}.items.properties[{key}]"
        if key not in list_of(items.get("required")) and sub.get("default") is None:
            why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            errors.append(required(f"{at}.default", why))
        if sub.get("nullable"):
            why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            errors.append(forbidden_field(f"{at}.nullable", why))
    return errors


def _rule_errors(schema: Obj, rules: list[Any], path: str) -> list[FieldError]:
    """Errors in the form of the rules; compilation is checked elsewhere."""
    errors: list[FieldError] = []
    readable = not conversion_problem(schema)
    for index, given in enumerate(rules):
        rule = dict_of(given)
        at = f"{path}[{index}]"
        errors += _message_errors(rule, at)
        expression = rule.get("messageExpression") or ""
        if expression and not expression.strip():
            errors.append(required(f"{at}.messageExpression", "messageExpression must be non-empty if specified"))
        reason = rule.get("reason")
        if reason is not None and reason not in REASONS:
            errors.append(not_supported(f"{at}.reason", reason, REASONS))
        where = rule.get("fieldPath") or ""
        if where and not where.strip():
            errors.append(invalid_value(f"{at}.fieldPath", where, "must be non-empty if specified"))
        if _BREAK.search(where):
            errors.append(invalid_value(f"{at}.fieldPath", where, "must not contain line breaks"))
        if where and readable and not _leads_somewhere(where, schema):
            errors.append(invalid_value(f"{at}.fieldPath", where, "must be a valid path"))
    return errors


def _leads_somewhere(path: str, schema: Obj) -> bool:
    try:
        structural.resolve(path, schema)
    except structural.PathError:
        return False
    return True


def _message_errors(rule: Obj, at: str) -> list[FieldError]:
    text, message = (rule.get("rule") or "").strip(), rule.get("message") or ""
    if not text:
        return [required(f"{at}.rule", "rule is not specified")]
    if message and not message.strip():
        return [invalid_value(f"{at}.message", message, "must be non-empty if specified")]
    if _BREAK.search(message.strip()):
        return [invalid_value(f"{at}.message", message, "must not contain line breaks")]
    if _BREAK.search(text) and not message.strip():
        return [required(f"{at}.message", "message must be specified if rule contains line breaks")]
    return []


_DEFAULTED_META = ("metadata", "apiVersion", "kind")
_IDENTITY = {"apiVersion": "validation/v1", "kind": "Validation"}

# Steps from the innermost resource to a field: a name, or None for an item of a list.
_Steps = tuple[str | None, ...]


def default_errors(schema: Obj, path: str, pruned: bool) -> list[FieldError]:
    """`pruned`: defaults must not have fields that the schema lacks."""
    errors: list[FieldError] = []
    _visit_default(schema, path, (), False, pruned, errors, root=True)
    return errors


def _visit_default(
    schema: Any, path: str, steps: _Steps, inside_meta: bool, pruned: bool, errors: list[FieldError], root: bool = False
) -> None:
    if not isinstance(schema, dict):
        return
    resource = root or bool(schema.get("x-kubernetes-embedded-resource"))
    if resource:
        steps, inside_meta = (), False
    if schema.get("default") is not None:
        at = f"{path}.default"
        errors += _in_meta(schema, at, steps) if inside_meta else _plain(schema, at, resource, pruned)
    _visit_default(schema.get("items"), f"{path}.items", (*steps, None), inside_meta, pruned, errors)
    for name, child in dict_of(schema.get("properties")).items():
        meta = inside_meta or (resource and name in _DEFAULTED_META)
        _visit_default(child, f"{path}.properties[{name}]", (*steps, name), meta, pruned, errors)


def _plain(schema: Obj, path: str, resource: bool, pruned: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    default = schema["default"]
    node = build(schema, literal=True)
    node.embedded = resource
    if pruned:
        left = copy(default)
        unknown: list[str] = []
        pruning.prune(left, node, unknown, "", resource)
        if left != default:
            errors.append(invalid_value(path, default, "must not have unknown fields"))
    broken = pruning.coerce(copy(default), node, [], path)
    if broken is not None:
        return [*errors, broken]
    problems = list_types.embedded_errors(default, node, path) or validation.errors_of(node, default, path)
    return errors + (problems or _default_rule_errors(schema, default, path, resource))


def _in_meta(schema: Obj, path: str, steps: _Steps) -> list[FieldError]:
    """A default inside metadata is valid when the resulting metadata is."""
    default = schema["default"]
    whole: Any = copy(default)
    for step in reversed(steps):
        whole = [whole] if step is None else {step: whole}
    obj = {**_IDENTITY, **dict_of(whole)}
    why = ""
    try:
        metadata_coercion.decode_meta(obj.get("metadata"), "metadata")
        problems = list_types.resource_errors(obj, "")
        if problems:
            why = aggregate_text([str(problem) for problem in problems])
    except metadata_coercion.MetaError as error:
        why = str(invalid_value("metadata", obj.get("metadata"), str(error)))
    if why:
        return [invalid_value(path, default, f"must result in valid metadata: {why}")]
    problems = validation.errors_of(build(schema, literal=True), default, path)
    return problems or _default_rule_errors(schema, default, path, False)


def _default_rule_errors(schema: Obj, default: Any, path: str, root: bool) -> list[FieldError]:
    tree = compile_schema_rules(schema, root=root)
    if tree is None:
        return []
    return tree.validate(default, default, path) or tree.validate(default, None, path)
