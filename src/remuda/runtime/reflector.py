"""List and watch: all changes of some objects, passed to a sink without gaps, without repeats and without end.

It reads the existing objects once, then follows changes from that revision. They come as a stream (WatchList) from a
remote server, and as a list in pages from one that does not support that, or that runs in this very
process. A broken connection is resumed at the last revision seen; only when the server has forgotten that
revision (410) is everything read again, and the sink finds the changes. :class:`~remuda.runtime.informer.Informer` is the
usual sink; the garbage collector is another, which keeps much less of each object.

For a thousand servers, some delay is better than a thousand connections. With `glances`, `look` only reads the changes since
its last call, and disconnects.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple, Protocol

from remuda.client.interface import Client, WatchEvent
from remuda.kube.clock import Clock, Rng, Timer, deadline, yield_to_loop
from remuda.kube.errors import ApiError, OutOfReach
from remuda.kube.objects import GroupVersionResource, Key, annotations_of, resource_version_of

log = logging.getLogger(__name__)

Obj = dict[str, Any]

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_PAGE = 500
# Of one kind. More than any Kubernetes is made for; but the other side may be any program, with pages that never end.
MOST_REMOTE = 500_000
# The server ends a watch at a time of its choice; the requested timeout limits how long a dead one goes unnoticed.
_WATCH_SECONDS, _OVERDUE_SECONDS = 300, 60
# Between requests for a bookmark.
_ASK_SECONDS = 0.25
# Past changes come at once. This is the shortest watch that can be requested.
_GLANCE_SECONDS = 1


class Pauses(NamedTuple):
    """Seconds between failed tries: the first pause, and the longest."""

    first: float = 0.2
    longest: float = 30.0


class Sink(Protocol):
    def replace(self, objs: list[Obj]) -> None:
        """Replace all objects by these."""

    def put(self, obj: Obj) -> None: ...

    def remove(self, obj: Obj) -> None: ...


class Reflector:
    def __init__(
        self,
        client: Client,
        resource: GroupVersionResource,
        sink: Sink,
        clock: Clock,
        rng: Rng,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        page_size: int = 0,
        metadata_only: bool = False,
        transform: Callable[[Obj], Obj] | None = None,
        pauses: Pauses = Pauses(),  # noqa: B008 - a constant
        glances: bool = False,
        most: int = MOST_REMOTE,
    ) -> None:
        """`transform` reduces each object for the sink, one by one, so that a long list stays small. A remote list
        of more than `most` objects is refused."""
        self.resource = resource
        self.synced = asyncio.Event()
        self.revision = ""
        # The number of full reads; more than one means that the server forgot the revision, or the resource went and came back.
        self.listings = 0
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []
        self._client = client
        self._sink = sink
        self._clock = clock
        self._rng = rng
        self._namespace, self._labels, self._fields = namespace, labels, fields
        self._glances = glances
        self._most = most
        # A stream of everything is only for a lasting watch.
        self._streaming = client.remote and not glances
        self._forgotten = False
        self._page_size = page_size or (_PAGE if client.remote else 0)
        self._metadata_only = metadata_only
        self._transform = transform
        self._pauses = pauses
        self._pause = pauses.first
        self._out_of_reach: OutOfReach | None = None

    async def run(self) -> None:
        """Follow until cancelled. Failures are retried with growing pauses; the sink keeps what it has meanwhile."""
        while True:
            if await self.look():
                # A server that ends watches at once must not make this a busy loop.
                await self._clock.sleep(0.01)
            else:
                await self.rest()

    async def rest(self) -> None:
        """The pause after a failure; it grows until a request succeeds, and ends when the server can be reached again."""
        pause = self._pause * self._rng.uniform(0.8, 1.2)
        self._pause = min(self._pause * 2, self._pauses.longest)
        failed, self._out_of_reach = self._out_of_reach, None
        if failed is None:
            await self._clock.sleep(pause)
            return
        reached = asyncio.Event()
        unwatch = failed.watch(reached.set)
        try:
            async with deadline(self._clock, pause):
                await reached.wait()
            self._pause = self._pauses.first
        except TimeoutError:
            return
        finally:
            unwatch()

    async def look(self) -> bool:
        """One connection of :meth:`run`; False when it failed, which is logged."""
        while True:
            try:
                await self._once()
                self._forgotten = False
                return True
            except ApiError as error:
                if self._knows_better(error):
                    continue
                self._out_of_reach = error if isinstance(error, OutOfReach) else None
                # A resource that is not served (yet, or any more) is worth no warning.
                level = logging.DEBUG if error.code == 404 else logging.WARNING
                log.log(level, "following %s: %s", self.resource.group_resource, error.message)
            except (OSError, TimeoutError) as error:
                log.warning("following %s: %s", self.resource.group_resource, error or "no sign of life")
            except Exception:
                # After any failure, a new list puts it right or shows the failure again.
                log.exception("following %s failed", self.resource.group_resource)
                self.revision = ""
            return False

    def _knows_better(self, error: ApiError) -> bool:
        """True if the request can be repeated at once in another way."""
        if error.is_gone or error.code == 410:
            self.revision = ""
            first, self._forgotten = not self._forgotten, True
            return first
        if self._refuses_streams(error):
            self._streaming = False
            return True
        if error.code < 500 and error.code != 429:
            # The server's support for this resource may have changed: the known revision may be invalid.
            self.revision = ""
        return False

    def _refuses_streams(self, error: ApiError) -> bool:
        return self._streaming and not self.revision and error.code in (400, 405, 422)

    async def _once(self) -> None:
        """One connection: read everything if necessary, then follow until the server ends the watch."""
        if self.revision:
            await self._watch(None)
        elif self._streaming:
            await self._watch({})
        else:
            revision, found = await self._list()
            self._begin(found, revision)
            if not self._glances:
                await self._watch(None)

    def _begin(self, found: list[Obj], revision: str) -> None:
        self._sink.replace(found)
        self.listings += 1
        self._progress(revision)
        self.synced.set()

    def has_reached(self, revision: str) -> bool:
        """True if all changes up to a revision (as a write returned it) have been seen here."""
        return self.revision.isdigit() and revision.isdigit() and int(self.revision) >= int(revision)

    async def reach(self, revision: str) -> None:
        """Wait until :meth:`has_reached`, without a timeout: the caller has a deadline.

        Where nothing changes it takes until the next bookmark; in process that is asked for, again if the watch was just
        beginning.
        """
        if self.has_reached(revision) or not revision.isdigit():
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (int(revision), reached)
        self._awaited.append(entry)
        asking: Timer | None = None

        def ask() -> None:
            nonlocal asking
            self._client.request_progress(self.resource)
            asking = self._clock.call_later(_ASK_SECONDS, ask)

        if not self._client.remote:
            ask()
        try:
            await reached
        finally:
            if asking is not None:
                asking.cancel()
            if entry in self._awaited:
                self._awaited.remove(entry)

    def _progress(self, revision: str) -> None:
        if revision:
            self.revision = revision
            if self._awaited:
                self._wake(revision)
        self._pause = self._pauses.first

    def _wake(self, revision: str) -> None:
        for wanted, reached in self._awaited:
            if wanted <= int(revision) and not reached.done():
                reached.set_result(None)

    async def _list(self) -> tuple[str, list[Obj]]:
        try:
            return await self._pages(self._page_size)
        except ApiError as error:
            # The pages took longer than the server remembers: then all objects in one page.
            if error.code != 410 or not self._page_size:
                raise
            return await self._pages(0)

    async def _pages(self, size: int) -> tuple[str, list[Obj]]:
        found: list[Obj] = []
        token = ""
        while True:
            page = await self._client.list(
                self.resource,
                self._namespace,
                labels=self._labels,
                fields=self._fields,
                limit=size,
                continue_=token,
                metadata_only=self._metadata_only,
            )
            found.extend(_typed(page) if self._transform is None else map(self._transform, _typed(page)))
            metadata = page.get("metadata") or {}
            token = metadata.get("continue") or ""
            self._check_size(len(found))
            if not token:
                return str(metadata.get("resourceVersion") or "0"), found
            # In-process a page comes without waiting: at the start of a full server, other requests run between the pages.
            await yield_to_loop()

    async def _watch(self, gathered: dict[Key, Obj] | None) -> None:
        """Follow from the revision reached; with `gathered`, from nothing, and the initial events are all existing objects."""
        seconds = int(_WATCH_SECONDS * self._rng.uniform(1.0, 2.0)) if self._client.remote else 0
        if self._glances:
            seconds = _GLANCE_SECONDS
        stream = self._client.watch(
            self.resource,
            self._namespace,
            labels=self._labels,
            fields=self._fields,
            resource_version=self.revision,
            send_initial_events=gathered is not None,
            timeout_seconds=seconds,
            metadata_only=self._metadata_only,
        )
        async with _closing(stream), _limited(self._clock, seconds):
            async for event in stream:
                if event.type == "BOOKMARK":
                    if gathered is None:
                        self._progress(resource_version_of(event.object))
                    elif annotations_of(event.object).get(_INITIAL_EVENTS_END) == "true":
                        self._begin(list(gathered.values()), resource_version_of(event.object))
                        gathered = None
                    continue
                obj = event.object if self._transform is None else self._transform(event.object)
                if gathered is None:
                    self._tell(event.type, obj)
                    self._progress(resource_version_of(event.object))
                elif event.type == "DELETED":
                    gathered.pop(Key.of(obj), None)
                else:
                    gathered[Key.of(obj)] = obj
                    self._check_size(len(gathered))

    def _check_size(self, count: int) -> None:
        if count > self._most and self._client.remote:
            raise ApiError(500, "InternalError", f"the list of {self.resource.group_resource} is longer than {self._most}")

    def _tell(self, type_: str, obj: Obj) -> None:
        if type_ == "DELETED":
            self._sink.remove(obj)
        else:
            self._sink.put(obj)


def _typed(page: Obj) -> list[Obj]:
    """A page's items, each with the kind that lists of built-in types leave out over HTTP."""
    items: list[Obj] = page.get("items") or []
    if not items or "kind" in items[0]:
        return items
    kind, api_version = str(page.get("kind") or "").removesuffix("List"), page.get("apiVersion")
    return [{"apiVersion": api_version, "kind": kind, **item} for item in items]


@contextlib.asynccontextmanager
async def _closing(stream: AsyncIterator[WatchEvent]) -> AsyncIterator[None]:
    """Close the watch when its reader leaves, so that the server drops it at once."""
    try:
        yield
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


@contextlib.asynccontextmanager
async def _limited(clock: Clock, seconds: int) -> AsyncIterator[None]:
    """Ends a watch whose server has not ended it by its timeout: that server is gone."""
    if not seconds:
        yield
        return
    async with deadline(clock, seconds + _OVERDUE_SECONDS):
        yield
