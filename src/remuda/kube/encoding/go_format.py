"""JSON values as Go's formatting prints them; clients see such texts in errors."""

from __future__ import annotations

import math
import re
from typing import Any

from ..errors import go_quote

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
    """The Go type of a decoded JSON value."""
    return _NAMES.get(type(value), "interface {}")


def json_kind(value: Any) -> str:
    """The name of a JSON value's type in Go's decoder."""
    if value is None:
        return "null"
    return {str: "string", bool: "bool", int: "number", float: "number", list: "array"}.get(type(value), "object")


def shown(value: Any) -> str:
    """The value as %v prints it."""
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
    """The value as %s prints it."""
    if isinstance(value, str):
        return value
    if value is None:
        return "%!s(<nil>)"
    if isinstance(value, bool | int | float):
        return f"%!s({type_name(value)}={shown(value)})"
    return shown(value)


# --- go format ------------------------------------------------------------------------------------------------------------
#
# How Go prints numbers and quotes text: CEL's `string()` and `format()` show values that way.


def double(number: float) -> str:
    """Go's `%g`: the shortest digits that read back as the same number, with an exponent from a million up."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    if number == 0:
        return "-0" if math.copysign(1, number) < 0 else "0"
    sign = "-" if number < 0 else ""
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    written = whole + fraction
    digits = written.lstrip("0")
    point = len(whole) - (len(written) - len(digits)) + int(exponent or 0)
    digits = digits.rstrip("0")
    power = point - 1
    if power < -4 or power >= 6:
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if power < 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if len(digits) <= point:
        return f"{sign}{digits}{'0' * (point - len(digits))}"
    return f"{sign}{digits[:point]}.{digits[point:]}"


_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_ESCAPES |= {"\\": "\\\\", '"': '\\"'}


def quote(text: str) -> str:
    """Go's `%q`."""
    out: list[str] = []
    for char in text:
        if char in _ESCAPES:
            out.append(_ESCAPES[char])
        elif char.isprintable():
            out.append(char)
        elif ord(char) < 0x80:
            out.append(f"\\x{ord(char):02x}")
        elif ord(char) < 0x10000:
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append(f"\\U{ord(char):08x}")
    return '"' + "".join(out) + '"'


_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def scientific(number: float) -> str:
    """`%e` as CEL's format prints it: six digits, the exponent in superscript."""
    if math.isnan(number) or math.isinf(number):
        return _special(number)
    mantissa, _, exponent = f"{number:.6e}".partition("e")
    sign = "-" if exponent.startswith("-") else ""
    return f"{mantissa}×10{(sign + exponent.lstrip('+-').zfill(2)).translate(_SUPERSCRIPT)}"


def fixed(number: float, precision: int) -> str:
    """`%f` with thousands separated."""
    if math.isnan(number) or math.isinf(number):
        return _special(number)
    return f"{number:,.{precision}f}"


def _special(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "∞" if number > 0 else "-∞"


# --- integers -------------------------------------------------------------------------------------------------------------
#
# Integers in text as Go reads them, which is narrower than int(): only ASCII digits, 64 bits, and Go's error messages.


_SIGNED = re.compile(r"[+-]?[0-9]+")
_UNSIGNED = re.compile(r"[0-9]+")
# A number with more digits, without leading zeros, is out of range; int() itself refuses thousands of them.
_DIGITS = 20


class IntegerError(ValueError):
    """Text that is no integer, or one that is too large; the message is strconv's."""


def parse_int(text: str) -> int:
    """A signed 64-bit integer."""
    return _parsed(text, _SIGNED, "strconv.ParseInt", -(1 << 63), 1 << 63)


def parse_int32(text: str) -> int:
    """A signed 32-bit integer."""
    return _parsed(text, _SIGNED, "strconv.ParseInt", -(1 << 31), 1 << 31)


def atoi(text: str) -> int:
    """A signed integer as Go's Atoi reads it; only its error messages differ."""
    return _parsed(text, _SIGNED, "strconv.Atoi", -(1 << 63), 1 << 63)


def parse_uint(text: str) -> int:
    """An unsigned 64-bit integer."""
    return _parsed(text, _UNSIGNED, "strconv.ParseUint", 0, 1 << 64)


def _parsed(text: str, pattern: re.Pattern[str], function: str, low: int, high: int) -> int:
    if not pattern.fullmatch(text):
        raise IntegerError(f"{function}: parsing {go_quote(text)}: invalid syntax")
    digits = text.lstrip("+-0")
    if len(digits) <= _DIGITS:
        value = int(digits or "0") * (-1 if text.startswith("-") else 1)
        if low <= value < high:
            return value
    raise IntegerError(f"{function}: parsing {go_quote(text)}: value out of range")
