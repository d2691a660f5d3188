"""Defaults in a schema must themselves be valid, complete and without unknown fields."""

from __future__ import annotations

from typing import Any

from remuda.kube.errors import FieldError, aggregate_text, invalid_value
from remuda.kube.jsonio import copy

from ..cel.validations import compile_schema_rules
from ..schema import cleaning, lists, typedmeta, values
from ..schema.node import build
from .shapes import Obj, dict_of

_META = ("metadata", "apiVersion", "kind")
_IDENTITY = {"apiVersion": "validation/v1", "kind": "Validation"}

# Steps from the innermost resource to a field: a name, or None for an item of a list.
_Steps = tuple[str | None, ...]


def default_errors(schema: Obj, path: str, pruned: bool) -> list[FieldError]:
    """`pruned`: defaults must not have fields that the schema lacks."""
    errors: list[FieldError] = []
    _visit(schema, path, (), False, pruned, errors, root=True)
    return errors


def _visit(
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
    _visit(schema.get("items"), f"{path}.items", (*steps, None), inside_meta, pruned, errors)
    for name, child in dict_of(schema.get("properties")).items():
        meta = inside_meta or (resource and name in _META)
        _visit(child, f"{path}.properties[{name}]", (*steps, name), meta, pruned, errors)


def _plain(schema: Obj, path: str, resource: bool, pruned: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    default = schema["default"]
    node = build(schema, literal=True)
    node.embedded = resource
    if pruned:
        left = copy(default)
        unknown: list[str] = []
        cleaning.prune(left, node, unknown, "", resource)
        if left != default:
            errors.append(invalid_value(path, default, "must not have unknown fields"))
    broken = cleaning.coerce(copy(default), node, [], path)
    if broken is not None:
        return [*errors, broken]
    problems = lists.embedded_errors(default, node, path) or values.errors_of(node, default, path)
    return errors + (problems or _rule_errors(schema, default, path, resource))


def _in_meta(schema: Obj, path: str, steps: _Steps) -> list[FieldError]:
    """A default inside metadata is right when the metadata that it makes is."""
    default = schema["default"]
    whole: Any = copy(default)
    for step in reversed(steps):
        whole = [whole] if step is None else {step: whole}
    obj = {**_IDENTITY, **dict_of(whole)}
    why = ""
    try:
        typedmeta.decode_meta(obj.get("metadata"), "metadata")
        problems = lists.resource_errors(obj, "")
        if problems:
            why = aggregate_text([str(problem) for problem in problems])
    except typedmeta.MetaError as error:
        why = str(invalid_value("metadata", obj.get("metadata"), str(error)))
    if why:
        return [invalid_value(path, default, f"must result in valid metadata: {why}")]
    problems = values.errors_of(build(schema, literal=True), default, path)
    return problems or _rule_errors(schema, default, path, False)


def _rule_errors(schema: Obj, default: Any, path: str, root: bool) -> list[FieldError]:
    tree = compile_schema_rules(schema, root=root)
    if tree is None:
        return []
    return tree.validate(default, default, path) or tree.validate(default, None, path)
