"""Events about objects, as a controller's recorder writes them: a repeated event counts up instead of coming again."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any

from remuda.client.api import Client
from remuda.kube.clock import Clock, rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource

log = logging.getLogger(__name__)

Obj = dict[str, Any]
EVENTS = GroupVersionResource("", "v1", "events")
_REMEMBERED = 4096


class Recorder:
    def __init__(self, client: Client, clock: Clock, component: str) -> None:
        self._client = client
        self._clock = clock
        self._component = component
        # (object's uid, type, reason, message) -> name and count of the event that tells it.
        self._known: OrderedDict[tuple[str, str, str, str], tuple[str, int]] = OrderedDict()

    async def event(self, reference: Obj, kind: str, reason: str, message: str) -> None:
        """`reference` is an ObjectReference; `kind` is Normal or Warning. A failure is logged, never raised."""
        key = (str(reference.get("uid") or ""), kind, reason, message)
        namespace = reference.get("namespace") or "default"
        known = self._known.get(key)
        try:
            if known is not None and await self._count(namespace, key, *known):
                return
            await self._create(namespace, key, reference)
        except (ApiError, OSError) as error:
            log.warning("event %s about %s: %s", reason, reference.get("name"), error)

    async def _count(self, namespace: str, key: tuple[str, str, str, str], name: str, count: int) -> bool:
        patch = {"count": count + 1, "lastTimestamp": rfc3339(self._clock.time())}
        try:
            await self._client.patch(EVENTS, name, patch, namespace, field_manager="kube-controller-manager")
        except ApiError as error:
            if error.is_not_found:
                return False
            raise
        self._known[key] = (name, count + 1)
        return True

    async def _create(self, namespace: str, key: tuple[str, str, str, str], reference: Obj) -> None:
        now = self._clock.time()
        name = f"{reference.get('name', '')}.{int(now * 1_000_000_000):x}"
        _, kind, reason, message = key
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": reference,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "firstTimestamp": rfc3339(now),
            "lastTimestamp": rfc3339(now),
            "count": 1,
            "type": kind,
            "reportingComponent": self._component,
            "reportingInstance": "",
        }
        await self._client.create(EVENTS, event, namespace, field_manager="kube-controller-manager")
        self._known[key] = (name, 1)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
