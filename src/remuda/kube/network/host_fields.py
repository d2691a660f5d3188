"""Which fields, options and variables say where a program connects, by their names and values. Pure.

A name is read by its words, in any spelling (`authUrl`, `--openstack-auth-url`, `OS_AUTH_URL`). It is better to take a field for
an address that is none than to overlook one: what follows is a check, and never a connection.
"""

from __future__ import annotations

import re
from typing import Any, Final

_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z][A-Z0-9]*(?![a-z])")
# The last word of a name of hosts: as a whole, or as its end.
_HOST: Final = re.compile(
    r"ips?|apis?|\w*(?:ur[il]|endpoint|host|hostname|server|vcenter|domain)s?|\w*(?:address|addresses|proxy)"
)
_URL: Final = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)
# Parts of host names. The rest of the name is the provider's, unless a character ends it.
_PARTS: Final = frozenset({"region", "zone", "location", "environment", "datacenter"})
_ENDS_A_NAME: Final = re.compile(r"[/?#@:\\]")
# By what a program knows the host that it has reached.
_TRUST: Final = frozenset({"insecure", "cacert"})


def names_host(name: str) -> bool:
    """Whether a field, option or variable of this name holds a host, or what begins with one."""
    words = _words(name)
    return bool(words) and _HOST.fullmatch(words[-1]) is not None


def says_where(name: str, value: Any) -> bool:
    """Whether a field decides which host gets what is sent: it names the host, or what the host is known by."""
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
