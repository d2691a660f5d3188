"""Workers on a queue: one function that reconciles a key, and the effect of its result on the queue.

The function gets only a key, because any reconcile may be the first after a crash. Its exception is logged once and it
is tried again later; its result says when to come back. :mod:`.controller` puts watches before the queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from remuda.kube.clock import Clock, Rng, deadline
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, is_being_deleted, resource_version_of, uid_of
from remuda.kube.waits import NOTES, Wait

from .informer import Informer
from .leader_election import NotLeading
from .metrics import ReconcileMetrics
from .work_queue import QueueClosed, WorkQueue

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Result:
    """`after`: come back in so many seconds (also without an event). None: all is done until something changes.

    `waits`: the reasons why this object is not done. A result with waits also comes back by itself, slowly, so that one lost
    event can't stall it for ever.

    `rest`: leave it alone for so many seconds, even if it changes meanwhile. For work that costs others something each time (a
    drain in a workload cluster), or costs as much as it is large (the sum of a thousand machines).
    """

    after: float | None = None
    waits: tuple[Wait, ...] = ()
    rest: float = 0.0


DONE = Result()


class Retry(Exception):
    """Not ready yet: try again with growing pauses, without an error in the log. Any other exception is logged as a failure."""


@dataclass(frozen=True, slots=True)
class Reconciling:
    """The identity of the current reconcile; every log line written during it contains it."""

    controller: str
    key: str
    id: str

    def __str__(self) -> str:
        return f"{self.controller}: {self.key} [{self.id}]"


current: ContextVar[Reconciling | None] = ContextVar("reconciling", default=None)


class ReconcileLogger(logging.LoggerAdapter[logging.Logger]):
    """Puts controller, key and reconcile id before the message, and into the record's fields of the same names."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        during = current.get()
        if during is None:
            return msg, kwargs
        fields = {"controller": during.controller, "key": during.key, "reconcile_id": during.id}
        kwargs["extra"] = {**fields, **(kwargs.get("extra") or {})}
        return f"{str(during).replace('%', '%%')}: {msg}", kwargs


def logger(name: str) -> ReconcileLogger:
    """The logger of a module whose code runs in reconciles."""
    return ReconcileLogger(logging.getLogger(name), {})


log = logger(__name__)

Reconcile = Callable[[K], Awaitable[Result | None]]


class Workers(Generic[K]):
    def __init__(
        self,
        name: str,
        queue: WorkQueue[K],
        reconcile: Reconcile[K],
        concurrency: int = 1,
        *,
        clock: Clock | None = None,
        rng: Rng | None = None,
        timeout: float = 0.0,
        wait_seconds: float = 0.0,
        metrics: ReconcileMetrics | None = None,
        on_result: Callable[[K, Result], None] | None = None,
        on_failure: Callable[[K, Exception], None] | None = None,
    ) -> None:
        """`timeout`: the limit of one reconcile; `wait_seconds`: the interval at which a waiting key is reconciled again.

        `on_failure` is called after the next try was queued; not for conflicts, which the next try resolves.
        """
        self.name = name
        self.queue = queue
        self._reconcile = reconcile
        self._concurrency = concurrency
        self._clock = clock
        self._rng = rng or Rng()
        self._timeout = timeout
        self._wait_seconds = wait_seconds
        self._metrics = metrics
        self._on_result = on_result
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Work until cancelled, or until the queue is closed and running reconciles are finished."""
        forget = self._metrics.follow(self._concurrency, lambda: self.queue.in_hand) if self._metrics is not None else None
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._concurrency):
                    group.create_task(self._work(), name=f"{self.name}-{number}")
        finally:
            self.queue.close()
            if forget is not None:
                forget()

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except QueueClosed:
                return
            token = current.set(Reconciling(self.name, str(key), self._rng.name_suffix(8)))
            began = self._clock.monotonic() if self._clock is not None else 0.0
            try:
                outcome = await self._one(key)
            finally:
                current.reset(token)
                self.queue.done(key)
            if self._metrics is not None and self._clock is not None:
                self._metrics.ended(outcome, self._clock.monotonic() - began)

    async def _one(self, key: K) -> str:
        """Reconcile once; the result, in the words of the metrics."""
        try:
            result = await self._timed(key) or DONE
        except Retry as error:
            log.debug("%s; again in %.3fs", error, self.queue.retry(key))
            self._failed(key, error)
            return "requeue"
        except TimeoutError:
            log.warning("took longer than %.0fs; again in %.3fs", self._timeout, self.queue.retry(key))
            self._failed(key, TimeoutError(f"took longer than {self._timeout:.0f}s"))
            return "timeout"
        except ApiError as error:
            # A conflict means that another writer was faster; the next try sees the change. Leader election logs NotLeading once.
            passes = error.is_conflict or isinstance(error, NotLeading)
            log.log(logging.DEBUG if passes else logging.WARNING, "%s; again in %.3fs", error.message, self.queue.retry(key))
            if not passes:
                self._failed(key, error)
            return "error"
        except Exception as error:
            log.exception("failed; again in %.3fs", self.queue.retry(key))
            self._failed(key, error)
            return "panic"
        self.queue.forget(key)
        return self._come_back(key, result)

    def _failed(self, key: K, error: Exception) -> None:
        if self._on_failure is not None:
            self._on_failure(key, error)

    async def _timed(self, key: K) -> Result | None:
        if not self._timeout or self._clock is None:
            return await self._reconcile(key)
        async with deadline(self._clock, self._timeout):
            return await self._reconcile(key)

    def _come_back(self, key: K, result: Result) -> str:
        if self._on_result is not None:
            self._on_result(key, result)
        if result.rest:
            self.queue.rest(key, result.rest)
        # It may have waited before; only its present waits count.
        self.queue.unlook(key)
        if result.after is not None:
            self.queue.add_after(key, result.after)
            return "requeue_after"
        if self._wait_seconds and any(wait.code not in NOTES for wait in result.waits):
            # With jitter: keys that wait together must not all wake together.
            self.queue.look_after(key, self._wait_seconds * self._rng.uniform(0.9, 1.1))
        return "success"


# --- freshness of caches --------------------------------------------------------------------------------------------------
#
# Protection against decisions on a cache that is older than the controller's own writes.
#
# A reconcile that made three machines and runs again before its informer saw them would make three more. So writers record
# their writes, and a reconcile begins with :meth:`Freshness.caught_up`. In-process the caches follow within a turn of the
# event loop; over a network it takes as long as the watch does. Nothing here is needed for correctness across processes: after
# a crash the caches begin with a list.


Obj = dict[str, Any]
_PATIENCE = 10.0


class Freshness:
    """The writes of reconciles (by `who`: controller and key), and the caches that must have seen them before the next one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written: dict[Hashable, dict[Informer, str]] = {}
        self._deleted: dict[Hashable, list[tuple[Informer, Key, str]]] = {}

    def wrote(self, who: Hashable, informer: Informer, obj: Obj) -> None:
        """Record a write; `obj` is the server's response to it."""
        revision = resource_version_of(obj)
        if not revision.isdigit() or informer.has_reached(revision):
            return
        expected = self._written.setdefault(who, {})
        if int(expected.get(informer, "0")) < int(revision):
            expected[informer] = revision

    def deleted(self, who: Hashable, informer: Informer, obj: Obj) -> None:
        """Record an accepted deletion: the cache must show the object as terminating or gone."""
        self._deleted.setdefault(who, []).append((informer, Key.of(obj), uid_of(obj)))

    async def caught_up(self, who: Hashable) -> None:
        """Wait until the caches have what `who` wrote; Retry when they don't within ten seconds."""
        expected = self._written.get(who)
        if expected:
            try:
                async with deadline(self._clock, _PATIENCE):
                    for informer, revision in list(expected.items()):
                        await informer.reach(revision)
            except TimeoutError:
                raise Retry("the caches have not seen the last writes yet") from None
            self._written.pop(who, None)
        waiting = [each for each in self._deleted.pop(who, ()) if _still_there(*each)]
        if waiting:
            self._deleted[who] = waiting
            raise Retry("the caches have not seen the last deletions yet")

    def forget(self, who: Hashable) -> None:
        """Drop the records of `who`, which is gone."""
        self._written.pop(who, None)
        self._deleted.pop(who, None)


def _still_there(informer: Informer, key: Key, uid: str) -> bool:
    found = informer.get(*key)
    return found is not None and uid_of(found) == uid and not is_being_deleted(found)
