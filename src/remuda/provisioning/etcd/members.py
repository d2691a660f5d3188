"""Removal of an etcd member from a running cluster: requested from its distribution, on the member's Node
(docs/reference/operations.md#removal-of-a-member).

The distribution knows its members and removes them safely; here it only gets the request, and its answer is read. Before that
the cluster's agent leaves the Node (:func:`moved`), so that the answer can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from remuda.access.agent_objects import AGENT, NAMESPACE
from remuda.access.rancher_conditions import is_true
from remuda.capi.machine.drain_plan import is_finished
from remuda.capi.machine.eviction import evict
from remuda.capi.workload_clusters import Workloads
from remuda.client.interface import Client
from remuda.kcm.pod_placement import NodeChoice, taints_of, untolerated
from remuda.kube.builtin_resources import NODES, PODS
from remuda.kube.clock import SYSTEM_CLOCK, Clock, time_of
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, annotations_of, dig, is_being_deleted, metadata, name_of, resource_version_of, uid_of
from remuda.runtime import logger

from ..releases.distributions import of_version
from ..well_known import NODE_MACHINE

Obj = dict[str, Any]


class EtcdMembers(Protocol):
    async def is_removed(self, cluster: Key, control_plane: Obj, machine: Obj) -> bool | None:
        """Request the removal of a Machine's member, once; true if it has left. None if the cluster can't be reached."""


class DistributionsMembers:
    """The port, through the existing connections to workload clusters."""

    def __init__(self, workloads: Workloads, clock: Clock = SYSTEM_CLOCK) -> None:
        self._workloads = workloads
        self._clock = clock

    async def is_removed(self, cluster: Key, control_plane: Obj, machine: Obj) -> bool | None:
        workload = self._workloads.get(cluster)
        if workload is None:
            return None
        runtime = of_version(dig(control_plane, "spec", "kubernetesVersion") or "")
        node = await _node_of(workload.client, machine)
        if node is None:
            return True
        name = name_of(node)
        marks = annotations_of(node)
        if marks.get(runtime.removed_annotation):
            return True
        if marks.get(runtime.removal_annotation) != "true":
            if not await moved(workload.client, node, self._clock.time()):
                return False
            asked = {"resourceVersion": resource_version_of(node), "annotations": {runtime.removal_annotation: "true"}}
            await workload.client.patch(NODES, name, {"metadata": asked})
        return False


async def _node_of(client: Client, machine: Obj) -> Obj | None:
    """The Machine's Node. Read live: the cache of a cluster that is losing members may be old. A Machine without a nodeRef may
    still have a Node, which names the Machine."""
    name = dig(machine, "status", "nodeRef", "name")
    if not name:
        found = (await client.list(NODES, labels=f"{NODE_MACHINE}={uid_of(machine)}"))["items"]
        return found[0] if found else None
    try:
        return await client.get(NODES, name)
    except ApiError as error:
        if error.is_not_found:
            return None
        raise


# --- agent eviction -------------------------------------------------------------------------------------------------------
#
# Evicts the cluster's agent from a server before its etcd member leaves.
#
# A server that leaves loses its API with its member, and its pods soon after. If the agent runs there, the cluster can't be
# reached any more: the Node can't be deleted, and while it exists, its pods count as running, for minutes. So the agent is
# evicted while that is possible, as by a drain, and only the agent: a user who does not want machines drained means other pods.
# :class:`DistributionsMembers` waits for that before it requests the member's removal.

log = logger(__name__)


_LABELS = f"app={AGENT}"
# The time beyond its grace period that a pod may take to go; after that its node will never report its end.
_LATE = 30.0


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """The pods to evict, and those whose end is awaited."""

    evict: tuple[Obj, ...] = ()
    going: tuple[Obj, ...] = ()

    @property
    def done(self) -> bool:
        return not self.evict and not self.going


def decide(node: str, agents: Sequence[Obj], nodes: Sequence[Obj], now: float) -> DrainProgress:
    """The move of the cluster's agents off a node that leaves. None of them, if that does not help: another agent runs
    elsewhere, or no other node takes one."""
    here = [pod for pod in agents if dig(pod, "spec", "nodeName") == node and not is_finished(pod)]
    if any(_works(pod) for pod in agents if dig(pod, "spec", "nodeName") != node):
        return DrainProgress()
    going = tuple(pod for pod in here if is_being_deleted(pod) and not _is_late(pod, now))
    others = [each for each in nodes if name_of(each) != node]
    leaving = tuple(pod for pod in here if not is_being_deleted(pod) and any(_takes(each, pod) for each in others))
    return DrainProgress(leaving, going)


def _works(pod: Obj) -> bool:
    return dig(pod, "status", "phase") == "Running" and is_true(pod, "Ready") and not is_being_deleted(pod)


def _is_late(pod: Obj, now: float) -> bool:
    # A deletionTimestamp is the end of the grace period.
    ends = time_of(metadata(pod).get("deletionTimestamp"))
    return ends is not None and now > ends + _LATE


def _takes(node: Obj, pod: Obj) -> bool:
    spec = pod.get("spec") or {}
    if dig(node, "spec", "unschedulable") or is_being_deleted(node) or not is_true(node, "Ready"):
        return False
    return NodeChoice.of(spec).allows(node) and untolerated(taints_of(node), spec.get("tolerations") or ()) is None


async def moved(client: Client, node: Obj, now: float) -> bool:
    """One round; true if the node may leave now. Raises ApiError and OSError."""
    agents: list[Obj] = (await client.list(PODS, NAMESPACE, labels=_LABELS)).get("items") or []
    if all(dig(pod, "spec", "nodeName") != name_of(node) for pod in agents):
        return True
    found = decide(name_of(node), agents, (await client.list(NODES)).get("items") or [], now)
    if found.evict and not dig(node, "spec", "unschedulable"):
        # So that the next agent is not scheduled here, too.
        await client.patch(NODES, name_of(node), {"metadata": {"uid": uid_of(node)}, "spec": {"unschedulable": True}})
    asked = [await _evict(client, pod) for pod in found.evict]
    return not found.going and not any(asked)


async def _evict(client: Client, pod: Obj) -> bool:
    """True if it is evicted. One with a PDB that forbids it goes with its node."""
    try:
        await evict(client, pod)
    except ApiError as error:
        if error.is_not_found or error.is_conflict:
            return True
        if error.code != 429:
            raise
        log.warning("the cluster's agent %s can't leave its node: %s", name_of(pod), error.message)
        return False
    log.info("the cluster's agent %s was asked to leave node %s", name_of(pod), dig(pod, "spec", "nodeName"))
    return True
