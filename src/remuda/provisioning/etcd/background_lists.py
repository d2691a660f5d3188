"""Lists that come over the network, read again and again beside the controller that needs them.

A bucket or a cluster may be slow or away for minutes, so a pass never waits for one: it goes on with the last list, and its
object is queued again when there is a new one. Several objects can share a list. Nothing is stored: another process reads anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from remuda.kube.clock import Clock, deadline
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key
from remuda.runtime import logger

from .s3.answers import S3Error
from .s3.place import PlaceError
from .snapshot_reports import PERIOD

log = logger(__name__)

T = TypeVar("T")

# How many are read at the same time, for how long each, and when one that failed is read again.
_AT_ONCE: Final = 16
_LIMIT: Final = 120.0
_AFTER_FAILURE: Final = 120.0
# What nobody asks for any more is forgotten.
_FORGET: Final = 4 * PERIOD


@dataclass(slots=True)
class Listed(Generic[T]):
    """`heard` is the time of the last list, or of the first question if there is none yet; `why` the last one failed."""

    heard: float
    value: T | None = None
    why: str = ""
    tried: bool = False


@dataclass(slots=True)
class _Entry(Generic[T]):
    listed: Listed[T]
    due: float
    asked: float
    askers: set[Key] = field(default_factory=set)
    running: bool = False


# Reads a list anew, from the last one. Raises ApiError, S3Error, PlaceError, OSError.
Read = Callable[[T | None], Awaitable[T]]


class Lists(Generic[T]):
    """`done` is called with each object that asked for a list, when that was read, or could not be."""

    def __init__(self, clock: Clock, done: Callable[[Key], None]) -> None:
        self._clock = clock
        self._done = done
        self._entries: dict[Hashable, _Entry[T]] = {}
        self._asked: asyncio.Queue[tuple[Hashable, _Entry[T], Read[T]]] = asyncio.Queue()

    async def run(self) -> None:
        turns = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            while True:
                asked = await self._asked.get()
                await turns.acquire()
                reading = group.create_task(self._one(*asked), name="list snapshots")
                reading.add_done_callback(lambda _: turns.release())

    def of(self, name: Hashable, asker: Key, read: Read[T], *, pause: bool = False) -> Listed[T]:
        """The last list of that name. An old one is read again as soon as possible, unless there is a reason to `pause`."""
        now = self._clock.monotonic()
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = _Entry(Listed(self._clock.time()), now, now)
        entry.asked = now
        entry.askers.add(asker)
        if entry.due <= now and not entry.running and not pause:
            entry.running = True
            self._asked.put_nowait((name, entry, read))
        return entry.listed

    def renew(self, name: Hashable, since: float | None = None) -> None:
        """Something has happened: the list is old already; with `since` only one that was begun before."""
        entry = self._entries.get(name)
        if entry is not None and not entry.listed.why and (since is None or entry.listed.heard < since):
            entry.due = self._clock.monotonic()

    async def _one(self, name: Hashable, entry: _Entry[T], read: Read[T]) -> None:
        began, began_at = self._clock.monotonic(), self._clock.time()
        why = ""
        try:
            async with deadline(self._clock, _LIMIT):
                entry.listed.value = await read(entry.listed.value)
            entry.listed.heard = began_at
        except TimeoutError:
            why = "no answer in time"
        except (S3Error, PlaceError, OSError) as error:
            why = str(error)
        except ApiError as error:
            why = error.message
        except Exception:
            log.exception("listing snapshots failed for %s", entry.askers)
            why = "the server's log has the reason"
        entry.due = began + (_AFTER_FAILURE if why else PERIOD)
        entry.listed.why, entry.listed.tried, entry.running = why, True, False
        askers, entry.askers = entry.askers, set()
        for asker in askers:
            self._done(asker)
        self._forget(self._clock.monotonic())

    def _forget(self, now: float) -> None:
        for name in [name for name, entry in self._entries.items() if now - entry.asked > _FORGET and not entry.running]:
            del self._entries[name]
