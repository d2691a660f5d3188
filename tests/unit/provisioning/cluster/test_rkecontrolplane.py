"""What a control plane knows of its cluster, and what goes before it goes."""

from __future__ import annotations

from typing import Any

from remuda.access.rancher_conditions import condition_of
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import management_cattle_io as management
from remuda.api import rke_cattle_io as rke
from remuda.provisioning.cluster.rkecontrolplane import FINALIZER, RKEControlPlanes
from tests.unit.access.management_api import Parts, World
from tests.unit.provisioning.graph.graph_controllers import VERSION, cluster_world

from .mirrored_clusters import FLEET, connect

Obj = dict[str, Any]
MANAGED = "c-m-bcdfg245"


def alone(parts: Parts) -> Any:
    yield RKEControlPlanes(parts.manager)


async def plane(made: World) -> Obj:
    return await made.get(rke.RKE_CONTROL_PLANES, "demo", FLEET)


async def make_plane(made: World) -> None:
    spec = {"clusterName": "demo", "managementClusterName": MANAGED, "kubernetesVersion": VERSION}
    metadata = {"name": "demo", "namespace": FLEET}
    obj = {"apiVersion": rke.API_VERSION, "kind": "RKEControlPlane", "metadata": metadata, "spec": spec}
    await made.create(rke.RKE_CONTROL_PLANES, obj)
    await made.settle(1)


def machine(name: str, kind: str = "CustomMachine", label: str = "cluster.x-k8s.io/cluster-name", **labels: str) -> Obj:
    group = rke.GROUP if kind == "CustomMachine" else "rke-machine.cattle.io"
    spec = {
        "clusterName": "demo",
        "bootstrap": {"configRef": {"apiGroup": rke.GROUP, "kind": "RKEBootstrap", "name": name}},
        "infrastructureRef": {"apiGroup": group, "kind": kind, "name": name},
    }
    said = {label: "demo", **(labels or {"rke.cattle.io/control-plane-role": "true"})}
    metadata = {"name": name, "namespace": FLEET, "labels": said, "finalizers": ["test/hold"]}
    return {"apiVersion": capi.API_VERSION, "kind": "Machine", "metadata": metadata, "spec": spec}


async def is_going(made: World, name: str) -> bool:
    return "deletionTimestamp" in (await made.get(capi.MACHINES, name, FLEET))["metadata"]


async def test_it_knows_whether_the_agent_is_connected() -> None:
    async with cluster_world(alone) as made:
        await made.cluster(MANAGED, displayName="demo")
        await make_plane(made)
        assert (await plane(made))["status"] == {"observedGeneration": 1, "agentConnected": False}
        assert (await plane(made))["metadata"]["finalizers"] == [FINALIZER]
        await connect(made, MANAGED)
        await made.settle(1)
        assert (await plane(made))["status"]["agentConnected"] is True
        await connect(made, MANAGED, "False")
        await made.settle(1)
        assert (await plane(made))["status"]["agentConnected"] is False


async def test_it_has_seen_every_generation() -> None:
    async with cluster_world(alone) as made:
        await made.cluster(MANAGED, displayName="demo")
        await make_plane(made)
        await made.patch(rke.RKE_CONTROL_PLANES, "demo", {"spec": {"provisionGeneration": 2}}, FLEET)
        await made.settle(1)
        assert (await plane(made))["status"]["observedGeneration"] == (await plane(made))["metadata"]["generation"] == 2


async def test_what_the_planner_says_is_left_alone() -> None:
    async with cluster_world(alone) as made:
        await made.cluster(MANAGED, displayName="demo")
        await make_plane(made)
        said = [{"type": "Ready", "status": "True"}]
        await made.patch(rke.RKE_CONTROL_PLANES, "demo", {"status": {"conditions": said}}, FLEET, "status")
        await connect(made, MANAGED)
        await made.settle(1)
        assert (await plane(made))["status"]["conditions"] == said


async def test_it_waits_for_its_cluster_to_be_known() -> None:
    async with cluster_world(alone) as made:
        await make_plane(made)
        assert "agentConnected" not in (await plane(made))["status"]
        await made.cluster(MANAGED, displayName="demo")
        await made.settle(3)
        assert (await plane(made))["status"]["agentConnected"] is False


async def test_it_takes_custom_machines_along_and_waits_for_all_of_its_own() -> None:
    async with cluster_world(alone) as made:
        await made.cluster(MANAGED, displayName="demo")
        await make_plane(made)
        await made.create(capi.MACHINES, machine("b-custom"))
        await made.create(capi.MACHINES, machine("c-of-old", label="rke.cattle.io/cluster-name"))
        await made.create(capi.MACHINES, machine("d-of-a-pool", "PodMachine"))
        await made.create(capi.MACHINES, machine("a-worker", **{"rke.cattle.io/worker-role": "true"}))
        await made.settle(1)
        await made.delete(rke.RKE_CONTROL_PLANES, "demo", FLEET)
        await made.settle(3)
        going = {name: await is_going(made, name) for name in ("a-worker", "b-custom", "c-of-old", "d-of-a-pool")}
        assert going == {"a-worker": False, "b-custom": True, "c-of-old": True, "d-of-a-pool": False}
        said = condition_of(await plane(made), "Removed") or {}
        assert (said["status"], said["reason"], said["message"]) == (
            "Unknown",
            "Waiting",
            "waiting for machine [b-custom] to delete",
        )
        for name in ("b-custom", "c-of-old"):
            await made.patch(capi.MACHINES, name, {"metadata": {"finalizers": None}}, FLEET)
        await made.settle(6)
        assert (condition_of(await plane(made), "Removed") or {})["message"] == "waiting for machine [d-of-a-pool] to delete"
        await made.patch(capi.MACHINES, "d-of-a-pool", {"metadata": {"finalizers": None}}, FLEET)
        await made.delete(capi.MACHINES, "d-of-a-pool", FLEET)
        await made.settle(6)
        assert await made.find(rke.RKE_CONTROL_PLANES, "demo", FLEET) is None
        assert await made.find(capi.MACHINES, "a-worker", FLEET) is not None


async def test_it_goes_also_when_its_cluster_is_not_known_any_more() -> None:
    async with cluster_world(alone) as made:
        await made.cluster(MANAGED, displayName="demo")
        await make_plane(made)
        await made.delete(management.CLUSTERS, MANAGED)
        await made.delete(rke.RKE_CONTROL_PLANES, "demo", FLEET)
        await made.settle(6)
        assert await made.find(rke.RKE_CONTROL_PLANES, "demo", FLEET) is None
