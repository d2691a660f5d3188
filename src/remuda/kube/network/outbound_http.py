"""HTTP under the policy of :mod:`.outbound`: a connector that resolves a name once and connects only to checked addresses.

It checks every connection, also that of a redirect, and that to an address that needs no resolving.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from . import outbound
from .outbound import Lookup, Policy

# The current policy.
Current = Callable[[], Policy]
SocketFactory = Callable[[aiohttp.AddrInfoType], socket.socket]


def connector(
    policy: Current, *, make: SocketFactory | None = None, lookup: Lookup = outbound.looked_up, **more: Any
) -> aiohttp.TCPConnector:
    """`make` makes the sockets, `lookup` resolves names; `more` is aiohttp's own."""
    made = make or _socket

    def checked(info: aiohttp.AddrInfoType) -> socket.socket:
        # The last check: this very address is connected to, whenever its name was resolved.
        family, kind, protocol, name, where = info
        policy().check(str(where[0]), [(int(family), int(kind), protocol, name, tuple(where))])
        return made(info)

    return aiohttp.TCPConnector(resolver=_Resolver(policy, lookup), socket_factory=checked, **more)


def _socket(info: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = info
    return socket.socket(family=family, type=kind, proto=protocol)


class _Resolver(AbstractResolver):
    def __init__(self, policy: Current, lookup: Lookup) -> None:
        self._policy = policy
        self._lookup = lookup

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> list[ResolveResult]:
        found = await outbound.resolved(self._policy(), host, port, self._lookup)
        wanted = [info for info in found if family in (socket.AF_UNSPEC, info[0])]
        return [_result(host, port, *info) for info in wanted]

    async def close(self) -> None:
        return


def _result(host: str, port: int, family: int, _: int, protocol: int, __: str, where: tuple[Any, ...]) -> ResolveResult:
    address = str(where[0])
    if len(where) > 3 and where[3] and "%" not in address:
        address = f"{address}%{where[3]}"
    numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=protocol, flags=numeric)
