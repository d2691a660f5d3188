"""Events about objects, as client-go's recorder writes them; the second half decides which events are written."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from remuda.client.interface import Client
from remuda.kube.builtin_resources import EVENTS
from remuda.kube.clock import Clock, rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import metadata

from .leader_election import NotLeading

log = logging.getLogger(__name__)

Obj = dict[str, Any]

NORMAL, WARNING = "Normal", "Warning"
_ROOM = 1000
_LONGEST_MESSAGE = 1024
_NAMES_TRIED = 5


def reference_to(obj: Obj) -> Obj:
    """An ObjectReference, in the form of `involvedObject`."""
    meta = metadata(obj)
    found = {
        "apiVersion": obj.get("apiVersion"),
        "kind": obj.get("kind"),
        "namespace": meta.get("namespace"),
        "name": meta.get("name"),
        "uid": meta.get("uid"),
        "resourceVersion": meta.get("resourceVersion"),
    }
    return {key: value for key, value in found.items() if value}


class Recorder:
    """One component's events. Reconciles call :meth:`event` and go on; :meth:`run` sends."""

    def __init__(self, client: Client, clock: Clock, component: str, *, field_manager: str = "") -> None:
        self._client = client
        self._clock = clock
        self._component = component
        self._manager = field_manager
        self._correlator = Correlator()
        self._waiting: deque[tuple[Obj, str, str, str]] = deque()
        self._wake = asyncio.Event()
        self._last = 0

    def event(self, obj: Obj, type_: str, reason: str, message: str) -> None:
        """Queue an event about `obj`; dropped when too many wait, since an event never delays the work it reports."""
        if len(self._waiting) >= _ROOM:
            log.warning("too many events wait; %s is lost", reason)
            return
        self._waiting.append((reference_to(obj), type_, reason, message))
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._wake.wait()
            await self.flush()

    async def flush(self) -> None:
        """Send the queued events."""
        self._wake.clear()
        while self._waiting:
            await self.record(*self._waiting.popleft())

    async def record(self, reference: Mapping[str, Any], type_: str, reason: str, message: str) -> None:
        """Write now. `reference` is an ObjectReference. A failure is logged, never raised."""
        message = message[:_LONGEST_MESSAGE]
        about = tuple(str(reference.get(f) or "") for f in ("apiVersion", "kind", "namespace", "name", "uid", "fieldPath"))
        decision = self._correlator.decide(EventText(about, type_, reason, message), self._clock.time())
        if decision is None:
            return
        namespace = str(reference.get("namespace") or "default")
        try:
            if decision.told is not None and await self._count(namespace, decision, decision.told):
                return
            await self._create(namespace, decision, reference, type_, reason)
        except (ApiError, OSError) as error:
            # Refused for good or cut on the way: an event is not worth a second try. The leader will record it if it is needed.
            level = logging.DEBUG if isinstance(error, NotLeading) else logging.WARNING
            log.log(level, "event %s about %s: %s", reason, reference.get("name"), error)

    async def _count(self, namespace: str, decision: EventWrite, told: RecordedEvent) -> bool:
        patch = {"count": told.count + 1, "lastTimestamp": rfc3339(self._clock.time()), "message": decision.message}
        try:
            await self._client.patch(EVENTS, told.name, patch, namespace, field_manager=self._manager)
        except ApiError as error:
            if not error.is_not_found:
                raise
            self._correlator.forget(decision.key)
            return False
        self._correlator.wrote(decision.key, RecordedEvent(told.name, told.count + 1, told.first))
        return True

    async def _create(self, namespace: str, decision: EventWrite, reference: Mapping[str, Any], type_: str, reason: str) -> None:
        now = self._clock.time()
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {},
            "involvedObject": dict(reference),
            "reason": reason,
            "message": decision.message,
            "source": {"component": self._component},
            "firstTimestamp": rfc3339(now),
            "lastTimestamp": rfc3339(now),
            "count": 1,
            "type": type_,
            "reportingComponent": self._component,
            "reportingInstance": "",
        }
        for _ in range(_NAMES_TRIED):
            # Two events at one moment, which a virtual clock often has, must differ; another component may have written, too.
            self._last = max(int(now * 1_000_000_000), self._last + 1)
            name = f"{reference.get('name', '')}.{self._last:x}"
            named = {**event, "metadata": {"name": name, "namespace": namespace}}
            try:
                await self._client.create(EVENTS, named, namespace, field_manager=self._manager)
            except ApiError as error:
                if not error.is_already_exists:
                    raise
            else:
                self._correlator.wrote(decision.key, RecordedEvent(name, 1, now))
                return


# --- event correlation ----------------------------------------------------------------------------------------------------
#
# Correlation of events into new objects, updates of old ones, or nothing: client-go's rules, pure.
#
# - More than 25 events of a kind about one object are spam: afterwards one every five minutes gets through.
# - The tenth event within ten minutes that differs only by its message becomes "(combined from similar events)"; later ones
#   update that.
# - An event that repeats another word for word increments its count.

_REMEMBERED = 4096
_SIMILAR, _SIMILAR_SECONDS = 10, 600.0
_BURST, _PER_SECOND = 25, 1 / 300
COMBINED = "(combined from similar events): "

V = TypeVar("V")


class _Memory(Generic[V]):
    """The most recently used entries."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, ...], V] = OrderedDict()

    def get(self, key: tuple[str, ...]) -> V | None:
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: tuple[str, ...], value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > _REMEMBERED:
            self._entries.popitem(last=False)

    def forget(self, key: tuple[str, ...]) -> None:
        self._entries.pop(key, None)


@dataclass(slots=True)
class _Bucket:
    """A token bucket that refills slowly."""

    tokens: float
    at: float

    def take(self, now: float) -> bool:
        self.tokens = min(_BURST, self.tokens + max(now - self.at, 0.0) * _PER_SECOND)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


@dataclass(slots=True)
class _Similar:
    messages: set[str] = field(default_factory=set)
    at: float = 0.0


@dataclass(slots=True)
class RecordedEvent:
    """An existing event object: its name, its count, and its first time."""

    name: str
    count: int
    first: float


class EventText(NamedTuple):
    """One event's type, reason and message, and the object that it is about."""

    about: tuple[str, ...]  # apiVersion, kind, namespace, name, uid, fieldPath
    type: str
    reason: str
    message: str


class EventWrite(NamedTuple):
    key: tuple[str, ...]
    message: str
    told: RecordedEvent | None


class Correlator:
    def __init__(self) -> None:
        self._buckets: _Memory[_Bucket] = _Memory()
        self._similar: _Memory[_Similar] = _Memory()
        self._told: _Memory[RecordedEvent] = _Memory()

    def decide(self, fact: EventText, now: float) -> EventWrite | None:
        """The event to write, or None."""
        message, key = self._combined(fact, now)
        if not self._bucket(fact, now).take(now):
            return None
        return EventWrite(key, message, self._told.get(key))

    def wrote(self, key: tuple[str, ...], told: RecordedEvent) -> None:
        self._told.put(key, told)

    def forget(self, key: tuple[str, ...]) -> None:
        """The event object is gone: the next one is new."""
        self._told.forget(key)

    def _bucket(self, fact: EventText, now: float) -> _Bucket:
        key = (*fact.about[:5], fact.type)
        found = self._buckets.get(key)
        if found is None:
            found = _Bucket(float(_BURST), now)
        self._buckets.put(key, found)
        return found

    def _combined(self, fact: EventText, now: float) -> tuple[str, tuple[str, ...]]:
        group = (*fact.about[:5], fact.type, fact.reason)
        found = self._similar.get(group)
        if found is None or now - found.at > _SIMILAR_SECONDS:
            found = _Similar()
        found.messages.add(fact.message)
        found.at = now
        self._similar.put(group, found)
        if len(found.messages) < _SIMILAR:
            return fact.message, (*fact.about, fact.type, fact.reason, fact.message)
        # Remember one fewer than would combine: the set must not grow with the messages.
        found.messages.pop()
        return COMBINED + fact.message, group
