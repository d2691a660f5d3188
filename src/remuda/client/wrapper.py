"""A `Client` around another one, for those who do something before, around or instead of each call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from remuda.kube.objects import GroupVersionResource

from .interface import Client, Obj, WatchEvent

Send = Callable[[], Awaitable[Any]]


class WrappedClient:
    """Implements `Client`. Say in :meth:`_call` what happens to a call; the client inside is closed by whoever opened it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.remote = client.remote

    async def _call(self, send: Send, *, write: bool) -> Any:
        return await send()

    async def get(self, resource: GroupVersionResource, name: str, namespace: str = "", **options: Any) -> Obj:
        found: Obj = await self._call(lambda: self._client.get(resource, name, namespace, **options), write=False)
        return found

    async def list(self, resource: GroupVersionResource, namespace: str = "", **options: Any) -> Obj:
        found: Obj = await self._call(lambda: self._client.list(resource, namespace, **options), write=False)
        return found

    def watch(self, resource: GroupVersionResource, namespace: str = "", **options: Any) -> AsyncIterator[WatchEvent]:
        return self._client.watch(resource, namespace, **options)

    async def create(self, resource: GroupVersionResource, obj: Obj, namespace: str = "", **options: Any) -> Obj:
        found: Obj = await self._call(lambda: self._client.create(resource, obj, namespace, **options), write=True)
        return found

    async def update(self, resource: GroupVersionResource, obj: Obj, **options: Any) -> Obj:
        found: Obj = await self._call(lambda: self._client.update(resource, obj, **options), write=True)
        return found

    async def patch(self, resource: GroupVersionResource, name: str, patch: Any, namespace: str = "", **options: Any) -> Obj:
        found: Obj = await self._call(lambda: self._client.patch(resource, name, patch, namespace, **options), write=True)
        return found

    async def apply(self, resource: GroupVersionResource, obj: Obj, **options: Any) -> Obj:
        found: Obj = await self._call(lambda: self._client.apply(resource, obj, **options), write=True)
        return found

    async def delete(self, resource: GroupVersionResource, name: str, namespace: str = "", **options: Any) -> Obj:
        found: Obj = await self._call(lambda: self._client.delete(resource, name, namespace, **options), write=True)
        return found

    async def delete_collection(self, resource: GroupVersionResource, namespace: str = "", **options: Any) -> Obj:
        found: Obj = await self._call(lambda: self._client.delete_collection(resource, namespace, **options), write=True)
        return found

    async def raw(self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None) -> Any:
        write = method not in ("GET", "HEAD")
        return await self._call(lambda: self._client.raw(method, path, query=query, body=body), write=write)

    async def close(self) -> None:
        """The client inside is not ours to close."""
