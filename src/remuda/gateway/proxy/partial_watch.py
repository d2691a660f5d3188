"""A watch of our kinds on a foreign Kubernetes, for callers who may see only some objects: the events of those.

The foreign Kubernetes is watched with the gateway's own credential, by the caller's query (selectors, revision, bookmarks, form).
Events of objects that the caller may watch by name are passed on. An object that is newly permitted is ADDED, one that is no
longer permitted is DELETED, with nothing but its identity. Where that breaks the order of revisions, a bookmark follows with the
watch's own revision, so that a client that resumes from there misses nothing.

A client that starts a watch where a list ended has that list's objects (:class:`Shown`). When that is not known, because another
gateway answered, or this one was restarted, all permitted objects are ADDED once more. :mod:`.partial_list` calls this.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.rbac import Permitted, Rbac
from remuda.kube.encoding import jsonio
from remuda.kube.objects import Key

Obj = dict[str, Any]
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
class Sight:
    """The objects that a caller may watch at one moment; `permitted` is None for all."""

    permitted: Permitted | None

    def sees(self, key: Key) -> bool:
        return self.permitted is None or self.permitted.allows(*key)


def sight_of(rbac: Rbac, action: Action) -> Sight:
    return Sight(None if rbac.authorize(action).allowed else rbac.permitted(action))


class Shown:
    """The objects that a caller saw of a resource at the revision at which a list or watch of theirs ended."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, Sight | None] = OrderedDict()

    def note(self, action: Action, revision: str, sight: Sight) -> None:
        key = self._key(action, revision)
        # Two clients saw different things at the same revision: then a new one could be either.
        self._known[key] = sight if self._known.get(key, sight) == sight else None
        self._known.move_to_end(key)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def at(self, action: Action, revision: str) -> Sight:
        return self._known.get(self._key(action, revision)) or Sight(NOTHING)

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
        self._before: list[Sight] = []
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
