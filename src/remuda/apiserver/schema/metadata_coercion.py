"""Typed `metadata`: the result of Go's decoder for an ObjectMeta, in a custom resource or an embedded one.

Kubernetes decodes metadata into a struct and writes it back: unknown fields go (and are reported), empty ones too, times lose
their fractions, wrong types are errors or, when reading from the store, dropped. Most metadata needs none of that;
:func:`is_settled` detects that quickly.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from remuda.kube.clock import parse_rfc3339, rfc3339, rfc3339_micro
from remuda.kube.errors import go_float, go_quote

Obj = dict[str, Any]

_SECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


class MetaError(ValueError):
    """Metadata that does not decode; the message is the Go decoder's."""


# --- quick check --------------------------------------------------------------------------------------------------


def _text_settled(value: Any) -> bool:
    return type(value) is str and value != ""


def _texts_settled(value: Any) -> bool:
    if type(value) is not list or not value:
        return False
    return all(type(item) is str for item in value)


def _map_settled(value: Any) -> bool:
    if type(value) is not dict or not value:
        return False
    return all(type(item) is str for item in value.values())


def _time_settled(value: Any) -> bool:
    return type(value) is str and _SECONDS.fullmatch(value) is not None


def _count_settled(value: Any) -> bool:
    return type(value) is int and 0 < value < 1 << 63


_OWNER_REQUIRED = ("apiVersion", "kind", "name", "uid")


def _owners_settled(value: Any) -> bool:
    if type(value) is not list or not value:
        return False
    for owner in value:
        if type(owner) is not dict:
            return False
        flags = 0
        for name in ("controller", "blockOwnerDeletion"):
            if name in owner:
                if type(owner[name]) is not bool:
                    return False
                flags += 1
        if len(owner) != 4 + flags:
            return False
        for name in _OWNER_REQUIRED:
            if type(owner.get(name)) is not str:
                return False
    return True


_MANAGED = frozenset(("manager", "operation", "apiVersion", "fieldsType", "subresource"))


def _managed_settled(value: Any) -> bool:
    if type(value) is not list or not value:
        return False
    for entry in value:
        if type(entry) is not dict:
            return False
        for name, part in entry.items():
            if name in _MANAGED:
                if type(part) is not str or not part:
                    return False
            elif name == "time":
                if not _time_settled(part):
                    return False
            elif name != "fieldsV1" or part is None:
                return False
    return True


_SETTLED: dict[str, Callable[[Any], bool]] = {
    "name": _text_settled,
    "generateName": _text_settled,
    "namespace": _text_settled,
    "selfLink": _text_settled,
    "uid": _text_settled,
    "resourceVersion": _text_settled,
    "generation": _count_settled,
    "creationTimestamp": _time_settled,
    "deletionTimestamp": _time_settled,
    "deletionGracePeriodSeconds": lambda value: type(value) is int,
    "labels": _map_settled,
    "annotations": _map_settled,
    "ownerReferences": _owners_settled,
    "finalizers": _texts_settled,
    "managedFields": _managed_settled,
}


def is_settled(meta: Any) -> bool:
    """True when decoding would change nothing and report nothing."""
    if type(meta) is not dict:
        return False
    find = _SETTLED.get
    for name, value in meta.items():
        check = find(name)
        if check is None or not check(value):
            return False
    return True


# --- full decoding ------------------------------------------------------------------------------------------------

_KINDS: dict[type, str] = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}


class _Decoding:
    """One decode: the struct and field that an error names, and the unknown fields found so far."""

    __slots__ = ("unknown",)

    def __init__(self) -> None:
        self.unknown: list[str] = []


# (value, decoding, struct name, field stack, path) -> the decoded value, or None when it is Go's zero value
_Decode = Callable[[Any, _Decoding, str, str, str], Any]


def _mismatch(value: Any, struct: str, stack: str, wanted: str) -> MetaError:
    kind = _KINDS.get(type(value), "null")
    if kind == "number" and wanted == "int64":
        kind = f"number {go_float(value) if type(value) is float else value}"
    return MetaError(f"json: cannot unmarshal {kind} into Go struct field {struct}.{stack} of type {wanted}")


def _text(wanted: str = "string") -> _Decode:
    def decode(value: Any, _: _Decoding, struct: str, stack: str, path: str) -> Any:
        if type(value) is not str:
            raise _mismatch(value, struct, stack, wanted)
        return value or None

    return decode


def _integer(pointer: bool) -> _Decode:
    def decode(value: Any, _: _Decoding, struct: str, stack: str, path: str) -> Any:
        if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
            raise _mismatch(value, struct, stack, "int64")
        return value if value or pointer else None

    return decode


def _boolean(value: Any, _: _Decoding, struct: str, stack: str, path: str) -> Any:
    if type(value) is not bool:
        raise _mismatch(value, struct, stack, "bool")
    return value


def _time(micro: bool = False) -> _Decode:
    def decode(value: Any, _: _Decoding, struct: str, stack: str, path: str) -> Any:
        if type(value) is not str:
            kind = _KINDS.get(type(value), "null")
            raise MetaError(f"json: cannot unmarshal {kind} into Go value of type string")
        try:
            seconds = parse_rfc3339(value)
        except ValueError:
            raise MetaError(
                f'parsing time {go_quote(value)} as "2006-01-02T15:04:05Z07:00": cannot parse {go_quote(value)} as "2006"'
            ) from None
        return rfc3339_micro(seconds) if micro else rfc3339(seconds)

    return decode


def _text_map(value: Any, _: _Decoding, struct: str, stack: str, path: str) -> Any:
    if type(value) is not dict:
        raise _mismatch(value, struct, stack, "map[string]string")
    found: Obj = {}
    for name in value:
        item = value[name]
        if item is not None and type(item) is not str:
            raise _mismatch(item, struct, stack, "string")
        found[name] = item or ""
    return found or None


def _text_list(value: Any, _: _Decoding, struct: str, stack: str, path: str) -> Any:
    if type(value) is not list:
        raise _mismatch(value, struct, stack, "[]string")
    for item in value:
        if item is not None and type(item) is not str:
            raise _mismatch(item, struct, stack, "string")
    return [item or "" for item in value] or None


def _raw(value: Any, _: _Decoding, struct: str, stack: str, path: str) -> Any:
    return value


def _struct_list(go_type: str, name: str, fields: dict[str, _Decode], always: tuple[str, ...]) -> _Decode:
    def decode(value: Any, decoding: _Decoding, struct: str, stack: str, path: str) -> Any:
        if type(value) is not list:
            raise _mismatch(value, struct, stack, f"[]{go_type}")
        found: list[Obj] = []
        for index, item in enumerate(value):
            if item is not None and type(item) is not dict:
                raise _mismatch(item, struct, stack, go_type)
            decoded = _struct(item or {}, fields, decoding, name, f"{stack}.", f"{path}[{index}].")
            found.append({**dict.fromkeys(always, ""), **decoded})
        return found or None

    return decode


def _struct(value: Obj, fields: dict[str, _Decode], decoding: _Decoding, name: str, stack: str, path: str) -> Obj:
    found: Obj = {}
    for key in sorted(value):
        decode = fields.get(key)
        if decode is None:
            decoding.unknown.append(path + key)
            continue
        part = value[key]
        if part is None:
            continue
        decoded = decode(part, decoding, name, stack + key, path + key)
        if decoded is not None:
            found[key] = decoded
    return found


_OWNER: dict[str, _Decode] = {
    "apiVersion": _text(),
    "kind": _text(),
    "name": _text(),
    "uid": _text("types.UID"),
    "controller": _boolean,
    "blockOwnerDeletion": _boolean,
}
_ENTRY: dict[str, _Decode] = {
    "manager": _text(),
    "operation": _text("v1.ManagedFieldsOperationType"),
    "apiVersion": _text(),
    "time": _time(),
    "fieldsType": _text(),
    "fieldsV1": _raw,
    "subresource": _text(),
}
_META: dict[str, _Decode] = {
    "name": _text(),
    "generateName": _text(),
    "namespace": _text(),
    "selfLink": _text(),
    "uid": _text("types.UID"),
    "resourceVersion": _text(),
    "generation": _integer(pointer=False),
    "creationTimestamp": _time(),
    "deletionTimestamp": _time(),
    "deletionGracePeriodSeconds": _integer(pointer=True),
    "labels": _text_map,
    "annotations": _text_map,
    "ownerReferences": _struct_list("v1.OwnerReference", "OwnerReference", _OWNER, _OWNER_REQUIRED),
    "finalizers": _text_list,
    "managedFields": _struct_list("v1.ManagedFieldsEntry", "ManagedFieldsEntry", _ENTRY, ()),
}


def decode_meta(meta: Any, path: str = "metadata", drop_invalid: bool = False) -> tuple[Obj, list[str]]:
    """Metadata as Kubernetes would write it back, and the paths of its unknown fields.

    Raises :class:`MetaError` for a wrong type; with `drop_invalid`, wrong fields are dropped one by one instead.
    """
    if is_settled(meta):
        return meta, []
    if meta is None:
        return {}, []
    if type(meta) is not dict:
        kind = _KINDS.get(type(meta), "null")
        if drop_invalid:
            raise MetaError(f"invalid metadata: expected object, got {kind}")
        raise MetaError(f"json: cannot unmarshal {kind} into Go value of type v1.ObjectMeta")
    decoding = _Decoding()
    if not drop_invalid:
        return _struct(meta, _META, decoding, "ObjectMeta", "", f"{path}."), decoding.unknown
    kept: Obj = {}
    for name, value in meta.items():
        try:
            kept.update(_struct({name: value}, _META, decoding, "ObjectMeta", "", f"{path}."))
        except MetaError:
            continue
    return kept, decoding.unknown
