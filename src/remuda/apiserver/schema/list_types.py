"""Uniqueness in lists of type `set` and `map`; and the required fields of an embedded resource."""

from __future__ import annotations

from typing import Any

from remuda.kube import names
from remuda.kube.encoding.jsonio import dumps_sorted
from remuda.kube.errors import MAX_ERRORS, FieldError, duplicate, invalid_value, required

from ..registry import object_meta
from . import metadata_coercion
from .node import Node

Obj = dict[str, Any]


def list_errors(value: Any, node: Node | None, path: str = "") -> list[FieldError]:
    """Duplicates in lists that are sets or maps, at any depth."""
    errors: list[FieldError] = []
    if node is not None:
        _collect(value, node, path, errors)
    return errors


def _collect(value: Any, node: Node, path: str, errors: list[FieldError]) -> None:
    if type(value) is dict:
        for key, child in value.items():
            if node.additional is not None:
                _collect(child, node.additional, f"{path}[{key}]", errors)
            sub = node.properties.get(key)
            if sub is not None:
                _collect(child, sub, f"{path}.{key}" if path else key, errors)
    elif type(value) is list:
        if node.list_type == "set":
            errors.extend(duplicate(f"{path}[{index}]", value[index]) for index in _repeated(value))
        elif node.list_type == "map":
            errors.extend(_map_errors(value, node.map_keys, path))
        if node.items is not None:
            for index, item in enumerate(value):
                _collect(item, node.items, f"{path}[{index}]", errors)


def _map_errors(value: list[Any], keys: tuple[str, ...], path: str) -> list[FieldError]:
    for index, item in enumerate(value):
        if item is not None and type(item) is not dict:
            return [invalid_value(f"{path}[{index}]", item, "must be an object for an array of list-type map")]
    identities = [{key: _whole(item[key]) for key in keys if key in item} if item else {} for item in value]
    return [duplicate(f"{path}[{index}]", identities[index]) for index in _repeated(identities)]


def _whole(value: Any) -> Any:
    return int(value) if type(value) is float and value.is_integer() else value


def _repeated(values: list[Any]) -> list[int]:
    """The indexes where a value comes for the second time; third times are not reported."""
    if len(values) < 2:
        return []
    seen: dict[Any, int] = {}
    found: list[int] = []
    for index, value in enumerate(values):
        # Types differ (True is not 1); containers are compared by their canonical text.
        key = dumps_sorted(value) if type(value) in (dict, list) else (type(value), value)
        times = seen[key] = seen.get(key, 0) + 1
        if times == 2:
            found.append(index)
            if len(found) >= MAX_ERRORS:
                break
    return found


def embedded_errors(value: Any, node: Node | None, path: str = "") -> list[FieldError]:
    """The missing parts of embedded resources, at any depth: a kind, a version, valid metadata."""
    errors: list[FieldError] = []
    if node is not None:
        _collect_embedded(value, node, path, errors)
    return errors


def _collect_embedded(value: Any, node: Node, path: str, errors: list[FieldError]) -> None:
    if type(value) is dict:
        if node.embedded:
            errors.extend(resource_errors(value, path))
        for key, child in value.items():
            sub = node.properties.get(key)
            if sub is not None:
                _collect_embedded(child, sub, f"{path}.{key}" if path else key, errors)
            elif node.additional is not None:
                _collect_embedded(child, node.additional, f"{path}[{key}]", errors)
    elif type(value) is list and node.items is not None:
        for index, item in enumerate(value):
            _collect_embedded(item, node.items, f"{path}[{index}]", errors)


def resource_errors(value: Obj, path: str) -> list[FieldError]:
    at = f"{path}." if path else ""
    errors = [required(f"{at}{name}") for name in ("apiVersion", "kind") if name not in value]
    for name, found in value.items():
        if name in ("apiVersion", "kind"):
            problem = _identity_problem(name, found)
            if problem:
                errors.append(invalid_value(f"{at}{name}", found, problem))
        elif name == "metadata":
            errors.extend(_meta_errors(found, f"{at}metadata"))
    return errors


def _identity_problem(name: str, found: Any) -> str:
    if type(found) is not str:
        return "must be a string"
    if not found:
        return "must not be empty"
    if name == "apiVersion":
        return f"unexpected GroupVersion string: {found}" if found.count("/") > 1 else ""
    problems = names.dns1035_label_problems(found.lower())
    return "may have mixed case, but should otherwise match: " + ",".join(problems) if problems else ""


def _meta_errors(found: Any, path: str) -> list[FieldError]:
    try:
        meta, _ = metadata_coercion.decode_meta(found, path)
    except metadata_coercion.MetaError as error:
        return [invalid_value(path, found, str(error))]
    named = meta if meta.get("name") else {**meta, "name": "fakename"}
    return object_meta.validate_object_meta(named, bool(meta.get("namespace")), object_meta.path_segment_name, path)
