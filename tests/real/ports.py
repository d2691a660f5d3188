"""Ports for servers that are told beforehand where to listen.

Between choosing one and listening on it others open connections, and the system gives these any port of its range: a port that
was free a moment ago may be somebody's by then. So they are chosen outside that range, each worker has a part of its own, and
none is handed out twice.
"""

from __future__ import annotations

import os
import random
import re
import socket
from pathlib import Path

HOST = "127.0.0.1"
# Above what is well known, below what Kubernetes gives to Services.
_FIRST, _LAST, _PARTS = 12_000, 29_999, 8
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_given: set[int] = set()
_chance = random.SystemRandom()


def free_port() -> int:
    """One that is free, and that nobody gets by chance."""
    candidates = [port for port in _candidates() if port not in _given]
    _chance.shuffle(candidates)
    for port in candidates:
        if _is_free(port):
            _given.add(port)
            return port
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


def free_ports(count: int) -> list[int]:
    """So many, all different."""
    return [free_port() for _ in range(count)]


def _candidates() -> range:
    size = (_LAST + 1 - _FIRST) // _PARTS
    # Runs without workers, of which there may be several at once, have the last part.
    worker = re.search(r"\d+$", os.environ.get("PYTEST_XDIST_WORKER", ""))
    first = _FIRST + size * (int(worker[0]) % (_PARTS - 1) if worker else _PARTS - 1)
    given = _RANGE.read_text().split() if _RANGE.exists() else []
    if len(given) == 2 and int(given[0]) <= first + size - 1 and int(given[1]) >= first:
        return range(0)
    return range(first, first + size)


def _is_free(port: int) -> bool:
    with socket.socket() as found:
        try:
            # Everywhere: some listen on every address.
            found.bind(("", port))
        except OSError:
            return False
    return True
