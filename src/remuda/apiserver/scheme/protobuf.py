"""Decoding of `application/vnd.kubernetes.protobuf` bodies of built-in kinds to the object of an equivalent JSON body.

A body is the four bytes `k8s\\0` and an envelope (API version, kind, the object's own bytes). The object's fields are
known by number from `remuda.apiserver.scheme.builtin_types`; `protobuf_wire.py` reads the bytes. The result is that of Go's
JSON encoder for the decoded object: bytes in base64, times as text, empty values left out or written as the Go type says.
So a protobuf client and a JSON client that send the same object are the same to all other modules.

Hostile input ends in `ProtobufError` and nothing else: depth, size and the number of values are bounded.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from remuda.kube.encoding import jsonio

from . import builtin_types
from . import protobuf_wire as wire
from .builtin_types import Field, GoType
from .protobuf_wire import ProtobufError

__all__ = ["CONTENT_TYPE", "MAX_BYTES", "Envelope", "ProtobufError", "decode", "is_protobuf", "read_envelope"]

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
MAX_BYTES = 3 * 1024 * 1024
# Nesting of messages. The deepest valid ones are schemas of CRDs, far below.
MAX_DEPTH = 100
# Two bytes can make an empty element of a list, which costs hundreds of bytes here.
MAX_VALUES = 200_000

_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Seconds of Go's zero time, the year 1.
_ZERO_TIME = -62135596800

# A message while it is read: values by field number. Nested messages stay in this form until the end, because a field
# that comes twice is merged.
State = dict[int, Any]


class Envelope(msgspec.Struct, frozen=True):
    """The envelope of an object in the Kubernetes protobuf format."""

    api_version: str
    kind: str
    raw: bytes


class _Reader:
    """One decoding: counts the values it makes."""

    def __init__(self) -> None:
        self.values = 0

    def count(self) -> None:
        self.values += 1
        if self.values > MAX_VALUES:
            raise ProtobufError(f"the object has more than {MAX_VALUES} values")


def is_protobuf(data: bytes) -> bool:
    """True if the bytes start as a Kubernetes protobuf body."""
    return data.startswith(MAGIC)


def read_envelope(data: bytes) -> Envelope:
    """The envelope of a body."""
    if not data:
        raise ProtobufError("empty data")
    if not is_protobuf(data):
        raise ProtobufError(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
        )
    if len(data) == len(MAGIC):
        raise ProtobufError("empty body")
    state: State = {}
    _read(_ENVELOPE, data, len(MAGIC), len(data), 0, _Reader(), state)
    type_meta: State = state.get(1, {})
    return Envelope(type_meta.get(1, ""), type_meta.get(2, ""), state.get(2, b""))


def decode(data: bytes, *, default: tuple[str, str] | None = None, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """The object in a body. `default` is the (apiVersion, kind) of an envelope without them."""
    if len(data) > max_bytes:
        raise ProtobufError(f"the body is larger than {max_bytes} bytes")
    try:
        return _decode(data, default, 0, _Reader())
    except RecursionError:
        raise ProtobufError("the object nests too deep") from None


def _decode(data: bytes, default: tuple[str, str] | None, depth: int, reader: _Reader) -> dict[str, Any]:
    envelope = read_envelope(data)
    api_version = envelope.api_version or (default[0] if default else "")
    kind = envelope.kind or (default[1] if default else "")
    if not kind:
        raise ProtobufError("Object 'Kind' is missing in the protobuf envelope")
    if not api_version:
        raise ProtobufError("Object 'apiVersion' is missing in the protobuf envelope")
    group, _, version = api_version.rpartition("/")
    name = builtin_types.type_of(group, version, kind)
    if name is None:
        raise ProtobufError(f'no kind "{kind}" is registered for version "{api_version}"')
    plan = _plan(name)
    state: State = {}
    _read(plan, envelope.raw, 0, len(envelope.raw), depth, reader, state)
    return {"kind": kind, "apiVersion": api_version, **_written(plan, state, depth, reader)}


# -- reading -----------------------------------------------------------------------------------------------------------


class _Slot(msgspec.Struct, frozen=True):
    """The form of one field number's values. The content's type is the field's own."""

    label: str
    type: GoType
    # Bytes that the message itself interprets stay bytes; others become base64 text.
    keep_bytes: bool


class _Plan(msgspec.Struct, frozen=True):
    """One message type: its slots by number for reading, its fields in order for writing."""

    name: str
    slots: Mapping[int, _Slot]
    fields: tuple[Field, ...]
    convert: Callable[[State, int, _Reader], Any] | None


def _read(plan: _Plan, data: bytes, position: int, end: int, depth: int, reader: _Reader, state: State) -> None:
    """Read one message into `state`."""
    if depth > MAX_DEPTH:
        raise ProtobufError(f"messages nest deeper than {MAX_DEPTH}")
    reader.count()
    slots = plan.slots
    while position < end:
        number, kind, position = wire.read_tag(data, position, end, plan.name)
        slot = slots.get(number)
        if slot is None:
            position = wire.skip(data, position, end, kind)
        else:
            position = _read_field(slot, number, kind, data, position, end, depth, reader, state)


def _read_field(
    slot: _Slot, number: int, kind: int, data: bytes, position: int, end: int, depth: int, reader: _Reader, state: State
) -> int:
    held = slot.type.value
    if held.kind == "list":
        assert held.elem is not None
        into: list[Any] = state.setdefault(number, [])
        return _read_elements(slot, held.elem, kind, data, position, end, depth, reader, into)
    if held.kind == "map":
        assert held.elem is not None
        _expect(kind, wire.BYTES, slot)
        start, stop = wire.read_length(data, position, end)
        key, value = _read_entry(slot, held.elem, data, start, stop, depth, reader)
        state.setdefault(number, {})[key] = value
        return stop
    if held.kind == "struct":
        _expect(kind, wire.BYTES, slot)
        start, stop = wire.read_length(data, position, end)
        plan = _plan(held.definition)
        # A message that comes twice is merged, but one with a form of its own is replaced.
        inner: State = {} if plan.convert is not None else state.get(number, {})
        _read(plan, data, start, stop, depth + 1, reader, inner)
        state[number] = inner
        return stop
    if held.kind == "wrapped":
        state[number], position = _read_value(slot, held, kind, data, position, end, depth, reader)
        return position
    state[number], position = _read_scalar(slot, held, kind, data, position, end)
    return position


def _read_elements(
    slot: _Slot,
    elem: GoType,
    kind: int,
    data: bytes,
    position: int,
    end: int,
    depth: int,
    reader: _Reader,
    into: list[Any],
) -> int:
    if elem.kind in ("int32", "int64", "int", "bool") and kind == wire.BYTES:
        position, stop = wire.read_length(data, position, end)
        while position < stop:
            reader.count()
            value, position = _read_scalar(slot, elem, wire.VARINT, data, position, stop)
            into.append(value)
        return position
    value, position = _read_value(slot, elem, kind, data, position, end, depth, reader)
    into.append(value)
    return position


def _read_entry(slot: _Slot, elem: GoType, data: bytes, position: int, end: int, depth: int, reader: _Reader) -> tuple[str, Any]:
    """One entry of a map: a message with the key as field 1 and the value as field 2, either of which may be absent."""
    key = ""
    value: Any = _absent_value(elem, depth, reader)
    while position < end:
        number, kind, position = wire.read_tag(data, position, end, slot.label)
        if number == 1:
            _expect(kind, wire.BYTES, slot)
            start, position = wire.read_length(data, position, end)
            key = _text(data, start, position, slot)
        elif number == 2:
            value, position = _read_value(slot, elem, kind, data, position, end, depth, reader)
        else:
            position = wire.skip(data, position, end, kind)
    reader.count()
    return key, value


def _absent_value(elem: GoType, depth: int, reader: _Reader) -> Any:
    if elem.kind == "struct":
        return _written_value(elem, {}, depth, reader)
    return None if elem.kind == "wrapped" else _ZERO.get(elem.kind, "")


def _read_value(
    slot: _Slot, held: GoType, kind: int, data: bytes, position: int, end: int, depth: int, reader: _Reader
) -> tuple[Any, int]:
    """A standalone value (an element, an entry): read and written at once."""
    reader.count()
    if held.kind not in ("struct", "wrapped"):
        return _read_scalar(slot, held, kind, data, position, end)
    _expect(kind, wire.BYTES, slot)
    start, stop = wire.read_length(data, position, end)
    if held.kind == "wrapped":
        return _read_wrapped(slot, held, data, start, stop, depth, reader), stop
    state: State = {}
    _read(_plan(held.definition), data, start, stop, depth + 1, reader, state)
    return _written_value(held, state, depth + 1, reader), stop


def _read_wrapped(slot: _Slot, held: GoType, data: bytes, start: int, stop: int, depth: int, reader: _Reader) -> list[Any] | None:
    """A list in a message of its own, as field 1. Go has nil for a list without elements."""
    assert held.elem is not None
    items: list[Any] = []
    while start < stop:
        number, kind, start = wire.read_tag(data, start, stop, slot.label)
        if number == 1:
            start = _read_elements(slot, held.elem, kind, data, start, stop, depth + 1, reader, items)
        else:
            start = wire.skip(data, start, stop, kind)
    return items or None


def _read_scalar(slot: _Slot, held: GoType, kind: int, data: bytes, position: int, end: int) -> tuple[Any, int]:
    match held.kind:
        case "string":
            _expect(kind, wire.BYTES, slot)
            start, stop = wire.read_length(data, position, end)
            return _text(data, start, stop, slot), stop
        case "bytes":
            _expect(kind, wire.BYTES, slot)
            start, stop = wire.read_length(data, position, end)
            raw = data[start:stop]
            return raw if slot.keep_bytes else base64.b64encode(raw).decode(), stop
        case "float64":
            _expect(kind, wire.FIXED64, slot)
            number, position = wire.read_double(data, position, end)
            if not math.isfinite(number):
                raise ProtobufError(f"json: unsupported value: {number} for field {slot.label}")
            # As in JSON: a whole number is an int.
            return int(number) if number.is_integer() and abs(number) < 1e15 else number, position
    _expect(kind, wire.VARINT, slot)
    value, position = wire.read_varint(data, position, end)
    if held.kind == "bool":
        return value != 0, position
    return (wire.signed32(value) if held.kind == "int32" else wire.signed64(value)), position


def _text(data: bytes, start: int, stop: int, slot: _Slot) -> str:
    try:
        return data[start:stop].decode()
    except UnicodeDecodeError:
        raise ProtobufError(f"field {slot.label} is not valid UTF-8") from None


def _expect(kind: int, wanted: int, slot: _Slot) -> None:
    if kind != wanted:
        raise ProtobufError(f"proto: wrong wireType = {kind} for field {slot.label}")


# -- writing -----------------------------------------------------------------------------------------------------------

_ZERO: Mapping[str, Any] = {"string": "", "bool": False, "int32": 0, "int64": 0, "int": 0, "float64": 0}


def _written(plan: _Plan, state: State, depth: int, reader: _Reader) -> dict[str, Any]:
    """The object that Go's JSON encoder writes for a message."""
    result: dict[str, Any] = {}
    for field in plan.fields:
        if field.inline:
            if field.number:
                result.update(_written(_plan(field.type.value.definition), state.get(field.number, {}), depth, reader))
            continue
        if field.number not in state or not field.number:
            if field.always_written:
                result[field.name] = _absent(field.type, depth, reader)
            continue
        value = _written_value(field.type.value, state[field.number], depth, reader)
        if not _omitted(field, value):
            result[field.name] = value
    return result


def _omitted(field: Field, value: Any) -> bool:
    if field.type.kind == "pointer":
        return False
    if field.type.kind == "struct":
        return field.omitzero and not value
    return (field.omitempty or field.omitzero) and not value


def _absent(held: GoType, depth: int, reader: _Reader) -> Any:
    """The value written for an absent field: its zero value."""
    if held.kind == "struct":
        return _written_value(held, {}, depth, reader)
    return _ZERO.get(held.kind)


def _written_value(held: GoType, value: Any, depth: int, reader: _Reader) -> Any:
    if held.kind != "struct":
        return value
    plan = _plan(held.definition)
    if plan.convert is not None:
        return plan.convert(value, depth, reader)
    return _written(plan, value, depth + 1, reader)


# -- types with a form of their own --------------------------------------------------------------------------------------


def _moment(state: State, *, micro: bool) -> str | None:
    if not state:
        return None
    seconds, nanos = state.get(1, 0), state.get(2, 0) if micro else 0
    if seconds == _ZERO_TIME and not nanos:
        return None
    try:
        moment = _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError:
        raise ProtobufError(f"time {seconds} is outside of the years 1 to 9999") from None
    text = moment.strftime("%m-%dT%H:%M:%S")
    return f"{moment.year:04}-{text}.{moment.microsecond:06}Z" if micro else f"{moment.year:04}-{text}Z"


def _time(state: State, depth: int, reader: _Reader) -> str | None:
    return _moment(state, micro=False)


def _micro_time(state: State, depth: int, reader: _Reader) -> str | None:
    return _moment(state, micro=True)


def _quantity(state: State, depth: int, reader: _Reader) -> str:
    return str(state.get(1, "0"))


def _int_or_string(state: State, depth: int, reader: _Reader) -> int | str:
    match state.get(1, 0):
        case 0:
            return int(state.get(2, 0))
        case 1:
            return str(state.get(3, ""))
    raise ProtobufError("impossible IntOrString.Type")


def _embedded_json(state: State, depth: int, reader: _Reader) -> Any:
    raw: bytes = state.get(1, b"")
    if not raw:
        return None
    if jsonio.depth_exceeds(raw):
        raise ProtobufError("embedded JSON nests too deep")
    try:
        return jsonio.loads(raw)
    except jsonio.JsonError as error:
        raise ProtobufError(f"embedded JSON: {error}") from None


def _raw_extension(state: State, depth: int, reader: _Reader) -> Any:
    raw: bytes = state.get(1, b"")
    if is_protobuf(raw):
        return _decode(raw, None, depth + 1, reader)
    return _embedded_json(state, depth, reader)


def _schema(value: State | None, depth: int, reader: _Reader) -> Any:
    return None if value is None else _written(_plan(_EXTENSIONS + "JSONSchemaProps"), value, depth + 1, reader)


def _schema_or_bool(state: State, depth: int, reader: _Reader) -> Any:
    schema = _schema(state.get(2), depth, reader)
    return bool(state.get(1, False)) if schema is None else schema


def _schema_or_list(state: State, depth: int, reader: _Reader) -> Any:
    return state.get(2) or _schema(state.get(1), depth, reader)


_CONVERTERS: Mapping[str, Callable[[State, int, _Reader], Any]] = {
    _META + "Time": _time,
    _META + "MicroTime": _micro_time,
    _META + "FieldsV1": _embedded_json,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _quantity,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _raw_extension,
    _EXTENSIONS + "JSON": _embedded_json,
    _EXTENSIONS + "JSONSchemaPropsOrBool": _schema_or_bool,
    _EXTENSIONS + "JSONSchemaPropsOrArray": _schema_or_list,
    _EXTENSIONS + "JSONSchemaPropsOrStringArray": _schema_or_list,
}

_STRING = GoType("string", "string")
_TIMESTAMP = {1: _Slot("seconds", GoType("int64", "int64"), False), 2: _Slot("nanos", GoType("int32", "int32"), False)}
# Types whose protobuf form is not that of their Go struct.
_OWN_SLOTS: Mapping[str, Mapping[int, _Slot]] = {
    _META + "Time": _TIMESTAMP,
    _META + "MicroTime": _TIMESTAMP,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {1: _Slot("string", _STRING, False)},
}

_TYPE_META = "envelope.typeMeta"
_ENVELOPE = _Plan(
    "Unknown",
    {
        1: _Slot("typeMeta", GoType("struct", "TypeMeta", definition=_TYPE_META), False),
        2: _Slot("raw", GoType("bytes", "[]uint8"), True),
    },
    (),
    None,
)


@cache
def _plan(name: str) -> _Plan:
    if name == _TYPE_META:
        return _Plan("TypeMeta", {1: _Slot("apiVersion", _STRING, False), 2: _Slot("kind", _STRING, False)}, (), None)
    found = builtin_types.structure(name)
    short = found.go_name.rpartition(".")[2]
    slots = _OWN_SLOTS.get(name) or {
        field.number: _Slot(field.name or short, field.type, found.custom) for field in found.fields or () if field.number
    }
    return _Plan(short, slots, found.fields or (), _CONVERTERS.get(name) if found.custom else None)
