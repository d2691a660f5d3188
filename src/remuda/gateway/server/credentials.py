"""Credentials of a request: a token from `Authorization` (Bearer or Basic) or from the session's cookie, parsed but not verified.

Only `name:secret` is ours. A bearer of another shape (a service account's, a cluster agent's) is left to others, so None is no
refusal. Ambiguous credentials (two headers, two different cookies) are refused: another party on the way might have chosen the
other one. :mod:`remuda.access.users.tokens` decides whether the token is valid, :mod:`.csrf` where a cookie counts.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import replace

from remuda.access.users.tokens import Presented

__all__ = ["COOKIE", "LONGEST", "BadCredential", "Presented", "cookie_values", "parse_token", "presented"]

COOKIE = "R_SESS"
LONGEST = 4096

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SECRET = re.compile(r"[!-~]{1,512}")
# RFC 6265: the characters of a cookie's value.
_COOKIE_VALUE = re.compile(r"[!#-+\--:<-\[\]-~]*")


class BadCredential(Exception):
    """An invalid credential, or more than one; the text says which problem, never the value."""


def presented(headers: Iterable[tuple[str, str]], *, cookie: bool) -> Presented | None:
    """The token of a request, or None without one of ours. `cookie` tells whether the session's cookie counts here.

    `Authorization` comes first: it is set on purpose, also where a browser adds a cookie.
    """
    listed = [(name.lower(), value) for name, value in headers]
    authorizations = [value for name, value in listed if name == "authorization"]
    if len(authorizations) > 1:
        raise BadCredential("there is more than one Authorization header")
    if authorizations:
        return _authorization(authorizations[0])
    return _session([value for name, value in listed if name == "cookie"]) if cookie else None


def _authorization(value: str) -> Presented | None:
    if len(value) > LONGEST:
        raise BadCredential("the Authorization header is too long")
    scheme, _, rest = value.strip(" \t").partition(" ")
    rest = rest.strip(" \t")
    match scheme.lower():
        case "bearer":
            return parse_token(rest)
        case "basic":
            found = parse_token(_basic(rest))
            if found is None:
                raise BadCredential("the Basic credential is no token of the form name:secret")
            return replace(found, from_basic=True)
    return None


def _basic(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise BadCredential("the Basic credential can't be decoded") from None


def parse_token(text: str, *, from_cookie: bool = False) -> Presented | None:
    """`name:secret` split at the first colon; None for another shape."""
    name, colon, secret = text.partition(":")
    if not colon or len(text) > LONGEST or not _NAME.fullmatch(name) or not _SECRET.fullmatch(secret):
        return None
    return Presented(name, secret, from_cookie)


def _session(lines: list[str]) -> Presented | None:
    values = cookie_values(lines, COOKIE)
    if len(values) > 1:
        raise BadCredential(f"there are several {COOKIE} cookies that differ")
    return parse_token(values.pop(), from_cookie=True) if values else None


def cookie_values(lines: Iterable[str], name: str) -> set[str]:
    """All values of a cookie in a request's Cookie headers. More than one means that another party has set one, too.

    Names are compared exactly, as browsers do; a quoted value is not unquoted, since ours are never quoted.
    """
    found: set[str] = set()
    for line in lines:
        for pair in line.split(";"):
            key, equals, value = pair.strip(" \t").partition("=")
            if equals and key == name and _COOKIE_VALUE.fullmatch(value) and len(value) <= LONGEST:
                found.add(value)
    return found
