"""What follows a MachineSet's template without a new machine, and what others added and keep."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.api.cluster_x_k8s_io import MACHINE_SETS, MACHINES
from remuda.capi.machineset.desired_machines import updated_machine
from remuda.client.server_side_apply import Applier
from remuda.kube.objects import GroupVersionResource, annotations_of, labels_of, name_of, resource_version_of
from tests.unit.capi.memory_clusters import TEST_CONFIGS, TEST_MACHINES, World

from .machinesets import CLUSTER_LABEL, herd, machine_set, make, names

Obj = dict[str, Any]
ALL = (MACHINES, TEST_MACHINES, TEST_CONFIGS)


async def change_template(world: World, **template: Any) -> None:
    await world.patch(MACHINE_SETS, "ms", {"spec": {"template": template}})
    await world.settle()


async def one(world: World, resource: GroupVersionResource) -> Obj:
    (found,) = await world.list(resource)
    return found


async def test_labels_and_annotations_are_added_changed_and_taken_away() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=1))
        await change_template(world, metadata={"labels": {"l": "1", "m": "1"}, "annotations": {"a": "1"}})
        for resource in ALL:
            found = await one(world, resource)
            assert labels_of(found).items() >= {"l": "1", "m": "1", "app": "ms", CLUSTER_LABEL: "c1"}.items()
            assert annotations_of(found)["a"] == "1"
        await change_template(world, metadata={"labels": {"l": "2", "m": None}, "annotations": None})
        for resource in ALL:
            found = await one(world, resource)
            assert (labels_of(found)["l"], labels_of(found).get("m"), annotations_of(found).get("a")) == ("2", None, None)


async def test_what_was_there_when_a_clone_was_made_can_be_taken_away() -> None:
    async with herd() as world:
        wanted = machine_set(replicas=1)
        wanted["spec"]["template"]["metadata"] |= {"annotations": {"a": "1"}}
        wanted["spec"]["template"]["metadata"]["labels"]["extra"] = "1"
        await make(world, wanted)
        await change_template(world, metadata={"labels": {"extra": None}, "annotations": None})
        for resource in ALL:
            found = await one(world, resource)
            assert "extra" not in labels_of(found)
            assert "a" not in annotations_of(found)
        assert "cluster.x-k8s.io/cloned-from-name" in annotations_of(await one(world, TEST_MACHINES))


async def test_what_others_added_stays_and_what_they_changed_is_put_back() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=1))
        (name,) = await names(world)
        for resource in ALL:
            changed = {"mine": "1", "cluster.x-k8s.io/set-name": "wrong"}
            await world.patch(resource, name, {"metadata": {"labels": changed}})
        await world.settle()
        for resource in ALL:
            found = labels_of(await world.get(resource, name))
            assert (found["mine"], found["cluster.x-k8s.io/set-name"]) == ("1", "ms")


async def test_timeouts_gates_and_taints_follow_but_version_and_failure_domain_do_not() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=1))
        follows = {
            "minReadySeconds": 9,
            "readinessGates": [{"conditionType": "Extra"}],
            "taints": [{"key": "k", "effect": "NoSchedule", "propagation": "Always"}],
            "deletion": {"nodeDrainTimeoutSeconds": 1, "nodeVolumeDetachTimeoutSeconds": 2, "nodeDeletionTimeoutSeconds": 3},
        }
        await change_template(world, spec={**follows, "version": "v1.36.4", "failureDomain": "b"})
        spec = (await one(world, MACHINES))["spec"]
        assert {field: spec[field] for field in follows} == follows
        assert (spec["version"], spec.get("failureDomain")) == ("v1.36.3", None)
        await change_template(
            world, spec={"minReadySeconds": None, "taints": None, "deletion": {"nodeDrainTimeoutSeconds": None}}
        )
        spec = (await one(world, MACHINES))["spec"]
        assert "minReadySeconds" not in spec
        assert "taints" not in spec
        assert spec["deletion"] == {"nodeVolumeDetachTimeoutSeconds": 2, "nodeDeletionTimeoutSeconds": 3}


async def test_a_machine_on_its_way_out_gets_timeouts_but_no_labels() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=1))
        (name,) = await names(world)
        await world.delete(MACHINES, name)
        await change_template(world, metadata={"labels": {"late": "1"}}, spec={"deletion": {"nodeDrainTimeoutSeconds": 77}})
        found = await world.get(MACHINES, name)
        assert found["spec"]["deletion"] == {"nodeDrainTimeoutSeconds": 77, "nodeDeletionTimeoutSeconds": 10}
        assert "late" not in labels_of(found)


async def test_what_the_machine_controller_writes_is_left_alone() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=1))
        (name,) = await names(world)
        await world.patch(
            MACHINES,
            name,
            {"spec": {"providerID": "test:///1", "bootstrap": {"dataSecretName": "d"}}, "metadata": {"labels": {"x": "y"}}},
        )
        await change_template(world, metadata={"labels": {"l": "1"}})
        spec = (await one(world, MACHINES))["spec"]
        assert (spec["providerID"], spec["bootstrap"]["dataSecretName"]) == ("test:///1", "d")


async def test_a_missing_clone_does_not_block_updates_of_others() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=2))
        first, second = await names(world)
        await world.delete(TEST_MACHINES, first)
        await change_template(world, metadata={"labels": {"l": "1"}})
        for name in (first, second):
            assert labels_of(await world.get(MACHINES, name))["l"] == "1"
        assert labels_of(await world.get(TEST_MACHINES, second))["l"] == "1"
        found = await world.get(MACHINE_SETS, "ms")
        assert found["status"]["observedGeneration"] < found["metadata"]["generation"]


async def test_labels_and_annotations_of_clones_have_an_owner_of_their_own() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=1))
        for resource in (TEST_MACHINES, TEST_CONFIGS):
            entries = {each["manager"]: each["fieldsV1"] for each in (await one(world, resource))["metadata"]["managedFields"]}
            assert entries["capi-machineset"]["f:metadata"].keys() == {"f:ownerReferences"}
            assert entries["capi-machineset-metadata"].keys() == {"f:metadata"}
            assert "f:app" in entries["capi-machineset-metadata"]["f:metadata"]["f:labels"]


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.resource)
async def test_dropped_fields_go_also_from_objects_without_managed_fields(resource: GroupVersionResource) -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=1))
        await change_template(world, metadata={"labels": {"l": "1", "m": "1"}, "annotations": {"a": "1", "b": "1"}})
        (name,) = await names(world)
        await world.patch(resource, name, {"metadata": {"managedFields": [{}], "labels": {"theirs": "1"}}})
        await change_template(world, metadata={"labels": {"m": "2"}})
        await change_template(world, metadata={"labels": {"l": None, "m": None}, "annotations": {"a": None, "b": None}})
        found = await one(world, resource)
        assert not {"l", "m"} & labels_of(found).keys() and not {"a", "b"} & annotations_of(found).keys()
        assert labels_of(found)["theirs"] == "1"
        assert "before-first-apply" not in {each["manager"] for each in found["metadata"]["managedFields"]}


async def test_a_new_machine_costs_five_writes() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=1))
        revisions = [int(resource_version_of(await one(world, resource))) for resource in ALL]
        await world.settle(60)
        assert [int(resource_version_of(await one(world, resource))) for resource in ALL] == revisions
        machine, infra, config = revisions
        assert (infra - config, machine - infra) == (2, 1)


async def test_a_restarted_controller_applies_once_and_changes_nothing() -> None:
    async with herd() as world:
        found = await make(world, machine_set(replicas=1))
        machine = await one(world, MACHINES)
        after = await Applier(world.core.client, "capi-machineset").apply(MACHINES, updated_machine(found, machine), machine)
        assert after is not None
        assert resource_version_of(after) == resource_version_of(machine)
        assert name_of(after) == name_of(machine)
