"""Nodes that no longer report: their conditions are set to unknown, they are tainted, and their pods marked as not ready.

A node is as fresh as its Lease or its own heartbeat, by the time at which a change of them was *seen* here: nodes' clocks
are not compared with ours, and a controller that starts does not take all nodes for dead. Conditions become taints;
:mod:`.taint_eviction` then evicts the pods. When no node at all reports, we are more likely cut off ourselves: nothing is
evicted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from remuda.kube.builtin_resources import LEASES, NODES, PODS
from remuda.kube.clock import rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, find_by, name_of, namespace_of, resource_version_of, uid_of
from remuda.runtime import DONE, NORMAL, Controller, Manager, Result, Watch

from ..disruption_counts import is_ready
from ..pod_placement import taints_of
from .pods import MANAGER, NODE_LEASES, conditions_with, follow_nodes, pods_on

Obj = dict[str, Any]

GRACE_SECONDS: Final = 50.0
_STARTUP_SECONDS: Final = 60.0
_PREFIX: Final = "node.kubernetes.io/"
NOT_READY, UNREACHABLE, UNSCHEDULABLE = (f"{_PREFIX}{name}" for name in ("not-ready", "unreachable", "unschedulable"))
_PRESSURES: Final = {
    "MemoryPressure": f"{_PREFIX}memory-pressure",
    "DiskPressure": f"{_PREFIX}disk-pressure",
    "PIDPressure": f"{_PREFIX}pid-pressure",
    "NetworkUnavailable": f"{_PREFIX}network-unavailable",
}
_OURS: Final = frozenset((NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_PRESSURES.values()))
_REPORTED: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


def wanted_taints(node: Obj, *, evict: bool, now: float) -> list[Obj]:
    """The node's taints for its conditions; taints by others stay. A taint that stays keeps its time."""
    wanted: list[tuple[str, str]] = []
    conditions = {each.get("type"): each.get("status") for each in dig(node, "status", "conditions") or ()}
    key = {"True": "", "False": NOT_READY}.get(conditions.get("Ready") or "", UNREACHABLE)
    before = taints_of(node)
    if key:
        wanted.append((key, "NoSchedule"))
        if evict or any(each.get("key") == key and each.get("effect") == "NoExecute" for each in before):
            wanted.append((key, "NoExecute"))
    if dig(node, "spec", "unschedulable"):
        wanted.append((UNSCHEDULABLE, "NoSchedule"))
    wanted += [(taint, "NoSchedule") for kind, taint in _PRESSURES.items() if conditions.get(kind) == "True"]
    found = [each for each in before if each.get("key") not in _OURS or (each["key"], each.get("effect")) in wanted]
    present = {(each.get("key"), each.get("effect")) for each in found}
    fresh = [{"key": key, "effect": effect, "timeAdded": rfc3339(now)} for key, effect in wanted if (key, effect) not in present]
    return [*found, *fresh]


def unknown_conditions(node: Obj, now: float) -> list[Obj]:
    """The conditions of a node that does not report."""
    before = dig(node, "status", "conditions") or []
    found = [each for each in before if each.get("type") not in _REPORTED]
    for kind in _REPORTED:
        old: Obj = find_by(before, "type", kind) or {}
        never = "NodeStatusNeverUpdated", "Kubelet never posted node status."
        reason, message = ("NodeStatusUnknown", "Kubelet stopped posting node status.") if old else never
        time = rfc3339(now)
        since = old.get("lastTransitionTime") if old.get("status") == "Unknown" else time
        made = {"type": kind, "status": "Unknown", "reason": reason, "message": message, "lastTransitionTime": since}
        found.append({**made, "lastHeartbeatTime": old.get("lastHeartbeatTime") or time})
    return found


def _lease_to_node(lease: Obj) -> Iterable[Key]:
    return (Key("", name_of(lease)),)


class NodeLifecycle:
    def __init__(self, manager: Manager, grace: float = GRACE_SECONDS) -> None:
        self._nodes = manager.informers.of(NODES)
        self._leases = manager.informers.of(LEASES, NODE_LEASES)
        self._pods = manager.informers.of(PODS)
        follow_nodes(self._pods)
        self._events = manager.recorder("node-controller")
        self._client = manager.client
        self._clock = manager.clock
        self._grace = grace
        # The time of a node's last sign of life, on our own clock.
        self._seen: dict[str, float] = {}
        self._leases.on_change(self._lease_changed)
        self._nodes.on_change(self._node_changed)
        self.controller = Controller(
            "nodelifecycle",
            NODES,
            # The renewal of a Lease is only recorded; a look is due when the renewal is missing.
            watches=(Watch(LEASES, _lease_to_node, lambda new, old: old is None, NODE_LEASES),),
            concurrency=4,
            resync=0,
        )

    async def reconcile(self, key: Key) -> Result:
        node = self._nodes.get(*key)
        if node is None:
            return DONE
        now = self._clock.monotonic()
        silent = now - self._seen.setdefault(key.name, now)
        grace = self._grace if find_by(dig(node, "status", "conditions") or (), "type", "Ready") else _STARTUP_SECONDS
        try:
            if silent >= grace:
                node = await self._mark_unknown(node)
            node = await self._taint(node)
            if _ready(node) != "True":
                await self._mark_pods(node)
        except ApiError as error:
            if not error.is_not_found:
                raise
            return DONE
        # A missing renewal causes no event.
        return Result(after=grace - silent + 0.01 if silent < grace else grace / 10)

    def _lease_changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is not None and dig(new, "spec", "renewTime") != dig(old, "spec", "renewTime"):
            self._seen[name_of(new)] = self._clock.monotonic()

    def _node_changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is None:
            self._seen.pop(name_of(old or {}), None)
            return
        if old is None and not self._nodes.initial:
            told = f"Node {name_of(new)} event: Registered Node {name_of(new)} in Controller"
            self._events.event(new, NORMAL, "RegisteredNode", told)
        if old is None or _heartbeat(new) != _heartbeat(old):
            self._seen[name_of(new)] = self._clock.monotonic()

    async def _mark_unknown(self, node: Obj) -> Obj:
        conditions = {each.get("type"): each.get("status") for each in dig(node, "status", "conditions") or ()}
        if all(conditions.get(kind) == "Unknown" for kind in _REPORTED):
            return node
        patch = {"status": {"conditions": unknown_conditions(node, self._clock.time())}}
        found = await self._client.patch(NODES, name_of(node), patch, subresource="status", field_manager=MANAGER)
        # Its heartbeat is unchanged; our own writes are no sign of life.
        self._events.event(node, NORMAL, "NodeNotReady", f"Node {name_of(node)} status is now: NodeNotReady")
        return found

    async def _taint(self, node: Obj) -> Obj:
        evict = _ready(node) != "True" and any(_ready(each) == "True" for each in self._nodes.objects())
        wanted = wanted_taints(node, evict=evict, now=self._clock.time())
        if wanted == taints_of(node):
            return node
        # With the revision, since a list is written as a whole.
        patch = {"metadata": {"resourceVersion": resource_version_of(node)}, "spec": {"taints": wanted or None}}
        return await self._client.patch(NODES, name_of(node), patch, field_manager=MANAGER)

    async def _mark_pods(self, node: Obj) -> None:
        """Marks the pods of an unreachable node as not ready, since their state is unknown."""
        for pod in pods_on(self._pods, name_of(node)):
            if not is_ready(pod):
                continue
            conditions = conditions_with(pod, "Ready", "False", self._clock.time())
            patch = {"metadata": {"uid": uid_of(pod)}, "status": {"conditions": conditions}}
            try:
                await self._client.patch(
                    PODS, name_of(pod), patch, namespace_of(pod), subresource="status", field_manager=MANAGER
                )
            except ApiError as error:
                if not error.is_not_found and not error.is_conflict:
                    raise


def _heartbeat(node: Obj) -> Any:
    return (find_by(dig(node, "status", "conditions") or (), "type", "Ready") or {}).get("lastHeartbeatTime")


def _ready(node: Obj) -> str:
    found = find_by(dig(node, "status", "conditions") or (), "type", "Ready") or {}
    return str(found.get("status") or "Unknown")
