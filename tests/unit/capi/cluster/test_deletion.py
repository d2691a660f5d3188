"""Taking a Cluster down: workers, control plane, infrastructure, in this order, and saying what it waits for."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES
from remuda.capi.cluster import Clusters
from remuda.kube.builtin_resources import CRDS
from remuda.kube.objects import GroupVersionResource
from tests.unit.capi.memory_clusters import (
    CONTROL,
    INFRA,
    NAMESPACE,
    TEST_CLUSTERS,
    TEST_CONTROL_PLANES,
    World,
    core_object,
    machine_spec,
    provider_crd,
    thing,
    world,
)

from .test_controller import deployment_spec, read, said, said_before, standing

Obj = dict[str, Any]
HOLD = {"metadata": {"finalizers": ["test.io/hold"]}}
LET_GO: Obj = {"metadata": {"finalizers": None}}


async def held(w: World) -> Obj:
    """A standing Cluster whose objects don't go before the test lets them."""
    cluster = await standing(w)
    await w.patch(TEST_CLUSTERS, "c1", HOLD)
    await w.patch(TEST_CONTROL_PLANES, "c1", HOLD)
    return cluster


async def going(w: World, resource: GroupVersionResource, name: str) -> bool:
    found = await w.find(resource, name)
    return found is None or "deletionTimestamp" in found["metadata"]


async def belonging(
    w: World, kind: str, resource: GroupVersionResource, name: str, spec: Obj, *, owner: Obj | None, **labels: str
) -> None:
    made = core_object(kind, name, spec)
    meta: Obj = {"labels": {"cluster.x-k8s.io/cluster-name": "c1", **labels}, "finalizers": ["test.io/hold"]}
    if owner is not None:
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
        meta["ownerReferences"] = [{**reference, "uid": owner["metadata"]["uid"]}]
    made["metadata"] |= meta
    await w.create(resource, made)


async def worker(w: World, name: str, owner: Obj | None, **labels: str) -> None:
    await belonging(w, "Machine", MACHINES, name, machine_spec(name, template=False), owner=owner, **labels)


async def deployment(w: World, name: str, owner: Obj | None) -> None:
    await belonging(w, "MachineDeployment", MACHINE_DEPLOYMENTS, name, deployment_spec(name, 1), owner=owner)


async def test_a_cluster_is_taken_down_in_order() -> None:
    async with world(Clusters) as w:
        cluster = await held(w)
        await deployment(w, "md1", cluster)
        await worker(w, "m1", cluster)
        await w.settle(2)
        await w.delete(CLUSTERS, "c1")
        await w.settle()

        assert await going(w, MACHINE_DEPLOYMENTS, "md1")
        assert await going(w, MACHINES, "m1")
        assert not await going(w, TEST_CONTROL_PLANES, "c1")
        cluster = await read(w)
        assert cluster["status"]["phase"] == "Deleting"
        waiting = "* MachineDeployments: md1\n* Worker Machines: m1"
        assert said(cluster, "Deleting") == ("True", "WaitingForWorkersDeletion", waiting)
        assert said_before(cluster, "ControlPlaneReady") == ("False", "Deleting", "", "Info")

        await w.patch(MACHINE_DEPLOYMENTS, "md1", LET_GO)
        await w.patch(MACHINES, "m1", LET_GO)
        await w.settle()
        assert await going(w, TEST_CONTROL_PLANES, "c1")
        assert not await going(w, TEST_CLUSTERS, "c1")
        cluster = await read(w)
        waiting = "Waiting for TestControlPlane to be deleted"
        assert said(cluster, "Deleting") == ("True", "WaitingForControlPlaneDeletion", waiting)
        assert f"* Deleting: {waiting}" in said(cluster, "Available")[2]

        await w.patch(TEST_CONTROL_PLANES, "c1", LET_GO)
        await w.settle()
        assert await going(w, TEST_CLUSTERS, "c1")
        cluster = await read(w)
        assert said(cluster, "Deleting")[1:] == (
            "WaitingForInfrastructureDeletion",
            "Waiting for TestCluster to be deleted",
        )
        assert said(cluster, "ControlPlaneAvailable") == ("False", "ObjectDeleted", "TestControlPlane has been deleted")
        assert said_before(cluster, "ControlPlaneReady") == ("False", "Deleted", "", "Info")

        await w.patch(TEST_CLUSTERS, "c1", LET_GO)
        await w.settle()
        assert await w.find(CLUSTERS, "c1") is None
        events = await w.events()
        assert ("Cluster", "Deleting", "Cluster c1 is Deleting") in events
        assert ("Cluster", "Deleted", "Cluster c1 has been deleted") in events


async def test_machines_of_a_control_plane_object_are_left_to_it() -> None:
    async with world(Clusters) as w:
        cluster = await held(w)
        await worker(w, "cp1", cluster, **{"cluster.x-k8s.io/control-plane": ""})
        await w.settle(2)
        await w.delete(CLUSTERS, "c1")
        await w.settle()
        assert not await going(w, MACHINES, "cp1")
        assert said(await read(w), "Deleting")[1] == "WaitingForControlPlaneDeletion"


async def test_control_plane_machines_that_stand_by_themselves_go_with_the_workers() -> None:
    async with world(Clusters) as w:
        await w.cluster(control_plane=False)
        await w.settle()
        cluster = await read(w)
        await worker(w, "cp1", cluster, **{"cluster.x-k8s.io/control-plane": ""})
        await w.settle(2)
        await w.delete(CLUSTERS, "c1")
        await w.settle()
        assert await going(w, MACHINES, "cp1")
        assert said(await read(w), "Deleting")[2] == "* Control plane Machines: cp1"


async def test_what_others_own_is_waited_for_and_not_deleted() -> None:
    async with world(Clusters) as w:
        cluster = await held(w)
        await deployment(w, "md1", cluster)
        owner = await w.get(MACHINE_DEPLOYMENTS, "md1")
        selector = {"clusterName": "c1", "selector": {"matchLabels": {"app": "x"}}, "replicas": 1}
        template = {"metadata": {"labels": {"app": "x"}}, "spec": machine_spec("x")}
        await belonging(w, "MachineSet", MACHINE_SETS, "ms1", {**selector, "template": template}, owner=owner)
        await w.settle(2)
        await w.delete(CLUSTERS, "c1")
        await w.settle()
        assert not await going(w, MACHINE_SETS, "ms1")
        assert said(await read(w), "Deleting")[2] == "* MachineDeployments: md1\n* MachineSets: ms1"


async def test_objects_without_an_owner_are_deleted_too() -> None:
    async with world(Clusters) as w:
        await held(w)
        await worker(w, "orphan", None)
        await w.settle(2)
        await w.delete(CLUSTERS, "c1")
        await w.settle()
        assert await going(w, MACHINES, "orphan")


async def test_many_names_are_cut_short() -> None:
    async with world(Clusters) as w:
        cluster = await held(w)
        for number in range(7):
            await worker(w, f"m{number}", cluster)
        await w.settle(2)
        await w.delete(CLUSTERS, "c1")
        await w.settle()
        assert said(await read(w), "Deleting")[2] == "* Worker Machines: m0, m1, m2, m3, m4, ... (2 more)"


async def test_a_cluster_without_anything_goes_at_once() -> None:
    async with world(Clusters) as w:
        spec = {
            "infrastructureRef": {"apiGroup": INFRA, "kind": "TestCluster", "name": "c1"},
            "controlPlaneRef": {"apiGroup": CONTROL, "kind": "TestControlPlane", "name": "c1"},
        }
        await w.create(CLUSTERS, core_object("Cluster", "c1", spec))
        await w.settle()
        await w.delete(CLUSTERS, "c1")
        await w.settle()
        assert await w.find(CLUSTERS, "c1") is None


async def test_a_reference_to_an_unknown_kind_does_not_delay_a_deletion() -> None:
    async with world(Clusters) as w:
        spec = {
            "infrastructureRef": {"apiGroup": "gone.test.io", "kind": "GoneCluster", "name": "c1"},
            "controlPlaneRef": {"apiGroup": "gone.test.io", "kind": "GoneControlPlane", "name": "c1"},
        }
        await w.create(CLUSTERS, core_object("Cluster", "c1", spec))
        await w.settle()
        await w.delete(CLUSTERS, "c1")
        await w.settle()
        assert await w.find(CLUSTERS, "c1") is None


async def test_a_kind_without_a_contract_is_told_and_waited_for() -> None:
    async with world(Clusters) as w:
        crd = provider_crd("odd.test.io", "OddCluster")
        del crd["metadata"]["labels"]
        await w.create(CRDS, crd)
        spec = {"infrastructureRef": {"apiGroup": "odd.test.io", "kind": "OddCluster", "name": "c1"}}
        await w.create(CLUSTERS, core_object("Cluster", "c1", spec))
        await w.settle()
        await w.delete(CLUSTERS, "c1")
        await w.settle()
        status, reason, message = said(await read(w), "Deleting")
        assert (status, reason) == ("True", "InternalError")
        assert "can't tell whether OddCluster c1 still exists" in message
        assert "has no label cluster.x-k8s.io/v1beta2" in message
        labels = {"cluster.x-k8s.io/v1beta2": "v1"}
        await w.client.patch(CRDS, "oddclusters.odd.test.io", {"metadata": {"labels": labels}})
        await w.settle()
        assert await w.find(CLUSTERS, "c1") is None


async def test_what_is_stuck_is_told_with_what_holds_it() -> None:
    async with world(Clusters) as w:
        await held(w)
        await w.delete(CLUSTERS, "c1")
        await w.settle(60)
        assert said(await read(w), "Deleting")[2] == "Waiting for TestControlPlane to be deleted"
        await w.settle(1200)
        message = said(await read(w), "Deleting")[2]
        assert message.startswith("Waiting for TestControlPlane to be deleted (c1 has been deleting since 20")
        assert message.endswith("held by finalizers test.io/hold)")


async def test_a_cluster_that_is_paused_is_not_taken_down() -> None:
    async with world(Clusters) as w:
        await held(w)
        await w.patch(CLUSTERS, "c1", {"spec": {"paused": True}})
        await w.settle(2)
        await w.delete(CLUSTERS, "c1")
        await w.settle(2)
        assert not await going(w, TEST_CONTROL_PLANES, "c1")
        await w.patch(CLUSTERS, "c1", {"spec": {"paused": False}})
        await w.settle(2)
        assert await going(w, TEST_CONTROL_PLANES, "c1")


@pytest.mark.parametrize("moment", ["infra", "plane"])
async def test_objects_made_while_it_goes_are_deleted_too(moment: str) -> None:
    async with world(Clusters) as w:
        cluster = await held(w)
        await w.delete(CLUSTERS, "c1")
        await w.settle()
        if moment == "infra":
            await w.patch(TEST_CONTROL_PLANES, "c1", LET_GO)
            await w.settle()
        await worker(w, "late", cluster)
        await w.settle(6)
        assert await going(w, MACHINES, "late")
        assert said(await read(w), "Deleting")[1] == "WaitingForWorkersDeletion"


async def test_an_object_of_the_same_name_that_is_not_the_one_is_found_at_the_next_look() -> None:
    async with world(Clusters) as w:
        await held(w)
        await w.delete(CLUSTERS, "c1")
        await w.settle()
        await w.patch(TEST_CONTROL_PLANES, "c1", LET_GO)
        await w.settle(0)
        await w.create(TEST_CONTROL_PLANES, thing(CONTROL, "TestControlPlane", "c1"))
        await w.settle()
        assert await w.find(TEST_CONTROL_PLANES, "c1") is None
        assert (await read(w))["metadata"]["namespace"] == NAMESPACE
