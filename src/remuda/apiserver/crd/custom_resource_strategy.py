"""Create and update of objects of one version of a CRD: the fields that a request may change, and validation.

Metadata is checked by the verbs. Here: schema, scale paths, embedded resources, list types, CEL rules, in kube-apiserver's
order; an update may keep errors that were there before and did not change.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from remuda.kube import errors, names
from remuda.kube.clock import parse_rfc3339
from remuda.kube.encoding.jsonio import dumps_sorted
from remuda.kube.encoding.jsonpath import JsonPath, JsonPathError, compile_path
from remuda.kube.errors import FieldError, go_float, go_quote, invalid_value

from ..cel.validation_rules import RuleTree, compile_schema_rules, unchanged
from ..registry import object_meta
from ..registry.strategy import NAME, Column, Elapsed, Strategy, warn
from ..schema import CompiledSchema, compile_schema
from .internal_version import Obj, dict_of, list_of

Errors = list[FieldError]
GetSchema = Callable[[], CompiledSchema]

_MAX_INT32 = (1 << 31) - 1
_STANDARD_FINALIZERS = frozenset(("orphan", "foregroundDeletion", "kubernetes"))
# Rules run only on objects of the right shape; these errors mean that the shape is wrong.
_BLOCKING = frozenset((errors.NOT_SUPPORTED, errors.REQUIRED, errors.TOO_LONG, errors.TOO_MANY, errors.TYPE_INVALID))
_BLOCKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
)


def crd_strategy(crd: Obj, version: Obj, get_schema: GetSchema) -> Strategy:
    """The strategy of `version` (its entry in the CRD's spec). The schema is compiled when first needed."""
    subresources = dict_of(version.get("subresources"))
    has_status = "status" in subresources
    checks = _Checks(crd, version, get_schema, dict_of(subresources.get("scale")))
    fields = [dict_of(each).get("jsonPath") or "" for each in list_of(version.get("selectableFields"))]
    return Strategy(
        default=lambda obj: get_schema().default(obj),
        prepare_for_create=_drop_status if has_status else _nothing,
        validate=checks.create,
        prepare_for_update=_keep_status if has_status else _nothing_on_update,
        validate_update=checks.update,
        prepare_for_status_update=_only_status,
        validate_status_update=checks.status_update,
        warnings=finalizer_warnings,
        name_problems=object_meta.subdomain_name,
        fields=selectable_values(fields),
        field_names=frozenset(field.removeprefix(".") for field in fields),
        columns=columns_of(version),
        allow_unconditional_update=False,
        generation=True,
    )


# --- fields that a request may change -----------------------------------------------------------------------------------


def _nothing(obj: Obj) -> None:
    pass


def _nothing_on_update(obj: Obj, old: Obj) -> None:
    pass


def _drop_status(obj: Obj) -> None:
    obj.pop("status", None)


def _keep_status(obj: Obj, old: Obj) -> None:
    if "status" in old:
        obj["status"] = old["status"]
    else:
        obj.pop("status", None)


def _only_status(obj: Obj, old: Obj) -> None:
    """Keep everything but the status; managedFields are the request's, because they also cover the status."""
    kept: Obj = {name: obj[name] for name in ("status", "apiVersion", "kind") if name in obj}
    managed = dict_of(obj.get("metadata")).get("managedFields")
    obj.clear()
    obj.update({name: value for name, value in old.items() if name != "status"})
    obj.update(kept)
    metadata = dict(dict_of(old.get("metadata")))
    if managed:
        metadata["managedFields"] = managed
    else:
        metadata.pop("managedFields", None)
    obj["metadata"] = metadata


# --- validation ----------------------------------------------------------------------------------------------------------


class _Checks:
    """The validation of one version."""

    def __init__(self, crd: Obj, version: Obj, get_schema: GetSchema, scale: Obj) -> None:
        self._get_schema = get_schema
        self._spec_scale = [(scale.get("specReplicasPath") or "", "integer")] if scale else []
        self._status_scale = [(scale.get("statusReplicasPath") or "", "integer")] if scale else []
        if scale.get("labelSelectorPath") is not None:
            self._status_scale.append((scale["labelSelectorPath"], "text"))
        self._status_schema = lru_cache(maxsize=1)(self._compile_status)
        self._rules = lru_cache(maxsize=1)(self._compile_rules)

    def _compile_status(self) -> CompiledSchema | None:
        status = dict_of(self._get_schema().schema.get("properties")).get("status")
        return compile_schema(status, resource=False) if isinstance(status, dict) else None

    def _compile_rules(self) -> RuleTree | None:
        return compile_schema_rules(self._get_schema().schema)

    def create(self, obj: Obj) -> Errors:
        schema = self._get_schema()
        sound = schema.is_valid(obj)
        found = [] if sound else schema.value_errors(obj)
        found += self._scale_errors(obj, self._spec_scale + self._status_scale)
        if not sound:
            found += schema.embedded_errors(obj) + schema.list_errors(obj)
        return self._finish(found, obj, None, sound)

    def update(self, obj: Obj, old: Obj) -> Errors:
        schema = self._get_schema()
        sound = schema.is_valid(obj)
        found = [] if sound else schema.value_errors(obj, "", schema.correlate(obj, old))
        found += self._scale_errors(obj, self._spec_scale + self._status_scale)
        if not sound:
            found += schema.embedded_errors(obj)
            if not schema.list_errors(old):
                found += schema.list_errors(obj)
        return self._finish(found, obj, old, sound)

    def status_update(self, obj: Obj, old: Obj) -> Errors:
        schema, status = self._get_schema(), self._status_schema()
        found: Errors = []
        sound = True
        if "status" in obj and status is not None:
            sound = status.is_valid(obj["status"])
            if not sound:
                correlated = schema.correlate(obj, old).key("status")
                found = status.value_errors(obj["status"], "status", correlated)
        found += self._scale_errors(obj, self._status_scale)
        if not sound and (problems := schema.list_errors(obj)) and not schema.list_errors(old):
            found += problems
        return self._finish(found, obj, old, sound)

    def _finish(self, found: Errors, obj: Obj, old: Obj | None, sound: bool) -> Errors:
        """Rules last, and only on objects of the right shape."""
        rules = self._rules()
        if rules is not None:
            if any(error.type in _BLOCKING for error in found):
                found.append(FieldError(errors.INVALID, "<nil>", None, _BLOCKED))
            else:
                let_pass: Errors = []
                found += rules.validate(obj, old, ratchet=unchanged, warnings=let_pass)
                for error in let_pass:
                    warn(str(error))
        if not found and not sound:
            self._get_schema().settle(obj)
        return found

    @staticmethod
    def _scale_errors(obj: Obj, paths: list[tuple[str, str]]) -> Errors:
        found: Errors = []
        for path, kind in paths:
            found += _scale_error(obj, path, kind)
        return found


_GO_TYPES: dict[type, str] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    list: "[]interface {}",
    dict: "map[string]interface {}",
    type(None): "<nil>",
}


def _go_value(value: Any) -> str:
    if type(value) is float:
        return go_float(value)
    if type(value) is bool:
        return "true" if value else "false"
    if value is None:
        return "<nil>"
    if type(value) is list:
        return "[" + " ".join(_go_value(item) for item in value) + "]"
    if type(value) is dict:
        return "map[" + " ".join(f"{key}:{_go_value(value[key])}" for key in sorted(value)) + "]"
    return str(value)


def _scale_error(obj: Obj, path: str, kind: str) -> Errors:
    """The value at a scale path, if present, must be usable by an autoscaler."""
    steps = path.removeprefix(".").split(".")
    empty: Any = 0 if kind == "integer" else ""
    here: Any = obj
    for index, step in enumerate(steps):
        if type(here) is not dict:
            return [invalid_value(path, empty, _accessor_error(steps[: index + 1], here, "map[string]interface{}"))]
        if step not in here:
            return []
        here = here[step]
    wanted: type = int if kind == "integer" else str
    if type(here) is not wanted:
        return [invalid_value(path, empty, _accessor_error(steps, here, _GO_TYPES[wanted]))]
    if isinstance(here, int) and here < 0:
        return [invalid_value(path, here, "should be a non-negative integer")]
    if isinstance(here, int) and here > _MAX_INT32:
        return [invalid_value(path, here, f"should be less than or equal to {_MAX_INT32}")]
    return []


def _accessor_error(steps: list[str], found: Any, wanted: str) -> str:
    return f".{'.'.join(steps)} accessor error: {_go_value(found)} is of the type {_GO_TYPES[type(found)]}, expected {wanted}"


# --- selectable fields and warnings ----------------------------------------------------------------------------------------


def selectable_values(paths: list[str]) -> Callable[[Obj], dict[str, str]]:
    readers = [(path.removeprefix("."), compile_path(path)) for path in paths]

    def values(obj: Obj) -> dict[str, str]:
        return {name: _selectable(path.first(obj)) for name, path in readers}

    return values


def _selectable(value: Any) -> str:
    return "" if value is None else value if type(value) is str else _go_value(value)


def finalizer_warnings(obj: Obj, old: Obj | None) -> list[str]:
    """New finalizers should be qualified with a domain."""
    new = set(list_of(dict_of(obj.get("metadata")).get("finalizers")))
    if old is not None:
        new -= set(list_of(dict_of(old.get("metadata")).get("finalizers")))
    found: list[str] = []
    for name in sorted(new):
        at = f"metadata.finalizers: {go_quote(name)}"
        found += [f"{at}: {problem}" for problem in names.qualified_name_problems(name)]
        if "/" in name or name in _STANDARD_FINALIZERS:
            continue
        how = " including a path (/)" if "." in name else ""
        found.append(
            f"{at}: prefer a domain-qualified finalizer name{how} to avoid accidental conflicts with other finalizer writers"
        )
    return found


# --- printer columns ------------------------------------------------------------------------------------------------------
#
# Printer columns of a CRD, as functions from an object to a cell.
#
# Cells follow kube-apiserver: a text column shows any value as text, a typed column shows nothing for a value of another type,
# dates are ages. A CRD without its own columns shows the age of its objects.


_AGE = {
    "name": "Age",
    "type": "date",
    "description": "When the object was created; the server sets it, in UTC.",
    "jsonPath": ".metadata.creationTimestamp",
}
Cell = Callable[[Any], Any]


def columns_of(version: Obj) -> tuple[Column, ...]:
    """The columns of one version of a CRD, the name first."""
    wanted = list_of(version.get("additionalPrinterColumns")) or [_AGE]
    return (NAME, *(_column(dict_of(each)) for each in wanted))


def _column(spec: Obj) -> Column:
    path, kind = spec.get("jsonPath") or "", spec.get("type") or "string"
    description = spec.get("description") or f"Custom resource definition column (in JSONPath format): {path}"
    return Column(
        spec.get("name") or "",
        kind,
        description,
        _reader(path, _CELLS.get(kind, _no_value)),
        spec.get("format") or "",
        spec.get("priority") or 0,
    )


def _reader(path: str, cell: Cell) -> Callable[[Obj], Any]:
    try:
        compiled: JsonPath = compile_path(path)
    except JsonPathError:
        return _no_value
    find = compiled.find

    def read(obj: Obj) -> Any:
        try:
            found = find(obj)
        except JsonPathError:
            return None
        return cell(found[0]) if found else None

    return read


def _no_value(value: Any) -> None:
    return None


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    if value is None:
        return "<no value>"
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is float:
        return go_float(value)
    return str(value) if type(value) is int else dumps_sorted(value).decode()


def _integer(value: Any) -> int | None:
    return int(value) if type(value) in (int, float) else None


def _number(value: Any) -> float | None:
    return value if type(value) in (int, float) else None


def _boolean(value: Any) -> bool | None:
    return value if type(value) is bool else None


def _date(value: Any) -> Any:
    if type(value) is not str:
        return None
    if value in ("", "null"):
        return "<unknown>"
    try:
        parse_rfc3339(value)
    except ValueError:
        return "<invalid>"
    return Elapsed(value)


_CELLS: dict[str, Cell] = {
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "date": _date,
}
