"""How a CRD's objects are to be served: scale paths, printer columns, selectable fields."""

from __future__ import annotations

from typing import Any

from remuda.kube.errors import FieldError, duplicate, invalid_value, required, too_many

from . import schema_paths
from .internal_version import Internal, Obj, dict_of, schema_of, shown_text
from .schema_rules import Options
from .structural import conversion_problem

Errors = list[FieldError]

COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
MAX_SELECTABLE_FIELDS = 8


def _simple_path_errors(value: str, path: str) -> Errors:
    if not value.startswith("."):
        return [invalid_value(path, value, "must be a simple json path starting with .")]
    return []


def subresource_errors(subresources: Any, path: str) -> Errors:
    scale = dict_of(subresources).get("scale")
    if not isinstance(scale, dict):
        return []
    errors: Errors = []
    for field, start in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
        value, at = scale.get(field) or "", f"{path}.scale.{field}"
        if not value:
            errors.append(required(at))
        elif found := _simple_path_errors(value, at):
            errors += found
        elif not value.startswith(f"{start}."):
            errors.append(invalid_value(at, value, f"should be a json path under {start}"))
    value, at = scale.get("labelSelectorPath") or "", f"{path}.scale.labelSelectorPath"
    if value:
        found = _simple_path_errors(value, at)
        if not found and not value.startswith((".spec.", ".status.")):
            found = [invalid_value(at, shown_text(value), "should be a json path under either .spec or .status")]
        errors += found
    return errors


def column_errors(column: Obj, path: str) -> Errors:
    errors: Errors = []
    if not column.get("name"):
        errors.append(required(f"{path}.name"))
    kind, why = column.get("type") or "", f"must be one of {','.join(COLUMN_TYPES)}"
    if not kind:
        errors.append(required(f"{path}.type", why))
    elif kind not in COLUMN_TYPES:
        errors.append(invalid_value(f"{path}.type", kind, why))
    shown = column.get("format") or ""
    if shown and shown not in COLUMN_FORMATS:
        errors.append(invalid_value(f"{path}.format", shown, f"must be one of {','.join(COLUMN_FORMATS)}"))
    where = column.get("jsonPath") or ""
    if not where:
        errors.append(required(f"{path}.JSONPath"))
    else:
        errors += _simple_path_errors(where, f"{path}.JSONPath")
    return errors


def top_selectable_errors(form: Internal, options: Options) -> Errors:
    if form.validation is None:
        why = "may only be set when validations.schema is included"
        return [invalid_value("spec.selectableFields", "", why)]
    schema = schema_of(form.validation) or {}
    if problem := conversion_problem(schema):
        unreadable = invalid_value("spec.schema.openAPIV3Schema", "", problem)
        return [unreadable, *unreadable_selectable_errors(form.selectable, "spec.selectableFields")]
    return selectable_errors(form.selectable, schema, "spec.selectableFields", options, "")


def unreadable_selectable_errors(fields: list[Any], path: str) -> Errors:
    """What can be said about paths into a schema that can't be read."""
    errors: Errors = []
    for index, each in enumerate(fields):
        where = dict_of(each).get("jsonPath") or ""
        if not where:
            errors.append(required(f"{path}[{index}].jsonPath"))
        elif where[0] not in ".[":
            try:
                schema_paths.resolve(where, {})
            except schema_paths.PathError as error:
                errors.append(invalid_value(f"{path}[{index}].jsonPath", where, f"is an invalid path: {error}"))
    return errors


def selectable_errors(fields: list[Any], schema: Obj, path: str, options: Options, version: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, each in enumerate(fields):
        at = f"{path}[{index}].jsonPath"
        where = dict_of(each).get("jsonPath") or ""
        if not where:
            errors.append(required(at))
            continue
        try:
            found, target = schema_paths.resolve(where, schema, allow_brackets=False)
        except schema_paths.PathError as error:
            errors.append(invalid_value(at, where, f"is an invalid path: {error}"))
            continue
        if found.partition(".")[0].partition("[")[0] == "metadata":
            errors.append(invalid_value(at, where, "must not point to fields in metadata"))
        if dict_of(target).get("type") not in ("string", "boolean", "integer"):
            why = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats "
                "are allowed."
            )
            errors.append(invalid_value(at, where, why))
        if found in seen:
            errors.append(duplicate(at, where))
        seen.add(found)
    if len(seen) > MAX_SELECTABLE_FIELDS and version not in options.too_many_selectable_ok:
        errors.append(too_many(path, len(seen), MAX_SELECTABLE_FIELDS))
    return errors
