"""Eviction of pods that do not tolerate a `NoExecute` taint of their node: at once, or when their toleration expires."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remuda.kube.builtin_resources import NODES, PODS
from remuda.kube.clock import time_of
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, is_being_deleted, name_of, uid_of
from remuda.runtime import DONE, NORMAL, Controller, Manager, Result, Watch

from ..pod_placement import taints_of, tolerates
from .pods import MANAGER, disrupted, follow_nodes, has_ended, pods_on

Obj = dict[str, Any]


def leaves_at(taints: Sequence[Obj], tolerations: Sequence[Obj], now: float) -> float | None:
    """The time at which a pod has to leave a node with these taints; None for never."""
    earliest: float | None = None
    for taint in taints:
        if taint.get("effect") != "NoExecute":
            continue
        found = [each for each in tolerations if tolerates(each, taint)]
        if not found:
            return now
        limits = [each["tolerationSeconds"] for each in found if each.get("tolerationSeconds") is not None]
        if limits:
            # Of several matching tolerations the shortest counts.
            at = (time_of(taint.get("timeAdded")) or now) + max(min(limits), 0)
            earliest = at if earliest is None else min(earliest, at)
    return earliest


class TaintEviction:
    def __init__(self, manager: Manager) -> None:
        self._pods = manager.informers.of(PODS)
        self._nodes = manager.informers.of(NODES)
        follow_nodes(self._pods)
        self._events = manager.recorder("taint-eviction-controller")
        self._client = manager.client
        self._clock = manager.clock
        self.controller = Controller(
            "tainteviction",
            PODS,
            when=_placed,
            watches=(Watch(NODES, lambda node: [Key.of(pod) for pod in pods_on(self._pods, name_of(node))], _tainted),),
            concurrency=4,
            resync=0,
        )

    async def reconcile(self, key: Key) -> Result:
        pod = self._pods.get(*key)
        node = self._nodes.get("", dig(pod, "spec", "nodeName") or "") if pod is not None else None
        if pod is None or node is None or is_being_deleted(pod) or has_ended(pod):
            return DONE
        now = self._clock.time()
        at = leaves_at(taints_of(node), dig(pod, "spec", "tolerations") or (), now)
        if at is None:
            return DONE
        if at > now:
            return Result(after=at - now)
        await self._evict(key, pod)
        return DONE

    async def _evict(self, key: Key, pod: Obj) -> None:
        why = "Taint manager: deleting due to NoExecute taint"
        conditions = disrupted(pod, self._clock.time(), "DeletionByTaintManager", why)
        patch = {"metadata": {"uid": uid_of(pod)}, "status": {"conditions": conditions}}
        self._events.event(pod, NORMAL, "TaintManagerEviction", f"Marking for deletion Pod {key}")
        try:
            await self._client.patch(PODS, key.name, patch, key.namespace, subresource="status", field_manager=MANAGER)
            await self._client.delete(PODS, key.name, key.namespace, uid=uid_of(pod))
        except ApiError as error:
            if not error.is_not_found:
                raise


def _placed(new: Obj | None, old: Obj | None) -> bool:
    """True if it was assigned to a node, or its tolerations changed."""
    if new is None or not dig(new, "spec", "nodeName"):
        return False
    if old is None:
        return True
    return any(dig(new, "spec", field) != dig(old, "spec", field) for field in ("nodeName", "tolerations"))


def _tainted(new: Obj | None, old: Obj | None) -> bool:
    def lasting(node: Obj | None) -> list[Obj]:
        return [each for each in taints_of(node or {}) if each.get("effect") == "NoExecute"]

    return lasting(new) != lasting(old)
