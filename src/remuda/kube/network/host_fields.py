"""Detection of fields, options and variables that hold a connection's target, by their names and values. Pure.

A name is read by its words, in any spelling (`authUrl`, `--openstack-auth-url`, `OS_AUTH_URL`). A false match is better than
a missed address: the result is only used for checks, never for a connection.
"""

from __future__ import annotations

import re
from typing import Any, Final

_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z][A-Z0-9]*(?![a-z])")
# The last word of a name for hosts: the whole word, or its end.
_HOST: Final = re.compile(
    r"ips?|apis?|\w*(?:ur[il]|endpoint|host|hostname|server|vcenter|domain)s?|\w*(?:address|addresses|proxy)"
)
_URL: Final = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)
# Parts of host names. The rest of the name is the provider's, unless a character ends it.
_PARTS: Final = frozenset({"region", "zone", "location", "environment", "datacenter"})
_ENDS_A_NAME: Final = re.compile(r"[/?#@:\\]")
# Settings by which a program verifies the host.
_TRUST: Final = frozenset({"insecure", "cacert"})


def names_host(name: str) -> bool:
    """True if a field, option or variable of this name holds a host, or a value that begins with one."""
    words = _words(name)
    return bool(words) and _HOST.fullmatch(words[-1]) is not None


def says_where(name: str, value: Any) -> bool:
    """True if a field decides which host receives the data: it names the host, or how the host is verified."""
    if isinstance(value, list):
        return any(says_where(name, each) for each in value)
    if value is True:
        return not _TRUST.isdisjoint(_words(name))
    if not isinstance(value, str) or not value.strip():
        return False
    if names_host(name) or _URL.match(value):
        return True
    words = _words(name)
    if not _TRUST.isdisjoint(words):
        return True
    return bool(words) and words[-1] in _PARTS and _ENDS_A_NAME.search(value.strip()) is not None


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]
