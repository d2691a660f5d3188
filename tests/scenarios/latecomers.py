"""Providers that nobody knew when the core was started: their kinds appear, and are picked up."""

from __future__ import annotations

from typing import Any

from remuda.api.cluster_x_k8s_io import MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES
from remuda.capi.well_known import CLUSTER_NAME
from remuda.kube.builtin_resources import CRDS, NODES
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig, name_of, owner_references_of
from remuda.lab.sim.capi_world import World
from remuda.lab.sim.providers import ref

from .stage import all_run, condition, running, workers, workload

Obj = dict[str, Any]
GROUP = "infrastructure.late.example.com"
LATE_MACHINES = GroupVersionResource(GROUP, "v1beta1", "latemachines")
LATE_TEMPLATES = GroupVersionResource(GROUP, "v1beta1", "latemachinetemplates")


def definition(kind: str, contract: str) -> Obj:
    plural = f"{kind.lower()}s"
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": loose, "status": loose}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "labels": {f"cluster.x-k8s.io/{contract}": "v1beta1"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [version],
        },
    }


async def a_provider_comes_later(world: World) -> None:
    """Workers of a kind that is defined, by the older contract, only when they are wanted already."""
    name = "late"
    await running(world, name, 1)
    machine_spec = {**world.machine_spec(name), "infrastructureRef": ref(GROUP, "LateMachineTemplate", name)}
    spec = {"clusterName": name, "replicas": 2, "selector": {}, "template": {"spec": machine_spec}}
    await world.create(MACHINE_DEPLOYMENTS, world.core_object("MachineDeployment", f"{name}-later", spec))
    await world.settle(10)
    later = "cluster.x-k8s.io/deployment-name=late-later"
    assert not await world.all(MACHINES, later)
    for kind in ("LateMachine", "LateMachineTemplate"):
        await world.create(CRDS, definition(kind, "v1beta1"))
    await world.until("they are served", lambda: _served(world))
    template = {"apiVersion": f"{GROUP}/v1beta1", "kind": "LateMachineTemplate"}
    meta = {"name": name, "namespace": world.namespace}
    await world.create(LATE_TEMPLATES, {**template, "metadata": meta, "spec": {"template": {"spec": {"size": "small"}}}})

    async def made() -> bool:
        # An infra machine is made before its Machine.
        return len(await world.all(LATE_MACHINES, f"{CLUSTER_NAME}={name}")) == len(await world.all(MACHINES, later)) == 2

    await world.until("machines of that kind are made", made)
    for infra in await world.all(LATE_MACHINES, f"{CLUSTER_NAME}={name}"):
        await _provide(world, name, infra)
    await all_run(world, name, 4)
    for infra in await world.all(LATE_MACHINES):
        assert infra["spec"]["size"] == "small"
        assert [owner["kind"] for owner in owner_references_of(infra)] == ["Machine"]
    assert len(await world.all(MACHINE_SETS, later)) == 1
    assert len(await workers(world, name)) == 1

    async def ready() -> bool:
        found = await world.get(MACHINE_DEPLOYMENTS, f"{name}-later")
        return condition(found, "MachinesReady").get("status") == "True"

    await world.until("all are ready", ready)


async def _served(world: World) -> bool:
    try:
        for resource in (LATE_MACHINES, LATE_TEMPLATES):
            await world.all(resource)
    except ApiError as error:
        if error.is_not_found:
            return False
        raise
    return True


async def _provide(world: World, cluster: str, infra: Obj) -> None:
    """Do what its provider would, by the older contract."""
    name = name_of(infra)

    async def bootstrapped() -> bool:
        return bool(dig(await world.get(MACHINES, name), "spec", "bootstrap", "dataSecretName"))

    await world.until(f"{name} may begin", bootstrapped)
    provider_id = f"late:///{name}"
    await world.patch(LATE_MACHINES, name, {"spec": {"providerID": provider_id}})
    await world.patch(LATE_MACHINES, name, {"status": {"ready": True}}, "status")
    said = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
    conditions = [{"type": kind, "status": status, "reason": "Kubelet", "message": ""} for kind, status in said.items()]
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"providerID": provider_id},
        "status": {"conditions": conditions, "nodeInfo": {"kubeletVersion": "v1.36.3"}},
    }
    await workload(world, cluster).client.create(NODES, node)
