"""Events about objects, as client-go's recorder writes them; :mod:`.event_correlation` decides what is written at all."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any

from remuda.client.interface import Client
from remuda.kube.clock import Clock, rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, metadata

from .event_correlation import Correlator, Decision, Fact, Told
from .leader_election import NotLeading

log = logging.getLogger(__name__)

Obj = dict[str, Any]
EVENTS = GroupVersionResource("", "v1", "events")
NORMAL, WARNING = "Normal", "Warning"
_ROOM = 1000
_LONGEST_MESSAGE = 1024
_NAMES_TRIED = 5


def reference_to(obj: Obj) -> Obj:
    """An ObjectReference, as `involvedObject` wants it."""
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
        """Tell about `obj`; lost when too many wait, since an event never holds up the work it tells of."""
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
        """Send what waits."""
        self._wake.clear()
        while self._waiting:
            await self.record(*self._waiting.popleft())

    async def record(self, reference: Mapping[str, Any], type_: str, reason: str, message: str) -> None:
        """Write now. `reference` is an ObjectReference. A failure is logged, never raised."""
        message = message[:_LONGEST_MESSAGE]
        about = tuple(str(reference.get(f) or "") for f in ("apiVersion", "kind", "namespace", "name", "uid", "fieldPath"))
        decision = self._correlator.decide(Fact(about, type_, reason, message), self._clock.time())
        if decision is None:
            return
        namespace = str(reference.get("namespace") or "default")
        try:
            if decision.told is not None and await self._count(namespace, decision, decision.told):
                return
            await self._create(namespace, decision, reference, type_, reason)
        except (ApiError, OSError) as error:
            # Refused for good or cut on the way: an event is not worth a second try. Whoever leads now tells it, or sees no need.
            level = logging.DEBUG if isinstance(error, NotLeading) else logging.WARNING
            log.log(level, "event %s about %s: %s", reason, reference.get("name"), error)

    async def _count(self, namespace: str, decision: Decision, told: Told) -> bool:
        patch = {"count": told.count + 1, "lastTimestamp": rfc3339(self._clock.time()), "message": decision.message}
        try:
            await self._client.patch(EVENTS, told.name, patch, namespace, field_manager=self._manager)
        except ApiError as error:
            if not error.is_not_found:
                raise
            self._correlator.forget(decision.key)
            return False
        self._correlator.wrote(decision.key, Told(told.name, told.count + 1, told.first))
        return True

    async def _create(self, namespace: str, decision: Decision, reference: Mapping[str, Any], type_: str, reason: str) -> None:
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
            # Two in one moment, which on a virtual clock is the rule, must differ; another component may have been there, too.
            self._last = max(int(now * 1_000_000_000), self._last + 1)
            name = f"{reference.get('name', '')}.{self._last:x}"
            named = {**event, "metadata": {"name": name, "namespace": namespace}}
            try:
                await self._client.create(EVENTS, named, namespace, field_manager=self._manager)
            except ApiError as error:
                if not error.is_already_exists:
                    raise
            else:
                self._correlator.wrote(decision.key, Told(name, 1, now))
                return
