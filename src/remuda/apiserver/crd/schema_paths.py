"""Paths into a schema, such as `.spec.replicas` or `.spec['my key']`, in rules and selectable fields."""

from __future__ import annotations

import re
from typing import Any

from .internal_version import Obj, dict_of

_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"', "a": "\a", "v": "\v"}


class PathError(ValueError):
    """A path to no field; the message gives the reason in kube-apiserver's words."""


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == "'":
            match = _QUOTED.match(text, at)
            end = match.end() if match else len(text)
        elif text[at] in ".[]":
            end = at + 1
        else:
            found = re.compile(r"[.\[\]]").search(text, at)
            end = found.start() if found else len(text)
        tokens.append(text[at:end])
        at = end
    return tokens


def resolve(text: str, schema: Obj, allow_brackets: bool = True) -> tuple[str, Obj | None]:
    """The path in field-path form, and the schema it leads to."""
    tokens = iter(_tokens(text))
    path = ""
    here: Any = schema
    for token in tokens:
        if token == "[":
            if not allow_brackets:
                raise PathError("array notation is not allowed")
            name = _bracketed(tokens)
        elif token == ".":
            name = next(tokens, "")
            if not name:
                raise PathError("unexpected end of JSON path")
        else:
            raise PathError(f"expected [ or . but got: {token}")
        path, here = _step(path, here, name)
        if token == "[":
            closing = next(tokens, "")
            if closing != "]":
                raise PathError(f"expected ] but got {closing}" if closing else "unexpected end of JSON path")
    return path, here if isinstance(here, dict) else None


def _bracketed(tokens: Any) -> str:
    quoted = next(tokens, "")
    if not quoted:
        raise PathError("unexpected end of JSON path")
    if len(quoted) < 2 or quoted[0] != "'" or quoted[-1] != "'":
        raise PathError(f"expected single quoted string but got {quoted}")
    inside = quoted[1:-1]
    if any(char not in _ESCAPES for char in re.findall(r"\\(.)", inside)):
        raise PathError("invalid string literal: invalid syntax")
    return re.sub(r"\\(.)", lambda match: _ESCAPES[match.group(1)], inside)


def _step(path: str, here: Any, name: str) -> tuple[str, Any]:
    schema = dict_of(here)
    properties = schema.get("properties")
    if isinstance(properties, dict) and properties:
        if name not in properties:
            raise PathError("does not refer to a valid field")
        return (f"{path}.{name}" if path else name), properties[name]
    additional = schema.get("additionalProperties")
    if additional is None:
        raise PathError("does not refer to a valid field")
    return f"{path}[{name}]", additional
