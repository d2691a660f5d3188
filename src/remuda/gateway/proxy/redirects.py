"""The locations that a cluster's answer may redirect a client to. Pure; :mod:`.cluster_proxy` puts them into the answer.

A program that follows a redirect to the host it asked sends its token there again, and repeats its request: the owner of one
cluster could make an administrator `DELETE` in another. So a cluster may redirect within itself, which is below our prefix, or to
other hosts, where no client sends our token; and nowhere else.
"""

from __future__ import annotations

import re
from urllib.parse import urljoin, urlsplit

# The characters of a location; browsers skip tabs, and take a backslash for a slash.
_PLAIN = re.compile(r"[!-\[\]^-~]+", re.ASCII)
_DOTS = frozenset((".", "..", "%2e", "%2e.", ".%2e", "%2e%2e"))


def moved(location: str, prefix: str, address: str, path: str, host: str) -> str:
    """The location for the client; empty for none.

    `address` and `path` were requested of the cluster; `prefix` is the cluster's path at our `host`, as the client named that.
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
    # Also under another port, and below our name: programs send their tokens there again.
    if not ours or named == ours or named.endswith(f".{ours}"):
        return ""
    return location


def _below(prefix: str, path: str, query: str, fragment: str) -> str:
    if not path.startswith("/") or any(part.lower() in _DOTS for part in path.split("/")):
        return ""
    return prefix + path + (f"?{query}" if query else "") + (f"#{fragment}" if fragment else "")
