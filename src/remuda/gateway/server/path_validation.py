"""Validation of a request's target, before anything is routed, authorised or passed on.

Two programs that read one path differently make authorization fail: the gateway authorises `/k8s/clusters/a/../b`, and a server
behind it serves `b`. So a path is only accepted when every reading of it is the same: no empty segment, no `.` or `..`, no
encoded slash, dot, percent, backslash or control character, however often it is decoded. Kubernetes needs none of these.
:mod:`.headers` checks what comes after the request line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

LONGEST_PATH = 4096
LONGEST_QUERY = 32_768

# RFC 3986: pchar and "/", without what follows a % (checked below).
_PATH = re.compile(r"(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)+", re.ASCII)
# As browsers and kubectl send them: more than the RFC allows, but no line end and no space.
_QUERY = re.compile(r"[!-~]*")
_DOTS = "the path has a segment that is empty, . or .."
# Characters that some readers interpret when they are encoded, and others do not.
_NEVER_ENCODED = frozenset(b"/\\.%;?#")


class BadTarget(ValueError):
    """A target that some reader could take for another one; the text says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """`path` as received, to be passed on, its decoded `segments`, and the `query` without its `?`."""

    path: str
    segments: tuple[str, ...]
    query: str = ""


def judge(raw: str) -> Target:
    """The target of a request line (origin form); raises BadTarget."""
    path, _, query = raw.partition("?")
    if len(path) > LONGEST_PATH:
        raise BadTarget(f"the path is longer than {LONGEST_PATH} characters")
    if len(query) > LONGEST_QUERY:
        raise BadTarget(f"the query is longer than {LONGEST_QUERY} characters")
    if not _PATH.fullmatch(path):
        raise BadTarget("the path must begin with / and have only characters that a path may have")
    if not _QUERY.fullmatch(query) or "#" in query:
        raise BadTarget("the query has an invalid character")
    parts = path[1:].split("/")
    # A trailing / is not an empty segment.
    inner = parts[:-1] if parts[-1] == "" else parts
    if "%" not in path and ";" not in path and "" not in inner and "." not in inner and ".." not in inner:
        # The fast path for nearly all requests: an unencoded path has one reading.
        return Target(path, tuple(inner), query)
    return Target(path, tuple([_segment(part) for part in inner]), query)


def _segment(raw: str) -> str:
    if not raw:
        raise BadTarget("the path has //")
    if "%" not in raw:
        if raw.partition(";")[0] in ("", ".", ".."):
            raise BadTarget(_DOTS)
        return raw
    data = unquote_to_bytes(raw)
    # "..;x" is ".." to readers that know parameters of a segment.
    if data.partition(b";")[0].strip() in (b"", b".", b".."):
        raise BadTarget(_DOTS)
    for at in re.finditer("%(..)", raw):
        byte = int(at[1], 16)
        if byte in _NEVER_ENCODED or byte < 0x20 or byte == 0x7F:
            raise BadTarget("the path has an encoded character that could be read in two ways")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadTarget("the path is not UTF-8 when decoded") from None
