"""An informer: a local, indexed copy of some objects, kept true by :mod:`.reflector`.

Handlers see each change once, in order, also across a new list. Objects are shared: read-only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from remuda.client.api import Client
from remuda.kube.clock import Clock, Rng
from remuda.kube.objects import GroupVersionResource, Key, resource_version_of, uid_of

from .reflector import Reflector

Obj = dict[str, Any]
# Called with (new, old), as apiserver.source.Listener: old is None for what appeared, new is None for what went.
Handler = Callable[[Obj | None, Obj | None], None]
IndexFunction = Callable[[Obj], Iterable[Hashable]]


class Informer:
    def __init__(
        self,
        client: Client,
        resource: GroupVersionResource,
        clock: Clock,
        rng: Rng,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        indexes: Mapping[str, IndexFunction] | None = None,
        page_size: int = 0,
    ) -> None:
        self.resource = resource
        self._reflector = Reflector(
            client, resource, self, clock, rng, namespace=namespace, labels=labels, fields=fields, page_size=page_size
        )
        self._objects: dict[Key, Obj] = {}
        self._functions: dict[str, IndexFunction] = {}
        self._indexes: dict[str, dict[Hashable, dict[Key, Obj]]] = {}
        self._handlers: list[Handler] = []
        for name, function in (indexes or {}).items():
            self.add_index(name, function)

    @property
    def synced(self) -> asyncio.Event:
        """Set when the first list is in."""
        return self._reflector.synced

    async def run(self) -> None:
        """Keep up until cancelled."""
        await self._reflector.run()

    # --- reading --------------------------------------------------------------------------------------------------------

    def get(self, namespace: str, name: str) -> Obj | None:
        return self._objects.get(Key(namespace, name))

    def objects(self) -> Iterable[Obj]:
        return self._objects.values()

    def __len__(self) -> int:
        return len(self._objects)

    def add_index(self, name: str, function: IndexFunction) -> None:
        self._functions[name] = function
        index: dict[Hashable, dict[Key, Obj]] = {}
        self._indexes[name] = index
        for key, obj in self._objects.items():
            for value in function(obj):
                index.setdefault(value, {})[key] = obj

    def indexed(self, index: str, value: Hashable) -> list[Obj]:
        """The objects for which the index's function gave `value`."""
        return list(self._indexes[index].get(value, {}).values())

    def on_change(self, handler: Handler) -> None:
        """Call `handler` for what is there now, then for every change."""
        self._handlers.append(handler)
        for obj in list(self._objects.values()):
            handler(obj, None)

    # --- the reflector's sink -------------------------------------------------------------------------------------------

    def replace(self, objs: list[Obj]) -> None:
        present = {Key.of(obj) for obj in objs}
        for key in [key for key in self._objects if key not in present]:
            self._drop(key, self._objects[key])
        for obj in objs:
            self.put(obj)

    def put(self, obj: Obj) -> None:
        key = Key.of(obj)
        old = self._objects.get(key)
        if old is not None:
            revision = resource_version_of(obj)
            if revision and resource_version_of(old) == revision:
                return
            if uid_of(old) != uid_of(obj):
                # Deleted and made anew while nobody looked: two changes, not one.
                self._drop(key, old)
                old = None
        self._objects[key] = obj
        self._reindex(key, obj, old)
        self._tell(obj, old)

    def remove(self, obj: Obj) -> None:
        key = Key.of(obj)
        if key in self._objects:
            self._drop(key, obj)

    def _drop(self, key: Key, last: Obj) -> None:
        self._reindex(key, None, self._objects.pop(key))
        self._tell(None, last)

    def _reindex(self, key: Key, new: Obj | None, old: Obj | None) -> None:
        for name, function in self._functions.items():
            index = self._indexes[name]
            if old is not None:
                for value in function(old):
                    entries = index.get(value)
                    if entries is None:
                        continue
                    entries.pop(key, None)
                    if not entries:
                        del index[value]
            if new is not None:
                for value in function(new):
                    index.setdefault(value, {})[key] = new

    def _tell(self, new: Obj | None, old: Obj | None) -> None:
        for handler in self._handlers:
            handler(new, old)
