"""CEL's standard functions: arithmetic with overflow checks, conversions, sizes, timestamps, optionals.

Functions take and return values and raise `EvalError`. They are found by overload id through `compiler.calls`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from remuda.kube.encoding import go_format

from ...limits import cost_budget
from ..errors import EvalError, no_such_overload
from ..re2 import RegexError, compile_pattern
from ..timestamps import (
    add_duration,
    between,
    checked_duration,
    checked_timestamp,
    duration_field,
    format_duration,
    format_timestamp,
    parse_duration,
    parse_timestamp,
    subtract_duration,
    timestamp_field,
)
from ..values import (
    INT_MAX,
    INT_MIN,
    NONE,
    UINT_MAX,
    Duration,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    Value,
    elements,
    equal,
    is_zero,
    mapping,
    some,
    type_value,
)
from ..views import ListView, lookup

_OVERFLOW = "integer overflow"
_UINT_OVERFLOW = "unsigned integer overflow"


def _int(number: int) -> int:
    if INT_MIN <= number <= INT_MAX:
        return number
    raise EvalError(_OVERFLOW)


def _uint(number: int) -> Uint:
    if 0 <= number <= UINT_MAX:
        return Uint(number)
    raise EvalError(_UINT_OVERFLOW)


def _add_int(left: int, right: int) -> int:
    total = left + right
    if -0x8000000000000000 <= total <= 0x7FFFFFFFFFFFFFFF:
        return total
    raise EvalError(_OVERFLOW)


def _divide_int(left: int, right: int) -> int:
    if right == 0:
        raise EvalError("division by zero")
    whole = abs(left) // abs(right)
    return _int(whole if (left < 0) is (right < 0) else -whole)


def _modulo_int(left: int, right: int) -> int:
    if right == 0:
        raise EvalError("modulus by zero")
    if left == INT_MIN and right == -1:
        raise EvalError(_OVERFLOW)
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def _divide_uint(left: int, right: int) -> Uint:
    if right == 0:
        raise EvalError("division by zero")
    return Uint(left // right)


def _modulo_uint(left: int, right: int) -> Uint:
    if right == 0:
        raise EvalError("modulus by zero")
    return Uint(left % right)


def _divide_double(left: float, right: float) -> float:
    if right == 0:
        if left == 0 or math.isnan(left):
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1, right)
    return left / right


def _multiply_double(left: float, right: float) -> float:
    return left * right


def _add_list(left: Value, right: Value) -> Value:
    # Costs nothing in CEL, where a sum of lists is only a view of them; here it takes time and memory.
    cost_budget.spend((len(elements(left)) + len(elements(right))) // 4)
    if isinstance(left, ListView):
        return left.plus(right)
    return elements(left) + elements(right)


def contains(items: Value, wanted: Value) -> bool:
    if type(items) is list and type(wanted) is str:
        return wanted in items
    return any(equal(item, wanted) for item in elements(items))


def _in_map(key: Value, entries: Value) -> bool:
    return lookup(entries, key)[0]


# --- conversions


def _failed(source: str, target: str) -> EvalError:
    return EvalError(f"type conversion error from '{source}' to '{target}'")


_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_NATURAL = re.compile(r"[0-9]{1,40}")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|infinity)|nan", re.IGNORECASE)
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def _string_to_int(text: str) -> int:
    if _INTEGER.fullmatch(text) and INT_MIN <= int(text) <= INT_MAX:
        return int(text)
    raise _failed("string", "int")


def _string_to_uint(text: str) -> Uint:
    if _NATURAL.fullmatch(text) and int(text) <= UINT_MAX:
        return Uint(text)
    raise _failed("string", "uint")


def _string_to_double(text: str) -> float:
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isinf(number) or "inf" in text.lower():
            return number
    raise _failed("string", "double")


def _string_to_bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise _failed("string", "bool")


def _string_to_duration(text: str) -> Duration:
    found = parse_duration(text)
    if found is None:
        raise _failed("string", "google.protobuf.Duration")
    return found


def _string_to_timestamp(text: str) -> Timestamp:
    found = parse_timestamp(text)
    if found is None:
        raise _failed("string", "google.protobuf.Timestamp")
    return checked_timestamp(found)


def _double_to_int(number: float) -> int:
    if math.isnan(number) or math.isinf(number) or not -(2.0**63) < number < 2.0**63:
        raise EvalError(_OVERFLOW)
    return int(number)


def _double_to_uint(number: float) -> Uint:
    if math.isnan(number) or math.isinf(number) or not 0 <= number < 2.0**64:
        raise EvalError(_UINT_OVERFLOW)
    return Uint(int(number))


def _bytes_to_string(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise EvalError("invalid UTF-8 in bytes, cannot convert to string") from None


def _same(value: Value) -> Value:
    return value


def to_string(value: Value) -> str:
    """`string(value)` for the scalars that support it."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is Uint:
        return str(int(value))
    if kind is float:
        return go_format.double(value)
    if kind is bytes:
        return _bytes_to_string(value)
    if kind is Timestamp:
        return format_timestamp(value)
    if kind is Duration:
        return format_duration(value)
    if kind is TypeValue:
        return value.name  # type: ignore[no-any-return]
    raise no_such_overload()


# --- text and time


def matches(text: str, pattern: str) -> bool:
    try:
        return compile_pattern(pattern).matches(text)
    except RegexError as error:
        raise EvalError(str(error)) from None


def _time_functions() -> dict[str, Callable[..., Value]]:
    found: dict[str, Callable[..., Value]] = {}
    fields = {
        "getFullYear": "year",
        "getMonth": "month",
        "getDayOfYear": "day_of_year",
        "getDayOfMonth": "day_of_month",
        "getDate": "day_of_month_1_based",
        "getDayOfWeek": "day_of_week",
        "getHours": "hours",
        "getMinutes": "minutes",
        "getSeconds": "seconds",
        "getMilliseconds": "milliseconds",
    }
    for function, name in fields.items():

        def read(stamp: Timestamp, zone: str | None = None, function: str = function) -> int:
            return timestamp_field(function, stamp, zone)

        found[f"timestamp_to_{name}"] = read
        found[f"timestamp_to_{name}_with_tz" if name != "seconds" else "timestamp_to_seconds_tz"] = read
    for function in ("getHours", "getMinutes", "getSeconds", "getMilliseconds"):
        name = fields[function]
        found[f"duration_to_{name}"] = lambda value, function=function: duration_field(function, value)
    return found


# --- optionals


def _value(optional: Optional) -> Value:
    if not optional.present:
        raise EvalError("optional.none() dereference")
    return optional.value


def _unwrap(items: Value) -> list[Value]:
    found: list[Value] = []
    for item in elements(items):
        if type(item) is not Optional:
            raise EvalError(f"value {item} is not optional")
        if item.present:
            found.append(item.value)
    return found


def _map_insert(entries: Value, key: Value, value: Value) -> Value:
    if lookup(entries, key)[0]:
        raise EvalError(f"insert failed: key {key} already exists")
    return {**mapping(entries), key: value}


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "logical_not": lambda value: not value,
    "negate_int64": lambda number: _int(-number),
    "negate_double": lambda number: -number,
    "in_list": lambda wanted, items: contains(items, wanted),
    "in_map": _in_map,
    "not_strictly_false": lambda value: value is not False,
    "modulo_int64": _modulo_int,
    "modulo_uint64": _modulo_uint,
    "multiply_double": _multiply_double,
    "multiply_int64": lambda left, right: _int(left * right),
    "multiply_uint64": lambda left, right: _uint(int(left) * int(right)),
    "add_bytes": lambda left, right: left + right,
    "add_double": lambda left, right: left + right,
    "add_duration_duration": lambda left, right: checked_duration(left.ns + right.ns),
    "add_duration_timestamp": lambda duration, stamp: add_duration(stamp, duration),
    "add_timestamp_duration": add_duration,
    "add_int64": _add_int,
    "add_list": _add_list,
    "add_string": lambda left, right: left + right,
    "add_uint64": lambda left, right: _uint(int(left) + int(right)),
    "subtract_double": lambda left, right: left - right,
    "subtract_duration_duration": lambda left, right: checked_duration(left.ns - right.ns),
    "subtract_int64": lambda left, right: _int(left - right),
    "subtract_timestamp_duration": subtract_duration,
    "subtract_timestamp_timestamp": between,
    "subtract_uint64": lambda left, right: _uint(int(left) - int(right)),
    "divide_double": _divide_double,
    "divide_int64": _divide_int,
    "divide_uint64": _divide_uint,
    "bool_to_bool": _same,
    "string_to_bool": _string_to_bool,
    "bytes_to_bytes": _same,
    "string_to_bytes": lambda text: text.encode("utf-8", "surrogatepass"),
    "double_to_double": _same,
    "int64_to_double": float,
    "string_to_double": _string_to_double,
    "uint64_to_double": float,
    "duration_to_duration": _same,
    "int64_to_duration": Duration,
    "string_to_duration": _string_to_duration,
    "to_dyn": _same,
    "int64_to_int64": _same,
    "double_to_int64": _double_to_int,
    "duration_to_int64": lambda value: value.ns,
    "string_to_int64": _string_to_int,
    "timestamp_to_int64": lambda stamp: stamp.ns // 10**9,
    "uint64_to_int64": lambda number: _int(int(number)),
    "string_to_string": _same,
    "bool_to_string": to_string,
    "bytes_to_string": _bytes_to_string,
    "double_to_string": to_string,
    "duration_to_string": to_string,
    "int64_to_string": to_string,
    "timestamp_to_string": to_string,
    "uint64_to_string": to_string,
    "timestamp_to_timestamp": _same,
    "int64_to_timestamp": lambda seconds: checked_timestamp(Timestamp(seconds * 10**9)),
    "string_to_timestamp": _string_to_timestamp,
    "type": type_value,
    "uint64_to_uint64": _same,
    "double_to_uint64": _double_to_uint,
    "int64_to_uint64": lambda number: _uint(number),
    "string_to_uint64": _string_to_uint,
    **dict.fromkeys(("size_bytes", "bytes_size", "size_list", "list_size"), len),
    **dict.fromkeys(("size_map", "map_size", "size_string", "string_size"), len),
    "contains_string": lambda text, part: part in text,
    "starts_with_string": lambda text, part: text.startswith(part),
    "ends_with_string": lambda text, part: text.endswith(part),
    "matches": matches,
    "matches_string": matches,
    **_time_functions(),
    "optional_none": lambda: NONE,
    "optional_of": some,
    "optional_ofNonZeroValue": lambda value: NONE if is_zero(value) else some(value),
    "optional_hasValue": lambda optional: optional.present,
    "optional_value": _value,
    "optional_unwrap": _unwrap,
    "optional_unwrapOpt": _unwrap,
    "@mapInsert_map_key_value": _map_insert,
}
