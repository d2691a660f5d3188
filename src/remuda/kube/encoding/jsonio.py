"""The JSON edge: bytes in, plain Python values out, and back.

One module so that the library behind it can be changed in one place. Decoding is strict (no NaN, no invalid UTF-8, no
trailing data) and can report duplicate keys, which Kubernetes' field validation asks for on every write.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec

from . import jsonsyntax

Json = Any
Obj = dict[str, Any]

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()

# A document deeper than this is refused before our recursive code sees it.
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


def loads_as_go(data: bytes, merge: bool = False) -> tuple[Json, list[str]]:
    """The value as a Go server reads it, and the paths of repeated keys, in document order.

    Bytes that are not UTF-8 become U+FFFD; of a repeated key the last value counts, or with `merge` (as when Go fills a
    struct) objects under the same key are merged. Errors are Go's sentences. Finding duplicates needs a slow parser, so it
    runs only when a cheap count says there may be one: a document without duplicates holds exactly as many `":` as its own
    re-encoding.
    """
    try:
        value = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = jsonsyntax.problem(data)
        if found:
            raise JsonError(found) from None
        data = _repaired(data)
        value = loads(data)
    if data.count(b'":') == dumps(value).count(b'":'):
        return value, []
    return _with_duplicates(data, merge)


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def _repaired(data: bytes) -> bytes:
    """A document that only Go's reader accepts: bad UTF-8 and half surrogate pairs are replaced."""
    try:
        text = data.decode(errors="replace")
        pairs = json.loads(text, object_pairs_hook=_Pairs, parse_int=_go_integer, parse_float=_go_number)
        return _LONE_SURROGATE.sub("\ufffd", json.dumps(_plain(pairs, "", []), ensure_ascii=False)).encode()
    except (ValueError, RecursionError) as error:
        raise JsonError(str(error)) from None


def _go_integer(text: str) -> float:
    """A whole number; one of very many digits is a float in Go, if there is such a float."""
    return int(text) if len(text) <= 300 else _go_number(text)


def _go_number(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise JsonError(f"json: cannot unmarshal number {text} into Go value of type float64")
    return found


class _Pairs(list[tuple[str, Any]]):
    """An object as the slow parser sees it: every key in its place, also repeated ones."""


def _with_duplicates(data: bytes, merge: bool) -> tuple[Json, list[str]]:
    try:
        pairs = json.loads(data, object_pairs_hook=_Pairs, parse_int=_go_integer, parse_float=_go_number)
    except RecursionError:
        raise JsonError("exceeded max depth") from None
    paths: list[str] = []
    return _plain(pairs, "", paths, merge), list(dict.fromkeys(paths))


def _plain(node: Any, path: str, repeated: list[str], merge: bool = False) -> Json:
    if isinstance(node, _Pairs):
        found: Obj = {}
        for key, child in node:
            where = f"{path}.{key}" if path else key
            again = key in found
            if again:
                repeated.append(where)
            value = _plain(child, where, repeated, merge)
            found[key] = _merged(found[key], value) if again and merge else value
        return found
    if isinstance(node, list):
        return [_plain(child, f"{path}[{index}]", repeated, merge) for index, child in enumerate(node)]
    return node


def key_places(data: bytes) -> dict[str, list[int]]:
    """For each path of a key, where it stands in the document (its keys numbered in order): more than once if it is repeated."""
    places: dict[str, list[int]] = {}
    counted = 0

    def walk(node: Any, path: str) -> None:
        nonlocal counted
        if isinstance(node, _Pairs):
            for key, child in node:
                where = f"{path}.{key}" if path else key
                places.setdefault(where, []).append(counted)
                counted += 1
                walk(child, where)
        elif isinstance(node, list):
            for index, child in enumerate(node):
                walk(child, f"{path}[{index}]")

    walk(json.loads(data.decode(errors="replace"), object_pairs_hook=_Pairs, parse_int=str, parse_float=str, strict=False), "")
    return places


def _merged(old: Json, new: Json) -> Json:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return old if new is None else new
    return {**old, **{key: _merged(old[key], value) if key in old else value for key, value in new.items()}}


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
