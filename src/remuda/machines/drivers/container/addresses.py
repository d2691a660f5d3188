"""The address of a container, which stays the same after each start, as a host's does: etcd knows its members by it. Pure.

Engines give containers any address when they start, from the lower end on. So ours are in the upper half of the network, at a
place derived from the machine's token; addresses in use are asked for, and one taken at the same moment is noticed when the
container starts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from ipaddress import IPv4Network

_TRIES, _LOOKED_AT = 64, 4096
# Below that there is nothing to choose from.
_SMALLEST = 8
_TAKEN = ("in use", "not available", "already allocated")


def network_of(text: str) -> IPv4Network | None:
    """None for anything but an IPv4 network that is large enough to choose from."""
    try:
        found = IPv4Network(text, strict=False)
    except ValueError:
        return None
    return found if found.num_addresses >= _SMALLEST else None


def chosen(network: IPv4Network, token: str, taken: Collection[str]) -> str:
    """An address that is always the same for the same token while it is free; empty when all seem to be taken."""
    half = network.num_addresses // 2
    for number in range(_TRIES):
        digest = hashlib.sha256(f"{token}/{number}".encode()).digest()
        # Not the last one, which is the broadcast address.
        found = str(network.network_address + half + int.from_bytes(digest[:8]) % (half - 1))
        if found not in taken:
            return found
    upper = range(half, min(network.num_addresses - 1, half + _LOOKED_AT))
    return next((each for each in (str(network.network_address + number) for number in upper) if each not in taken), "")


def is_taken(message: str) -> bool:
    """True if an engine says that the address is taken."""
    said = message.lower()
    return "address" in said and any(each in said for each in _TAKEN)
