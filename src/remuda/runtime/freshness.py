"""Protection against decisions on a cache that is older than the controller's own writes.

A reconcile that made three machines and runs again before its informer saw them would make three more. So writers record
their writes, and a reconcile begins with :meth:`Freshness.caught_up`. In-process the caches follow within a turn of the
event loop; over a network it takes as long as the watch does. Nothing here is needed for correctness across processes: after
a crash the caches begin with a list.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from remuda.kube.clock import Clock, deadline
from remuda.kube.objects import Key, is_being_deleted, resource_version_of, uid_of

from .informer import Informer
from .workers import Retry

Obj = dict[str, Any]
_PATIENCE = 10.0


class Freshness:
    """The writes of reconciles (by `who`: controller and key), and the caches that must have seen them before the next one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written: dict[Hashable, dict[Informer, str]] = {}
        self._deleted: dict[Hashable, list[tuple[Informer, Key, str]]] = {}

    def wrote(self, who: Hashable, informer: Informer, obj: Obj) -> None:
        """Record a write; `obj` is the server's response to it."""
        revision = resource_version_of(obj)
        if not revision.isdigit() or informer.has_reached(revision):
            return
        expected = self._written.setdefault(who, {})
        if int(expected.get(informer, "0")) < int(revision):
            expected[informer] = revision

    def deleted(self, who: Hashable, informer: Informer, obj: Obj) -> None:
        """Record an accepted deletion: the cache must show the object as terminating or gone."""
        self._deleted.setdefault(who, []).append((informer, Key.of(obj), uid_of(obj)))

    async def caught_up(self, who: Hashable) -> None:
        """Wait until the caches have what `who` wrote; Retry when they don't within ten seconds."""
        expected = self._written.get(who)
        if expected:
            try:
                async with deadline(self._clock, _PATIENCE):
                    for informer, revision in list(expected.items()):
                        await informer.reach(revision)
            except TimeoutError:
                raise Retry("the caches have not seen the last writes yet") from None
            self._written.pop(who, None)
        waiting = [each for each in self._deleted.pop(who, ()) if _still_there(*each)]
        if waiting:
            self._deleted[who] = waiting
            raise Retry("the caches have not seen the last deletions yet")

    def forget(self, who: Hashable) -> None:
        """Drop the records of `who`, which is gone."""
        self._written.pop(who, None)
        self._deleted.pop(who, None)


def _still_there(informer: Informer, key: Key, uid: str) -> bool:
    found = informer.get(*key)
    return found is not None and uid_of(found) == uid and not is_being_deleted(found)
