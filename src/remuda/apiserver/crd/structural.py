"""The check that a schema is structural: each field's type is given once, at the field, and alternatives only restrict values.

Pruning and defaulting need that. Errors come sorted by their text, as kube-apiserver sorts them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from remuda.kube.errors import FieldError, forbidden_field, invalid_value, required

from ..cel import re2
from .internal_version import Obj, dict_of, list_of, set_fields

_ROOT, _ITEM, _FIELD = "root", "item", "field"
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]

_ALTERNATIVES = ("allOf", "anyOf", "oneOf")
_UNSUPPORTED = (
    ("id", "id"),
    ("$schema", "schema"),
    ("$ref", "$ref"),
    ("patternProperties", "patternProperties"),
    ("dependencies", "dependencies"),
    ("additionalItems", "additionalItems"),
    ("definitions", "definitions"),
)
# Most schemas are leaves with a type and a description: without any of these keywords no further check is needed.
_ONE, _SEVERAL = ("not", "items", "additionalItems", "additionalProperties"), ("properties", "patternProperties")
_HOLDING = frozenset((*_ALTERNATIVES, *_ONE, *_SEVERAL, "definitions", "dependencies"))
_READ = _HOLDING | {name for name, _ in _UNSUPPORTED} | {"x-kubernetes-preserve-unknown-fields"}
# Keywords about values alone; they don't make a schema non-structural.
_BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_PLAIN = frozenset((*_BOUNDS, "type", "description", "title", "format", "default", "enum", "nullable"))


def conversion_problem(schema: Any) -> str:
    """The first reason why a schema can't be read as a structural one; empty when it can."""
    if not isinstance(schema, dict) or _READ.isdisjoint(schema):
        return ""
    for name, shown in _UNSUPPORTED:
        if schema.get(name) or (name == "additionalItems" and schema.get(name) is not None):
            return f"OpenAPIV3Schema '{shown}' is not supported"
    alternatives = (schema.get("not"), *(each for name in _ALTERNATIVES for each in list_of(schema.get(name))))
    for each in alternatives:
        if problem := conversion_problem(each):
            return problem
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
    items = schema.get("items")
    if isinstance(items, list) and items:
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    for each in (items, *dict_of(schema.get("properties")).values(), schema.get("additionalProperties")):
        if problem := conversion_problem(each):
            return problem
    return ""


def every_schema(schema: Any) -> Iterator[Obj]:
    """The schema and all schemas in it, outermost first."""
    stack = [schema]
    while stack:
        current = stack.pop()
        if not isinstance(current, dict):
            continue
        yield current
        if _HOLDING.isdisjoint(current):
            continue
        items = current.get("items")
        stack.extend(items if isinstance(items, list) else [items])
        for name in ("allOf", "anyOf", "oneOf"):
            stack.extend(list_of(current.get(name)))
        stack.append(current.get("not"))
        for name in ("properties", "patternProperties", "definitions", "dependencies"):
            stack.extend(dict_of(current.get(name)).values())
        stack.extend((current.get("additionalProperties"), current.get("additionalItems")))


def structural_errors(schema: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    _invariants(schema, _ROOT, path, errors)
    _complete_values(schema, schema, path, path, errors)
    return sorted(errors, key=str)


def _truthy(schema: Obj, name: str) -> bool:
    return bool(schema.get(name))


def _invariants(schema: Any, level: str, path: str, errors: list[FieldError]) -> None:
    if not isinstance(schema, dict):
        return
    kind = schema.get("type") or ""
    if kind and kind != "array" and level != _ROOT and _PLAIN.issuperset(schema):
        return
    items = schema.get("items")
    if kind == "array" and not isinstance(items, dict):
        errors.append(required(f"{path}.items", "must be specified"))
    _invariants(items, _ITEM, f"{path}.items", errors)
    properties = dict_of(schema.get("properties"))
    for name, child in properties.items():
        _invariants(child, _FIELD, f"{path}.properties[{name}]", errors)
    additional = schema.get("additionalProperties")
    if additional is not None:
        if level == _ROOT:
            errors.append(forbidden_field(f"{path}.additionalProperties", "must not be used at the root"))
        _invariants(additional, _FIELD, f"{path}.additionalProperties", errors)
    _extensions(schema, path, errors)
    any_of = list_of(schema.get("anyOf"))
    all_of = list_of(schema.get("allOf"))
    first_any_of = dict_of(all_of[0]).get("anyOf") if all_of else None
    _values(schema, any_of == _INT_OR_STRING, first_any_of == _INT_OR_STRING, path, errors)
    _types(schema, level, kind, path, errors)
    if level == _ROOT or _truthy(schema, "x-kubernetes-embedded-resource"):
        for name in ("kind", "apiVersion"):
            if name in properties and (found := dict_of(properties[name]).get("type") or "") != "string":
                errors.append(invalid_value(f"{path}.properties[{name}].type", found, "must be string"))
    if "metadata" in properties:
        _metadata(dict_of(properties["metadata"]), level, schema, f"{path}.properties[metadata]", errors)
    embedded = _truthy(schema, "x-kubernetes-embedded-resource")
    if embedded and not _truthy(schema, "x-kubernetes-preserve-unknown-fields") and not properties:
        why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        errors.append(required(f"{path}.properties", why))


def _extensions(schema: Obj, path: str, errors: list[FieldError]) -> None:
    if not _truthy(schema, "x-kubernetes-int-or-string"):
        return
    for name in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
        if _truthy(schema, name):
            errors.append(invalid_value(f"{path}.{name}", True, "must be false if x-kubernetes-int-or-string is true"))


_NO_TYPE = {
    _ROOT: "must not be empty at the root",
    _ITEM: "must not be empty for specified array items",
    _FIELD: "must not be empty for specified object fields",
}


def _types(schema: Obj, level: str, kind: str, path: str, errors: list[FieldError]) -> None:
    embedded = _truthy(schema, "x-kubernetes-embedded-resource")
    if embedded and kind != "object":
        why = "must be object if x-kubernetes-embedded-resource is true"
        errors.append(invalid_value(f"{path}.type", kind, why) if kind else required(f"{path}.type", why))
    elif not kind and not (
        _truthy(schema, "x-kubernetes-int-or-string") or _truthy(schema, "x-kubernetes-preserve-unknown-fields")
    ):
        errors.append(required(f"{path}.type", _NO_TYPE[level]))
    if embedded and schema.get("additionalProperties") is not None:
        why = "must not be used if x-kubernetes-embedded-resource is set"
        errors.append(forbidden_field(f"{path}.additionalProperties", why))
    if level == _ROOT and kind and kind != "object":
        errors.append(invalid_value(f"{path}.type", kind, "must be object at the root"))


def _metadata(metadata: Obj, level: str, parent: Obj, path: str, errors: list[FieldError]) -> None:
    checked = level == _ROOT or _truthy(parent, "x-kubernetes-embedded-resource")
    kind = metadata.get("type") or ""
    if checked and kind != "object":
        errors.append(invalid_value(f"{path}.type", kind, "must be object"))
    if level != _ROOT:
        return
    left = {name: metadata[name] for _, name in set_fields(metadata) if name not in ("type", "default")}
    names = set(dict_of(left.get("properties")))
    if not names or names <= {"name", "generateName"}:
        left.pop("properties", None)
    if left:
        why = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        errors.append(forbidden_field(path, why))


def _values(schema: Obj, skip_any_of: bool, skip_first_any_of: bool, path: str, errors: list[FieldError]) -> None:
    if not skip_any_of:
        for index, each in enumerate(list_of(schema.get("anyOf"))):
            _nested(each, False, f"{path}.anyOf[{index}]", errors)
    for index, each in enumerate(list_of(schema.get("allOf"))):
        _nested(each, skip_first_any_of and index == 0, f"{path}.allOf[{index}]", errors)
    for index, each in enumerate(list_of(schema.get("oneOf"))):
        _nested(each, False, f"{path}.oneOf[{index}]", errors)
    _nested(schema.get("not"), False, f"{path}.not", errors)
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and pattern:
        try:
            re2.compile_pattern(pattern)
        except re2.RegexError as error:
            why = f"must be a valid regular expression, but isn't: {error}"
            errors.append(invalid_value(f"{path}.pattern", pattern, why))


_FORBIDDEN = (
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
)
_BY_PRESENCE = frozenset(("default", "x-kubernetes-list-type", "x-kubernetes-map-type"))


def _nested(schema: Any, skip_any_of: bool, path: str, errors: list[FieldError]) -> None:
    """Schemas in alternatives may only restrict values."""
    if not isinstance(schema, dict):
        return
    _values(schema, skip_any_of, False, path, errors)
    _nested(schema.get("items"), False, f"{path}.items", errors)
    properties = dict_of(schema.get("properties"))
    for name, child in properties.items():
        _nested(child, False, f"{path}.properties[{name}]", errors)
    if schema.get("type"):
        errors.append(forbidden_field(f"{path}.type", "must be empty to be structural"))
    if schema.get("additionalProperties") not in (None, False):
        errors.append(forbidden_field(f"{path}.additionalProperties", "must be undefined to be structural"))
    for name, why in _FORBIDDEN:
        found = schema.get(name)
        if found is not None if name in _BY_PRESENCE else found:
            errors.append(forbidden_field(f"{path}.{name}", why))
    if "metadata" in properties:
        errors.append(forbidden_field(f"{path}.properties[metadata]", "must not be specified in a nested context"))


# --- completeness: alternatives only name fields that the structure has ----------------------------------------------


def _complete_values(values: Obj, schema: Any, path: str, at: str, errors: list[FieldError]) -> None:
    if not isinstance(schema, dict):
        errors.append(required(path, f"because it is defined in {at}"))
        return
    _complete(values.get("not"), schema, path, f"{at}.not", errors)
    for name in ("allOf", "anyOf", "oneOf"):
        for index, each in enumerate(list_of(values.get(name))):
            _complete(each, schema, path, f"{at}.{name}[{index}]", errors)


def _complete(values: Any, schema: Any, path: str, at: str, errors: list[FieldError]) -> None:
    if not isinstance(values, dict):
        return
    if not isinstance(schema, dict):
        errors.append(required(path, f"because it is defined in {at}"))
        return
    _complete_values(values, schema, path, at, errors)
    _complete(values.get("items"), schema.get("items"), f"{path}.items", f"{at}.items", errors)
    known = dict_of(schema.get("properties"))
    for name, child in dict_of(values.get("properties")).items():
        here, there = f"{path}.properties[{name}]", f"{at}.properties[{name}]"
        if name not in known:
            errors.append(required(here, f"because it is defined in {there}"))
        else:
            _complete(child, known[name], here, there, errors)


# --- paths into a schema --------------------------------------------------------------------------------------------------
#
# Paths into a schema, such as `.spec.replicas` or `.spec['my key']`, in rules and selectable fields.


_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"', "a": "\a", "v": "\v"}


class PathError(ValueError):
    """A path to no field; the message gives the reason in kube-apiserver's words."""


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == "'":
            match = _QUOTED.match(text, at)
            end = match.end() if match else len(text)
        elif text[at] in ".[]":
            end = at + 1
        else:
            found = re.compile(r"[.\[\]]").search(text, at)
            end = found.start() if found else len(text)
        tokens.append(text[at:end])
        at = end
    return tokens


def resolve(text: str, schema: Obj, allow_brackets: bool = True) -> tuple[str, Obj | None]:
    """The path in field-path form, and the schema it leads to."""
    tokens = iter(_tokens(text))
    path = ""
    here: Any = schema
    for token in tokens:
        if token == "[":
            if not allow_brackets:
                raise PathError("array notation is not allowed")
            name = _bracketed(tokens)
        elif token == ".":
            name = next(tokens, "")
            if not name:
                raise PathError("unexpected end of JSON path")
        else:
            raise PathError(f"expected [ or . but got: {token}")
        path, here = _step(path, here, name)
        if token == "[":
            closing = next(tokens, "")
            if closing != "]":
                raise PathError(f"expected ] but got {closing}" if closing else "unexpected end of JSON path")
    return path, here if isinstance(here, dict) else None


def _bracketed(tokens: Any) -> str:
    quoted = next(tokens, "")
    if not quoted:
        raise PathError("unexpected end of JSON path")
    if len(quoted) < 2 or quoted[0] != "'" or quoted[-1] != "'":
        raise PathError(f"expected single quoted string but got {quoted}")
    inside = quoted[1:-1]
    if any(char not in _ESCAPES for char in re.findall(r"\\(.)", inside)):
        raise PathError("invalid string literal: invalid syntax")
    return re.sub(r"\\(.)", lambda match: _ESCAPES[match.group(1)], inside)


def _step(path: str, here: Any, name: str) -> tuple[str, Any]:
    schema = dict_of(here)
    properties = schema.get("properties")
    if isinstance(properties, dict) and properties:
        if name not in properties:
            raise PathError("does not refer to a valid field")
        return (f"{path}.{name}" if path else name), properties[name]
    additional = schema.get("additionalProperties")
    if additional is None:
        raise PathError("does not refer to a valid field")
    return f"{path}[{name}]", additional
