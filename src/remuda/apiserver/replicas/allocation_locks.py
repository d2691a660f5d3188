"""Values that only one object may hold (an address, a port), when several servers allocate them.

Each value has its own key in the store, outside of Kubernetes' keys: its guard, which names the object that
holds it. A guard is created and deleted in the same transaction as its object; so two servers can't give the same
value to two objects, and after a crash at any line both exist or none.

A guard whose object is gone (deleted by a server that knows no guards) is taken over on a conflict,
and deleted when a server starts: :func:`repair`.
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
    """The key of the guard of one value."""
    return f"{ROOT}{what}/{value}"


# The guards of all values that an object holds; None holds nothing.
Holds = Callable[[Obj | None], frozenset[str]]


class AlreadyAllocated(StoreError):
    """Another object holds this already; by now the watch cache shows it."""

    def __init__(self, key: str, holder: str) -> None:
        super().__init__(f"{key} is held by {holder}")
        self.key = key
        self.holder = holder


class Guarded:
    """A write of one object together with its guards."""

    def __init__(self, store: Store, op: Put | Delete, before: frozenset[str], after: frozenset[str]) -> None:
        self._store = store
        self._op = op
        self._value = op.key.encode()
        self._gained = sorted(after - before)
        self._lost = sorted(before - after)
        # Guards that exist although no object holds their value, with their revision.
        self._left_behind: dict[str, int] = {}

    async def ops(self) -> list[Op]:
        # The object comes first: when it has changed, the caller must get that error.
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
        """True if the object gives up this guard; if another server was faster, :meth:`ops` checks it again."""
        return key in self._lost

    @staticmethod
    def holder(mismatch: Mismatch) -> str:
        """The key of the object named by a conflicting guard; empty when the guard is gone meanwhile."""
        return "" if mismatch.current is None else mismatch.current.value.decode(errors="replace")

    def take(self, mismatch: Mismatch) -> None:
        """Take over a guard without a holder: the next :meth:`ops` replace it."""
        self._left_behind[mismatch.key] = 0 if mismatch.current is None else mismatch.current.mod_revision


async def repair(store: Store, prefix: str, parse: Callable[[KeyValue], Obj], holds: Holds) -> None:
    """Delete guards whose object is gone, and create missing ones, for all objects below `prefix`."""
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
