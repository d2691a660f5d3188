"""Where a cluster's answer may send a client on to. Pure; :mod:`.cluster_proxy` puts it into the answer.

A program that follows a redirect to the host it asked shows its token there again, and repeats what it wanted to have done: the
owner of one cluster could have a `DELETE` of an administrator done in another. So a cluster sends people on within itself, which
is below our prefix to them, or to other hosts, where no client shows a token of ours; and nowhere else.
"""

from __future__ import annotations

import re
from urllib.parse import urljoin, urlsplit

# What a location is made of; browsers pass over tabs, and take a backslash for a slash.
_PLAIN = re.compile(r"[!-\[\]^-~]+", re.ASCII)
_DOTS = frozenset((".", "..", "%2e", "%2e.", ".%2e", "%2e%2e"))


def moved(location: str, prefix: str, address: str, path: str, host: str) -> str:
    """What a client is told; empty for nothing.

    `address` and `path` are where the cluster was asked, `prefix` is what it is below at our `host`, as the client named that.
    """
    if not _PLAIN.fullmatch(location):
        return ""
    try:
        parts = urlsplit(urljoin(f"https://{address}{path}", location))
        named, ours = parts.hostname or "", urlsplit(f"https://{host}").hostname or ""
    except ValueError:
        return ""
    if parts.scheme not in ("https", "http") or not named or "@" in parts.netloc:
        return ""
    if parts.scheme == "https" and parts.netloc == address:
        return _below(prefix, parts.path or "/", parts.query, parts.fragment)
    # Also under another port, and below our name: that is where programs show their tokens again.
    if not ours or named == ours or named.endswith(f".{ours}"):
        return ""
    return location


def _below(prefix: str, path: str, query: str, fragment: str) -> str:
    if not path.startswith("/") or any(part.lower() in _DOTS for part in path.split("/")):
        return ""
    return prefix + path + (f"?{query}" if query else "") + (f"#{fragment}" if fragment else "")
