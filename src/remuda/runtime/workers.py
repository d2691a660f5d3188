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
from remuda.kube.waits import Wait

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
    ) -> None:
        """`timeout`: the limit of one reconcile; `wait_seconds`: the interval at which a waiting key is reconciled again."""
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
            return "requeue"
        except TimeoutError:
            log.warning("took longer than %.0fs; again in %.3fs", self._timeout, self.queue.retry(key))
            return "timeout"
        except ApiError as error:
            # A conflict means that another writer was faster; the next try sees the change. Leader election logs NotLeading once.
            level = logging.DEBUG if error.is_conflict or isinstance(error, NotLeading) else logging.WARNING
            log.log(level, "%s; again in %.3fs", error.message, self.queue.retry(key))
            return "error"
        except Exception:
            log.exception("failed; again in %.3fs", self.queue.retry(key))
            return "panic"
        self.queue.forget(key)
        return self._come_back(key, result)

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
        if result.waits and self._wait_seconds:
            # With jitter: keys that wait together must not all wake together.
            self.queue.look_after(key, self._wait_seconds * self._rng.uniform(0.9, 1.1))
        return "success"
