"""The client of an API server in the same process: the verbs themselves, without HTTP and without serialisation.

Objects that come back are the cache's own: shared and read-only. Objects that go in are copied by the verbs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlencode

import msgspec

from remuda.client.interface import APPLY_PATCH, MERGE_PATCH, WatchEvent, named
from remuda.kube import errors
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.users import SYSTEM, User
from remuda.kube.builtin_resources import LEASES
from remuda.kube.encoding import jsonio
from remuda.kube.objects import GroupVersionResource, namespace_of

from .cache.entries import Entry
from .cache.resource_cache import Change
from .http import list_bodies, paths
from .http import query_options as http_options
from .http.paths import pinned_name
from .registry.object_meta import field_manager_errors
from .registry.resources import Version, served
from .replicas.leadership import LEASE, LEASE_NAMESPACE, Replica
from .server import Server
from .verbs import create, delete, get, patch, update, watch
from .verbs import list as listing
from .verbs.context import Call, DeleteOptions, ListOptions
from .verbs.delete import Deletion
from .verbs.subresources import SubresourceRequest
from .watch.filtered_list import VisiblePart
from .watch.selection import Selection
from .watch.watchers import BOOKMARK, DELETED, Watcher

Obj = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")


def _consistently(
    verb: Callable[Concatenate[InProcessClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[InProcessClient, P], Coroutine[Any, Any, T]]:
    """Confirm errors that come from the cache alone, on a shared store."""

    @wraps(verb)
    def tried(self: InProcessClient, /, *args: P.args, **options: P.kwargs) -> Coroutine[Any, Any, T]:
        if not self._api.cache.shared:
            return verb(self, *args, **options)
        return self._api.run_consistently(lambda: verb(self, *args, **options))

    return tried


class InProcessClient:
    """Acts as `user`; without one it is the server itself and needs no permission. What admission warns of goes to `warnings`.

    A user sees what the same user sees over HTTP, also the permitted part of a list that is refused as a whole.
    """

    remote = False

    def __init__(
        self, server: Server, manager: str = "remuda", user: User | None = None, *, warnings: list[str] | None = None
    ) -> None:
        self._server = server
        self._api = server.api
        self._manager = manager
        self._user = user
        self._warnings = warnings
        self._watches: dict[GroupVersionResource, set[_Queue]] = {}

    def _call(
        self,
        resource: GroupVersionResource,
        verb: str,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        fields: str = "",
    ) -> Call:
        """`fields` is the field selector, which counts for authorization, like the one name that it allows."""
        user = self._user
        only: VisiblePart | None = None
        if user is not None:
            named = name or pinned_name(fields)
            only = self._authorize(Action(user, verb, *resource, subresource, namespace, named, field_selector=fields))
        version = served(self._api.registry, *resource, verb=verb, namespace=namespace, name=name, subresource=subresource)
        if field_manager:
            found = field_manager_errors(field_manager, "fieldManager")
            if found:
                raise errors.invalid("meta.k8s.io", f"{verb.capitalize()}Options", "", found)
        return Call(
            version=version,
            verb=verb,
            namespace=namespace if version.resource.namespaced else "",
            name=name,
            subresource=subresource,
            user=user or SYSTEM,
            manager=field_manager or self._manager,
            field_manager=field_manager,
            dry_run=dry_run,
            warnings=[] if self._warnings is None else self._warnings,
            trusted=user is None,
            only=only,
        )

    def _authorize(self, action: Action) -> VisiblePart | None:
        """None if the user may see everything, else the part that may be shown."""
        return self._server.handler.authorize(action)

    async def _object(self, call: Call, entry: Entry) -> Obj:
        return await call.version.load(entry)

    @_consistently
    async def get(
        self,
        resource: GroupVersionResource,
        name: str,
        namespace: str = "",
        *,
        subresource: str = "",
        resource_version: str = "",
    ) -> Obj:
        call = self._call(resource, "get", namespace, name, subresource)
        if subresource and subresource != "status":
            return (await self._server.subresources.run(call, SubresourceRequest())).body
        return await self._object(call, await get.get(self._api, call, resource_version))

    @_consistently
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
        call = self._call(resource, "list", namespace, fields=fields)
        options = ListOptions(labels, fields, limit, continue_, resource_version, resource_version_match)
        page = await listing.list_(self._api, call, options)
        version = call.version
        show = _partial if metadata_only else Version.object
        return {
            "kind": version.resource.list_kind,
            "apiVersion": version.api_version,
            "metadata": page.metadata(),
            "items": [show(version, entry) for entry in page.entries],
        }

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
        options = ListOptions(
            labels=labels,
            fields=fields,
            resource_version=resource_version,
            resource_version_match="NotOlderThan" if send_initial_events else "",
            watch=True,
            bookmarks=bookmarks,
            send_initial_events=True if send_initial_events else None,
            timeout_seconds=timeout_seconds,
        )
        queue = _Queue()

        async def start() -> tuple[Selection, watch.WatchStart]:
            call = self._call(resource, "watch", namespace, fields=fields)
            selection = watch.selection_of(call, options)
            return selection, await watch.start(self._api, self._server.feeds, call, options, selection, queue)

        selection, begin = await self._api.run_consistently(start)
        version = selection.version
        # Live events wait in the queue until the first ones have been taken.
        begin.watcher.go()
        unfollow = watch.follow_sight(selection, queue)
        queue.bookmarks_for = begin.watcher if bookmarks else None
        streams = self._server.handler.streams
        streams.add(queue)
        self._watches.setdefault(resource, set()).add(queue)
        timer = self._api.clock.call_later(timeout_seconds, queue.end) if timeout_seconds else None
        show = _partial if metadata_only else Version.object
        try:
            for type_, change, entry in begin.events:
                yield WatchEvent(type_, show(version, _at_change(type_, change, entry)))
            if begin.bookmark is not None:
                yield WatchEvent(BOOKMARK, _bookmark(version, begin.bookmark, {watch.INITIAL_EVENTS_END: "true"}))
            while (batch := await queue.next()) is not None:
                for item in batch:
                    if isinstance(item, int):
                        yield WatchEvent(BOOKMARK, _bookmark(version, item, {}))
                    else:
                        type_, change, entry = item
                        yield WatchEvent(type_, show(version, _at_change(type_, change, entry)))
        finally:
            unfollow()
            streams.discard(queue)
            self._watches[resource].discard(queue)
            if timer is not None:
                timer.cancel()
            begin.watcher.leave()

    @_consistently
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
        # A new object's name is not authorized, but a subresource is created on an existing object.
        parent = name if subresource else ""
        call = self._call(resource, "create", namespace or namespace_of(obj), parent, subresource, dry_run, field_manager)
        raw = jsonio.copy(obj)
        if call.version.resource.virtual:
            return (await self._server.subresources.review(call, SubresourceRequest(raw))).body
        if subresource:
            return (await self._server.subresources.run(call, SubresourceRequest(raw))).body
        return await self._object(call, await create.create(self._api, call, raw))

    @_consistently
    async def update(
        self,
        resource: GroupVersionResource,
        obj: Obj,
        *,
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
    ) -> Obj:
        call = self._call(resource, "update", namespace_of(obj), named(obj), subresource, dry_run, field_manager)
        raw = jsonio.copy(obj)
        if subresource and subresource != "status":
            return (await self._server.subresources.run(call, SubresourceRequest(raw))).body
        return await self._object(call, (await update.update(self._api, call, raw)).entry)

    @_consistently
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
        call = self._call(resource, "patch", namespace, name, subresource, dry_run, field_manager)
        return await self._patch(call, jsonio.copy(patch), patch_type, force)

    async def _patch(self, call: Call, body: Any, patch_type: str, force: bool) -> Obj:
        accepted = patch.patch_types(call)
        if patch_type not in accepted:
            raise patch.unsupported_type(accepted)
        call.force = force or None
        if call.subresource and call.subresource != "status":
            return (await self._server.subresources.run(call, SubresourceRequest(body, None, patch_type))).body
        outcome = await patch.patch(self._api, call, body, patch_type)
        return await self._object(call, outcome.entry)

    @_consistently
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
        call = self._call(resource, "patch", namespace_of(obj), named(obj), subresource, dry_run, field_manager)
        return await self._patch(call, jsonio.copy(obj), APPLY_PATCH, force)

    @_consistently
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
        call = self._call(resource, "delete", namespace, name, dry_run=dry_run)
        options = DeleteOptions(grace_seconds, propagation, None, uid, resource_version)
        return await self._deleted(call, await delete.delete(self._api, call, options))

    @_consistently
    async def delete_collection(
        self,
        resource: GroupVersionResource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        propagation: str = "",
    ) -> Obj:
        call = self._call(resource, "deletecollection", namespace)
        options = DeleteOptions(propagation=propagation)
        page = await delete.delete_collection(self._api, call, ListOptions(labels, fields), options)
        version = call.version
        return {
            "kind": version.resource.list_kind,
            "apiVersion": version.api_version,
            "metadata": page.metadata(),
            "items": [version.object(entry) for entry in page.entries],
        }

    @_consistently
    async def raw(self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None) -> Any:
        target = paths.parse(method, f"{path}?{urlencode(query)}" if query else path)
        if target.is_resource:
            return await self._raw_resource(target, body)
        if self._user is not None:
            self._authorize(Action.on_path(self._user, target.verb, target.path))
        if method != "GET":
            raise errors.method_not_allowed()
        return self._server.nonresource_paths.raw(target.path)

    async def _raw_resource(self, target: paths.Target, body: Any) -> Any:
        """An object or a collection by its path, as over HTTP."""
        written = http_options.WriteOptions(target.query, f"{target.verb.capitalize()}Options")
        call = self._call(
            GroupVersionResource(target.group, target.version, target.resource),
            target.verb,
            target.namespace,
            "" if target.name_from_selector else target.name,
            target.subresource,
            written.dry_run,
            written.field_manager,
            target.name,
        )
        call.field_validation = written.field_validation
        ask = SubresourceRequest(jsonio.copy(body))
        if call.version.resource.virtual and target.verb == "create":
            return (await self._server.subresources.review(call, ask)).body
        if call.subresource not in ("", "status"):
            return (await self._server.subresources.run(call, ask)).body
        match target.verb:
            case "get":
                return await self._object(call, await get.get(self._api, call, target.query.get("resourceVersion", "")))
            case "list":
                page = await listing.list_(self._api, call, http_options.list_options(target.query))
                return jsonio.loads(await list_bodies.body(call.version, page))
            case "create":
                return await self._object(call, await create.create(self._api, call, ask.body))
            case "update":
                return await self._object(call, (await update.update(self._api, call, ask.body)).entry)
            case "delete":
                chosen, call.dry_run = http_options.delete_options(target.query, ask.body)
                return await self._deleted(call, await delete.delete(self._api, call, chosen))
            case "deletecollection":
                chosen, call.dry_run = http_options.delete_options(target.query, ask.body)
                listed = http_options.list_options(target.query)
                gone = await delete.delete_collection(self._api, call, listed, chosen)
                return jsonio.loads(await list_bodies.body(call.version, gone))
            case "patch":
                raise patch.unsupported_type(patch.patch_types(call))
        raise errors.method_not_allowed()

    async def _deleted(self, call: Call, deletion: Deletion) -> Obj:
        gone = deletion.done and not call.version.resource.shows_deleted
        return deletion.status(call) if gone else await self._object(call, deletion.entry)

    def request_progress(self, resource: GroupVersionResource) -> None:
        for queue in self._watches.get(resource, ()):
            watcher = queue.bookmarks_for
            if watcher is not None and not watcher.closed and watcher.reached > watcher.revision:
                watcher.revision = watcher.reached
                queue.bookmark(watcher.revision)

    async def close(self) -> None:
        """Nothing to do: the server outlives its clients."""


# An event, or the revision of a bookmark.
_Item = tuple[str, Change, Entry] | int


class _Queue:
    """The sink of an in-process watch. In-process readers share the loop with the writers, so they are given more room."""

    _LIMIT = 100_000

    def __init__(self) -> None:
        self._batches: list[_Item] = []
        self._wake = asyncio.Event()
        self._ended = False
        self.bookmarks_for: Watcher | None = None

    def deliver(self, events: list[tuple[str, Change, Entry]]) -> bool:
        self._batches.extend(events)
        self._wake.set()
        return len(self._batches) <= self._LIMIT

    def bookmark(self, revision: int) -> bool:
        self._batches.append(revision)
        self._wake.set()
        return True

    def end(self) -> None:
        self._ended = True
        self._wake.set()

    async def next(self) -> list[_Item] | None:
        while not self._batches:
            if self._ended:
                return None
            self._wake.clear()
            await self._wake.wait()
        taken, self._batches = self._batches, []
        return taken


def _at_change(type_: str, change: Change, entry: Entry) -> Entry:
    """A deletion shows the last state with the revision of the deletion."""
    return entry.at(change.revision) if type_ == DELETED and entry.revision != change.revision else entry


class _Metadata(msgspec.Struct):
    metadata: Obj


_metadata_decoder = msgspec.json.Decoder(_Metadata)


def _partial(version: Version, entry: Entry) -> Obj:
    """Only the metadata: other parts stay unparsed, which makes watching everything cheap."""
    if entry.parsed:
        metadata = entry.object()["metadata"]
    else:
        metadata = _metadata_decoder.decode(entry.stored).metadata
        metadata["resourceVersion"] = str(entry.revision)
    return {"apiVersion": version.api_version, "kind": version.kind, "metadata": metadata}


def _bookmark(version: Any, revision: int, annotations: dict[str, str]) -> Obj:
    metadata: Obj = {"resourceVersion": str(revision)}
    if annotations:
        metadata["annotations"] = annotations
    return {"kind": version.kind, "apiVersion": version.api_version, "metadata": metadata, **version.empty()}


def replica_of(server: Server) -> Replica:
    """The server as its leader election needs it."""
    config = server.config
    leases = server.registry.resource(LEASES.group, LEASES.resource)
    assert leases is not None
    return Replica(
        client=InProcessClient(server, manager="remuda"),
        store=server.store,
        lease_key=leases.key(LEASE_NAMESPACE, LEASE),
        caught_up=server.cache.consistent,
        metrics=server.metrics.others,
        clock=config.clock,
        rng=config.rng,
        entropy=config.entropy,
    )
