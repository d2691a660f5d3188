"""A controller: keys from a queue, one function that makes true what should be true for a key, retries when it fails.

`reconcile` gets a key and nothing else, because any reconcile may be the first after a crash. What it raises is logged once
and tried again later; what it returns says whether to come back by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from remuda.kube.errors import ApiError

from .queue import QueueClosed, WorkQueue

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Result:
    """`after`: come back in so many seconds (also when no event asks for it). None: all is done until something changes."""

    after: float | None = None


DONE = Result()


class Retry(Exception):
    """Not yet: try again with growing pauses, and don't make a fuss. Anything else that is raised is logged as a failure."""


Reconcile = Callable[[K], Awaitable[Result | None]]


class Controller(Generic[K]):
    def __init__(self, name: str, queue: WorkQueue[K], reconcile: Reconcile[K], concurrency: int = 1) -> None:
        self.name = name
        self.queue = queue
        self._reconcile = reconcile
        self._concurrency = concurrency

    async def run(self) -> None:
        """Work until cancelled, or until the queue is closed."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._concurrency):
                    group.create_task(self._work(), name=f"{self.name}-{number}")
        finally:
            self.queue.close()

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except QueueClosed:
                return
            try:
                await self._one(key)
            finally:
                self.queue.done(key)

    async def _one(self, key: K) -> None:
        try:
            result = await self._reconcile(key)
        except Retry as error:
            delay = self.queue.retry(key)
            log.debug("%s: %s: %s; again in %.3fs", self.name, key, error, delay)
        except ApiError as error:
            delay = self.queue.retry(key)
            # A conflict means that somebody was faster; the next try sees what they did.
            level = logging.DEBUG if error.is_conflict else logging.WARNING
            log.log(level, "%s: %s: %s; again in %.3fs", self.name, key, error.message, delay)
        except Exception:
            delay = self.queue.retry(key)
            log.exception("%s: %s failed; again in %.3fs", self.name, key, delay)
        else:
            self.queue.forget(key)
            if result is not None and result.after is not None:
                self.queue.add_after(key, result.after)
