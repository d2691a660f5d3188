"""The JSON edge: bytes in, plain Python values out, and back.

One module so that the library behind it can be changed in one place. Decoding is strict (no NaN, no invalid UTF-8, no
trailing data) and can report duplicate keys, which Kubernetes' field validation asks for on every write.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

Json = Any
Obj = dict[str, Any]

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()

# A document deeper than this is refused before any recursive code of ours sees it.
MAX_DEPTH = 256


class JsonError(ValueError):
    """Bytes that are not one JSON document."""


def dumps(value: Json) -> bytes:
    return _encoder.encode(value)


def dumps_text(value: Json) -> str:
    return _encoder.encode(value).decode()


def dumps_sorted(value: Json) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def loads(data: bytes | str) -> Json:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise JsonError(str(error)) from None
    except RecursionError:
        raise JsonError("exceeded max depth") from None


def loads_reporting_duplicates(data: bytes) -> tuple[Json, list[str]]:
    """The value, and the paths of keys that occur twice in one object (the last one wins, as in Go).

    Finding duplicates needs a slow parser, so it runs only when a cheap count says there may be one: a document without
    duplicates holds exactly as many `":` as its own re-encoding.
    """
    value = loads(data)
    if data.count(b'":') == dumps(value).count(b'":'):
        return value, []
    return value, _duplicate_paths(data)


class _Pairs(dict[str, Any]):
    """An object as the slow parser sees it: its last values, and the keys that came more than once."""

    __slots__ = ("repeated",)
    repeated: list[str]


def _collect(pairs: list[tuple[str, Any]]) -> _Pairs:
    found = _Pairs(pairs)
    found.repeated = []
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen and key not in found.repeated:
                found.repeated.append(key)
            seen.add(key)
    return found


def _duplicate_paths(data: bytes) -> list[str]:
    try:
        root = json.loads(data, object_pairs_hook=_collect)
    except (ValueError, RecursionError):
        return []
    paths: list[str] = []
    stack: list[tuple[str, Any]] = [("", root)]
    while stack:
        path, node = stack.pop()
        if isinstance(node, _Pairs):
            paths.extend(f"{path}.{key}" if path else key for key in node.repeated)
            stack.extend((f"{path}.{key}" if path else key, child) for key, child in node.items())
        elif isinstance(node, list):
            stack.extend((f"{path}[{index}]", child) for index, child in enumerate(node))
    return sorted(paths)


def depth_exceeds(data: bytes, limit: int = MAX_DEPTH) -> bool:
    """True when brackets nest deeper than `limit`; brackets inside strings do not count."""
    if data.count(b"{") + data.count(b"[") <= limit:
        return False
    depth = 0
    inside = escaped = False
    for byte in data:
        if inside:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                inside = False
        elif byte == 0x22:
            inside = True
        elif byte in (0x7B, 0x5B):
            depth += 1
            if depth > limit:
                return True
        elif byte in (0x7D, 0x5D):
            depth -= 1
    return False


def copy(value: Json) -> Json:
    """A deep copy of a JSON value, much cheaper than copy.deepcopy."""
    if type(value) is dict:
        return {key: copy(child) if type(child) in (dict, list) else child for key, child in value.items()}
    if type(value) is list:
        return [copy(child) if type(child) in (dict, list) else child for child in value]
    return value


def intern_keys(value: Obj) -> Obj:
    """The same object with interned keys; worthwhile only for what is kept for long."""
    return {sys.intern(key): child for key, child in value.items()}
