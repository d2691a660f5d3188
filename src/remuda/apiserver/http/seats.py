"""How much one caller may hold open: so many places for each, so many in all.

Whoever counts says what a caller is: an address (:func:`network_of`), a token's name.
"""

from __future__ import annotations

import ipaddress
from types import TracebackType


def network_of(address: str) -> str:
    """What counts as one caller: an IPv4 address, or the /64 of an IPv6 one."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))


class Seat:
    """A place that is held until it is left; leaving twice is leaving once."""

    __slots__ = ("_caps", "_key")

    def __init__(self, caps: ConnectionCaps, key: str) -> None:
        self._caps: ConnectionCaps | None = caps
        self._key = key

    def leave(self) -> None:
        if self._caps is not None:
            self._caps._left(self._key)
            self._caps = None

    def __enter__(self) -> Seat:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.leave()


class ConnectionCaps:
    """At most `each` places for one key (an address by `network_of`, a token's name) and `in_all` together."""

    def __init__(self, each: int, in_all: int) -> None:
        self._each = each
        self._in_all = in_all
        self._held: dict[str, int] = {}
        self._sum = 0

    def __len__(self) -> int:
        return self._sum

    def enter(self, key: str) -> Seat | None:
        """A place, or None when there is none left."""
        held = self._held.get(key, 0)
        if held >= self._each or self._sum >= self._in_all:
            return None
        self._held[key] = held + 1
        self._sum += 1
        return Seat(self, key)

    def held(self, key: str) -> int:
        return self._held.get(key, 0)

    def _left(self, key: str) -> None:
        self._sum -= 1
        if self._held[key] == 1:
            del self._held[key]
        else:
            self._held[key] -= 1
