"""A `Client` that reads always and writes only while this process leads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from remuda.client.api import Client, Obj, WatchEvent
from remuda.kube.objects import GroupVersionResource

from .leader import Elector


class GuardedClient:
    """Implements `Client`; each write goes through :meth:`Elector.fenced`."""

    def __init__(self, client: Client, elector: Elector) -> None:
        self._client = client
        self._elector = elector
        self.remote = client.remote

    async def get(self, resource: GroupVersionResource, name: str, namespace: str = "", **options: Any) -> Obj:
        return await self._client.get(resource, name, namespace, **options)

    async def list(self, resource: GroupVersionResource, namespace: str = "", **options: Any) -> Obj:
        return await self._client.list(resource, namespace, **options)

    def watch(self, resource: GroupVersionResource, namespace: str = "", **options: Any) -> AsyncIterator[WatchEvent]:
        return self._client.watch(resource, namespace, **options)

    async def create(self, resource: GroupVersionResource, obj: Obj, namespace: str = "", **options: Any) -> Obj:
        async with self._elector.fenced():
            return await self._client.create(resource, obj, namespace, **options)

    async def update(self, resource: GroupVersionResource, obj: Obj, **options: Any) -> Obj:
        async with self._elector.fenced():
            return await self._client.update(resource, obj, **options)

    async def patch(self, resource: GroupVersionResource, name: str, patch: Any, namespace: str = "", **options: Any) -> Obj:
        async with self._elector.fenced():
            return await self._client.patch(resource, name, patch, namespace, **options)

    async def apply(self, resource: GroupVersionResource, obj: Obj, **options: Any) -> Obj:
        async with self._elector.fenced():
            return await self._client.apply(resource, obj, **options)

    async def delete(self, resource: GroupVersionResource, name: str, namespace: str = "", **options: Any) -> Obj:
        async with self._elector.fenced():
            return await self._client.delete(resource, name, namespace, **options)

    async def delete_collection(self, resource: GroupVersionResource, namespace: str = "", **options: Any) -> Obj:
        async with self._elector.fenced():
            return await self._client.delete_collection(resource, namespace, **options)

    async def raw(self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None) -> Any:
        if method in ("GET", "HEAD"):
            return await self._client.raw(method, path, query=query, body=body)
        async with self._elector.fenced():
            return await self._client.raw(method, path, query=query, body=body)

    async def close(self) -> None:
        """The client it guards is closed by whoever opened it."""
