"""Objects that always exist: created at the start, and again when they are deleted. Their later contents are not checked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from remuda.client.idempotent import make
from remuda.kube.objects import GroupVersionResource, Key, name_of
from remuda.runtime import DONE, Controller, Manager, Result, Watch, logger, synced

log = logger(__name__)

Obj = dict[str, Any]


class DefaultObjects:
    """`wanted` gives the wanted objects of a cluster-scoped kind by name, as of that moment; `watches` are on what they depend
    on, and queue any key at all."""

    def __init__(
        self,
        manager: Manager,
        name: str,
        resource: GroupVersionResource,
        wanted: Callable[[], Mapping[str, Obj]],
        watches: Callable[[Callable[[Obj], list[Key]]], tuple[Watch, ...]] | None = None,
    ) -> None:
        self._manager = manager
        self._resource = resource
        self._wanted = wanted
        self._found = manager.informers.of(resource)
        more = watches(lambda _: self._keys()) if watches is not None else ()
        # The kind has many objects; only a few of them are wanted here.
        self.controller = Controller(name, resource, more, self._went, resync=0.0)
        manager.beside(self._begin)

    def _keys(self) -> list[Key]:
        return [Key("", name) for name in self._wanted()]

    def _went(self, new: Obj | None, old: Obj | None) -> bool:
        return new is None and old is not None and name_of(old) in self._wanted()

    async def _begin(self) -> None:
        working = self._manager.working(self.controller.name)
        # None when it was left out by choice.
        if working is not None:
            for key in self._keys():
                working.queue.add(key)
        await asyncio.get_running_loop().create_future()

    async def reconcile(self, key: Key) -> Result:
        await synced(self._found)
        obj = self._wanted().get(key.name)
        if (
            obj is not None
            and self._found.get(*key) is None
            and await make(self._manager.client, self._resource, obj) is not None
        ):
            log.debug("made")
        return DONE
