"""Nodes of workload clusters, and what a Cluster says once it has a control plane: for tests of Machines."""

from __future__ import annotations

from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINES
from remuda.kube.builtin_resources import NODES
from remuda.kube.clock import rfc3339
from remuda.kube.conditions import CURRENT, ConditionSet
from remuda.kube.conditions import get as condition
from tests.unit.capi.memory_clusters import MemoryWorkload, World

Obj = dict[str, Any]
HEALTHY = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
NODE_INFO = {
    "architecture": "amd64",
    "bootID": "b",
    "containerRuntimeVersion": "containerd://2.1.0",
    "kernelVersion": "6.8",
    "kubeProxyVersion": "",
    "kubeletVersion": "v1.36.3",
    "machineID": "m",
    "operatingSystem": "linux",
    "osImage": "Leap",
    "systemUUID": "u",
}


def node(name: str, provider_id: str = "", conditions: dict[str, str] | None = None, **meta: Any) -> Obj:
    said = HEALTHY if conditions is None else conditions
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **meta},
        "spec": {"providerID": provider_id} if provider_id else {},
        "status": {"conditions": [{"type": kind, "status": status} for kind, status in said.items()], "nodeInfo": NODE_INFO},
    }


async def initialized(world: World, name: str = "c1") -> MemoryWorkload:
    """Infrastructure and control plane of a Cluster are there, and it is connected."""
    said = {
        "type": "ControlPlaneInitialized",
        "status": "True",
        "reason": "Initialized",
        "message": "",
        "lastTransitionTime": rfc3339(world.clock.time()),
    }
    initialization = {"infrastructureProvisioned": True, "controlPlaneInitialized": True}
    await world.patch(CLUSTERS, name, {"status": {"initialization": initialization, "conditions": [said]}}, "status")
    return await world.workloads.connect(name)


async def running(world: World, name: str, workload: MemoryWorkload) -> Obj:
    """A Machine with everything, its Node included."""
    await world.machine(name)
    await world.bootstrap(name)
    await world.provision(name)
    await workload.client.create(NODES, node(f"node-{name}", f"test:///{name}"))
    await world.settle(2)
    return await world.get(MACHINES, name)


def told(obj: Obj, kind: str, of: ConditionSet = CURRENT) -> tuple[str, ...]:
    """(status, reason, message), and the severity of one of the older kind; empty when there is none."""
    found = condition(obj, kind, of)
    if found is None:
        return ()
    said = (found["status"], found.get("reason") or "", found.get("message") or "")
    return said if of is CURRENT else (*said, found.get("severity") or "")
