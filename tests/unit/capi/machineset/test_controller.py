"""MachineSets at work: machines made, adopted, replaced and deleted. The test plays the machine controller."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES
from remuda.capi.controller_context import ControllerOptions
from remuda.capi.machineset.scope import AT_ONCE
from remuda.kube.builtin_resources import CRDS
from remuda.kube.conditions import LEGACY, get
from remuda.kube.objects import dig, is_being_deleted, name_of, uid_of, with_path
from tests.unit.capi.memory_clusters import (
    TEST_CONFIG_TEMPLATES,
    TEST_CONFIGS,
    TEST_CONTROL_PLANES,
    TEST_MACHINE_TEMPLATES,
    TEST_MACHINES,
    World,
    core_object,
    machine_spec,
    thing,
)

from .machinesets import (
    CLUSTER_LABEL,
    Refusing,
    Slow,
    everything,
    finish_deletions,
    give_node,
    herd,
    machine_set,
    make,
    names,
    say,
)

Obj = dict[str, Any]
REVISION = "machinedeployment.clusters.x-k8s.io/revision"


def condition(obj: Obj, kind: str, of: Any = None) -> tuple[str, str, str]:
    found = get(obj, kind) if of is None else get(obj, kind, of)
    assert found is not None, f"no condition {kind}"
    return found["status"], found.get("reason", ""), found.get("message", "")


async def look(world: World, name: str = "ms") -> Obj:
    return await world.get(MACHINE_SETS, name)


async def change(world: World, patch: Obj, name: str = "ms") -> Obj:
    await world.patch(MACHINE_SETS, name, patch)
    await world.settle()
    return await look(world, name)


# --- a set itself ----------------------------------------------------------------------------------------------------------


async def test_a_set_of_its_own_gets_a_finalizer_its_cluster_as_owner_and_label() -> None:
    async with herd() as world:
        found = await make(world, machine_set(replicas=0))
        assert found["metadata"]["finalizers"] == ["cluster.x-k8s.io/machineset"]
        assert [(owner["kind"], owner["name"]) for owner in found["metadata"]["ownerReferences"]] == [("Cluster", "c1")]
        assert found["metadata"]["labels"] == {CLUSTER_LABEL: "c1"}
        assert found["status"]["observedGeneration"] == found["metadata"]["generation"]


async def test_templates_belong_to_the_cluster_and_get_it_back_as_owner() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=0))
        for resource in (TEST_MACHINE_TEMPLATES, TEST_CONFIG_TEMPLATES):
            owners = (await world.get(resource, "t"))["metadata"]["ownerReferences"]
            assert [(owner["kind"], owner.get("controller")) for owner in owners] == [("Cluster", None)]
            await world.patch(resource, "t", {"metadata": {"ownerReferences": None}})
        await world.settle()
        assert (await world.get(TEST_MACHINE_TEMPLATES, "t"))["metadata"]["ownerReferences"]


async def test_without_a_cluster_nothing_happens_until_there_is_one() -> None:
    async with herd() as world:
        lonely = machine_set(replicas=1)
        lonely["spec"] |= {"clusterName": "c2"}
        lonely["spec"]["template"]["spec"]["clusterName"] = "c2"
        lonely["spec"]["selector"]["matchLabels"][CLUSTER_LABEL] = "c2"
        assert "finalizers" not in (await make(world, lonely))["metadata"]
        await world.cluster("c2", control_plane=False)
        await world.settle()
        assert len(await names(world)) == 1


async def test_a_paused_set_is_left_alone() -> None:
    async with herd() as world:
        paused = with_path(machine_set(), ("metadata", "annotations"), {"cluster.x-k8s.io/paused": "true"})
        found = await make(world, paused)
        assert condition(found, "Paused") == ("True", "Paused", "MachineSet has the cluster.x-k8s.io/paused annotation")
        assert await names(world) == []
        found = await change(world, {"metadata": {"annotations": None}})
        assert condition(found, "Paused") == ("False", "NotPaused", "")
        assert len(await names(world)) == 3


async def test_the_sets_of_a_paused_cluster_are_left_alone() -> None:
    async with herd() as world:
        await world.patch(CLUSTERS, "c1", {"spec": {"paused": True}})
        found = await make(world, machine_set())
        assert condition(found, "Paused") == ("True", "Paused", "Cluster spec.paused is set to true")
        await world.patch(CLUSTERS, "c1", {"spec": {"paused": False}})
        await world.settle()
        assert len(await names(world)) == 3


async def test_only_sets_of_this_manager_are_looked_at() -> None:
    async with herd(ControllerOptions(watch_filter="mine")) as world:
        await make(world, machine_set("theirs"))
        await make(world, with_path(machine_set("ours"), ("metadata", "labels"), {"cluster.x-k8s.io/watch-filter": "mine"}))
        assert {name.split("-")[0] for name in await names(world)} == {"ours"}


async def test_a_set_that_is_done_is_not_written_any_more() -> None:
    async with herd() as world:
        await make(world, machine_set())
        await world.settle(60)
        before = [(await look(world))["metadata"], *await world.list(MACHINES), *await world.list(TEST_MACHINES)]
        await world.settle(1300)
        assert [(await look(world))["metadata"], *await world.list(MACHINES), *await world.list(TEST_MACHINES)] == before


# --- growing ---------------------------------------------------------------------------------------------------------------


async def test_a_set_makes_machines_with_their_clones() -> None:
    async with herd() as world:
        found = await make(world, machine_set())
        machines, infra, configs = await everything(world)
        assert len(machines) == 3
        assert machines == infra == configs
        assert all(name.startswith("ms-") and len(name) == 8 for name in machines)
        assert found["status"]["replicas"] == 3
        assert condition(found, "ScalingUp") == ("False", "NotScalingUp", "")
        assert found["status"]["versions"] == [{"version": "v1.36.3", "replicas": 3}]
        events = sorted(await world.events())
        assert events == [("MachineSet", "SuccessfulCreate", f'Created Machine "{name}"') for name in machines]


async def test_clones_belong_to_the_set_until_their_machine_takes_them() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=1))
        for resource in (TEST_MACHINES, TEST_CONFIGS):
            (clone,) = await world.list(resource)
            (owner,) = clone["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"], owner.get("controller")) == ("MachineSet", "ms", None)
            assert clone["spec"] == {"size": "small"}
            assert clone["metadata"]["annotations"]["cluster.x-k8s.io/cloned-from-name"] == "t"
            assert clone["metadata"]["labels"]["cluster.x-k8s.io/set-name"] == "ms"


async def test_names_follow_the_template_of_names() -> None:
    async with herd() as world:
        naming = {"template": "{{ .cluster.name }}-{{ .machineSet.name }}-w-{{ .random }}"}
        await make(world, machine_set(replicas=1, machineNaming=naming))
        assert [name[:-5] for name in await names(world)] == ["c1-ms-w-"]


async def test_without_a_bootstrap_template_no_configuration_is_made() -> None:
    async with herd() as world:
        wanted = with_path(machine_set(), ("spec", "template", "spec", "bootstrap"), {"dataSecretName": "data"})
        await make(world, wanted)
        machines, infra, configs = await everything(world)
        assert machines == infra
        assert configs == []
        assert (await world.list(MACHINES))[0]["spec"]["bootstrap"] == {"dataSecretName": "data"}


async def test_a_set_grows_and_shrinks_by_what_is_missing() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=1))
        before = await names(world)
        await change(world, {"spec": {"replicas": 4}})
        assert len(await names(world)) == 4
        assert set(before) < set(await names(world))


async def test_a_set_that_becomes_smaller_makes_no_more_than_it_has_begun() -> None:
    async with herd() as world:
        world.core.client = Slow(world.core.client, world.clock, 5.0)  # type: ignore[assignment]
        made = await world.create(MACHINE_SETS, machine_set(replicas=30))
        await world.settle(2)
        assert await names(world) == []
        assert world.core.pending.count(uid_of(made)) == AT_ONCE
        await world.patch(MACHINE_SETS, "ms", {"spec": {"replicas": 0}})
        await world.settle(4)
        # All that came were seen, and no further one was begun.
        assert len(await world.list(MACHINES)) <= AT_ONCE
        assert world.core.pending.count(uid_of(made)) == 0
        events = [each for each in await world.events() if each[1] == "SuccessfulCreate"]
        assert len(events) <= AT_ONCE


async def test_what_could_not_be_made_is_not_coming() -> None:
    async with herd() as world:
        world.core.client = Refusing(world.core.client, lambda verb, resource: verb == "apply" and resource == MACHINES)  # type: ignore[assignment]
        made = await make(world, machine_set(replicas=3))
        assert world.core.pending.count(uid_of(made)) == 0


async def test_more_machines_than_one_reconcile_makes_come_all_the_same() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=300))
        await world.settle(5)
        assert [len(each) for each in await everything(world)] == [300, 300, 300]


async def test_an_annotation_stops_new_machines() -> None:
    async with herd() as world:
        marked = with_path(machine_set(), ("metadata", "annotations"), {"cluster.x-k8s.io/disable-machine-create": "true"})
        found = await make(world, marked)
        assert await names(world) == []
        assert condition(found, "ScalingUp") == ("True", "ScalingUp", "Scaling up from 0 to 3 replicas")


async def test_without_replicas_nothing_is_made() -> None:
    async with herd() as world:
        found = await make(world, machine_set(replicas=None))
        assert await names(world) == []
        assert condition(found, "ScalingUp") == ("Unknown", "WaitingForReplicasSet", "Waiting for spec.replicas set")
        assert "observedGeneration" not in found["status"]


async def test_a_set_that_would_not_select_what_it_makes_makes_nothing() -> None:
    async with herd() as world:
        wanted = machine_set()
        wanted["spec"]["selector"]["matchLabels"]["other"] = "label"
        found = await make(world, wanted)
        assert await everything(world) == ([], [], [])
        why = "spec.selector does not match the labels of spec.template"
        assert condition(found, "ScalingUp")[2] == f"Scaling up from 0 to 3 replicas is blocked because:\n* {why}"


async def test_a_machine_that_is_no_longer_selected_is_let_go_and_replaced() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=1))
        (name,) = await names(world)
        await world.patch(MACHINES, name, {"metadata": {"labels": {"app": "other"}}})
        await world.settle()
        assert len(await names(world)) == 2
        assert not is_being_deleted(await world.get(MACHINES, name))


async def test_a_template_edited_in_place_changes_nothing_but_the_next_clone() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=1))
        (old,) = await names(world)
        await world.patch(TEST_MACHINE_TEMPLATES, "t", {"spec": {"template": {"spec": {"size": "large"}}}})
        await change(world, {"spec": {"replicas": 2}})
        sizes = {name_of(clone): clone["spec"]["size"] for clone in await world.list(TEST_MACHINES)}
        assert sizes.pop(old) == "small"
        assert list(sizes.values()) == ["large"]


# --- what keeps it from growing --------------------------------------------------------------------------------------------


async def test_a_missing_template_is_named_and_waited_for() -> None:
    async with herd() as world:
        await world.delete(TEST_MACHINE_TEMPLATES, "t")
        found = await make(world, machine_set())
        assert condition(found, "ScalingUp") == (
            "True",
            "ScalingUp",
            "Scaling up from 0 to 3 replicas is blocked because:\n* TestMachineTemplate does not exist",
        )
        assert condition(found, "MachinesCreated", LEGACY) == (
            "False",
            "InfrastructureTemplateCloningFailed",
            "failed to create InfraMachine: failed to compute desired InfraMachine: failed to retrieve TestMachineTemplate "
            'herd/t: TestMachineTemplate.infrastructure.test.io "t" not found',
        )
        assert "observedGeneration" not in found["status"]
        assert await everything(world) == ([], [], [])
        await world.create(TEST_MACHINE_TEMPLATES, thing("infrastructure.test.io", "TestMachineTemplate", "t"))
        await world.settle()
        found = await look(world)
        assert len(await names(world)) == 3
        assert condition(found, "MachinesCreated", LEGACY)[0] == "True"
        assert found["status"]["observedGeneration"] == found["metadata"]["generation"]


async def test_a_missing_bootstrap_template_is_named_too() -> None:
    async with herd() as world:
        await world.delete(TEST_CONFIG_TEMPLATES, "t")
        found = await make(world, machine_set())
        unread = (
            "failed to read machineset.cluster.x-k8s.io/skip-preflight-checks annotation: failed to retrieve TestConfigTemplate "
            'herd/t: TestConfigTemplate.bootstrap.test.io "t" not found'
        )
        blocked = f"Scaling up from 0 to 3 replicas is blocked because:\n* {unread}\n* TestConfigTemplate does not exist"
        assert condition(found, "ScalingUp") == ("True", "ScalingUp", blocked)
        assert condition(found, "MachinesCreated", LEGACY) == ("False", "PreflightCheckFailed", unread)


async def test_a_provider_that_comes_later_is_picked_up() -> None:
    async with herd() as world:
        crd = await world.client.get(CRDS, "testmachinetemplates.infrastructure.test.io")
        await world.client.delete(CRDS, name_of(crd))
        await world.settle(5)
        found = await make(world, machine_set())
        assert condition(found, "ScalingUp")[0] == "True"
        assert await names(world) == []
        clean = {**crd, "metadata": {"name": name_of(crd), "labels": crd["metadata"]["labels"]}}
        clean.pop("status", None)
        await world.create(CRDS, clean)
        await world.settle(5)
        await world.create(
            TEST_MACHINE_TEMPLATES,
            thing("infrastructure.test.io", "TestMachineTemplate", "t", {"template": {"spec": {"size": "small"}}}),
        )
        await world.settle(70)
        assert len(await names(world)) == 3


async def test_machines_wait_for_a_stable_control_plane() -> None:
    async with herd(ready=False) as world:
        await world.patch(TEST_CONTROL_PLANES, "c1", {"spec": {"version": "v1.36.3"}})
        found = await make(world, machine_set())
        why = 'TestControlPlane herd/c1 is provisioning ("ControlPlaneIsStable" preflight check failed)'
        assert condition(found, "ScalingUp")[2] == f"Scaling up from 0 to 3 replicas is blocked because:\n* {why}"
        assert condition(found, "MachinesCreated", LEGACY) == ("False", "PreflightCheckFailed", why)
        assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
        assert await names(world) == []
        await world.initialize_control_plane("c1")
        await world.settle(0.5)  # at once, not at the next look
        assert len(await names(world)) == 3


async def test_a_missing_control_plane_is_named() -> None:
    async with herd() as world:
        await world.delete(TEST_CONTROL_PLANES, "c1")
        found = await make(world, machine_set())
        assert condition(found, "ScalingUp")[2].splitlines()[1] == (
            '* failed to perform "Scale up": failed to perform preflight checks: failed to get ControlPlane herd/c1: '
            'failed to retrieve TestControlPlane herd/c1: TestControlPlane.controlplane.test.io "c1" not found'
        )


@pytest.mark.parametrize("where", ["set", "template", "option"])
async def test_checks_can_be_left_out(where: str) -> None:
    skip = {"metadata": {"annotations": {"machineset.cluster.x-k8s.io/skip-preflight-checks": "All"}}}
    checks = frozenset[str]() if where == "option" else frozenset({"All"})
    async with herd(ControllerOptions(preflight_checks=checks), ready=False) as world:
        await world.patch(TEST_CONTROL_PLANES, "c1", {"spec": {"version": "v1.36.3"}})
        if where == "template":
            await world.patch(TEST_CONFIG_TEMPLATES, "t", skip)
        wanted = machine_set()
        if where == "set":
            wanted["metadata"] |= skip["metadata"]
        await make(world, wanted)
        assert len(await names(world)) == 3


# --- when the server says no, or this process dies -------------------------------------------------------------------------


async def test_when_a_machine_can_t_be_made_its_clones_are_taken_back() -> None:
    async with herd() as world:
        allowed = world.core.client
        world.core.client = Refusing(allowed, lambda verb, resource: verb == "apply" and resource == MACHINES)  # type: ignore[assignment]
        found = await make(world, machine_set(replicas=2))
        assert await everything(world) == ([], [], [])
        why = "failed to apply Machine: no apply of machines today"
        assert condition(found, "MachinesCreated", LEGACY) == ("False", "MachineCreationFailed", why)
        assert condition(found, "ScalingUp")[2].endswith(f"is blocked because:\n* {why}")
        world.core.client = allowed
        await world.settle(10)
        assert [len(each) for each in await everything(world)] == [2, 2, 2]
        assert condition(await look(world), "MachinesCreated", LEGACY)[0] == "True"


async def test_when_an_infrastructure_machine_can_t_be_made_the_configuration_is_taken_back() -> None:
    async with herd() as world:
        world.core.client = Refusing(world.core.client, lambda verb, resource: verb == "apply" and resource == TEST_MACHINES)  # type: ignore[assignment]
        found = await make(world, machine_set(replicas=1))
        assert await everything(world) == ([], [], [])
        assert condition(found, "MachinesCreated", LEGACY) == (
            "False",
            "InfrastructureTemplateCloningFailed",
            "failed to create InfraMachine: failed to apply TestMachine: no apply of testmachines today",
        )


async def test_what_a_crash_left_half_made_is_collected() -> None:
    async with herd() as world:
        allowed = world.core.client

        def refuses(verb: str, resource: Any) -> bool:
            return (verb == "apply" and resource == MACHINES) or verb == "delete"

        world.core.client = Refusing(allowed, refuses)  # type: ignore[assignment]
        await make(world, machine_set(replicas=2))
        machines, infra, configs = await everything(world)
        assert machines == []
        assert infra and configs
        world.core.client = allowed
        await world.settle(10)
        machines, infra, configs = await everything(world)
        assert len(machines) == 2
        assert machines == infra == configs


async def test_nothing_is_collected_that_is_not_the_set_s() -> None:
    async with herd() as world:
        other = thing("infrastructure.test.io", "TestMachine", "other")
        other["metadata"]["labels"] = {"app": "ms", CLUSTER_LABEL: "c1"}
        await world.create(TEST_MACHINES, other)
        await make(world, machine_set(replicas=1))
        assert "other" in await names(world, TEST_MACHINES)


async def test_the_same_seed_gives_the_same_names() -> None:
    found = []
    for _ in range(2):
        async with herd() as world:
            await make(world, machine_set())
            found.append(await names(world))
    assert found[0] == found[1]


# --- adoption --------------------------------------------------------------------------------------------------------------


async def test_machines_without_an_owner_are_adopted() -> None:
    async with herd() as world:
        await world.machine("stray", labels={"app": "ms"})
        await make(world, machine_set(replicas=2))
        found = await world.get(MACHINES, "stray")
        (owner,) = found["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("MachineSet", "ms", True)
        assert found["metadata"]["labels"]["cluster.x-k8s.io/set-name"] == "ms"
        assert len(await names(world)) == 2
        assert ("MachineSet", "SuccessfulAdopt", 'Adopted Machine "stray"') in await world.events()


async def test_a_machine_that_comes_later_is_adopted_and_one_too_many_goes() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=1))
        await world.machine("a-stray", labels={"app": "ms"})
        await world.settle()
        going = [name_of(each) for each in await world.list(MACHINES) if is_being_deleted(each)]
        assert len(going) == 1


async def test_machines_of_others_are_left_to_them() -> None:
    async with herd() as world:
        theirs = await world.machine("theirs", labels={"app": "ms"})
        owner = {"apiVersion": "v1", "kind": "Someone", "name": "else", "uid": "1", "controller": True}
        await world.patch(MACHINES, name_of(theirs), {"metadata": {"ownerReferences": [owner]}})
        found = await make(world, machine_set(replicas=1))
        assert found["status"]["replicas"] == 1
        assert len(await names(world)) == 2
        assert (await world.get(MACHINES, "theirs"))["metadata"]["ownerReferences"] == [owner]


async def test_a_set_that_goes_adopts_nothing() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=1))
        await world.delete(MACHINE_SETS, "ms")
        await world.settle()
        await world.machine("let-go", labels={"app": "ms"})
        await world.settle()
        await finish_deletions(world)
        assert await names(world) == ["let-go"]
        assert await world.find(MACHINE_SETS, "ms") is None


# --- shrinking -------------------------------------------------------------------------------------------------------------


async def test_a_set_that_has_too_many_deletes_the_broken_ones_first() -> None:
    async with herd() as world:
        await make(world, machine_set())
        first, second, third = await names(world)
        for name in (first, third):
            await give_node(world, name)
        found = await change(world, {"spec": {"replicas": 2}})
        assert condition(found, "ScalingDown") == ("True", "ScalingDown", "Scaling down from 3 to 2 replicas")
        assert ("MachineSet", "SuccessfulDelete", f'Deleted Machine "{second}"') in await world.events()
        assert await finish_deletions(world) == [second]
        assert await names(world) == [first, third]
        assert condition(await look(world), "ScalingDown") == ("False", "NotScalingDown", "")


@pytest.mark.parametrize(("order", "goes"), [("Oldest", 0), ("Newest", 1)])
async def test_the_order_of_deletion_counts_among_healthy_machines(order: str, goes: int) -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=1, deletion={"order": order}))
        (old,) = await names(world)
        await world.settle(3600)
        await change(world, {"spec": {"replicas": 2}})
        both = [old, *(name for name in await names(world) if name != old)]
        for name in both:
            await give_node(world, name)
        await change(world, {"spec": {"replicas": 1}})
        assert await finish_deletions(world) == [both[goes]]


async def test_a_marked_machine_goes_first() -> None:
    async with herd() as world:
        await make(world, machine_set())
        for name in await names(world):
            await give_node(world, name)
        marked = (await names(world))[1]
        await world.patch(MACHINES, marked, {"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": ""}}})
        await change(world, {"spec": {"replicas": 2}})
        assert await finish_deletions(world) == [marked]


async def test_nothing_more_is_deleted_while_machines_go() -> None:
    async with herd() as world:
        await make(world, machine_set())
        await change(world, {"spec": {"replicas": 2}})
        await world.settle(120)
        assert sum(is_being_deleted(each) for each in await world.list(MACHINES)) == 1


async def test_a_deleted_machine_is_replaced_when_it_is_gone() -> None:
    async with herd() as world:
        await make(world, machine_set())
        first = (await names(world))[0]
        await world.delete(MACHINES, first)
        await world.settle(5)
        assert len(await names(world)) == 3
        await finish_deletions(world)
        assert len(await names(world)) == 3
        assert first not in await names(world)


# --- deletion --------------------------------------------------------------------------------------------------------------


async def test_a_set_goes_when_its_machines_are_gone() -> None:
    async with herd() as world:
        await make(world, machine_set())
        await world.delete(MACHINE_SETS, "ms")
        await world.settle()
        found = await look(world)
        assert condition(found, "Deleting") == ("True", "Deleting", "Deleting 3 Machines")
        assert condition(found, "ScalingDown") == ("True", "ScalingDown", "Scaling down from 3 to 0 replicas")
        assert all(is_being_deleted(each) for each in await world.list(MACHINES))
        await finish_deletions(world)
        assert await world.find(MACHINE_SETS, "ms") is None


async def test_a_set_goes_without_its_templates_its_deployment_and_its_cluster() -> None:
    async with herd() as world:
        await world.create(MACHINE_DEPLOYMENTS, deployment())
        await make(world, child())
        assert len(await names(world)) == 2
        await world.delete(TEST_MACHINE_TEMPLATES, "t")
        await world.delete(MACHINE_DEPLOYMENTS, "md")
        await world.delete(MACHINE_SETS, "ms")
        await world.delete(CLUSTERS, "c1")
        await world.settle()
        await finish_deletions(world)
        assert await world.find(MACHINE_SETS, "ms") is None


async def test_deletions_that_take_a_quarter_of_an_hour_are_told() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=1))
        (name,) = await names(world)
        await world.delete(MACHINE_SETS, "ms")
        await world.settle(905)
        message = f"Deleting 1 Machine\n* Machine {name} is in deletion since more than 15m"
        assert condition(await look(world), "Deleting") == ("True", "Deleting", message)


# --- sets of deployments ---------------------------------------------------------------------------------------------------


def deployment(revision: str = "1", **spec: Any) -> Obj:
    template = {"metadata": {"labels": {"app": "ms"}}, "spec": machine_spec("t")}
    wanted = {"clusterName": "c1", "replicas": 4, "selector": {"matchLabels": {"app": "ms"}}, "template": template, **spec}
    found = core_object("MachineDeployment", "md", wanted)
    return with_path(found, ("metadata", "annotations"), {REVISION: revision})


def child(revision: str = "1", replicas: int = 2) -> Obj:
    found = with_path(machine_set(replicas=replicas), ("metadata", "annotations"), {REVISION: revision})
    return with_path(found, ("metadata", "labels"), {"cluster.x-k8s.io/deployment-name": "md"})


async def test_a_deployment_s_set_is_not_the_cluster_s_and_names_the_deployment_on_machines() -> None:
    async with herd() as world:
        await world.create(MACHINE_DEPLOYMENTS, deployment())
        found = await make(world, child())
        assert "ownerReferences" not in found["metadata"]
        labels = (await world.list(MACHINES))[0]["metadata"]["labels"]
        assert labels["cluster.x-k8s.io/deployment-name"] == "md"


async def test_a_set_whose_deployment_is_missing_says_so() -> None:
    async with herd() as world:
        found = await make(world, child())
        assert condition(found, "ScalingUp") == ("Unknown", "InternalError", "MachineDeployment herd/md does not exist")
        await world.create(MACHINE_DEPLOYMENTS, deployment())
        await world.settle()
        assert len(await names(world)) == 2


async def test_an_old_set_does_without_its_templates() -> None:
    async with herd() as world:
        await world.create(MACHINE_DEPLOYMENTS, deployment("2"))
        await world.delete(TEST_MACHINE_TEMPLATES, "t")
        found = await make(world, child("1", replicas=0))
        message = "Scaling up would be blocked because TestMachineTemplate does not exist"
        assert condition(found, "ScalingUp") == ("False", "NotScalingUp", message)
        assert found["status"]["observedGeneration"] == found["metadata"]["generation"]


# --- remediation -----------------------------------------------------------------------------------------------------------


async def fall_ill(world: World, *sick: str) -> None:
    for name in sick:
        await say(world, name, HealthCheckSucceeded="False", OwnerRemediated="False")
    await world.settle()


async def test_an_unhealthy_machine_is_replaced() -> None:
    async with herd() as world:
        await make(world, machine_set())
        sick = (await names(world))[0]
        await fall_ill(world, sick)
        found = await world.get(MACHINES, sick)
        assert is_being_deleted(found)
        assert condition(found, "OwnerRemediated") == ("False", "MachineDeleting", "Machine is deleting")
        assert condition(found, "OwnerRemediated", LEGACY) == ("True", "", "")
        remediating = condition(await look(world), "Remediating")
        assert remediating == ("True", "Remediating", f"* Machine {sick}: Machine is deleting")
        await finish_deletions(world)
        assert sick not in await names(world)
        assert len(await names(world)) == 3
        assert condition(await look(world), "Remediating") == ("False", "NotRemediating", "")


async def test_remediation_waits_for_a_stable_control_plane() -> None:
    async with herd() as world:
        await make(world, machine_set())
        await world.patch(TEST_CONTROL_PLANES, "c1", {"spec": {"version": "v1.37.0"}})
        sick = (await names(world))[0]
        await fall_ill(world, sick)
        found = await world.get(MACHINES, sick)
        why = 'TestControlPlane herd/c1 is upgrading ("ControlPlaneIsStable" preflight check failed)'
        assert not is_being_deleted(found)
        assert condition(found, "OwnerRemediated") == ("False", "RemediationDeferred", f"* {why}")
        assert condition(found, "OwnerRemediated", LEGACY) == ("False", "WaitingForRemediation", why)
        await world.initialize_control_plane("c1", "v1.37.0")
        await world.settle(1)
        assert is_being_deleted(await world.get(MACHINES, sick))


async def test_a_deployment_limits_how_many_are_remediated_at_once() -> None:
    async with herd() as world:
        await world.create(MACHINE_DEPLOYMENTS, deployment(remediation={"maxInFlight": "25%"}))
        await make(world, child(replicas=4))
        machines = await names(world)
        await fall_ill(world, *machines)
        going = [each for each in await world.list(MACHINES) if is_being_deleted(each)]
        assert len(going) == 1
        waiting = next(each for each in await world.list(MACHINES) if not is_being_deleted(each))
        assert condition(waiting, "OwnerRemediated") == (
            "False",
            "RemediationDeferred",
            "Waiting because there are already too many remediations in progress (spec.strategy.remediation.maxInFlight is 25%)",
        )
        await finish_deletions(world)
        assert sum(is_being_deleted(each) for each in await world.list(MACHINES)) == 1


async def test_machines_of_an_old_revision_are_left_to_the_rollout() -> None:
    async with herd() as world:
        await world.create(MACHINE_DEPLOYMENTS, deployment("1"))
        await make(world, child("1", replicas=1))
        await world.patch(MACHINE_DEPLOYMENTS, "md", {"metadata": {"annotations": {REVISION: "2"}}})
        (sick,) = await names(world)
        await fall_ill(world, sick)
        found = await world.get(MACHINES, sick)
        assert not is_being_deleted(found)
        why = "Machine won't be remediated because it is pending removal due to rollout"
        assert condition(found, "OwnerRemediated") == ("False", "CannotBeRemediated", why)


async def test_a_machine_that_is_well_again_is_let_off() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=1))
        (name,) = await names(world)
        await say(world, name, HealthCheckSucceeded="True", OwnerRemediated="False")
        await world.settle()
        found = await world.get(MACHINES, name)
        assert get(found, "OwnerRemediated") is None
        assert get(found, "OwnerRemediated", LEGACY) is None
        assert not is_being_deleted(found)


# --- workload clusters -----------------------------------------------------------------------------------------------------


async def test_the_older_counters_follow_the_nodes() -> None:
    async with herd() as world:
        await make(world, machine_set(replicas=1))
        (name,) = await names(world)
        workload = await world.workloads.connect("c1")
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-01T00:00:00Z"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{name}"}, "status": {"conditions": [ready]}}
        await workload.client.create(workload.nodes.resource, node)
        await give_node(world, name)
        await world.settle()
        found = await look(world)
        assert found["status"]["readyReplicas"] == 1
        assert dig(found, "status", "deprecated", "v1beta1", "readyReplicas") == 1
        assert condition(found, "Ready", LEGACY)[0] == "True"
        world.workloads.cut("c1")
        await world.settle()
        assert dig(await look(world), "status", "deprecated", "v1beta1", "readyReplicas") == 0
