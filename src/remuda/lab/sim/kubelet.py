"""What kubelets would do to the pods of a simulated cluster: they run in name, and when told to go they go."""

from __future__ import annotations

import asyncio
from typing import Any

from remuda.client.interface import Client
from remuda.kube.clock import Clock, Rng, rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, dig, is_being_deleted
from remuda.runtime import DONE, Controller, Manager, Result

Obj = dict[str, Any]
PODS = GroupVersionResource("", "v1", "pods")
# A pod with this annotation ignores that it is to go, as one does whose process hangs.
STUBBORN = "sim.remuda.dev/stubborn"


class Kubelet:
    """One for all nodes of a cluster."""

    controller = Controller("kubelet", PODS, concurrency=4, resync=0)

    def __init__(self, client: Client, clock: Clock, rng: Rng) -> None:
        self._client = client
        self._clock = clock
        self._manager = Manager(client, clock, rng)
        self._pods = self._manager.informers.of(PODS)
        self._manager.add(self)

    async def run(self) -> None:
        await self._manager.run(asyncio.Event())

    async def reconcile(self, key: Key) -> Result:
        pod = self._pods.get(*key)
        if pod is None or not dig(pod, "spec", "nodeName"):
            return DONE
        try:
            if is_being_deleted(pod):
                if STUBBORN not in (dig(pod, "metadata", "annotations") or {}):
                    await self._client.delete(PODS, key.name, key.namespace, grace_seconds=0)
            elif dig(pod, "status", "phase", default="Pending") == "Pending":
                await self._client.patch(PODS, key.name, {"status": _running(self._clock)}, key.namespace, subresource="status")
        except ApiError as error:
            if not error.is_not_found:
                raise
        return DONE


def _running(clock: Clock) -> Obj:
    now = rfc3339(clock.time())
    ready = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in ("Initialized", "Ready", "ContainersReady")]
    return {"phase": "Running", "conditions": ready, "startTime": now}
