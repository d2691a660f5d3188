"""CEL values at run time: plain Python values where Python has the type, small classes for other types.

bool, int, float, str, bytes, None, list and dict represent themselves. Objects from a schema appear as views
(`views`), which know their schema and convert a field only when it is read. Equality and order across
types follow CEL, not Python: `true` is not 1, but 1 equals 1.0.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from .errors import EvalError, no_such_overload

Value: TypeAlias = Any

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
UINT_MAX = 2**64 - 1


class Uint(int):
    """An unsigned 64-bit integer; a class of its own because CEL never mixes it with int."""

    __slots__ = ()


class Duration:
    __slots__ = ("ns",)

    def __init__(self, ns: int) -> None:
        self.ns = ns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.ns == other.ns

    def __hash__(self) -> int:
        return hash(("duration", self.ns))

    def __lt__(self, other: Duration) -> bool:
        return self.ns < other.ns

    def __le__(self, other: Duration) -> bool:
        return self.ns <= other.ns


class Timestamp:
    """A point in time in nanoseconds since the epoch, and the UTC offset it was written with."""

    __slots__ = ("ns", "offset")

    def __init__(self, ns: int, offset: int = 0) -> None:
        self.ns = ns
        self.offset = offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.ns == other.ns

    def __hash__(self) -> int:
        return hash(("timestamp", self.ns))

    def __lt__(self, other: Timestamp) -> bool:
        return self.ns < other.ns

    def __le__(self, other: Timestamp) -> bool:
        return self.ns <= other.ns


class Optional:
    """`optional.of(value)`, or with no value at all `optional.none()`."""

    __slots__ = ("present", "value")

    def __init__(self, present: bool, value: Value = None) -> None:
        self.present = present
        self.value = value


NONE = Optional(False)


def some(value: Value) -> Optional:
    return Optional(True, value)


class TypeValue:
    """A type as a value: the result of `type(x)`, and the names `int`, `string`, …"""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeValue) and self.name == other.name

    def __hash__(self) -> int:
        return hash(("type", self.name))


class Opaque:
    """The base of library values (quantities, URLs, addresses, …): a type name, and equality of their own."""

    __slots__ = ()
    type_name = ""
    kind = "struct"

    def cost_size(self) -> int:
        return 1


class ListLike:
    """A list value that is not a plain list; see `views`."""

    __slots__ = ()


class MapLike:
    """A map or object value that is not a plain dict; see `views`."""

    __slots__ = ()


_KINDS: dict[type, str] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null",
    list: "list",
    dict: "map",
    Timestamp: "timestamp",
    Duration: "duration",
    Optional: "optional_type",
    TypeValue: "type",
}


def kind_of(value: Value) -> str:
    """The kind of a value, as overloads name it: `int`, `string`, `list`, `net.IP`, …"""
    kind = _KINDS.get(type(value))
    if kind is not None:
        return kind
    if isinstance(value, ListLike):
        return "list"
    if isinstance(value, MapLike):
        return "map"
    if isinstance(value, Opaque):
        return value.type_name
    raise EvalError(f"unsupported value of type {type(value).__name__}")


def type_value(value: Value) -> TypeValue:
    kind = kind_of(value)
    return TypeValue(_RUNTIME_NAMES.get(kind, kind))


_RUNTIME_NAMES = {"null": "null_type", "timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration"}
_NUMBERS = (int, float, Uint)


def elements(value: Value) -> list[Value]:
    """A list value as a plain list of CEL values."""
    return value if type(value) is list else value.as_list()


def mapping(value: Value) -> dict[Value, Value]:
    """A map value as a plain dict of CEL values."""
    return value if type(value) is dict else value.as_dict()


def is_list(value: Value) -> bool:
    return type(value) is list or isinstance(value, ListLike)


def is_map(value: Value) -> bool:
    return type(value) is dict or isinstance(value, MapLike)


def equal(left: Value, right: Value) -> bool:
    """CEL equality: numbers by value across types, containers element by element; other types are never equal."""
    lt, rt = type(left), type(right)
    if lt is rt and lt in _SIMPLE:
        return bool(left == right)
    if lt in _NUMBERS and rt in _NUMBERS:
        return bool(left == right)
    if left is None or right is None:
        return left is right
    if isinstance(left, ListLike | MapLike):
        return left.equals(right)  # type: ignore[union-attr, no-any-return]
    if is_list(left):
        return is_list(right) and _equal_lists(left, elements(right))
    if is_map(left):
        return is_map(right) and _equal_maps(left, mapping(right))
    if lt is Optional and rt is Optional:
        return left.present == right.present and (not left.present or equal(left.value, right.value))
    if lt is rt and isinstance(left, Opaque | TypeValue):
        return bool(left == right)
    return False


_SIMPLE = frozenset({str, int, bool, float, bytes, Uint, Timestamp, Duration})


def _equal_lists(left: list[Value], right: list[Value]) -> bool:
    return len(left) == len(right) and all(equal(a, b) for a, b in zip(left, right, strict=True))


def _equal_maps(left: dict[Value, Value], right: dict[Value, Value]) -> bool:
    if len(left) != len(right):
        return False
    for key, value in left.items():
        found, other = find_key(right, key)
        if not found or not equal(value, other):
            return False
    return True


def find_key(entries: dict[Value, Value], key: Value) -> tuple[bool, Value]:
    """A map lookup with CEL's idea of key equality: 1, 1u and 1.0 are one key, `true` is another."""
    try:
        value = entries[key]
    except KeyError:
        return False, None
    except TypeError:
        raise no_such_overload() from None
    if type(key) is str:
        return True, value
    # In Python, True equals 1: check that the found key has the requested type.
    wants_bool = type(key) is bool
    if wants_bool or key in (0, 1):
        for stored in entries:
            if stored == key and (type(stored) is bool) == wants_bool:
                return True, value
        return False, None
    return True, value


def compare(left: Value, right: Value) -> int:
    """-1, 0 or 1; raises if the two have no order."""
    lt, rt = type(left), type(right)
    if lt in _NUMBERS and rt in _NUMBERS:
        if (lt is float and math.isnan(left)) or (rt is float and math.isnan(right)):
            raise EvalError("NaN values cannot be ordered")
    elif lt is not rt or lt not in _SIMPLE:
        raise no_such_overload()
    if left == right:
        return 0
    return -1 if left < right else 1


def size(value: Value) -> int:
    """The size for cost computations: 1 for values without a size."""
    kind = type(value)
    if kind is str or kind is list or kind is bytes or kind is dict:
        return len(value)
    if isinstance(value, ListLike | MapLike):
        return len(value)  # type: ignore[arg-type]
    if isinstance(value, Opaque):
        return value.cost_size()
    if kind is Optional and value.present:
        return size(value.value)
    return 1


def is_zero(value: Value) -> bool:
    """True when a value is the zero of its type (`optional.ofNonZeroValue`)."""
    if value is None:
        return True
    if is_list(value) or is_map(value):
        return len(value) == 0
    if isinstance(value, Duration):
        return value.ns == 0
    if isinstance(value, Timestamp):
        return value.ns == -62135596800 * 10**9
    if isinstance(value, Optional):
        return not value.present or is_zero(value.value)
    return isinstance(value, bool | int | float | str | bytes) and not value
