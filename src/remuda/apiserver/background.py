"""The server's own tasks: bookmarks, compaction, expiry, pruning of history, checks of its own lag and of its store."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Protocol

from remuda.kube.certificates import PkiError
from remuda.kube.clock import SettledTime
from remuda.kube.errors import ApiError

from .auth.service_accounts import LastUsed
from .cache.watch_cache import WatchCache
from .config import Config
from .http.handler import Handler
from .http.metrics import Metrics
from .keys.rotation import Rotations
from .limits.flow_control import Flow
from .registry.resources import Registry
from .replicas.server_leases import ServerLease
from .storage.store import HistoryStore, Store, StoreError
from .watch.watchers import Feeds

logger = logging.getLogger(__name__)

# Compaction runs at this interval, and several times within the window that it keeps.
_COMPACT_EVERY = 60.0
_BOOKMARK_EVERY = 20.0
_EXPIRE_EVERY = 30.0
_PRUNE_EVERY = 3600.0
_LAG_EVERY = 0.5
_RENEW_EVERY = 12 * 3600.0
# A shared store is checked at this interval, and counts as unavailable without an answer for this long.
_ASK_EVERY = 1.0
_AWAY_AFTER = 5.0


class _Server(Protocol):
    """The parts of a server that its tasks work on."""

    config: Config
    store: Store
    history: HistoryStore | None
    cache: WatchCache
    registry: Registry
    feeds: Feeds
    flow: Flow
    handler: Handler
    metrics: Metrics
    last_used: LastUsed
    lease: ServerLease | None
    rotations: Rotations | None
    vital: list[asyncio.Task[None]]

    async def renew(self) -> None: ...


class BackgroundTasks:
    def __init__(self, server: _Server) -> None:
        self._server = server
        self._clock = server.config.clock
        self._tasks: list[asyncio.Task[None]] = []
        self._marks: deque[tuple[float, int]] = deque()
        self._told: dict[object, int] = {}
        self._answered = self._clock.monotonic()

    def start(self) -> None:
        loops = [self._compact, self._expire, self._server.last_used.run]
        if self._server.history is not None:
            loops.append(self._prune)
        if self._server.store.shared:
            loops.append(self._ask)
        if self._server.rotations is not None:
            loops += [self._server.rotations.run, self._renew]
        self._run(*loops)
        if self._server.lease is not None:
            self._run(self._server.lease.keep)
            self._tasks[-1].set_name("the record of this server in its store")
            self._server.vital.append(self._tasks[-1])
        metrics = self._server.metrics
        metrics.gauge("apiserver_storage_objects", "Objects in the store.", self._objects)
        metrics.gauge("apiserver_registered_watchers", "Watches that are open.", self._watchers)
        metrics.gauge("process_resident_memory_bytes", "Resident memory.", lambda: [({}, _resident())])
        metrics.gauge("process_cpu_seconds_total", "Processor time used.", lambda: [({}, _cpu())], "counter")
        metrics.gauge("apiserver_current_inqueue_requests", "Requests that wait for a seat.", self._queued)
        bodies = self._server.flow.bodies
        metrics.gauge("apiserver_request_body_bytes", "Bytes of requests under way.", lambda: [({}, float(bodies.bytes))])

    def start_serving(self) -> None:
        """Start tasks that only matter to clients over the network."""
        self._run(self._bookmarks, self._lag)

    def run_beside(self, loop: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run one more task until the server stops."""
        self._run(loop)

    def _run(self, *loops: Callable[[], Coroutine[None, None, None]]) -> None:
        self._tasks += [asyncio.create_task(loop(), name=f"upkeep {loop.__qualname__}") for loop in loops]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def store_answers(self) -> bool:
        """True if reads here are up to date, or can be in a moment."""
        return not self._server.store.shared or self._clock.monotonic() - self._answered < _AWAY_AFTER

    def _objects(self) -> list[tuple[dict[str, str], float]]:
        return [
            ({"resource": str(r.group_resource)}, float(len(r.bucket.entries)))
            for r in self._server.registry.resources()
            if not r.virtual
        ]

    def _watchers(self) -> list[tuple[dict[str, str], float]]:
        return [
            ({"group": feed.version.group, "kind": feed.version.kind, "version": feed.version.name}, float(feed.count))
            for feed in self._server.feeds.all()
        ]

    def _queued(self) -> list[tuple[dict[str, str], float]]:
        return [({"request_kind": gate.name}, float(gate.waiting)) for gate in self._server.flow.gates()]

    async def _bookmarks(self) -> None:
        """Send bookmarks to quiet watchers, so that they can resume from there."""
        while True:
            await self._clock.sleep(_BOOKMARK_EVERY)
            self.send_bookmarks()

    def send_bookmarks(self) -> None:
        for stream in list(self._server.handler.streams):
            watcher = stream.bookmarks_for
            if watcher is None or watcher.closed:
                continue
            revision = watcher.reached
            if revision > watcher.revision:
                watcher.revision = revision
                stream.bookmark(revision)

    async def _compact(self) -> None:
        window = float(self._server.config.window_seconds)
        while True:
            await self._clock.sleep(min(_COMPACT_EVERY, window / 5))
            now = self._clock.monotonic()
            self._marks.append((now, self._server.cache.revision))
            floor = 0
            while self._marks and self._marks[0][0] <= now - window:
                floor = self._marks.popleft()[1]
            if floor > self._server.store.floor:
                await self._guarded("compaction", self._server.store.compact(floor))

    async def _expire(self) -> None:
        settled, ahead = SettledTime(self._clock), 0.0
        while True:
            await self._clock.sleep(_EXPIRE_EVERY)
            before, now, ahead = ahead, settled.time(), settled.ahead
            if ahead and ahead != before:
                logger.warning("the clock was set forward by %.0f s: for an hour nothing is forgotten because of that", ahead)
            await self._guarded("expiry", self._server.store.expire(now))

    async def _ask(self) -> None:
        """Check the store. A change is logged once: readiness is a matter of seconds."""
        away = False
        while True:
            try:
                await self._server.cache.consistent()
                self._answered = self._clock.monotonic()
                if away:
                    logger.info("the store answers again")
                away = False
            except ApiError as error:
                if not away and not self.store_answers:
                    logger.warning("not ready: %s", error.message)
                    away = True
            await self._clock.sleep(_ASK_EVERY)

    async def _prune(self) -> None:
        history = self._server.history
        assert history is not None
        while True:
            await self._clock.sleep(_PRUNE_EVERY)
            await self._guarded("pruning of history", history.prune())

    async def _renew(self) -> None:
        """Certificates expire while a server runs: they are renewed a month before."""
        while True:
            await self._clock.sleep(_RENEW_EVERY)
            try:
                await self._server.renew()
            except (PkiError, OSError) as error:
                logger.warning("the certificates can't be renewed, it will be tried again: %s", error)

    async def _lag(self) -> None:
        while True:
            before = self._clock.monotonic()
            await self._clock.sleep(_LAG_EVERY)
            self._server.metrics.loop_lag(max(self._clock.monotonic() - before - _LAG_EVERY, 0.0))

    @staticmethod
    async def _guarded(what: str, work: object) -> None:
        try:
            await work  # type: ignore[misc]
        except StoreError as error:
            logger.warning("%s failed, it will be tried again: %s", what, error)


def _resident() -> float:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
        return float(file.read().split()[1]) * resource.getpagesize()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
