"""The address by which other servers of the same state reach this one: as configured, or found.

A server that listens at one address is reached there. One that listens at all of them is reached at the address of this machine
that leads to the store, or to the Kubernetes, that all servers share.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from functools import lru_cache
from urllib.parse import urlsplit

from remuda.tunnel.client import split_address

EVERYWHERE = frozenset(("", "0.0.0.0", "::"))
_LOOPBACK = "127.0.0.1"


def towards(url: str) -> str:
    """This machine's own address on the way to a URL's host; nothing is sent."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    with contextlib.suppress(OSError, ValueError):
        for family, kind, protocol, _, address in socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
    return ""


# The machine may get its addresses late, but keeps the one that was found.
_found = lru_cache(maxsize=8)(towards)


def advertised(configured: str, host: str, port: int, shared: str, find: Callable[[str], str] = _found) -> str:
    """`host:port`. `configured` is a host or `host:port`; `host` and `port` are those of the listener; `shared` is the URL of
    what the servers share."""
    if configured:
        return checked(configured, port)
    return _joined(host if host not in EVERYWHERE else find(shared) or _LOOPBACK, port)


def checked(text: str, port: int) -> str:
    """`host:port` of a host or `host:port`. Raises ValueError."""
    bare = not text.startswith("[") and text.count(":") != 1
    found, said = (text, port) if bare else split_address(f"{text}:{port}" if text.endswith("]") else text)
    if not found or text.startswith(":") or not said or any(each.isspace() or each in "/@?#[]" for each in found):
        raise ValueError(f"{text!r} is neither a host nor host:port")
    return _joined(found, said)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
