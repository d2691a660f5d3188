"""Printer columns of a CRD, as functions from an object to a cell.

Cells follow kube-apiserver: a text column shows any value as text, a typed column shows nothing for a value of another type,
dates are ages. A CRD without its own columns shows the age of its objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda.kube.clock import parse_rfc3339
from remuda.kube.encoding.jsonio import dumps_sorted
from remuda.kube.encoding.jsonpath import JsonPath, JsonPathError, compile_path
from remuda.kube.errors import go_float

from ..registry.printer_columns import NAME, Moment
from ..registry.strategy import Column
from .internal_version import Obj, dict_of, list_of

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
        _reader(path, _CELLS.get(kind, _nothing)),
        spec.get("format") or "",
        spec.get("priority") or 0,
    )


def _reader(path: str, cell: Cell) -> Callable[[Obj], Any]:
    try:
        compiled: JsonPath = compile_path(path)
    except JsonPathError:
        return _nothing
    find = compiled.find

    def read(obj: Obj) -> Any:
        try:
            found = find(obj)
        except JsonPathError:
            return None
        return cell(found[0]) if found else None

    return read


def _nothing(value: Any) -> None:
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
    return Moment(value)


_CELLS: dict[str, Cell] = {
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "date": _date,
}
