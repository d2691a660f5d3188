"""An informer: a local, indexed copy of some objects, kept true by list and watch.

It lists once, then follows changes from that revision; when the server has forgotten the revision (410) it lists again and
tells its handlers the difference, so that they never notice. Objects are shared: read-only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping
from typing import Any

from remuda.client.api import Client, WatchEvent
from remuda.kube.clock import Clock, Rng
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, resource_version_of

log = logging.getLogger(__name__)

Obj = dict[str, Any]
# Called with (new, old), as apiserver.source.Listener: old is None for what appeared, new is None for what went.
Handler = Callable[[Obj | None, Obj | None], None]
IndexFunction = Callable[[Obj], Iterable[Hashable]]

_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.2, 30.0


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
        self.synced = asyncio.Event()
        self._client = client
        self._clock = clock
        self._rng = rng
        self._namespace, self._labels, self._fields = namespace, labels, fields
        self._page_size = page_size
        self._objects: dict[Key, Obj] = {}
        self._functions = dict(indexes or {})
        self._indexes: dict[str, dict[Hashable, dict[Key, Obj]]] = {name: {} for name in self._functions}
        self._handlers: list[Handler] = []

    # --- reading --------------------------------------------------------------------------------------------------------

    def get(self, namespace: str, name: str) -> Obj | None:
        return self._objects.get(Key(namespace, name))

    def objects(self) -> Iterable[Obj]:
        return self._objects.values()

    def __len__(self) -> int:
        return len(self._objects)

    def indexed(self, index: str, value: Hashable) -> list[Obj]:
        """The objects for which the index's function gave `value`."""
        return list(self._indexes[index].get(value, {}).values())

    def on_change(self, handler: Handler) -> None:
        """Call `handler` for what is there now, then for every change."""
        self._handlers.append(handler)
        for obj in list(self._objects.values()):
            handler(obj, None)

    # --- keeping up -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow until cancelled. Failures are retried with growing pauses; the copy stays as it was meanwhile."""
        pause = _FIRST_BACKOFF
        revision = ""
        while True:
            try:
                if not revision:
                    revision = await self._relist()
                    self.synced.set()
                    pause = _FIRST_BACKOFF
                revision = await self._follow(revision)
                continue
            except ApiError as error:
                if error.is_gone or error.code == 410:
                    revision = ""
                    continue
                log.warning("%s: %s", self._what(), error.message)
            except OSError as error:
                log.warning("%s: %s", self._what(), error)
            revision = ""
            await self._clock.sleep(pause * self._rng.uniform(0.8, 1.2))
            pause = min(pause * 2, _LONGEST_BACKOFF)

    def _what(self) -> str:
        return f"following {self.resource.group_resource}"

    async def _relist(self) -> str:
        found: dict[Key, Obj] = {}
        token = ""
        while True:
            page = await self._client.list(
                self.resource,
                self._namespace,
                labels=self._labels,
                fields=self._fields,
                limit=self._page_size,
                continue_=token,
            )
            for obj in page.get("items") or ():
                found[Key.of(obj)] = obj
            meta = page.get("metadata") or {}
            token = meta.get("continue") or ""
            if not token:
                break
        for key in [key for key in self._objects if key not in found]:
            self._remove(key)
        for key, obj in found.items():
            self._put(key, obj)
        return str(meta.get("resourceVersion") or "0")

    async def _follow(self, revision: str) -> str:
        """Watch from `revision` until the server ends the watch; the newest revision seen."""
        stream = self._client.watch(
            self.resource, self._namespace, labels=self._labels, fields=self._fields, resource_version=revision
        )
        async with _closing(stream):
            async for event in stream:
                revision = resource_version_of(event.object) or revision
                if event.type in ("ADDED", "MODIFIED"):
                    self._put(Key.of(event.object), event.object)
                elif event.type == "DELETED":
                    self._remove(Key.of(event.object), event.object)
        # A server that ends watches at once must not make this a busy loop.
        await self._clock.sleep(0)
        return revision

    def _put(self, key: Key, obj: Obj) -> None:
        old = self._objects.get(key)
        if old is obj:
            return
        if old is not None and resource_version_of(old) == resource_version_of(obj) and resource_version_of(obj):
            return
        if old is not None and (old.get("metadata") or {}).get("uid") != (obj.get("metadata") or {}).get("uid"):
            # Deleted and made anew while nobody looked: two changes, not one.
            self._remove(key)
            old = None
        self._objects[key] = obj
        self._reindex(key, obj, old)
        self._tell(obj, old)

    def _remove(self, key: Key, last: Obj | None = None) -> None:
        old = self._objects.pop(key, None)
        if old is None:
            return
        self._reindex(key, None, old)
        self._tell(None, last or old)

    def _reindex(self, key: Key, new: Obj | None, old: Obj | None) -> None:
        for name, function in self._functions.items():
            index = self._indexes[name]
            if old is not None:
                for value in function(old):
                    entries = index.get(value)
                    if entries is not None:
                        entries.pop(key, None)
                        if not entries:
                            del index[value]
            if new is not None:
                for value in function(new):
                    index.setdefault(value, {})[key] = new

    def _tell(self, new: Obj | None, old: Obj | None) -> None:
        for handler in self._handlers:
            handler(new, old)


@contextlib.asynccontextmanager
async def _closing(stream: AsyncIterator[WatchEvent]) -> AsyncIterator[None]:
    """Close the watch when its reader leaves, so that the server forgets it at once."""
    try:
        yield
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
