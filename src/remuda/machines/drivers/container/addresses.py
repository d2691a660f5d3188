"""Which address a container gets, and has again after each start, as hosts do: etcd knows its members by it. Pure.

Engines give containers any address when they start, from the lower end on. So ours are in the upper half of the network, where
the machine's token says; who was there first is asked for, and who comes at the same moment is found when the container starts.
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
    """None for what is no network of the fourth version that one could choose from."""
    try:
        found = IPv4Network(text, strict=False)
    except ValueError:
        return None
    return found if found.num_addresses >= _SMALLEST else None


def chosen(network: IPv4Network, token: str, taken: Collection[str]) -> str:
    """The same for the same token as long as nobody else has it; empty when all seem to be taken."""
    half = network.num_addresses // 2
    for number in range(_TRIES):
        digest = hashlib.sha256(f"{token}/{number}".encode()).digest()
        # Not the last one, which is everybody's.
        found = str(network.network_address + half + int.from_bytes(digest[:8]) % (half - 1))
        if found not in taken:
            return found
    upper = range(half, min(network.num_addresses - 1, half + _LOOKED_AT))
    return next((each for each in (str(network.network_address + number) for number in upper) if each not in taken), "")


def is_taken(message: str) -> bool:
    """Whether an engine says that somebody else has the address."""
    said = message.lower()
    return "address" in said and any(each in said for each in _TAKEN)
