"""The way of a Machine to nothing: hooks, drain, volumes, hooks, InfraMachine, BootstrapConfig, Node, finalizer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINES
from remuda.kube.builtin_resources import CRDS
from remuda.kube.clock import rfc3339
from remuda.kube.objects import GroupVersionResource
from tests.unit.capi.memory_clusters import BOOTSTRAP, INFRA, TEST_CONFIGS, TEST_CONTROL_PLANES, TEST_MACHINES, thing

from .deleting import HOLD, NODES, Ranch, ranch

Obj = dict[str, Any]

PRE_DRAIN = "pre-drain.delete.hook.machine.cluster.x-k8s.io"
PRE_TERMINATE = "pre-terminate.delete.hook.machine.cluster.x-k8s.io"
SECRETS = GroupVersionResource("", "v1", "secrets")
WAITING = {"status": "False", "severity": "Info", "reason": "WaitingExternalHook"}
DELETED = {"status": "False", "severity": "Info", "reason": "Deleted"}


async def is_cordoned(found: Ranch) -> bool:
    node = await found.node()
    assert node is not None
    return bool(node["spec"].get("unschedulable"))


async def times(found: Ranch) -> dict[str, str]:
    return (await found.machine())["status"].get("deletion") or {}


# --- the sequence ------------------------------------------------------------------------------------------------------------


async def test_everything_that_belongs_to_a_machine_goes_with_it() -> None:
    async with ranch() as found:
        await found.delete()
        assert await found.is_gone()
        assert await found.node() is None
        assert await found.world.find(TEST_MACHINES, "m1") is None
        assert await found.world.find(TEST_CONFIGS, "m1") is None
        assert await found.world.find(TEST_MACHINES, "cp") is not None


async def test_a_finalizer_of_another_program_is_named_when_all_else_is_gone() -> None:
    async with ranch() as found:
        finalizers = (await found.machine())["metadata"]["finalizers"]
        await found.world.patch(MACHINES, "m1", {"metadata": {"finalizers": [*finalizers, "example.com/inventory"]}})
        await found.delete()
        assert await found.world.find(TEST_MACHINES, "m1") is None and await found.node() is None
        held = "all of it is gone, and finalizers of other programs hold it: example.com/inventory"
        assert f"Finalizers other-controller: {held}" in found.waits()
        await found.world.patch(MACHINES, "m1", {"metadata": {"finalizers": None}})
        await found.world.settle(1)
        assert await found.is_gone() and not any("Finalizers" in each for each in found.waits())


async def test_the_infra_machine_goes_first_then_the_bootstrap_config_then_the_node() -> None:
    async with ranch() as found:
        await found.hold_infra()
        await found.world.patch(TEST_CONFIGS, "m1", {"metadata": {"finalizers": [HOLD]}})
        await found.delete()
        assert await found.deleting() == ("WaitingForInfrastructureDeletion", "Waiting for TestMachine to be deleted")
        config = await found.world.get(TEST_CONFIGS, "m1")
        assert "deletionTimestamp" not in config["metadata"]
        await found.release_infra()
        await found.world.settle(1)
        assert await found.deleting() == ("WaitingForBootstrapDeletion", "Waiting for TestConfig to be deleted")
        assert await found.legacy("InfrastructureReady") == DELETED
        assert await found.node() is not None
        await found.world.patch(TEST_CONFIGS, "m1", {"metadata": {"finalizers": None}})
        await found.world.settle(1)
        assert await found.is_gone()
        assert await found.node() is None


async def test_a_machine_with_a_data_secret_of_its_own_has_no_bootstrap_config_to_wait_for() -> None:
    async with ranch(bootstrap={"dataSecretName": "by-hand"}) as found:
        await found.delete()
        assert await found.is_gone()
        assert await found.world.find(TEST_CONFIGS, "m1") is not None


async def test_a_machine_that_never_got_anything_goes_at_once() -> None:
    async with ranch() as found:
        await found.world.machine("early")
        await found.world.settle(1)
        await found.delete(name="early")
        assert await found.is_gone("early")


async def test_a_machine_whose_provider_objects_were_never_made_goes_at_once() -> None:
    async with ranch() as found:
        await found.world.delete(TEST_MACHINES, "m1")
        await found.world.delete(TEST_CONFIGS, "m1")
        await found.pod("web")
        await found.delete()
        assert await found.is_gone()
        # Without its machine a node can't be drained, nor could it tell that its pods ended.
        assert not await found.pod_is_going("web")


# --- hooks -------------------------------------------------------------------------------------------------------------------


async def test_a_pre_drain_hook_holds_everything() -> None:
    async with ranch() as found:
        await found.annotate({f"{PRE_DRAIN}/b": "", f"{PRE_DRAIN}/a": "", "other": ""})
        await found.pod("web")
        await found.delete()
        message = f"Waiting for pre-drain hooks to succeed (hooks: {PRE_DRAIN}/a,{PRE_DRAIN}/b)"
        assert await found.deleting() == ("WaitingForPreDrainHook", message)
        assert await found.legacy("PreDrainDeleteHookSucceeded") == WAITING
        assert list(await times(found)) == ["waitForPreDrainHookStartTime"]
        assert not await is_cordoned(found)
        await found.annotate({f"{PRE_DRAIN}/b": None})
        await found.world.settle(1)
        assert not await is_cordoned(found)
        await found.annotate({f"{PRE_DRAIN}/a": None})
        await found.world.settle(1)
        assert await is_cordoned(found)
        assert await found.legacy("PreDrainDeleteHookSucceeded") == {"status": "True"}


async def test_a_pre_terminate_hook_holds_the_infra_machine_after_the_drain() -> None:
    async with ranch() as found:
        await found.annotate({f"{PRE_TERMINATE}/etcd": ""})
        await found.delete()
        message = f"Waiting for pre-terminate hooks to succeed (hooks: {PRE_TERMINATE}/etcd)"
        assert await found.deleting() == ("WaitingForPreTerminateHook", message)
        assert await found.legacy("PreTerminateDeleteHookSucceeded") == WAITING
        assert await found.legacy("DrainingSucceeded") == {"status": "True"}
        assert await found.legacy("VolumeDetachSucceeded") == {"status": "True"}
        assert not await found.infra_is_going()
        await found.annotate({f"{PRE_TERMINATE}/etcd": None})
        await found.world.settle(1)
        assert await found.is_gone()


async def test_nothing_is_drained_again_once_the_pre_terminate_hooks_had_their_turn() -> None:
    async with ranch() as found:
        await found.annotate({f"{PRE_TERMINATE}/etcd": ""})
        await found.delete()
        await found.pod("late")
        found.world.workloads.cut("c1")
        await found.hold_infra()
        await found.annotate({f"{PRE_TERMINATE}/etcd": None})
        await found.world.settle(2)
        assert await found.infra_is_going()
        assert not await found.pod_is_going("late")


async def test_a_hook_keeps_the_time_it_began_at() -> None:
    async with ranch() as found:
        await found.annotate({f"{PRE_DRAIN}/a": ""})
        await found.delete()
        began = await times(found)
        await found.annotate({f"{PRE_DRAIN}/b": ""})
        await found.world.settle(100)
        assert await times(found) == began


# --- what is skipped ---------------------------------------------------------------------------------------------------------


async def left_alone(found: Ranch) -> None:
    """The node was neither drained nor deleted, and the Machine went."""
    assert await found.is_gone()
    assert not await is_cordoned(found)
    assert not await found.pod_is_going("web")


async def test_draining_can_be_excluded() -> None:
    async with ranch() as found:
        await found.annotate({"machine.cluster.x-k8s.io/exclude-node-draining": ""})
        await found.pod("web")
        await found.delete()
        assert await found.is_gone()
        assert await found.node() is None
        assert not await found.pod_is_going("web")


async def test_nothing_is_drained_from_a_machine_that_is_going_already() -> None:
    async with ranch() as found:
        await found.hold_infra()
        await found.world.delete(TEST_MACHINES, "m1")
        await found.pod("web")
        await found.delete()
        assert not await is_cordoned(found)
        await found.release_infra()
        await found.world.settle(1)
        assert await found.is_gone()


async def test_nodes_of_a_cluster_that_is_being_deleted_are_left_alone() -> None:
    async with ranch() as found:
        await found.world.patch(CLUSTERS, "c1", {"metadata": {"finalizers": [HOLD]}})
        await found.world.delete(CLUSTERS, "c1")
        await found.pod("web")
        await found.annotate({f"{PRE_DRAIN}/a": ""})
        await found.delete()
        await left_alone(found)


async def test_pre_terminate_hooks_count_while_the_cluster_is_being_deleted() -> None:
    async with ranch() as found:
        await found.world.patch(CLUSTERS, "c1", {"metadata": {"finalizers": [HOLD]}})
        await found.world.delete(CLUSTERS, "c1")
        await found.annotate({f"{PRE_TERMINATE}/a": ""})
        await found.delete()
        assert (await found.deleting())[0] == "WaitingForPreTerminateHook"


async def test_nodes_are_left_alone_when_no_control_plane_is_left() -> None:
    async with ranch(control_plane_machine=False) as found:
        await found.pod("web")
        await found.delete()
        await left_alone(found)


async def test_a_control_plane_that_is_going_is_none() -> None:
    async with ranch() as found:
        await found.world.patch(TEST_MACHINES, "cp", {"metadata": {"finalizers": [HOLD]}})
        await found.delete(name="cp")
        await found.pod("web")
        await found.delete()
        await left_alone(found)


async def test_nodes_are_left_alone_when_the_control_plane_is_being_deleted() -> None:
    async with ranch(control_plane_object=True) as found:
        await found.world.patch(TEST_CONTROL_PLANES, "c1", {"metadata": {"finalizers": [HOLD]}})
        await found.world.delete(TEST_CONTROL_PLANES, "c1")
        await found.pod("web")
        await found.delete()
        await left_alone(found)


async def test_a_control_plane_that_somebody_else_runs_needs_no_machines() -> None:
    async with ranch(control_plane_object=True, control_plane_machine=False) as found:
        status = {"status": {"externalManagedControlPlane": True}}
        await found.world.patch(TEST_CONTROL_PLANES, "c1", status, "status")
        await found.pod("web")
        await found.delete()
        assert await found.pod_is_going("web")


async def test_a_control_plane_object_that_is_not_there_is_not_asked() -> None:
    async with ranch(control_plane_object=True) as found:
        await found.world.delete(TEST_CONTROL_PLANES, "c1")
        await found.pod("web")
        await found.delete()
        assert await found.pod_is_going("web")


# --- the node ----------------------------------------------------------------------------------------------------------------


async def test_a_node_that_joined_before_its_machine_was_known_to_be_ready_is_drained_and_deleted() -> None:
    async with ranch() as found:
        await found.world.machine("m2")
        await found.world.patch(TEST_MACHINES, "m2", {"spec": {"providerID": "test:///m2"}})
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}, "spec": {"providerID": "test:///m2"}}
        await found.make(NODES, node)
        await found.world.settle(1)
        assert "nodeRef" not in (await found.machine("m2"))["status"]
        await found.pod("web", node="n2")
        await found.delete(name="m2")
        assert (await found.machine("m2"))["status"]["nodeRef"] == {"name": "n2"}
        assert await found.pod_is_going("web")
        await found.stop("web")
        await found.world.settle(3)
        assert await found.is_gone("m2")
        assert [each["metadata"]["name"] for each in (await found.workload.client.list(NODES))["items"]] == ["n1"]


async def cut_before_the_node_goes(found: Ranch) -> None:
    """The workload cluster is lost between the drain and the end of the InfraMachine."""
    await found.hold_infra()
    await found.delete()
    found.world.workloads.cut("c1")
    await found.release_infra()


async def test_a_node_that_can_not_be_deleted_is_given_up_when_the_timeout_is_over() -> None:
    async with ranch(deletion={"nodeDeletionTimeoutSeconds": 60}) as found:
        await cut_before_the_node_goes(found)
        await found.world.settle(30)
        assert await found.deleting() == ("DeletingNode", "Error deleting Node, please check controller logs for errors")
        failed = {"status": "False", "severity": "Warning", "reason": "DeletionFailed"}
        assert await found.legacy("NodeHealthy") == failed
        assert "FailedDeleteNode" in await found.reasons()
        await found.world.settle(60)
        assert await found.is_gone()


@pytest.mark.parametrize("deletion", [{"nodeDeletionTimeoutSeconds": 0}, {"nodeDrainTimeoutSeconds": 5}])
async def test_without_a_timeout_the_node_is_waited_for(deletion: Obj) -> None:
    async with ranch(deletion=deletion) as found:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c1-kubeconfig", "namespace": "herd"}}
        await found.world.create(SECRETS, secret)
        await cut_before_the_node_goes(found)
        await found.world.settle(3600)
        assert (await found.deleting())[0] == "DeletingNode"
        await found.world.workloads.connect("c1")
        await found.world.settle(20)
        assert await found.is_gone()
        assert await found.node() is None


async def test_a_node_is_tried_for_a_while_even_when_the_timeout_is_over_already() -> None:
    async with ranch(deletion={"nodeDeletionTimeoutSeconds": 10}) as found:
        await found.hold_infra()
        await found.delete(100)
        found.world.workloads.cut("c1")
        await found.release_infra()
        await found.world.settle(5)
        await found.world.workloads.connect("c1")
        await found.world.settle(5)
        assert await found.is_gone()
        assert await found.node() is None


# --- what is gone ------------------------------------------------------------------------------------------------------------


async def test_a_machine_goes_although_its_cluster_object_is_gone() -> None:
    async with ranch() as found:
        await found.world.delete(CLUSTERS, "c1")
        await found.pod("web")
        await found.delete()
        await left_alone(found)


async def test_a_machine_goes_although_the_kinds_of_its_providers_are_gone() -> None:
    async with ranch() as found:
        await found.hold_infra()
        await found.annotate({f"{PRE_TERMINATE}/a": ""})
        await found.delete()
        await found.release_infra()
        for name in (f"testmachines.{INFRA}", f"testconfigs.{BOOTSTRAP}"):
            await found.world.client.delete(CRDS, name)
        await found.world.settle(5)
        await found.annotate({f"{PRE_TERMINATE}/a": None})
        await found.world.settle(5)
        assert await found.is_gone()


async def test_a_machine_goes_although_the_kind_of_the_control_plane_is_gone() -> None:
    async with ranch(control_plane_object=True) as found:
        await found.world.client.delete(CRDS, "testcontrolplanes.controlplane.test.io")
        await found.world.settle(5)
        await found.delete(5)
        assert await found.is_gone()


async def test_a_kind_that_follows_no_contract_any_more_is_not_taken_for_gone() -> None:
    async with ranch() as found:
        label = {"metadata": {"labels": {"cluster.x-k8s.io/v1beta2": None}}}
        await found.world.client.patch(CRDS, f"testmachines.{INFRA}", label)
        await found.world.settle(1)
        await found.delete(5)
        assert await found.deleting() == ("WaitingForInfrastructureDeletion", "Waiting for TestMachine to be deleted")
        assert not await is_cordoned(found)
        label = {"metadata": {"labels": {"cluster.x-k8s.io/v1beta2": "v1"}}}
        await found.world.client.patch(CRDS, f"testmachines.{INFRA}", label)
        await found.world.settle(5)
        assert await found.is_gone()
        assert await found.node() is None


async def test_a_machine_goes_although_nothing_is_left_to_reach_its_cluster_with() -> None:
    async with ranch() as found:
        await found.pod("web")
        found.world.workloads.cut("c1")
        await found.delete(290)
        assert not await found.infra_is_going()
        await found.world.settle(60)
        assert await found.is_gone()


async def test_a_cluster_that_has_a_kubeconfig_is_not_given_up() -> None:
    async with ranch() as found:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c1-kubeconfig", "namespace": "herd"}}
        await found.world.create(SECRETS, secret)
        found.world.workloads.cut("c1")
        await found.delete(3600)
        assert (await found.deleting())[0] == "DrainingNode"


async def test_an_infra_machine_of_another_machine_is_left_to_that() -> None:
    async with ranch() as found:
        ref = {"apiGroup": INFRA, "kind": "TestMachine", "name": "cp"}
        await found.world.create(TEST_CONFIGS, thing(BOOTSTRAP, "TestConfig", "thief"))
        spec = {
            "clusterName": "c1",
            "bootstrap": {"configRef": {"apiGroup": BOOTSTRAP, "kind": "TestConfig", "name": "thief"}},
            "infrastructureRef": ref,
        }
        meta = {"name": "thief", "namespace": "herd"}
        made = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": meta, "spec": spec}
        await found.world.create(MACHINES, made)
        await found.world.settle(1)
        await found.delete(name="thief")
        assert await found.is_gone("thief")
        infra = await found.world.get(TEST_MACHINES, "cp")
        assert "deletionTimestamp" not in infra["metadata"]


# --- after a restart ---------------------------------------------------------------------------------------------------------


async def test_another_process_goes_on_behind_the_pre_terminate_hooks() -> None:
    async with ranch() as found:
        began = rfc3339(found.world.clock.time() - 60)
        status = {"deletion": {"nodeDrainStartTime": began, "waitForPreTerminateHookStartTime": began}}
        await found.world.patch(MACHINES, "m1", {"status": status}, "status")
        await found.pod("web")
        await found.delete()
        assert await found.is_gone()
        assert not await found.pod_is_going("web")


async def test_what_was_deleted_once_is_not_deleted_again() -> None:
    async with ranch() as found:
        await found.hold_infra()
        await found.delete(100)
        before = await found.world.get(TEST_MACHINES, "m1")
        await found.world.settle(1000)
        assert await found.world.get(TEST_MACHINES, "m1") == before
        machine = await found.machine()
        await found.world.settle(1000)
        assert await found.machine() == machine


async def play(found: Ranch) -> None:
    """What kubelet and provider do when they are asked."""
    if await found.pod_exists("web") and await found.pod_is_going("web"):
        await found.stop("web")
    if await found.world.find(TEST_MACHINES, "m1") is not None and await found.infra_is_going():
        await found.release_infra()


@pytest.mark.parametrize("turns", [1, 4, 10, 15, 20, 25, 30, 40, 60, 100])
async def test_a_process_that_dies_at_any_point_leaves_nothing_behind(turns: int) -> None:
    async with ranch() as found:
        await found.pod("web")
        await found.hold_infra()
        await found.world.delete(MACHINES, "m1")
        for _ in range(10):
            for _ in range(turns):
                await asyncio.sleep(0)
            await found.kill()
            await found.start()
            await play(found)
        for _ in range(3):
            await found.world.settle(3)
            await play(found)
        await found.world.settle(1)
        assert await found.is_gone()
        assert await found.node() is None
        assert await found.world.find(TEST_MACHINES, "m1") is None
        assert await found.world.find(TEST_CONFIGS, "m1") is None
