"""What only one object may hold (an address, a port), when several servers give it out.

Each such thing has a key of its own in the store, outside of what Kubernetes keeps there: its guard, which names the object that
holds it. A guard is made, and goes, in the same transaction as the object that it stands for; so two servers can't give the same
thing to two objects, and whichever line a server dies at, both are there or none.

A guard whose object is gone all the same (somebody else's server deleted that, who knows no guards) is taken over when it is in
the way, and cleared away when a server starts: :func:`repair`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from ..storage import key_layout
from ..storage.store import Check, Delete, KeyValue, Mismatch, Op, Put, Store, StoreError

logger = logging.getLogger(__name__)
Obj = dict[str, Any]

ROOT = f"{key_layout.OWN}holders/"


def guard(what: str, value: object) -> str:
    """The key of the guard of one thing."""
    return f"{ROOT}{what}/{value}"


# The guards of all that an object holds; None holds nothing.
Holds = Callable[[Obj | None], frozenset[str]]


class Taken(StoreError):
    """Another object holds this already; by now the watch cache shows it."""

    def __init__(self, key: str, holder: str) -> None:
        super().__init__(f"{key} is held by {holder}")
        self.key = key
        self.holder = holder


class Guarded:
    """A write of one object and what it means for its guards."""

    def __init__(self, store: Store, op: Put | Delete, before: frozenset[str], after: frozenset[str]) -> None:
        self._store = store
        self._op = op
        self._value = op.key.encode()
        self._gained = sorted(after - before)
        self._lost = sorted(before - after)
        # Guards that are there though nobody holds what they stand for, and at which revision.
        self._left_behind: dict[str, int] = {}

    async def ops(self) -> list[Op]:
        # The object comes first: when it has changed, that is what the caller must hear of.
        found: list[Op] = [self._op]
        found += [Put(key, self._value, self._left_behind.get(key, 0)) for key in self._gained]
        for key in self._lost:
            kept = await self._store.get(key)
            if kept is not None and kept.value == self._value:
                found.append(Delete(key, kept.mod_revision))
        return found

    def concerns(self, key: str) -> bool:
        return key in self._gained or key in self._lost

    def gives_up(self, key: str) -> bool:
        """It is one that the object loses; whoever was faster, :meth:`ops` look at it anew."""
        return key in self._lost

    @staticmethod
    def holder(mismatch: Mismatch) -> str:
        """The key of the object that a guard which was in the way names; empty when it has gone meanwhile."""
        return "" if mismatch.current is None else mismatch.current.value.decode(errors="replace")

    def take(self, mismatch: Mismatch) -> None:
        """Nobody holds it: the next :meth:`ops` take the guard as it is."""
        self._left_behind[mismatch.key] = 0 if mismatch.current is None else mismatch.current.mod_revision


async def repair(store: Store, prefix: str, parse: Callable[[KeyValue], Obj], holds: Holds) -> None:
    """Clear away guards whose object is gone, and make those that are missing, for all objects below `prefix`."""
    guards = await store.range(ROOT)
    objects = await store.range(prefix, revision=guards.revision)
    held: dict[str, KeyValue] = {key: kv for kv in objects.items for key in holds(parse(kv))}
    for ops in _repairs({kv.key: kv for kv in guards.items}, held):
        try:
            await store.write(ops)
        except Mismatch:
            # It is in use after all, or another server was faster.
            continue
    logger.debug("%d guards for %d objects", len(held), len(objects.items))


def _repairs(guards: Mapping[str, KeyValue], held: Mapping[str, KeyValue]) -> list[list[Op]]:
    found: list[list[Op]] = []
    for key, kv in guards.items():
        if key not in held or held[key].key.encode() != kv.value:
            found.append([Delete(key, kv.mod_revision)])
    for key, holder in held.items():
        kept = guards.get(key)
        if kept is None or kept.value != holder.key.encode():
            found.append([Put(key, holder.key.encode(), 0), Check(holder.key, holder.mod_revision)])
    return found
