"""The one `Client` that controllers use, for any Kubernetes API.

Two implementations: :mod:`remuda.apiserver.inprocess` (the embedded API, no serialisation; objects are shared, read-only) and
:mod:`remuda.client.https` (any Kubernetes). Both raise :class:`remuda.kube.errors.ApiError` with the same reasons.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, name_of

Obj = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class WatchEvent(NamedTuple):
    type: str  # ADDED, MODIFIED, DELETED, BOOKMARK; errors are raised
    object: Obj


def named(obj: Obj) -> str:
    """The name of an object that is to be written."""
    name = name_of(obj)
    if not name:
        raise ApiError(400, "BadRequest", "name is required")
    return name


class Client(Protocol):
    # True if there is a connection, which may break, between this process and the server.
    remote: bool

    async def get(
        self,
        resource: GroupVersionResource,
        name: str,
        namespace: str = "",
        *,
        subresource: str = "",
        resource_version: str = "",
    ) -> Obj: ...

    async def list(
        self,
        resource: GroupVersionResource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        continue_: str = "",
        resource_version: str = "",
        resource_version_match: str = "",
        metadata_only: bool = False,
    ) -> Obj:
        """One page, as a `List` object: `items` (each with its kind) and `metadata.resourceVersion/continue`.

        With `metadata_only` an item has its metadata and little else; its kind may be PartialObjectMetadata.
        """

    def watch(
        self,
        resource: GroupVersionResource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        bookmarks: bool = True,
        send_initial_events: bool = False,
        timeout_seconds: int = 0,
        metadata_only: bool = False,
    ) -> AsyncIterator[WatchEvent]:
        """Changes until the server ends the watch. Raises ApiError (410 Expired) when the revision is too old."""

    async def create(
        self,
        resource: GroupVersionResource,
        obj: Obj,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
    ) -> Obj: ...

    async def update(
        self,
        resource: GroupVersionResource,
        obj: Obj,
        *,
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
    ) -> Obj: ...

    async def patch(
        self,
        resource: GroupVersionResource,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        patch_type: str = MERGE_PATCH,
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        force: bool = False,
    ) -> Obj: ...

    async def apply(
        self,
        resource: GroupVersionResource,
        obj: Obj,
        *,
        field_manager: str,
        force: bool = False,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Obj: ...

    async def delete(
        self,
        resource: GroupVersionResource,
        name: str,
        namespace: str = "",
        *,
        propagation: str = "",
        grace_seconds: int | None = None,
        uid: str = "",
        resource_version: str = "",
        dry_run: bool = False,
    ) -> Obj: ...

    async def delete_collection(
        self,
        resource: GroupVersionResource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        propagation: str = "",
    ) -> Obj: ...

    async def raw(self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None) -> Any:
        """Any path of the API (discovery, /version, /readyz); JSON in and out, text for other media types."""

    def request_progress(self, resource: GroupVersionResource) -> None:
        """Ask for a bookmark on this client's open watches of a resource: a quiet one tells how far it is.

        Only where the server is asked without a connection; others send bookmarks when they like.
        """

    async def close(self) -> None: ...


# --- wrapper --------------------------------------------------------------------------------------------------------------
#
# A `Client` around another one, for code that acts before, around or instead of each call.

Send = Callable[[], Awaitable[Any]]


class WrappedClient:
    """Implements `Client`. Override :meth:`_call` to change what a call does; the opener of the inner client closes it."""

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

    def request_progress(self, resource: GroupVersionResource) -> None:
        self._client.request_progress(resource)

    async def close(self) -> None:
        """The caller closes the inner client."""
