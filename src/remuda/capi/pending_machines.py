"""Machines that are being made and are not in the cache yet, by the set that makes them.

A deployment that shrinks an old set counts the machines of that set, to know how far its new set may grow. The old set may
be making machines at that moment, for its earlier size. Both run in one process (there is one leader), so the set
records here what it has begun.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from remuda.kube.objects import Key, annotations_of, dig, is_being_deleted
from remuda.runtime import Informer

from .well_known import HOLDS_DATA

_BEGUN = ""


class Coming:
    def __init__(self, machines: Informer) -> None:
        self._machines = machines
        # Set's uid: machine: revision of its creation, or _BEGUN.
        self._made: defaultdict[str, dict[Key, str]] = defaultdict(dict)

    def begin(self, owner: str, machine: Key) -> None:
        self.count(owner)
        self._made[owner][machine] = _BEGUN

    def failed(self, owner: str, machine: Key) -> None:
        self._made[owner].pop(machine, None)

    def made(self, owner: str, machine: Key, revision: str) -> None:
        self._made[owner][machine] = revision

    def count(self, owner: str) -> int:
        found = self._made.get(owner)
        if not found:
            self._made.pop(owner, None)
            return 0
        for machine in [machine for machine, revision in found.items() if self._seen(machine, revision)]:
            del found[machine]
        return len(found)

    def _seen(self, machine: Key, revision: str) -> bool:
        """True if its creation has been seen here; by now it may be gone again."""
        if revision == _BEGUN:
            return self._machines.get(*machine) is not None
        return self._machines.has_reached(revision)


# --- stillborn ------------------------------------------------------------------------------------------------------------
#
# Machines that never became nodes: nothing runs on them, so an outdated one may go before another is there. Pure.
#
# A Machine with the provider's annotation that it holds data is not one of them, with or without a node.

Obj = dict[str, Any]


def is_stillborn(machine: Obj) -> bool:
    if is_being_deleted(machine) or dig(machine, "status", "nodeRef", "name"):
        return False
    return HOLDS_DATA not in annotations_of(machine)
