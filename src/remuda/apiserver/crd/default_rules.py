"""Defaults in a schema must themselves be valid, complete and without unknown fields."""

from __future__ import annotations

from typing import Any

from remuda.kube.encoding.jsonio import copy
from remuda.kube.errors import FieldError, aggregate_text, invalid_value

from ..cel.validation_rules import compile_schema_rules
from ..schema import list_types, metadata_coercion, pruning, validation
from ..schema.node import build
from .internal_version import Obj, dict_of

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
        pruning.prune(left, node, unknown, "", resource)
        if left != default:
            errors.append(invalid_value(path, default, "must not have unknown fields"))
    broken = pruning.coerce(copy(default), node, [], path)
    if broken is not None:
        return [*errors, broken]
    problems = list_types.embedded_errors(default, node, path) or validation.errors_of(node, default, path)
    return errors + (problems or _rule_errors(schema, default, path, resource))


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
    return problems or _rule_errors(schema, default, path, False)


def _rule_errors(schema: Obj, default: Any, path: str, root: bool) -> list[FieldError]:
    tree = compile_schema_rules(schema, root=root)
    if tree is None:
        return []
    return tree.validate(default, default, path) or tree.validate(default, None, path)
