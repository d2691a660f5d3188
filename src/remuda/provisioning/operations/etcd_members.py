"""Taking an etcd member out of a running cluster: by asking its distribution, on the member's Node (capr.md §2.16).

The distribution knows its members and does it safely; here it is only asked, and its answer read. Before that the cluster's agent
leaves the Node (:mod:`.agent_eviction`), lest nobody hears the answer.
"""

from __future__ import annotations

from typing import Any, Protocol

from remuda.capi.workload_clusters import NODES, Workloads
from remuda.client.interface import Client
from remuda.kube.clock import SYSTEM_CLOCK, Clock
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, annotations_of, dig, name_of, resource_version_of, uid_of

from ..releases.distributions import of_version
from ..well_known import NODE_MACHINE
from . import agent_eviction

Obj = dict[str, Any]


class EtcdMembers(Protocol):
    async def is_removed(self, cluster: Key, control_plane: Obj, machine: Obj) -> bool | None:
        """Ask for the removal of a Machine's member, if nobody has yet: whether it is out. None when nobody can be asked."""


class DistributionsMembers:
    """The port, through the connections that there are to workload clusters."""

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
            if not await agent_eviction.moved(workload.client, node, self._clock.time()):
                return False
            asked = {"resourceVersion": resource_version_of(node), "annotations": {runtime.removal_annotation: "true"}}
            await workload.client.patch(NODES, name, {"metadata": asked})
        return False


async def _node_of(client: Client, machine: Obj) -> Obj | None:
    """The Machine's Node. Live: what a cache has of a cluster that is losing members may be old. A Machine that has not found its
    Node yet may have one all the same, which names the Machine."""
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
