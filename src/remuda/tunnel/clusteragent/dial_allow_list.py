"""Addresses that may be dialled through the tunnel: the cluster's own API endpoint, and those that the operator allows.

Rancher's agent dials any TCP address. An attacker in control of its server could reach every address that the agent's pod can
reach, cloud metadata services among them. The API server's own proxy, which authorises, gives access to pods and services; so no
other address is needed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

_NETWORKS = frozenset({"tcp", "tcp4", "tcp6"})

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Place:
    """A host (a name, an address, a network, `*` for all) and a port (None: all)."""

    host: str
    port: int | None

    @classmethod
    def parse(cls, text: str) -> Place:
        """`HOST:PORT`. Raises ValueError."""
        host, colon, port = text.strip().rpartition(":")
        if not colon or not host or (":" in host and not host.startswith("[")):
            raise ValueError(f"{text!r} is not HOST:PORT")
        if port != "*" and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"{port!r} of {text!r} is neither a port nor *")
        host = _bare(host)
        if "/" in host:
            ipaddress.ip_network(host, strict=False)
        return cls(host, None if port == "*" else int(port))

    def holds(self, host: str, port: int) -> bool:
        if self.port is not None and self.port != port:
            return False
        if self.host == "*":
            return True
        address = _address(host)
        if "/" in self.host:
            # A name is not resolved: it may resolve differently when it is dialled.
            return address is not None and address in ipaddress.ip_network(self.host, strict=False)
        return host == self.host if address is None else address == _address(self.host)


class AllowList:
    def __init__(self, endpoint: str, others: Iterable[Place] = ()) -> None:
        self._places = (Place.parse(endpoint), *others)

    def __call__(self, network: str, address: str) -> bool:
        host, colon, port = address.rpartition(":")
        if network not in _NETWORKS or not colon or not (port.isascii() and port.isdigit()) or not host:
            return False
        return any(place.holds(_bare(host), int(port)) for place in self._places)


def _bare(host: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host.lower().rstrip(".")


def _address(host: str) -> Address | None:
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found
