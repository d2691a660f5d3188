"""An informer: a local, indexed copy of some objects, kept up to date by :mod:`.reflector`.

Handlers see each change once, in order, also across a new list. Objects are shared: read-only. The informer keeps all of each
object, only its metadata, or the result of `transform`. :class:`Informers` shares informers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any

from remuda.client.interface import Client
from remuda.kube.clock import Clock, Rng
from remuda.kube.objects import GroupVersionResource, Key, labels_of, resource_version_of, uid_of
from remuda.kube.selectors import LabelSelector

from .metrics import Registry
from .reflector import MOST_REMOTE, Pauses, Reflector

log = logging.getLogger(__name__)

Obj = dict[str, Any]
# Called with (new, old), as kube.objects.Listener: old is None for an object that appeared, new is None for one that went.
Handler = Callable[[Obj | None, Obj | None], None]
IndexFunction = Callable[[Obj], Iterable[Hashable]]
Transform = Callable[[Obj], Obj]

NAMESPACE_INDEX = "namespace"


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
        metadata_only: bool = False,
        transform: Transform | None = None,
        pauses: Pauses = Pauses(),  # noqa: B008 - a constant
        glances: bool = False,
        most: int = MOST_REMOTE,
    ) -> None:
        """`glances`: it is as fresh as the last call of `look`, and holds no connection in between."""
        self.resource = resource
        self.reflector = Reflector(
            client,
            resource,
            self,
            clock,
            rng,
            namespace=namespace,
            labels=labels,
            fields=fields,
            page_size=page_size,
            metadata_only=metadata_only,
            transform=transform,
            pauses=pauses,
            glances=glances,
            most=most,
        )
        # True while handlers are called for existing objects, as opposed to changes.
        self.initial = False
        self._objects: dict[Key, Obj] = {}
        self._functions: dict[str, IndexFunction] = {}
        self._indexes: dict[str, dict[Hashable, dict[Key, Obj]]] = {}
        self._handlers: list[Handler] = []
        for name, function in (indexes or {}).items():
            self.add_index(name, function)

    @property
    def synced(self) -> asyncio.Event:
        """Set when the first list is in."""
        return self.reflector.synced

    async def run(self) -> None:
        """Follow changes until cancelled."""
        await self.reflector.run()

    async def look(self) -> bool:
        """Catch up once; False when that failed."""
        return await self.reflector.look()

    async def fill(self) -> None:
        """Look until the first list is in."""
        while not await self.look():
            await self.reflector.rest()

    # --- reading --------------------------------------------------------------------------------------------------------

    def get(self, namespace: str, name: str) -> Obj | None:
        return self._objects.get(Key(namespace, name))

    def objects(self) -> Iterable[Obj]:
        return self._objects.values()

    def keys(self) -> Iterable[Key]:
        return self._objects.keys()

    def __len__(self) -> int:
        return len(self._objects)

    def add_index(self, name: str, function: IndexFunction) -> None:
        """Let `indexed` and `select` find objects by the values of `function`; adding the same name again changes nothing."""
        if name in self._functions:
            return
        self._functions[name] = function
        index: dict[Hashable, dict[Key, Obj]] = {}
        self._indexes[name] = index
        for key, obj in self._objects.items():
            for value in function(obj):
                index.setdefault(value, {})[key] = obj

    def indexed(self, index: str, value: Hashable) -> list[Obj]:
        """The objects for which the index's function returned `value`."""
        return list(self._indexes[index].get(value, {}).values())

    def select(self, labels: LabelSelector, namespace: str = "") -> list[Obj]:
        """The objects whose labels match, of one namespace or of all."""
        if namespace:
            self.add_index(NAMESPACE_INDEX, _namespace)
            found: Iterable[Obj] = self._indexes[NAMESPACE_INDEX].get(namespace, {}).values()
        else:
            found = self._objects.values()
        return [obj for obj in found if labels.matches(labels_of(obj))]

    def has_reached(self, resource_version: str) -> bool:
        """True if all changes up to a revision (as a write returned it) have been seen here."""
        return self.reflector.has_reached(resource_version)

    async def reach(self, resource_version: str) -> None:
        """Wait until :meth:`has_reached`."""
        await self.reflector.reach(resource_version)

    def on_change(self, handler: Handler) -> Callable[[], None]:
        """Call `handler` for the existing objects, then for every change; call the result to stop that."""
        self._handlers.append(handler)
        before, self.initial = self.initial, True
        try:
            for obj in list(self._objects.values()):
                self._call(handler, obj, None)
        finally:
            self.initial = before

        def stop() -> None:
            if handler in self._handlers:
                self._handlers.remove(handler)

        return stop

    # --- the reflector's sink -------------------------------------------------------------------------------------------

    def replace(self, objs: list[Obj]) -> None:
        self.initial = not self.synced.is_set()
        try:
            present = {Key.of(obj) for obj in objs}
            for key in [key for key in self._objects if key not in present]:
                self._drop(key, self._objects[key])
            for obj in objs:
                self.put(obj)
        finally:
            self.initial = False

    def put(self, obj: Obj) -> None:
        key = Key.of(obj)
        old = self._objects.get(key)
        if old is not None:
            revision = resource_version_of(obj)
            if revision and resource_version_of(old) == revision:
                return
            if uid_of(old) != uid_of(obj):
                # Deleted and created again between two looks: two changes, not one.
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
        for handler in list(self._handlers):
            self._call(handler, new, old)

    def _call(self, handler: Handler, new: Obj | None, old: Obj | None) -> None:
        try:
            handler(new, old)
        except Exception:
            # One handler's error must not keep the change from the others.
            log.exception("a handler of %s failed on %s", self.resource.group_resource, Key.of(new or old or {}))


def _namespace(obj: Obj) -> tuple[str, ...]:
    return ((obj.get("metadata") or {}).get("namespace") or "",)


def without_managed_fields(obj: Obj) -> Obj:
    """A transform for controllers that don't need managed fields, which are often half of an object."""
    metadata = obj.get("metadata") or {}
    if "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


# --- shared informers -----------------------------------------------------------------------------------------------------
#
# Informers that several controllers share, so that each resource is watched once.
#
# One :class:`Informers` is one API server. Controllers request informers before or while it runs; one that is requested
# later (for a provider's kind that has just appeared) starts at once.

_Selection = tuple[GroupVersionResource, str, str, str, bool, Transform | None]


class Informers:
    name = "informers"

    def __init__(
        self,
        client: Client,
        clock: Clock,
        rng: Rng,
        *,
        registry: Registry | None = None,
        pauses: Pauses = Pauses(),  # noqa: B008 - a constant
    ) -> None:
        """`registry` is for the metrics of the controllers that share these."""
        self.registry = registry or Registry()
        self._client = client
        self._clock = clock
        self._rng = rng
        self._pauses = pauses
        self._informers: dict[_Selection, Informer] = {}
        self._group: asyncio.TaskGroup | None = None

    def of(
        self,
        resource: GroupVersionResource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        transform: Transform | None = None,
    ) -> Informer:
        """The one informer of this selection."""
        key = (resource, namespace, labels, fields, metadata_only, transform)
        found = self._informers.get(key)
        if found is None:
            found = Informer(
                self._client,
                resource,
                self._clock,
                self._rng,
                namespace=namespace,
                labels=labels,
                fields=fields,
                metadata_only=metadata_only,
                transform=transform,
                pauses=self._pauses,
            )
            self._informers[key] = found
            if self._group is not None:
                self._start(found)
        return found

    def __iter__(self) -> Iterator[Informer]:
        return iter(list(self._informers.values()))

    async def run(self) -> None:
        """Run all of them until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for informer in self:
                    self._start(informer)
                # Also when there is nothing to watch yet: another informer may still be requested.
                await asyncio.get_running_loop().create_future()
            finally:
                self._group = None

    def _start(self, informer: Informer) -> None:
        assert self._group is not None
        self._group.create_task(informer.run(), name=f"informer {informer.resource.group_resource}")


async def synced(*informers: Informer) -> None:
    for informer in informers:
        await informer.synced.wait()
