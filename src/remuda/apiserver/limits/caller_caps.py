"""Limits for one caller: places for each and in all (:class:`ConnectionCaps`), and bytes of request
bodies (:class:`BodyRoom`).

The counting code defines a caller: an address (:func:`network_of`), a token's name, a user's.
"""

from __future__ import annotations

import ipaddress
from types import TracebackType


def network_of(address: str) -> str:
    """The unit that counts as one caller: an IPv4 address, or the /64 of an IPv6 one."""
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
    """A place that is held until it is left; leaving it twice has no further effect."""

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
        """A place, or None when none is left."""
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


BYTES_PER_USER, BYTES_IN_ALL = 64 << 20, 256 << 20
# Bodies up to this size are small: nearly all are.
SMALL_BODY = 16 << 10


class BodyRoom:
    """A limit on bytes of request bodies, per user and in all, from when a body is read until its request is answered.

    A request that waits for a hanging webhook keeps no seat but keeps its body, so request counts don't bound memory. A
    quarter is for small bodies alone: a user who sends large ones can still write small ones, Leases above all.
    """

    def __init__(self, each: int = BYTES_PER_USER, in_all: int = BYTES_IN_ALL) -> None:
        self._each = each
        self._in_all = in_all
        self._held: dict[str, int] = {}
        self.bytes = 0
        self.rejected = 0

    def held(self, user: str) -> int:
        return self._held.get(user, 0)

    def _grow(self, user: str, size: int, more: int) -> bool:
        """True if a body of `size` bytes may grow by so many more."""
        held = self._held.get(user, 0)
        each, in_all = self._each, self._in_all
        if size + more > SMALL_BODY:
            each, in_all = each - each // 4, in_all - in_all // 4
        if held + more > each or self.bytes + more > in_all:
            self.rejected += 1
            return False
        self._held[user] = held + more
        self.bytes += more
        return True

    def _left(self, user: str, size: int) -> None:
        self.bytes -= size
        if self._held[user] == size:
            del self._held[user]
        else:
            self._held[user] -= size


class HeldBody:
    """The body of one request, and its share of the limit."""

    __slots__ = ("_room", "_size", "_user")

    def __init__(self, room: BodyRoom, user: str) -> None:
        self._room = room
        self._user = user
        self._size = 0

    def reach(self, size: int) -> bool:
        """True if it may have this size; if not it stays as it is."""
        more = size - self._size
        if more <= 0:
            return True
        if not self._room._grow(self._user, self._size, more):
            return False
        self._size = size
        return True

    def leave(self) -> None:
        if self._size:
            self._room._left(self._user, self._size)
            self._size = 0
