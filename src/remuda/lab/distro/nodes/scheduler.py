"""A small scheduler: every pod without a node gets the best one (:mod:`.node_fit`), or the reasons why there is none.

Decisions are made one after the other on numbers that already include earlier bindings, whether the watch has reported them or
not. A pod that found no node is tried again when nodes change or pods leave, and at intervals.
"""

from __future__ import annotations

from typing import Any, Final

from remuda.kcm.pod_placement import taints_of
from remuda.kcm.workloads.pods import conditions_with
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, dig, find_by, is_being_deleted, labels_of, name_of, uid_of
from remuda.runtime import DONE, NORMAL, WARNING, Controller, Manager, Result, Watch, changed

from .node_fit import FitResult, Slot, choose, room_of

Obj = dict[str, Any]

PODS: Final = GroupVersionResource("", "v1", "pods")
NODES: Final = GroupVersionResource("", "v1", "nodes")
SCHEDULER: Final = "default-scheduler"
_AGAIN: Final = 60.0


class Scheduler:
    def __init__(self, manager: Manager) -> None:
        self._pods = manager.informers.of(PODS)
        self._nodes = manager.informers.of(NODES)
        self._client = manager.client
        self._clock = manager.clock
        self._events = manager.recorder(SCHEDULER)
        self._slots: dict[str, Slot] = {}
        # The nodes in some order, and the start of the next search.
        self._order: list[str] = []
        self._begin = 0
        # The node on which each pod is counted, and pods on nodes that are not known (yet).
        self._counted: dict[Key, str] = {}
        self._waiting: set[Key] = set()
        self._nodes.on_change(self._node_changed)
        self._pods.on_change(self._pod_changed)
        self.controller = Controller(
            "scheduler",
            PODS,
            when=_concerns,
            watches=(
                Watch(NODES, lambda _: list(self._waiting), _node_change),
                Watch(PODS, lambda _: list(self._waiting), _leaves),
            ),
            # One after the other: each decision depends on those before it.
            concurrency=1,
        )

    # --- numbers -----------------------------------------------------------------------------------------------------------

    def _node_changed(self, new: Obj | None, old: Obj | None) -> None:
        name = name_of(new or old or {})
        if new is None:
            if self._slots.pop(name, None) is not None:
                self._order.remove(name)
            return
        room = room_of(dig(new, "status", "allocatable"))
        slot = self._slots.get(name)
        if slot is not None:
            slot.node, slot.room = new, room
            return
        slot = self._slots[name] = Slot(new, room)
        self._order.append(name)
        for key, node in self._counted.items():
            if node == name and (pod := self._pods.get(*key)) is not None:
                slot.put(key, pod)

    def _pod_changed(self, new: Obj | None, old: Obj | None) -> None:
        key = Key.of(new or old or {})
        node = dig(new, "spec", "nodeName") or ""
        if new is None or not node or dig(new, "status", "phase") in ("Succeeded", "Failed"):
            if new is None:
                self._waiting.discard(key)
                self._uncount(key)
            elif node:
                self._uncount(key)
            return
        self._count(key, node, new)

    def _count(self, key: Key, node: str, pod: Obj) -> None:
        before = self._counted.get(key)
        if before is not None and before != node:
            self._uncount(key)
        self._counted[key] = node
        slot = self._slots.get(node)
        if slot is not None:
            if before == node and key in slot.pods:
                slot.pods[key] = pod
            else:
                slot.put(key, pod)

    def _uncount(self, key: Key) -> None:
        node = self._counted.pop(key, None)
        if node is not None and (slot := self._slots.get(node)) is not None:
            slot.take(key)

    # --- pods --------------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Result:
        pod = self._pods.get(*key)
        if pod is None or not _is_ours(pod):
            self._waiting.discard(key)
            return DONE
        verdict = choose(pod, self._slots, self._order, self._begin)
        self._begin = (self._begin + verdict.seen) % max(len(self._order), 1)
        if not verdict.node:
            self._waiting.add(key)
            await self._refuse(key, pod, verdict)
            return Result(after=_AGAIN)
        self._waiting.discard(key)
        self._count(key, verdict.node, pod)
        try:
            await self._bind(key, pod, verdict.node)
        except ApiError as error:
            self._uncount(key)
            if not (error.is_not_found or error.is_conflict):
                raise
            return DONE
        except BaseException:
            self._uncount(key)
            raise
        self._events.event(pod, NORMAL, "Scheduled", f"Successfully assigned {key} to {verdict.node}")
        return DONE

    async def _bind(self, key: Key, pod: Obj, node: str) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid_of(pod)},
            "target": {"kind": "Node", "name": node},
        }
        await self._client.create(PODS, binding, key.namespace, name=key.name, subresource="binding")

    async def _refuse(self, key: Key, pod: Obj, verdict: FitResult) -> None:
        message = verdict.message(len(self._slots))
        self._events.event(pod, WARNING, "FailedScheduling", message)
        old = find_by(dig(pod, "status", "conditions") or (), "type", "PodScheduled") or {}
        if old.get("reason") == "Unschedulable" and old.get("message") == message:
            return
        conditions = conditions_with(pod, "PodScheduled", "False", self._clock.time(), "Unschedulable", message)
        patch = {"metadata": {"uid": uid_of(pod)}, "status": {"conditions": conditions}}
        try:
            await self._client.patch(PODS, key.name, patch, key.namespace, subresource="status", field_manager="kube-scheduler")
        except ApiError as error:
            if not error.is_not_found and not error.is_conflict:
                raise


def _is_ours(pod: Obj) -> bool:
    spec = pod.get("spec") or {}
    if spec.get("nodeName") or spec.get("schedulingGates") or is_being_deleted(pod):
        return False
    return (spec.get("schedulerName") or SCHEDULER) == SCHEDULER and dig(pod, "status", "phase") not in ("Succeeded", "Failed")


def _concerns(new: Obj | None, old: Obj | None) -> bool:
    """The pod must be scheduled; a change of its status alone is no reason to try again."""
    if new is None or not _is_ours(new):
        return False
    return old is None or new.get("spec") != old.get("spec") or labels_of(new) != labels_of(old)


_node_change = changed(taints_of, labels_of, "spec.unschedulable", "status.allocatable")


def _leaves(new: Obj | None, old: Obj | None) -> bool:
    """The pod frees capacity, or changes what affinity of other pods depends on."""
    if new is None:
        return bool(dig(old, "spec", "nodeName"))
    if old is None:
        return False
    if bool(dig(new, "spec", "nodeName")) != bool(dig(old, "spec", "nodeName")):
        return True
    return dig(new, "status", "phase") in ("Succeeded", "Failed") and dig(old, "status", "phase") != dig(new, "status", "phase")
