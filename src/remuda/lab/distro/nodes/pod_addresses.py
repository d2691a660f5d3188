"""Addresses of pods that run in name: one each while they live, out of the node's own range or, where it has none, of all.

Nobody listens there. A pod that really runs has the address of its host.
"""

from __future__ import annotations

import ipaddress
import zlib

# The default range of pods, as k3s has it.
_ALL = ipaddress.ip_network("10.42.0.0/16")


def pod_address(uid: str, pod_cidr: str) -> str:
    """The same for the same pod; two pods of a node share one seldom, and nothing depends on it."""
    try:
        network = ipaddress.ip_network(pod_cidr) if pod_cidr else _ALL
    except ValueError:
        network = _ALL
    usable = max(network.num_addresses - 2, 1)
    return str(network[1 + zlib.crc32(uid.encode()) % min(usable, 2**32)])
