"""The `fieldPath` of a rule: a small JSON path into the rule's schema, checked and normalized.

Errors of the rule are reported at that field instead of at the rule's own place.
"""

from __future__ import annotations

import re
from typing import Any

_TOKEN = re.compile(r"'(?:\\.|[^'\\])*'|[.\[\]]|[^.\[\]]+", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


def normalize(path: str, schema: dict[str, Any]) -> str:
    """`.spec['a'].b` as `spec.a.b` (or `spec[a]` for keys of maps). Raises ValueError for what the schema does not have."""
    tokens = _TOKEN.findall(path)
    found = ""
    at = 0
    while at < len(tokens):
        opening = tokens[at]
        if opening not in ("[", "."):
            raise ValueError(f"expected [ or . but got: {opening}")
        if at + 1 >= len(tokens):
            raise ValueError("unexpected end of JSON path")
        name = tokens[at + 1]
        at += 2
        if opening == "[":
            name = _quoted(name)
            if at >= len(tokens):
                raise ValueError("unexpected end of JSON path")
            if tokens[at] != "]":
                raise ValueError(f"expected ] but got {tokens[at]}")
            at += 1
        found, schema = _step(found, schema, name)
    return found


def _quoted(token: str) -> str:
    if len(token) < 2 or token[0] != "'" or token[-1] != "'":
        raise ValueError(f"expected single quoted string but got {token}")

    def plain(match: re.Match[str]) -> str:
        if match[1] not in _PLAIN:
            raise ValueError(f"invalid string literal: invalid escape char {match[0]}")
        return _PLAIN[match[1]]

    return _ESCAPE.sub(plain, token[1:-1])


def _step(found: str, schema: dict[str, Any], name: str) -> tuple[str, dict[str, Any]]:
    properties = schema.get("properties")
    if properties:
        if name not in properties:
            raise ValueError("does not refer to a valid field")
        return (f"{found}.{name}" if found else name), properties[name]
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        return f"{found}[{name}]", additional
    raise ValueError("does not refer to a valid field")
