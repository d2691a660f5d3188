"""Lists and watches of our kinds on a foreign Kubernetes, which refuses them for callers with permissions by name: their part.

The embedded API does that itself (:mod:`remuda.apiserver.watch.filtered_list`). Here lists and watches use the gateway's own
credential and the caller's query (selectors, revision, bookmarks, form), and the objects that the caller may `list` or `watch` by
name are passed on. An answer of unknown form is not passed on at all. A refused `get` is answered with 404 by the same rule.

In a watch, an object that is newly permitted is ADDED, one that is no longer permitted is DELETED, with nothing but its identity.
Where that breaks the order of revisions, a bookmark follows with the watch's own revision, so that a client that resumes from
there misses nothing. A client that starts a watch where a list ended has that list's objects (:class:`Shown`). When that is not
known, because another gateway answered, or this one was restarted, all permitted objects are ADDED once more.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web

from remuda.access.roles.holdings import GROUPS, InformerSource
from remuda.apiserver.http import paths
from remuda.apiserver.http.listener import Connection
from remuda.apiserver.watch.filtered_list import is_hidden, part_of
from remuda.client.https import object_path
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.rbac import Permitted, Rbac
from remuda.kube.authorization.users import User
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError, internal, not_found
from remuda.kube.objects import GroupVersionResource, Key

from ..server.dependencies import Access
from ..server.routing import RequestContext

Obj = dict[str, Any]

# Parameters of the query that are not passed on: the list is answered at once, and is a list.
_NOT_PASSED_ON = frozenset(("limit", "continue", "watch", "timeoutSeconds", "allowWatchBookmarks", "includeObject"))
_ABOUT_REVISIONS = frozenset(("resourceVersion", "resourceVersionMatch", "sendInitialEvents"))
# In a list it has another name.
_METADATA = re.compile(r"(as=PartialObjectMetadata)(?=[;,]|$)")
_TRUE = frozenset(("true", "1"))


class Reader(Protocol):
    """The Kubernetes API, read as the gateway."""

    async def raw(
        self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None, accept: str = ""
    ) -> Any: ...

    def lines(self, path: str, query: dict[str, str], accept: str = "") -> AbstractAsyncContextManager[AsyncIterator[bytes]]: ...


class Theirs:
    def __init__(self, reader: Reader, source: InformerSource, rbac: Rbac, access: Access) -> None:
        """`source` feeds `rbac`: before it is complete nothing is shown."""
        self._reader = reader
        self._source = source
        self._rbac = rbac
        self._access = access
        self._shown = Shown()

    async def answer(self, asked: RequestContext, user: User) -> web.StreamResponse | None:
        """The answer to a request; None if the foreign Kubernetes answers it itself."""
        if asked.request.method != "GET" or "Upgrade" in asked.request.headers or not self._source.is_complete():
            return None
        question = f"?{asked.target.query}" if asked.target.query else ""
        target = paths.parse("GET", asked.target.path + question)
        if target.verb not in ("get", "list", "watch") or target.group not in GROUPS:
            return None
        if target.subresource or target.extra or not (target.version + target.resource).isalnum():
            return None
        if target.verb == "get":
            await self._check_hidden(paths.action_of(target, user))
        if target.name:
            return None
        action = Action(user, target.verb, target.group, target.version, target.resource, "", target.namespace)
        if await self._access.allowed(action):
            return None
        permitted = part_of(self._rbac, action)
        if permitted is None:
            return None
        return await (
            self._list(asked, action, target, permitted) if target.verb == "list" else self._watch(asked, action, target)
        )

    async def _check_hidden(self, action: Action) -> None:
        """Raises NotFound for an object that is hidden from the caller. Their own roles are looked at first, which is cheap."""
        if self._rbac.authorize(action).allowed or not is_hidden(self._rbac, action) or await self._access.allowed(action):
            return
        raise not_found(action.group, action.resource, action.name)

    async def _list(self, asked: RequestContext, action: Action, target: paths.Target, permitted: Permitted) -> web.Response:
        watching = action.but(verb="watch")
        # Before the list is read: objects granted in between are told twice rather than never.
        sight = sight_of(self._rbac, watching)
        shown = part(await self._read(action, target, _accepted(asked)), permitted)
        revision = (shown.get("metadata") or {}).get("resourceVersion")
        if isinstance(revision, str) and revision:
            self._shown.note(watching, revision, sight)
        return web.Response(body=jsonio.dumps(_without_objects(shown, target)) + b"\n", content_type="application/json")

    async def _read(self, action: Action, target: paths.Target, accept: str, leave_out: frozenset[str] = frozenset()) -> Any:
        query = {key: value for key, value in target.query.items() if key not in _NOT_PASSED_ON | leave_out}
        return await self._reader.raw("GET", _path(action), query=query, accept=accept)

    async def _watch(self, asked: RequestContext, action: Action, target: paths.Target) -> web.StreamResponse:
        query = {key: value for key, value in target.query.items() if key not in ("includeObject", "limit", "continue")}
        query["watch"] = "true"
        revision = query.get("resourceVersion", "")
        initial = revision in ("", "0") or query.get("sendInitialEvents", "").lower() in _TRUE
        accept = _accepted(asked)
        bookmarks = query.get("allowWatchBookmarks", "").lower() in _TRUE
        watch = PartialWatch(
            self._rbac,
            self._shown,
            action,
            lambda: self._read(action, target, _METADATA.sub(r"\1List", accept), _ABOUT_REVISIONS),
            revision,
            initial=initial,
            bookmarks=bookmarks,
        )
        left = asyncio.Event()
        connection = asked.request.protocol
        if isinstance(connection, Connection):
            connection.on_lost[left.set] = None
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
        try:
            async with self._reader.lines(_path(action), query, accept) as lines:
                await response.prepare(asked.request)

                async def send(event: Obj) -> None:
                    shown = {**event, "object": _without_objects(event["object"], target)}
                    await response.write(jsonio.dumps(shown) + b"\n")

                try:
                    await watch.follow(lines, send, left)
                except (ApiError, OSError, jsonio.JsonError) as error:
                    # The answer has begun: it can only be cut. The client starts a new watch.
                    asked.why = asked.why or f"the watch was cut off: {error}"
                with suppress(OSError):
                    await response.write_eof()
        finally:
            if isinstance(connection, Connection):
                connection.on_lost.pop(left.set, None)
        return response


def _path(action: Action) -> str:
    """The path of the authorized action, not of the request."""
    return object_path(GroupVersionResource(action.group, action.version, action.resource), action.namespace)


def _accepted(asked: RequestContext) -> str:
    """The forms of JSON that the caller accepts: no other could be filtered."""
    forms = [form.strip() for value in asked.request.headers.getall("Accept", []) for form in value.split(",")]
    return ",".join(form for form in forms if form.partition(";")[0].strip().lower() == "application/json") or "application/json"


def _without_objects(shown: Obj, target: paths.Target) -> Obj:
    """A Table as requested: the objects in its rows were needed to filter them."""
    if target.query.get("includeObject") != "None" or shown.get("kind") != "Table":
        return shown
    return {**shown, "rows": [{**row, "object": None} for row in shown.get("rows") or ()]}


def part(answer: Any, permitted: Permitted) -> Obj:
    """The list (of objects, of their metadata, or as a Table) without objects that the caller may not see."""
    kind = answer.get("kind") if isinstance(answer, dict) else None
    if kind == "Table":
        rows = [row for row in answer.get("rows") or () if _is_seen(row.get("object"), permitted)]
        found = {**answer, "rows": rows}
    elif isinstance(kind, str) and kind.endswith("List"):
        found = {**answer, "items": [item for item in answer.get("items") or () if _is_seen(item, permitted)]}
    else:
        raise internal("the list has a form that can't be filtered")
    metadata = found.get("metadata") or {}
    return {**found, "metadata": {key: value for key, value in metadata.items() if key not in ("continue", "remainingItemCount")}}


def _is_seen(obj: Any, permitted: Permitted) -> bool:
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return False
    return permitted.allows(metadata.get("namespace") or "", metadata["name"])


Send = Callable[[Obj], Awaitable[None]]

NOTHING = Permitted(frozenset(), {})
_REMEMBERED = 4096
_IDENTITY = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_ADDED, _DELETED, _BOOKMARK, _ERROR = "ADDED", "DELETED", "BOOKMARK", "ERROR"


class Listing(Protocol):
    async def __call__(self) -> Any:
        """The whole list, in the form of the watch."""
        ...


@dataclass(frozen=True, slots=True)
class VisibleObjects:
    """The objects that a caller may watch at one moment; `permitted` is None for all."""

    permitted: Permitted | None

    def sees(self, key: Key) -> bool:
        return self.permitted is None or self.permitted.allows(*key)


def sight_of(rbac: Rbac, action: Action) -> VisibleObjects:
    return VisibleObjects(None if rbac.authorize(action).allowed else rbac.permitted(action))


class Shown:
    """The objects that a caller saw of a resource at the revision at which a list or watch of theirs ended."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, VisibleObjects | None] = OrderedDict()

    def note(self, action: Action, revision: str, sight: VisibleObjects) -> None:
        key = self._key(action, revision)
        # Two clients saw different things at the same revision: then a new one could be either.
        self._known[key] = sight if self._known.get(key, sight) == sight else None
        self._known.move_to_end(key)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def at(self, action: Action, revision: str) -> VisibleObjects:
        return self._known.get(self._key(action, revision)) or VisibleObjects(NOTHING)

    @staticmethod
    def _key(action: Action, revision: str) -> Hashable:
        return action.user.name, action.user.groups, action.group, action.resource, action.namespace, revision


class PartialWatch:
    """`revision` is the caller's first one, `bookmarks` whether they accept bookmarks."""

    def __init__(
        self, rbac: Rbac, shown: Shown, action: Action, listing: Listing, revision: str, *, initial: bool, bookmarks: bool
    ) -> None:
        """`initial`: the foreign Kubernetes begins with all existing objects."""
        self._rbac = rbac
        self._shown = shown
        self._action = action
        self._listing = listing
        self._bookmarks = bookmarks
        self._revision = "" if initial else revision
        self._sight = sight_of(rbac, action) if initial else shown.at(action, revision)
        # Earlier permissions in this watch; and the objects reported as deleted that still exist.
        self._before: list[VisibleObjects] = []
        self._told_gone: set[Key] = set()

    async def follow(self, lines: AsyncIterator[bytes], send: Send, left: asyncio.Event) -> None:
        """Run until the foreign Kubernetes ends the watch, or the caller has `left`."""
        changed = asyncio.Event()
        self._rbac.listeners.append(changed.set)
        line = asyncio.create_task(_next(lines))
        others: list[asyncio.Task[Any]] = [asyncio.create_task(changed.wait()), asyncio.create_task(left.wait())]
        try:
            await self._look(send)
            while True:
                await asyncio.wait((line, *others), return_when=asyncio.FIRST_COMPLETED)
                if left.is_set():
                    return
                if others[0].done():
                    changed.clear()
                    others[0] = asyncio.create_task(changed.wait())
                    await self._look(send)
                if line.done():
                    found = line.result()
                    if found is None:
                        break
                    await self._pass_on(jsonio.loads(found), send)
                    line = asyncio.create_task(_next(lines))
            if self._revision:
                self._shown.note(self._action, self._revision, self._sight)
        finally:
            self._rbac.listeners.remove(changed.set)
            for task in (line, *others):
                task.cancel()
            await asyncio.gather(line, *others, return_exceptions=True)

    async def _pass_on(self, event: Any, send: Send) -> None:
        if not isinstance(event, dict) or not isinstance(obj := event.get("object"), dict):
            return
        if event.get("type") == _ERROR:
            await send(event)
            return
        metadata = _metadata(obj)
        self._revision = str(metadata.get("resourceVersion") or "") or self._revision
        if event.get("type") == _BOOKMARK:
            await send(event)
        elif (key := _key(metadata)) is None:
            return
        elif self._sight.sees(key):
            self._told_gone.discard(key)
            await send(event)
        elif event.get("type") == _DELETED and any(sight.sees(key) for sight in self._before):
            if key in self._told_gone:
                self._told_gone.discard(key)
            else:
                await send({"type": _DELETED, "object": bare(obj)})

    async def _look(self, send: Send) -> None:
        """Report objects that are newly permitted, and those that are no longer."""
        now, was = sight_of(self._rbac, self._action), self._sight
        if now == was:
            return
        found = list(singles(await self._listing()))
        self._sight = now
        self._before.append(was)
        last: Obj | None = None
        for obj in found:
            key = _key(_metadata(obj))
            if key is None or now.sees(key) == was.sees(key):
                continue
            last = obj
            if now.sees(key):
                self._told_gone.discard(key)
                await send({"type": _ADDED, "object": obj})
            else:
                self._told_gone.add(key)
                await send({"type": _DELETED, "object": bare(obj)})
        if last is not None and self._bookmarks and self._revision and last.get("kind") != "Table":
            reached = {"resourceVersion": self._revision, "creationTimestamp": None}
            await send({"type": _BOOKMARK, "object": {**_named(last), "metadata": reached}})


async def _next(lines: AsyncIterator[bytes]) -> bytes | None:
    """The next line; None at the end, also when the connection was cut: the client starts a new watch."""
    return await anext(lines, None)


# --- forms: an object, its metadata, or a Table of one row ----------------------------------------------------------------------


def singles(answer: Any) -> Iterable[Obj]:
    """A list as the objects that a watch would send one by one."""
    if not isinstance(answer, dict):
        return
    kind = str(answer.get("kind") or "")
    if kind == "Table":
        for row in answer.get("rows") or ():
            yield {**answer, "rows": [row]}
        return
    for item in answer.get("items") or ():
        yield {"kind": kind.removesuffix("List"), "apiVersion": answer.get("apiVersion"), **item}


def bare(obj: Obj) -> Obj:
    """The object's identity, without its content."""
    if obj.get("kind") == "Table":
        rows = [
            {"cells": [name if at == 0 else "" for at in range(len(row.get("cells") or ()))], "object": bare(row["object"])}
            for row in obj.get("rows") or ()
            for name in [(row["object"].get("metadata") or {}).get("name")]
        ]
        return {**{key: obj[key] for key in obj if key in ("kind", "apiVersion", "metadata", "columnDefinitions")}, "rows": rows}
    metadata = _metadata(obj)
    return {**_named(obj), "metadata": {key: metadata[key] for key in _IDENTITY if key in metadata}}


def _named(obj: Obj) -> Obj:
    return {key: obj[key] for key in ("kind", "apiVersion") if key in obj}


def _metadata(obj: Obj) -> Obj:
    if obj.get("kind") == "Table":
        rows = obj.get("rows") or ()
        inner = rows[0].get("object") if rows and isinstance(rows[0], dict) else None
        # A bookmark may have no rows.
        return _metadata(inner) if isinstance(inner, dict) else _own(obj)
    return _own(obj)


def _own(obj: Obj) -> Obj:
    found = obj.get("metadata")
    return found if isinstance(found, dict) else {}


def _key(metadata: Obj) -> Key | None:
    name = metadata.get("name")
    return Key(str(metadata.get("namespace") or ""), name) if isinstance(name, str) and name else None
