"""List and watch: everything that happens to some objects, told to a sink, without gaps and without end.

It lists once, then follows changes from that revision. When the server has forgotten the revision (410), or the connection
fails, it lists again and the sink sorts out what is new. :class:`~remuda.runtime.informer.Informer` is the usual sink;
the garbage collector is another, which keeps much less of each object.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from remuda.client.api import Client, WatchEvent
from remuda.kube.clock import Clock, Rng, yield_to_loop
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, resource_version_of

log = logging.getLogger(__name__)

Obj = dict[str, Any]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0


class Sink(Protocol):
    def replace(self, objs: list[Obj]) -> None:
        """These are all there are now."""

    def put(self, obj: Obj) -> None: ...

    def remove(self, obj: Obj) -> None: ...


class Reflector:
    def __init__(
        self,
        client: Client,
        resource: GroupVersionResource,
        sink: Sink,
        clock: Clock,
        rng: Rng,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        page_size: int = 0,
        metadata_only: bool = False,
        transform: Callable[[Obj], Obj] | None = None,
    ) -> None:
        """`transform` makes of each object what the sink gets to see, page by page, so that a long list stays small."""
        self.resource = resource
        self.synced = asyncio.Event()
        self._client = client
        self._sink = sink
        self._clock = clock
        self._rng = rng
        self._namespace, self._labels, self._fields = namespace, labels, fields
        self._page_size = page_size
        self._metadata_only = metadata_only
        self._transform = transform

    async def run(self) -> None:
        """Follow until cancelled. Failures are retried with growing pauses; the sink keeps what it has meanwhile."""
        pause = _FIRST_PAUSE
        revision = ""
        while True:
            try:
                if not revision:
                    revision = await self._list()
                    self.synced.set()
                    pause = _FIRST_PAUSE
                revision = await self._follow(revision)
                continue
            except ApiError as error:
                if error.is_gone or error.code == 410:
                    revision = ""
                    continue
                # A resource that is not served (yet, or any more) is nothing to shout about.
                level = logging.DEBUG if error.code == 404 else logging.WARNING
                log.log(level, "following %s: %s", self.resource.group_resource, error.message)
            except OSError as error:
                log.warning("following %s: %s", self.resource.group_resource, error)
            except Exception:
                # Whatever broke (a stream cut in half, a handler), a new list puts it right or shows it again.
                log.exception("following %s failed", self.resource.group_resource)
            revision = ""
            await self._clock.sleep(pause * self._rng.uniform(0.8, 1.2))
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _list(self) -> str:
        found: list[Obj] = []
        token = ""
        while True:
            page = await self._client.list(
                self.resource,
                self._namespace,
                labels=self._labels,
                fields=self._fields,
                limit=self._page_size,
                continue_=token,
                metadata_only=self._metadata_only,
            )
            found.extend(_typed(page) if self._transform is None else map(self._transform, _typed(page)))
            metadata = page.get("metadata") or {}
            token = metadata.get("continue") or ""
            if not token:
                break
            # In-process a page comes without waiting: at the start of a full server, requests go between the pages.
            await yield_to_loop()
        self._sink.replace(found)
        return str(metadata.get("resourceVersion") or "0")

    async def _follow(self, revision: str) -> str:
        """Watch from `revision` until the server ends the watch; the newest revision seen."""
        stream = self._client.watch(
            self.resource,
            self._namespace,
            labels=self._labels,
            fields=self._fields,
            resource_version=revision,
            metadata_only=self._metadata_only,
        )
        async with _closing(stream):
            async for event in stream:
                revision = resource_version_of(event.object) or revision
                if event.type == "BOOKMARK":
                    continue
                obj = event.object if self._transform is None else self._transform(event.object)
                if event.type == "DELETED":
                    self._sink.remove(obj)
                else:
                    self._sink.put(obj)
        # A server that ends watches at once must not make this a busy loop.
        await self._clock.sleep(0.01)
        return revision


def _typed(page: Obj) -> list[Obj]:
    """A page's items, each with the kind that lists of built-in types leave out over HTTP."""
    items: list[Obj] = page.get("items") or []
    if not items or "kind" in items[0]:
        return items
    kind, api_version = str(page.get("kind") or "").removesuffix("List"), page.get("apiVersion")
    return [{"apiVersion": api_version, "kind": kind, **item} for item in items]


@contextlib.asynccontextmanager
async def _closing(stream: AsyncIterator[WatchEvent]) -> AsyncIterator[None]:
    """Close the watch when its reader leaves, so that the server forgets it at once."""
    try:
        yield
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
