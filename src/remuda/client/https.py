"""The :class:`~remuda.client.interface.Client` for any Kubernetes, over HTTPS.

One instance is one server and one identity (:mod:`remuda.client.kubeconfig` finds both). This module has the verbs;
:mod:`.connection` sends the requests.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from remuda.kube.authorization.users import User
from remuda.kube.clock import SYSTEM_CLOCK, Clock
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.network import outbound_http
from remuda.kube.objects import GroupVersionResource, namespace_of

from . import responses
from .connection import REQUEST_SECONDS, Connector, ServerConnection
from .credentials import CredentialSource
from .interface import APPLY_PATCH, MERGE_PATCH, Obj, WatchEvent, named
from .kubeconfig import ConfigError, KubeTarget, discover, load, select


class HttpsClient:
    """Implements `Client`; close it when done."""

    remote = True

    def __init__(
        self,
        target: KubeTarget,
        clock: Clock = SYSTEM_CLOCK,
        *,
        connections: int = 64,
        watches: int = 1024,
        request_seconds: float = REQUEST_SECONDS,
        on_warning: Callable[[str], None] | None = None,
        connector: Connector | None = None,
        credentials: CredentialSource | None = None,
        largest: int | None = None,
        policy: outbound_http.Current | None = None,
    ) -> None:
        """`connector` replaces this machine's network, `credentials` replace the target's own.

        Without `watches` of their own they share the connections of requests, which is enough for short watches.
        `largest` limits a response, and an event of a watch: for servers that are not trusted with our memory.
        `policy` has the addresses that may be connected to: for servers that a tenant named.
        """
        self.target = target
        self.connection = ServerConnection(
            target,
            clock,
            connections=connections,
            watches=watches,
            request_seconds=request_seconds,
            on_warning=on_warning,
            connector=connector,
            credentials=credentials,
            largest=largest,
            policy=policy,
        )

    @classmethod
    def from_kubeconfig(cls, path: Path | None = None, context: str = "", clock: Clock = SYSTEM_CLOCK) -> HttpsClient:
        """The client of one file, or of what kubectl would use here."""
        if path is None:
            return cls(discover(context), clock)
        if not path.exists():
            raise ConfigError(f"{path} does not exist")
        return cls(select(load([path]), context), clock)

    def impersonating(self, user: User) -> HttpsClient:
        """A client that acts as `user`, by this one's right to impersonate, on the same connections. It needs no closing."""
        made = copy.copy(self)
        made.target = replace(
            self.target,
            impersonate=user.name,
            impersonate_uid=user.uid,
            impersonate_groups=user.groups,
            impersonate_extra=tuple((key, tuple(value for value in values if value)) for key, values in user.extra.items()),
        )
        made.connection = self.connection.impersonating(made.target)
        return made

    # --- objects -------------------------------------------------------------------------------------------------------

    async def get(
        self,
        resource: GroupVersionResource,
        name: str,
        namespace: str = "",
        *,
        subresource: str = "",
        resource_version: str = "",
    ) -> Obj:
        path = object_path(resource, namespace, name, subresource)
        return await self._object("GET", path, {"resourceVersion": resource_version})

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
        query = {
            "labelSelector": labels,
            "fieldSelector": fields,
            "limit": str(limit) if limit else "",
            "continue": continue_,
            "resourceVersion": resource_version,
            "resourceVersionMatch": resource_version_match,
        }
        accept = _PARTIAL_LIST if metadata_only else ""
        return responses.named_items(await self._object("GET", object_path(resource, namespace), query, accept=accept))

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
    ) -> Obj:
        path = object_path(resource, namespace or namespace_of(obj), name if subresource else "", subresource)
        return await self._object("POST", path, _write_query(dry_run, field_manager), obj)

    async def update(
        self,
        resource: GroupVersionResource,
        obj: Obj,
        *,
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
    ) -> Obj:
        path = object_path(resource, namespace_of(obj), named(obj), subresource)
        return await self._object("PUT", path, _write_query(dry_run, field_manager), obj)

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
    ) -> Obj:
        query = _write_query(dry_run, field_manager)
        if force:
            query["force"] = "true"
        path = object_path(resource, namespace, name, subresource)
        # A patch of null is valid, too; without a body there would be no patch.
        return await self._object("PATCH", path, query, jsonio.dumps(patch), patch_type)

    async def apply(
        self,
        resource: GroupVersionResource,
        obj: Obj,
        *,
        field_manager: str,
        force: bool = False,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Obj:
        return await self.patch(
            resource,
            named(obj),
            obj,
            namespace_of(obj),
            patch_type=APPLY_PATCH,
            subresource=subresource,
            dry_run=dry_run,
            field_manager=field_manager,
            force=force,
        )

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
    ) -> Obj:
        options = _delete_options(propagation, grace_seconds, uid, resource_version, dry_run)
        return await self._object("DELETE", object_path(resource, namespace, name), {}, options)

    async def delete_collection(
        self,
        resource: GroupVersionResource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        propagation: str = "",
    ) -> Obj:
        query = {"labelSelector": labels, "fieldSelector": fields}
        options = _delete_options(propagation, None, "", "", False)
        return responses.named_items(await self._object("DELETE", object_path(resource, namespace), query, options))

    async def raw(
        self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None, accept: str = ""
    ) -> Any:
        """`accept`: the wanted media type; it must be a JSON one."""
        content, media_type = await self.connection.request(method, path, query or {}, body, accept=accept)
        return responses.value(content, media_type)

    async def content(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """The body of a path's response, of any content type."""
        return (await self.connection.request("GET", path, query or {}, accept="*/*"))[0]

    def lines(self, path: str, query: Mapping[str, str], accept: str = "") -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """A watch's stream of lines, once the server has begun to answer."""
        return self.connection.lines(path, query, accept)

    # --- watch ---------------------------------------------------------------------------------------------------------

    async def watch(
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
        query = {
            "watch": "true",
            "labelSelector": labels,
            "fieldSelector": fields,
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true" if bookmarks else "",
            "timeoutSeconds": str(timeout_seconds) if timeout_seconds else "",
        }
        if send_initial_events:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        accept = _PARTIAL if metadata_only else ""
        async with self.connection.lines(object_path(resource, namespace), query, accept) as lines:
            async for line in lines:
                yield responses.event(line)

    # --- requests ------------------------------------------------------------------------------------------------------

    def request_progress(self, resource: GroupVersionResource) -> None:
        """Servers send bookmarks when they like."""

    async def close(self) -> None:
        await self.connection.close()

    async def __aenter__(self) -> HttpsClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _object(
        self, method: str, path: str, query: Mapping[str, str], body: Any = None, content_type: str = "", accept: str = ""
    ) -> Obj:
        content, media_type = await self.connection.request(method, path, query, body, content_type, accept)
        found = responses.value(content, media_type)
        if not isinstance(found, dict):
            raise ApiError(500, "InternalError", f"{method} {path} on {self.connection.target.server} gave no JSON object")
        return found


# A server that doesn't support partial objects may send whole ones.
_PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


def object_path(resource: GroupVersionResource, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The URL path of a collection, an object or a subresource."""
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    parts = [root]
    if namespace:
        parts += ["namespaces", quote(namespace, safe=":")]
    parts.append(resource.resource)
    if name:
        parts.append(quote(name, safe=":"))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


def _write_query(dry_run: bool, field_manager: str) -> dict[str, str]:
    return {"dryRun": "All" if dry_run else "", "fieldManager": field_manager}


def _delete_options(propagation: str, grace_seconds: int | None, uid: str, resource_version: str, dry_run: bool) -> Obj:
    options: Obj = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if propagation:
        options["propagationPolicy"] = propagation
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
    if preconditions:
        options["preconditions"] = preconditions
    if dry_run:
        options["dryRun"] = ["All"]
    return options
