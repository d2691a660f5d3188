"""One watch of a client: the objects of a type that the caller may watch, with the caller's own client.

Where the caller may not watch all of them, the namespaces and names that the roles allow are watched each by itself, so that the
API authorizes every request as a whole. An API keeps a watch going after the permission for it has ended. So the permissions are
compared before each message, and after each change of a role: when they differ from those at the start, the watch ends, and the
client lists again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, cast

from remuda.client.interface import Client, WatchEvent
from remuda.kube.errors import ApiError, expired
from remuda.kube.objects import resource_version_of

from ..kinds import Kind
from ..reading import MOST_PARTS, Selector, listed, parts_of, revision_of
from ..schemas import Permissions
from .watch_requests import EVENTS, Notices, WatchRequest

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scope:
    """The parts of a type that a caller may watch, each a namespace and a name ("" for all). `whole`: nothing is left out.

    `begins` tells that a caller without any part yet may create objects, which become one.
    """

    whole: bool
    parts: tuple[tuple[str, str], ...] = ()
    begins: bool = False

    @property
    def allowed(self) -> bool:
        return bool(self.parts) or self.begins


def scope_of(permissions: Permissions, kind: Kind, namespace: str, name: str) -> Scope:
    """The present scope of a watch of one type, by the stored roles."""
    if permissions.may(kind, "watch", namespace, name):
        return Scope(True, ((namespace, name),))
    if name or "watch" not in kind.verbs:
        return Scope(False)
    parts = parts_of(kind, namespace, permissions.part(kind, "watch", namespace))
    return Scope(False, tuple(parts), permissions.somewhere(kind, "create"))


class NotAllowed(Exception):
    """The caller may watch nothing of the type."""


class TooSlow(Exception):
    """The client does not read fast enough."""


# Sends an event of an object: False when the client is too far behind.
Offer = Callable[[str, Obj], Awaitable[bool]]


@dataclass(slots=True)
class ObjectWatch:
    """`offer` takes events, `tell` a revision at which something changed, `room` waits until the client has caught up."""

    request: WatchRequest
    kind: Kind
    client: Client
    permissions: Permissions
    offer: Offer
    notices: Notices
    room: Callable[[], Awaitable[None]]
    # Counts changes of roles.
    changes: Callable[[], int]
    scope: Scope = Scope(False)
    _checked: int = -1

    def begin(self) -> None:
        """Raises NotAllowed, or ApiError for an impossible request."""
        self._checked = self.changes()
        self.scope = self._present()
        if not self.scope.allowed:
            raise NotAllowed
        if len(self.scope.parts) > _MOST_WATCHED:
            raise ApiError(422, "InvalidQuery", f"the watch has more than {_MOST_WATCHED} parts; watch one namespace at a time")

    def _present(self) -> Scope:
        return scope_of(self.permissions, self.kind, *self.request.place(self.kind.namespaced))

    def check(self) -> None:
        """Raises NotAllowed or ApiError (410) if the permissions are no longer those of the start."""
        changes = self.changes()
        if changes == self._checked:
            return
        present = self._present()
        if present == self.scope:
            self._checked = changes
        elif not present.allowed:
            raise NotAllowed
        else:
            raise expired("too old resource version: permissions have changed")

    async def follow(self, changed: asyncio.Event) -> None:
        """Run until the API ends the watch; `changed` is set after changes of roles."""
        parts = [asyncio.create_task(self._follow(*part)) for part in self.scope.parts]
        roles = asyncio.create_task(self._check_always(changed))
        tasks = [*parts, roles]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self.notices.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _check_always(self, changed: asyncio.Event) -> None:
        while True:
            changed.clear()
            self.check()
            await changed.wait()

    async def _follow(self, namespace: str, name: str) -> None:
        selector = Selector(labels=self.request.name.selector)
        if name:
            selector = selector.named(name)
        revision = await self._first(namespace, selector)
        events = self.client.watch(
            self.kind.gvr,
            namespace,
            labels=selector.labels,
            fields=selector.fields,
            resource_version=revision,
            bookmarks=False,
            metadata_only=self.request.only_notices,
        )
        async with aclosing(cast(_Closable, events)):
            async for event in events:
                await self._pass_on(event)

    async def _first(self, namespace: str, selector: Selector) -> str:
        """The revision to watch from; before it the present objects, for clients that don't have them.

        A client with a part of a type may have gained objects since its list, which are in no log of changes: it gets all.
        """
        revision = self.request.revision
        if revision and self.scope.whole:
            return revision
        notices = self.request.only_notices
        wanted = Selector(selector.labels, selector.fields, limit=1 if notices else 0, metadata_only=notices)
        page = await listed(self.client, self.permissions, self.kind, namespace, wanted)
        if notices:
            if revision and revision_of(revision) < page.revision:
                self.check()
                self.notices.note(str(page.revision))
            return str(page.revision)
        for obj in page.objects:
            await self.room()
            await self._send(EVENTS["ADDED"], obj)
        return str(page.revision)

    async def _pass_on(self, event: WatchEvent) -> None:
        if event.type == "ERROR":
            raise ApiError.from_status(event.object)
        name = EVENTS.get(event.type)
        if name is None:
            return
        if self.request.only_notices:
            self.check()
            self.notices.note(resource_version_of(event.object))
        else:
            await self._send(name, event.object)

    async def _send(self, name: str, obj: Obj) -> None:
        self.check()
        if not await self.offer(name, obj):
            raise TooSlow


_MOST_WATCHED: Final = min(MOST_PARTS, 500)


class _Closable(AsyncIterator[WatchEvent]):
    async def aclose(self) -> None: ...
