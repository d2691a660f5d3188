"""Typed decoding of built-in objects: from JSON values to the object that a Go server would hold and print.

A built-in object has a Go struct behind it. Decoding one therefore means more than parsing: a wrong type is refused with Go's
message, unknown fields are dropped (and reported), nulls dropped, quantities and times get their canonical text, empty values of
`omitempty` fields are dropped, and fields that Go always prints appear (`status: {}`). All of this follows from the generated
description in :mod:`.builtin_types`, compiled once per struct to closures. Always gives a new object; the input stays as it was.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from remuda.kube import quantity
from remuda.kube.clock import in_utc
from remuda.kube.encoding.jsonio import dumps_text

from . import builtin_types
from .builtin_types import Field, GoType

Obj = dict[str, Any]
# The path to a value from the root, innermost last: field names, list indexes, and map keys as one-tuples.
Path = tuple[Any, ...] | None
Decoder = Callable[[Any, Path, list[str]], Any]


class DecodeError(ValueError):
    """A Go server's message about a value of the wrong shape.

    `restoring` is the message when the value comes from a patch instead of JSON.
    """

    def __init__(self, text: str, restoring: str = "") -> None:
        super().__init__(text)
        self.restoring = restoring


def decoder_for(definition: str) -> Callable[[Obj], tuple[Obj, list[str]]]:
    """A function that gives the typed object and the paths of unknown fields; raises DecodeError."""
    decode = _struct(definition)

    def run(obj: Obj) -> tuple[Obj, list[str]]:
        unknown: list[str] = []
        return decode(obj, None, unknown), unknown

    return run


def zero_of(definition: str) -> Obj:
    """The empty value of a struct as Go prints it."""
    value: Obj = _struct(definition)({}, None, [])
    return value


def null_when_empty(definition: str) -> frozenset[str]:
    """Fields of the object itself that Go prints as null when they are empty.

    An empty list does not survive protobuf, in which a real server stores every built-in kind but CRDs.
    """
    if ".apiextensions-apiserver." in definition:
        return frozenset()
    return frozenset(
        field.name
        for field in builtin_types.flat_fields(definition)
        if field.type.kind in ("list", "wrapped", "map") and not (field.omitempty or field.omitzero)
    )


# --- paths -------------------------------------------------------------------------------------------------------------


def _steps(path: Path) -> list[Any]:
    steps: list[Any] = []
    while path is not None:
        path, step = path
        steps.append(step)
    steps.reverse()
    return steps


def _go_path(path: Path) -> str:
    """Go's errors name the fields on the path, but neither indexes nor keys."""
    return ".".join(step for step in _steps(path) if isinstance(step, str))


def _strict_path(path: Path, name: str) -> str:
    text = ""
    for step in [*_steps(path), name]:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            key = step[0] if isinstance(step, tuple) else step
            text += f".{key}" if text else key
    return text


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


_GO_KINDS = {str: "string", bool: "bool", int: "int64", float: "float64", list: "slice", dict: "map"}


def _restoring(value: Any, go_name: str, form: str) -> str:
    """The message of Go's converter of untyped values for a value that does not fit a target of this form."""
    kind = _GO_KINDS.get(type(value), "ptr")
    if form in ("map", "slice"):
        return f"cannot restore {form} from {kind}"
    if form == "struct":
        return f"cannot restore struct from: {kind}"
    if (kind, form) == ("int64", "string") or (kind == "float64" and form.startswith("int")):
        return f"cannot convert {kind} to {go_name}"
    return f"unrecognized type: {form}"


def _mismatch(value: Any, path: Path, struct: str, go_name: str, form: str, found: str = "") -> DecodeError:
    kind = found or _kind_of(value)
    where = _go_path(path)
    target = f"Go struct field {struct}.{where} of type {go_name}" if where else f"Go value of type {go_name}"
    return DecodeError(f"json: cannot unmarshal {kind} into {target}", _restoring(value, go_name, form))


# --- scalars -----------------------------------------------------------------------------------------------------------


def _string(struct: str, go_name: str) -> Decoder:
    def decode(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not str:
            raise _mismatch(value, path, struct, go_name, "string")
        return value

    return decode


def _boolean(struct: str, go_name: str) -> Decoder:
    def decode(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not bool:
            raise _mismatch(value, path, struct, go_name, "bool")
        return value

    return decode


def _integer(struct: str, go_name: str, bits: int) -> Decoder:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def decode(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is int and low <= value <= high:
            return value
        if type(value) in (int, float):
            raise _mismatch(value, path, struct, go_name, f"int{bits}", f"number {dumps_text(value)}")
        raise _mismatch(value, path, struct, go_name, f"int{bits}")

    return decode


def _number(struct: str, go_name: str) -> Decoder:
    def decode(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) not in (int, float):
            raise _mismatch(value, path, struct, go_name, "float64")
        return value

    return decode


def _bytes(struct: str, go_name: str) -> Decoder:
    def decode(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not str:
            raise _mismatch(value, path, struct, go_name, "slice")
        try:
            raw = base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
        except (binascii.Error, ValueError):
            raise DecodeError(f"illegal base64 data at input byte {_bad_base64(value)}") from None
        return base64.b64encode(raw).decode()

    return decode


_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/\r\n]")


def _bad_base64(text: str) -> int:
    found = _NOT_BASE64.search(text)
    position = found.start() if found else len(text)
    return position if found else max(len(text) - len(text) % 4, 0)


def _anything(value: Any, path: Path, unknown: list[str]) -> Any:
    return value


# --- structs that write their own JSON ---------------------------------------------------------------------------------


def _time(struct: str, micro: bool) -> Decoder:
    layout = "2006-01-02T15:04:05.000000Z07:00" if micro else "2006-01-02T15:04:05Z07:00"

    def decode(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not str:
            raise _mismatch(value, path, "Time" if not micro else "MicroTime", "string", "struct")
        try:
            written = in_utc(value, micro=micro)
        except ValueError:
            year = value[:4]
            rest = value if not (len(year) == 4 and year.isdigit()) else value[4:]
            wanted = "2006" if rest is value else "-"
            raise DecodeError(f'parsing time "{value}" as "{layout}": cannot parse "{rest}" as "{wanted}"') from None
        if micro:
            _check_micro(value, layout)
        # Go's zero time is no time at all.
        return None if written in _ZERO_TIMES else written

    return decode


_ZERO_TIMES = frozenset(("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"))
_SIX_DIGITS = re.compile(r"\.\d{6}(?!\d)")


def _check_micro(value: str, layout: str) -> None:
    """Go requires exactly six digits after the seconds."""
    rest = value[len("2006-01-02T15:04:05") :]
    if _SIX_DIGITS.match(rest):
        return
    left, wanted = (rest[7:], "Z07:00") if re.match(r"\.\d{7}", rest) else (rest, ".000000")
    raise DecodeError(f'parsing time "{value}" as "{layout}": cannot parse "{left}" as "{wanted}"')


def _quantity(value: Any, path: Path, unknown: list[str]) -> Any:
    if type(value) in (int, float):
        value = dumps_text(value)
    if type(value) is not str:
        raise DecodeError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    try:
        return str(quantity.parse(value))
    except ValueError as error:
        raise DecodeError(str(error)) from None


def _int_or_string(struct: str) -> Decoder:
    number = _integer(struct, "int32", 32)

    def decode(value: Any, path: Path, unknown: list[str]) -> Any:
        return value if type(value) is str else number(value, path, unknown)

    return decode


def _schema_or(struct: str, other: type) -> Decoder:
    def decode(value: Any, path: Path, unknown: list[str]) -> Any:
        if isinstance(value, other):
            if isinstance(value, list) and value and isinstance(value[0], dict):
                inner = _struct(_SCHEMA_PROPS)
                return [inner(item, (path, index), unknown) for index, item in enumerate(value)]
            return value
        if isinstance(value, dict):
            return _struct(_SCHEMA_PROPS)(value, path, unknown)
        raise DecodeError("boolean or JSON schema expected" if other is bool else "array or JSON schema expected")

    return decode


_SCHEMA_PROPS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"


def _custom(go_name: str, struct: str) -> Decoder:
    match go_name:
        case "v1.Time":
            return _time(struct, micro=False)
        case "v1.MicroTime":
            return _time(struct, micro=True)
        case "resource.Quantity":
            return _quantity
        case "intstr.IntOrString":
            return _int_or_string(struct)
        case "v1.JSONSchemaPropsOrBool":
            return _schema_or(struct, bool)
        case "v1.JSONSchemaPropsOrArray" | "v1.JSONSchemaPropsOrStringArray":
            return _schema_or(struct, list)
    return _anything


# --- composites --------------------------------------------------------------------------------------------------------


def _short(go_name: str) -> str:
    return go_name.rpartition(".")[2]


def _compile(kind: GoType, struct: str) -> Decoder:
    match kind.kind:
        case "pointer":
            assert kind.elem is not None
            return _compile(kind.elem, struct)
        case "string":
            return _string(struct, kind.name)
        case "bool":
            return _boolean(struct, kind.name)
        case "int32" | "int":
            return _integer(struct, kind.name, 32 if kind.kind == "int32" else 64)
        case "int64":
            return _integer(struct, kind.name, 64)
        case "float64":
            return _number(struct, kind.name)
        case "bytes":
            return _bytes(struct, kind.name)
        case "list" | "wrapped":
            return _list(kind, struct)
        case "map":
            return _map(kind, struct)
        case "struct":
            found = builtin_types.structure(kind.definition)
            if found.custom:
                return _custom(found.go_name, struct)
            return _lazy_struct(kind.definition, struct)
    return _anything


def _list(kind: GoType, struct: str) -> Decoder:
    assert kind.elem is not None
    inner = _compile(kind.elem, struct)
    zero = _zero_factory(kind.elem)
    name = kind.name
    plain_strings = kind.elem.kind == "string"

    def decode(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not list:
            raise _mismatch(value, path, struct, name, "slice")
        if plain_strings and all(type(item) is str for item in value):
            return list(value)
        return [inner(item, (path, index), unknown) if item is not None else zero() for index, item in enumerate(value)]

    return decode


def _map(kind: GoType, struct: str) -> Decoder:
    assert kind.elem is not None
    inner = _compile(kind.elem, struct)
    zero = _zero_factory(kind.elem)
    name = kind.name
    plain_strings = kind.elem.kind == "string"

    def decode(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise _mismatch(value, path, struct, name, "map")
        if plain_strings and all(type(item) is str for item in value.values()):
            return dict(value)
        return {key: inner(item, (path, (key,)), unknown) if item is not None else zero() for key, item in value.items()}

    return decode


def _zero_factory(kind: GoType) -> Callable[[], Any]:
    """Go's value for a JSON null inside a list or a map."""
    match kind.kind:
        case "string" | "bytes":
            return lambda: ""
        case "bool":
            return lambda: False
        case "int32" | "int64" | "int" | "float64":
            return lambda: 0
        case "struct":
            definition = kind.definition
            found = builtin_types.structure(definition)
            if found.custom:
                return (lambda: "0") if found.go_name == "resource.Quantity" else (lambda: None)
            return lambda: _struct(definition)({}, None, [])
    return lambda: None


def _lazy_struct(definition: str, struct: str) -> Decoder:
    """Structs may contain themselves, so an inner one is compiled when it is first met. `struct` is the one around it."""
    found: list[Decoder] = []
    go_name = builtin_types.structure(definition).go_name

    def decode(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise _mismatch(value, path, struct, go_name, "struct")
        if not found:
            found.append(_struct(definition))
        return found[0](value, path, unknown)

    return decode


@cache
def _struct(definition: str) -> Decoder:
    found = builtin_types.structure(definition)
    name = _short(found.go_name)
    fields: dict[str, tuple[Decoder, bool]] = {}
    always: list[tuple[str, Callable[[], Any]]] = []
    for field in builtin_types.flat_fields(definition):
        fields[field.name] = (_compile(field.type, name), _drops_empty(field))
        printed = _always_printed(field)
        if printed is not None:
            always.append((field.name, printed))
    go_name = found.go_name

    def decode(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise _mismatch(value, path, name, go_name, "struct")
        out: Obj = {}
        for key, item in value.items():
            known = fields.get(key)
            if known is None:
                unknown.append(_strict_path(path, key))
                continue
            if item is None:
                continue
            decoded = known[0](item, (path, key), unknown)
            if known[1] and not decoded and decoded is not None:
                continue
            out[key] = decoded
        for key, zero in always:
            if key not in out:
                out[key] = zero()
        return out

    return decode


def _is_plain_struct(kind: GoType) -> bool:
    return kind.kind == "struct" and not builtin_types.structure(kind.definition).custom


def _drops_empty(field: Field) -> bool:
    """True if an empty value of this field is not printed: pointers keep what they point to, structs are never empty."""
    if field.type.kind == "pointer" or field.type.kind == "struct":
        return False
    return field.omitempty or field.omitzero


def _always_printed(field: Field) -> Callable[[], Any] | None:
    """The value of an absent field, or None when it is not written."""
    kind = field.type
    if kind.kind == "struct":
        if field.omitzero:
            return None
        if _is_plain_struct(kind):
            definition = kind.definition
            return lambda: _struct(definition)({}, None, [])
        if field.omitempty and builtin_types.structure(kind.definition).go_name not in (
            "v1.Time",
            "v1.MicroTime",
            "resource.Quantity",
        ):
            return None
        return _zero_factory(kind)
    if field.omitempty or field.omitzero:
        return None
    if kind.kind in ("pointer", "list", "wrapped", "map", "bytes", "any"):
        return lambda: None
    return _zero_factory(kind)
