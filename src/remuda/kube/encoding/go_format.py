"""JSON values as Go's formatting prints them; clients see such texts in errors."""

from __future__ import annotations

from typing import Any

_NAMES = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    dict: "map[string]interface {}",
    list: "[]interface {}",
    type(None): "%!s(<nil>)",
}


def type_name(value: Any) -> str:
    """The Go type that a decoded JSON value has."""
    return _NAMES.get(type(value), "interface {}")


def json_kind(value: Any) -> str:
    """What Go's decoder calls a JSON value."""
    if value is None:
        return "null"
    return {str: "string", bool: "bool", int: "number", float: "number", list: "array"}.get(type(value), "object")


def shown(value: Any) -> str:
    """As %v prints it."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{shown(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(shown, value)) + "]"
    if isinstance(value, float):
        return _float(value)
    return str(value)


def _float(value: float) -> str:
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    mantissa, sign, exponent = text.partition("e")
    if not sign:
        return text
    number = int(exponent)
    return f"{mantissa}e{'-' if number < 0 else '+'}{abs(number):02d}"


def formatted(value: Any) -> str:
    """As %s prints it."""
    if isinstance(value, str):
        return value
    if value is None:
        return "%!s(<nil>)"
    if isinstance(value, bool | int | float):
        return f"%!s({type_name(value)}={shown(value)})"
    return shown(value)
