"""Garbage collection of pods: on nodes that are gone, deleted before they had a node, and old finished ones."""

from __future__ import annotations

from typing import Any, Final

from remuda.kube.builtin_resources import NODES, PODS
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, is_being_deleted, metadata, name_of, namespace_of, uid_of
from remuda.runtime import DONE, Controller, Manager, Result, Watch

from .pods import MANAGER, disrupted, follow_nodes, has_ended, pods_on

Obj = dict[str, Any]

# A node may be registered again under its name, or the cache may be late.
QUARANTINE_SECONDS: Final = 40.0
MOST_ENDED: Final = 12_500
_BY_END: Final = "ended"


class PodCollector:
    def __init__(self, manager: Manager) -> None:
        self._pods = manager.informers.of(PODS)
        self._nodes = manager.informers.of(NODES)
        follow_nodes(self._pods)
        self._pods.add_index(_BY_END, lambda pod: ("",) if has_ended(pod) else ())
        self._client = manager.client
        self._clock = manager.clock
        self._missing: dict[str, float] = {}
        self.controller = Controller(
            "podgc",
            PODS,
            when=_perhaps_left,
            watches=(Watch(NODES, self._of_gone_node, lambda new, old: new is None),),
            concurrency=2,
        )

    def _of_gone_node(self, node: Obj) -> list[Key]:
        return [Key.of(pod) for pod in pods_on(self._pods, name_of(node))]

    async def reconcile(self, key: Key) -> Result:
        pod = self._pods.get(*key)
        if pod is None:
            return DONE
        node = dig(pod, "spec", "nodeName") or ""
        if not node:
            if is_being_deleted(pod):
                await self._remove(pod, "")
            return DONE
        if self._nodes.get("", node) is None:
            return await self._orphan(pod, node)
        self._missing.pop(node, None)
        if has_ended(pod):
            await self._make_room()
        return DONE

    async def _orphan(self, pod: Obj, node: str) -> Result:
        now = self._clock.monotonic()
        since = self._missing.setdefault(node, now)
        if (left := since + QUARANTINE_SECONDS - now) > 0:
            return Result(after=left)
        try:
            await self._client.get(NODES, node)
            return DONE
        except ApiError as error:
            if not error.is_not_found:
                raise
        await self._remove(pod, "PodGC: node no longer exists")
        if len(pods_on(self._pods, node)) <= 1:
            self._missing.pop(node, None)
        return DONE

    async def _make_room(self) -> None:
        ended = self._pods.indexed(_BY_END, "")
        if len(ended) <= MOST_ENDED:
            return
        ended.sort(key=lambda pod: (metadata(pod)["creationTimestamp"], name_of(pod)))
        for pod in ended[: len(ended) - MOST_ENDED]:
            await self._remove(pod, "")

    async def _remove(self, pod: Obj, why: str) -> None:
        """Marks the pod as failed, since no kubelet will report its end, and deletes it."""
        place = (name_of(pod), namespace_of(pod))
        try:
            if not has_ended(pod):
                patch = {"metadata": {"uid": uid_of(pod)}, "status": self._failed(pod, why)}
                await self._client.patch(PODS, place[0], patch, place[1], subresource="status", field_manager=MANAGER)
            await self._client.delete(PODS, *place, grace_seconds=0, uid=uid_of(pod))
        except ApiError as error:
            if not error.is_not_found and not error.is_conflict:
                raise

    def _failed(self, pod: Obj, why: str) -> Obj:
        if not why:
            return {"phase": "Failed"}
        return {"phase": "Failed", "conditions": disrupted(pod, self._clock.time(), "DeletionByPodGC", why)}


def _perhaps_left(new: Obj | None, old: Obj | None) -> bool:
    if new is None:
        return False
    # Other changes of a pod don't matter here: only its node and its end do.
    return (
        old is None
        or is_being_deleted(new) != is_being_deleted(old)
        or dig(new, "spec", "nodeName") != dig(old, "spec", "nodeName")
        or has_ended(new) != has_ended(old)
    )
