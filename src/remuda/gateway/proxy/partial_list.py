"""Lists and watches of our kinds on a foreign Kubernetes, which refuses them for callers with permissions by name: their part.

The embedded API does that itself (:mod:`remuda.apiserver.watch.filtered_list`). Here the list is read with the gateway's own
credential, and the objects that the caller may `list` by name are passed on; :mod:`.partial_watch` is for watches. An answer of
unknown form is not passed on at all.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol

from aiohttp import web

from remuda.access.roles.holdings import GROUPS, InformerSource
from remuda.apiserver.http import paths
from remuda.apiserver.http.listener import Connection
from remuda.apiserver.watch.filtered_list import part_of
from remuda.client.https import object_path
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.rbac import Permitted, Rbac
from remuda.kube.authorization.users import User
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError, internal
from remuda.kube.objects import GroupVersionResource

from ..server.dependencies import Access
from ..server.request_context import Asked
from .partial_watch import PartialWatch, Shown, sight_of

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

    async def answer(self, asked: Asked, user: User) -> web.StreamResponse | None:
        """None for requests that the foreign Kubernetes is to answer itself."""
        if asked.request.method != "GET" or "Upgrade" in asked.request.headers or not self._source.is_complete():
            return None
        question = f"?{asked.target.query}" if asked.target.query else ""
        target = paths.parse("GET", asked.target.path + question)
        if target.verb not in ("list", "watch") or target.group not in GROUPS:
            return None
        if target.name or target.subresource or target.extra or not (target.version + target.resource).isalnum():
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

    async def _list(self, asked: Asked, action: Action, target: paths.Target, permitted: Permitted) -> web.Response:
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

    async def _watch(self, asked: Asked, action: Action, target: paths.Target) -> web.StreamResponse:
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


def _accepted(asked: Asked) -> str:
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
