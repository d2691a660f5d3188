"""JSON as Go writes it, for text that is hashed or compared with upstream's.

Go's encoder sorts the keys of a map and writes `<`, `>`, `&` and two line separators as escapes. All five occur only
inside strings, so they are replaced in the finished text. :mod:`.jsonio` is the edge for everything else.
"""

from __future__ import annotations

from typing import Any

import msgspec

_ESCAPES = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def dumps(value: Any) -> bytes:
    """The JSON in one line; keys of maps are sorted, members of structs keep their order."""
    return _escaped(msgspec.json.encode(value, order="deterministic"))


def dumps_indented(value: Any) -> bytes:
    """One member per line, indented by two spaces."""
    return _escaped(msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=2))


def _escaped(text: bytes) -> bytes:
    for raw, escape in _ESCAPES:
        if raw in text:
            text = text.replace(raw, escape)
    return text
