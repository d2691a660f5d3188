"""Lists of our kinds on somebody else's Kubernetes, which refuses as a whole what is given by name: the caller's part of them.

The embedded API does that itself (:mod:`remuda.apiserver.partly`), for watches, too. Here the list is read with the gateway's own
credential, and what of it that Kubernetes lets the caller `list` by name is passed on. An answer of a form that is not known is
not passed on at all.
"""

from __future__ import annotations

from typing import Any, Protocol

from aiohttp import web

from remuda.apiserver.authz import Action
from remuda.apiserver.authz.rbac import Permitted, Rbac
from remuda.apiserver.http import paths
from remuda.apiserver.partly import part_of
from remuda.apiserver.users import User
from remuda.client.https import object_path
from remuda.kube import jsonio
from remuda.kube.errors import internal
from remuda.kube.objects import GroupVersionResource
from remuda.management.roles.held import InformerSource
from remuda.management.roles.visibility import GROUPS

from .asking import Asked
from .services import Access

Obj = dict[str, Any]

# Of the question: a list is shown at once, and is a list.
_NOT_PASSED_ON = frozenset(("limit", "continue", "watch", "timeoutSeconds", "allowWatchBookmarks", "includeObject"))


class Reader(Protocol):
    """The Kubernetes API, as the gateway."""

    async def raw(
        self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None, accept: str = ""
    ) -> Any: ...


class Theirs:
    def __init__(self, reader: Reader, source: InformerSource, rbac: Rbac, access: Access) -> None:
        """`source` is what `rbac` is fed from: before it is complete nothing is shown."""
        self._reader = reader
        self._source = source
        self._rbac = rbac
        self._access = access

    async def answer(self, asked: Asked, user: User) -> web.Response | None:
        """None for whatever that Kubernetes is to answer itself."""
        if asked.request.method != "GET" or not self._source.is_complete():
            return None
        question = f"?{asked.target.query}" if asked.target.query else ""
        target = paths.parse("GET", asked.target.path + question)
        if target.verb != "list" or target.group not in GROUPS or target.name or target.subresource or target.extra:
            return None
        if not (target.version + target.resource).isalnum():
            return None
        action = Action(user, "list", target.group, target.version, target.resource, "", target.namespace)
        if await self._access.allowed(action):
            return None
        permitted = part_of(self._rbac, action)
        if permitted is None:
            return None
        query = {key: value for key, value in target.query.items() if key not in _NOT_PASSED_ON}
        accept = asked.request.headers.get("Accept", "")
        # Of what was judged, not of what was sent.
        path = object_path(GroupVersionResource(target.group, target.version, target.resource), target.namespace)
        found = await self._reader.raw("GET", path, query=query, accept=accept)
        shown = part(found, permitted)
        if target.query.get("includeObject") == "None":
            shown = {**shown, "rows": [{**row, "object": None} for row in shown.get("rows") or ()]}
        return web.Response(body=jsonio.dumps(shown) + b"\n", content_type="application/json")


def part(answer: Any, permitted: Permitted) -> Obj:
    """The list (of objects, of their metadata, or as a Table) without what may not be seen."""
    kind = answer.get("kind") if isinstance(answer, dict) else None
    if kind == "Table":
        rows = [row for row in answer.get("rows") or () if _is_seen(row.get("object"), permitted)]
        found = {**answer, "rows": rows}
    elif isinstance(kind, str) and kind.endswith("List"):
        found = {**answer, "items": [item for item in answer.get("items") or () if _is_seen(item, permitted)]}
    else:
        raise internal("the list came in a form of which no part can be shown")
    metadata = found.get("metadata") or {}
    return {**found, "metadata": {key: value for key, value in metadata.items() if key not in ("continue", "remainingItemCount")}}


def _is_seen(obj: Any, permitted: Permitted) -> bool:
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return False
    return permitted.allows(metadata.get("namespace") or "", metadata["name"])
