"""The MachineDeployment controller at work. The test plays MachineSets: it says how many of their machines are there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from remuda.api.cluster_x_k8s_io import API_VERSION, CLUSTERS, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES
from remuda.capi.controller_context import ControllerOptions, Core
from remuda.capi.machinedeployment import MachineDeployments
from remuda.kube.clock import rfc3339
from remuda.kube.conditions import LEGACY, get
from remuda.kube.objects import annotations_of, dig, labels_of, name_of, owner_references_of
from remuda.runtime import Manager
from tests.unit.capi.memory_clusters import (
    BOOTSTRAP,
    INFRA,
    NAMESPACE,
    TEST_CLUSTERS,
    TEST_CONFIG_TEMPLATES,
    TEST_MACHINE_TEMPLATES,
    World,
    core_object,
    machine_spec,
    thing,
    world,
)

Obj = dict[str, Any]

NAME, CLUSTER = "cluster.x-k8s.io/deployment-name", "cluster.x-k8s.io/cluster-name"
HASH = "machine-template-hash"
REVISION = "machinedeployment.clusters.x-k8s.io/revision"
SELECTED = {CLUSTER: "c1", NAME: "md"}


def deployment(name: str = "md", *, replicas: int | None = 3, surge: Any = 1, unavailable: Any = 0, **spec: Any) -> Obj:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    template = {"metadata": {"labels": {**SELECTED, NAME: name}}, "spec": machine_spec("t1")}
    made: Obj = {"clusterName": "c1", "rollout": {"strategy": strategy}, "selector": {"matchLabels": {**SELECTED, NAME: name}}}
    if replicas is not None:
        made["replicas"] = replicas
    return core_object("MachineDeployment", name, {**made, "template": template, **spec})


ON_DELETE: Obj = {"rollout": {"strategy": {"type": "OnDelete"}}}


class Herd:
    """A world with one cluster and the templates t1, t2, t3."""

    def __init__(self, made: World) -> None:
        self.world = made

    async def create(self, obj: Obj | None = None) -> Obj:
        made = await self.world.create(MACHINE_DEPLOYMENTS, obj or deployment())
        await self.world.settle()
        return made

    async def get(self, name: str = "md") -> Obj:
        return await self.world.get(MACHINE_DEPLOYMENTS, name)

    async def patch(self, spec: Obj, name: str = "md") -> None:
        await self.world.patch(MACHINE_DEPLOYMENTS, name, {"spec": spec})
        await self.world.settle()

    async def change_template(self, template: str) -> None:
        ref = {"infrastructureRef": {"name": template}, "bootstrap": {"configRef": {"name": template}}}
        await self.patch({"template": {"spec": ref}})

    async def sets(self) -> list[Obj]:
        found = await self.world.list(MACHINE_SETS)
        return sorted(found, key=lambda each: (int(annotations_of(each).get(REVISION, "0")), name_of(each)))

    async def sizes(self) -> list[int]:
        return [each["spec"]["replicas"] for each in await self.sets()]

    async def only_set(self) -> Obj:
        (found,) = await self.sets()
        return found

    async def play(self, *, available: bool = True, only: Iterable[str] | None = None) -> None:
        """The sets' controller has done its work: as many machines as there should be, and no finalizers."""
        current = labels_of((await self.sets())[-1]).get(HASH)
        for each in await self.sets():
            if only is not None and name_of(each) not in only:
                continue
            count = each["spec"]["replicas"]
            ready = count if available else 0
            status = {
                "observedGeneration": each["metadata"]["generation"],
                "replicas": count,
                "readyReplicas": ready,
                "availableReplicas": ready,
                "upToDateReplicas": count if labels_of(each).get(HASH) == current else 0,
                "versions": [{"version": dig(each, "spec", "template", "spec", "version"), "replicas": count}] if count else None,
                "deprecated": {"v1beta1": {"readyReplicas": ready, "availableReplicas": ready, "fullyLabeledReplicas": count}},
            }
            await self.world.patch(MACHINE_SETS, name_of(each), {"status": status}, "status")
        await self.world.settle()

    async def machine(self, name: str, machine_set: Obj, annotations: Obj | None = None, conditions: Obj | None = None) -> None:
        """A machine of a set; `conditions` as type: (status, reason, message)."""
        made = core_object("Machine", name, machine_spec(name, template=False))
        owner = {"apiVersion": API_VERSION, "kind": "MachineSet", "controller": True, "blockOwnerDeletion": True}
        owner |= {"name": name_of(machine_set), "uid": machine_set["metadata"]["uid"]}
        labels = dig(machine_set, "spec", "template", "metadata", "labels")
        made["metadata"] |= {"labels": labels, "annotations": annotations or {}, "ownerReferences": [owner]}
        await self.world.create(MACHINES, made)
        since = rfc3339(self.world.clock.time())
        found = [
            {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
            for kind, (status, reason, message) in (conditions or {}).items()
        ]
        if found:
            await self.world.patch(MACHINES, name, {"status": {"conditions": found}}, "status")

    async def condition(self, kind: str, name: str = "md") -> tuple[str, str, str]:
        found = get(await self.get(name), kind)
        assert found is not None
        return found["status"], found["reason"], found["message"]

    async def legacy(self, kind: str) -> tuple[str, ...] | None:
        found = get(await self.get(), kind, LEGACY)
        return None if found is None else tuple(found.get(field) or "" for field in ("status", "severity", "reason", "message"))

    async def events(self) -> list[tuple[str, str]]:
        return [(reason, message) for kind, reason, message in await self.world.events() if kind == "MachineDeployment"]


@pytest.fixture
async def bare() -> Any:
    async with world(MachineDeployments) as made:
        yield Herd(made)


@pytest.fixture
async def herd(bare: Herd) -> Herd:
    await bare.world.cluster()
    for name in ("t1", "t2", "t3"):
        await bare.world.templates(name)
    return bare


# --- the first set ------------------------------------------------------------------------------------------------------------


async def test_a_deployment_gets_finalizer_label_and_owner(herd: Herd) -> None:
    await herd.create()
    found = await herd.get()
    cluster = await herd.world.get(CLUSTERS, "c1")
    assert found["metadata"]["finalizers"] == ["cluster.x-k8s.io/machinedeployment"]
    assert labels_of(found) == {CLUSTER: "c1"}
    assert owner_references_of(found) == [
        {"apiVersion": API_VERSION, "kind": "Cluster", "name": "c1", "uid": cluster["metadata"]["uid"]}
    ]
    assert annotations_of(found) == {REVISION: "1"}
    assert found["status"]["observedGeneration"] == 1
    assert found["status"]["selector"] == f"{CLUSTER}=c1,{NAME}=md"


async def test_templates_belong_to_the_cluster(herd: Herd) -> None:
    await herd.create()
    cluster = await herd.world.get(CLUSTERS, "c1")
    for resource in (TEST_MACHINE_TEMPLATES, TEST_CONFIG_TEMPLATES):
        owners = owner_references_of(await herd.world.get(resource, "t1"))
        assert [(owner["kind"], owner["uid"]) for owner in owners] == [("Cluster", cluster["metadata"]["uid"])]
        assert "controller" not in owners[0]


async def test_the_first_writer_of_a_template_keeps_its_changes(herd: Herd) -> None:
    client = herd.world.core.client
    patch = client.patch
    raced: list[str] = []

    async def late(resource: Any, name: str, *args: Any, **kwargs: Any) -> Obj:
        if resource == TEST_MACHINE_TEMPLATES and not raced:
            raced.append(name)
            found = await herd.world.get(TEST_CLUSTERS, "c1")
            other = {"apiVersion": f"{INFRA}/v1", "kind": "TestCluster", "name": "c1", "uid": found["metadata"]["uid"]}
            await herd.world.patch(resource, name, {"metadata": {"ownerReferences": [other]}})
        return await patch(resource, name, *args, **kwargs)

    client.patch = late  # type: ignore[method-assign]
    await herd.create()
    owners = owner_references_of(await herd.world.get(TEST_MACHINE_TEMPLATES, "t1"))
    assert [owner["kind"] for owner in owners] == ["TestCluster", "Cluster"]
    assert (await herd.get())["status"]["phase"] == "ScalingUp"


async def test_the_first_set_has_everything_of_the_deployment(herd: Herd) -> None:
    made = deployment(
        deletion={"order": "Newest"},
        machineNaming={"template": "{{ .machineSet.name }}-{{ .random }}"},
    )
    made["metadata"]["annotations"] = {"team": "red", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    made["spec"]["template"]["metadata"] |= {"annotations": {"seat": "window"}}
    made["spec"]["template"]["metadata"]["labels"]["zone"] = "north"
    made["spec"]["template"]["spec"] |= {
        "minReadySeconds": 7,
        "readinessGates": [{"conditionType": "Fed"}],
        "deletion": {"nodeDrainTimeoutSeconds": 60},
        "taints": [{"key": "k", "effect": "NoSchedule", "propagation": "Always"}],
        "failureDomain": "a",
    }
    await herd.create(made)
    found, owner = await herd.only_set(), await herd.get()
    name, unique = name_of(found), labels_of(found)[HASH]
    assert name.startswith("md-") and len(name) == len("md-") + 5
    assert unique.partition("-")[2] == name[-5:] and unique.partition("-")[0].isdigit()
    labels = {**SELECTED, "zone": "north", HASH: unique}
    assert labels_of(found) == labels
    assert annotations_of(found) == {
        "team": "red",
        REVISION: "1",
        "machinedeployment.clusters.x-k8s.io/desired-replicas": "3",
        "machinedeployment.clusters.x-k8s.io/max-replicas": "4",
        "cluster.x-k8s.io/disable-machine-create": "false",
    }
    assert owner_references_of(found) == [
        {
            "apiVersion": API_VERSION,
            "kind": "MachineDeployment",
            "name": "md",
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert found["spec"] == {
        "clusterName": "c1",
        "replicas": 3,
        "selector": {"matchLabels": {**SELECTED, HASH: unique}},
        "template": {
            "metadata": {"labels": labels, "annotations": {"seat": "window"}},
            "spec": made["spec"]["template"]["spec"],
        },
        "deletion": {"order": "Newest"},
        "machineNaming": {"template": "{{ .machineSet.name }}-{{ .random }}"},
    }
    assert "finalizers" not in found["metadata"]
    assert await herd.events() == [("SuccessfulCreate", f"Created MachineSet {NAMESPACE}/{name} with 3 replicas")]


async def test_dropped_fields_go_also_from_a_set_without_managed_fields(herd: Herd) -> None:
    await herd.create(deployment(deletion={"order": "Oldest"}))
    (found,) = await herd.sets()
    await herd.world.patch(MACHINE_SETS, name_of(found), {"metadata": {"managedFields": [{}]}})
    await herd.world.settle()
    (found,) = await herd.sets()
    assert [each["manager"] for each in found["metadata"]["managedFields"] if not each.get("subresource")] == [
        "capi-machinedeployment"
    ]
    assert found["spec"]["deletion"] == {"order": "Oldest"}
    await herd.patch({"deletion": None})
    (found,) = await herd.sets()
    assert not dig(found, "spec", "deletion", "order")


async def test_a_long_name_is_cut_so_that_the_sets_name_fits(herd: Herd) -> None:
    await herd.create(deployment("m" * 60))
    name = name_of(await herd.only_set())
    assert len(name) == 63 and name.startswith("m" * 58)


async def test_without_a_cluster_nothing_happens_until_it_comes(bare: Herd) -> None:
    await bare.world.templates("t1")
    await bare.create()
    assert "finalizers" not in (await bare.get())["metadata"]
    await bare.world.cluster()
    await bare.world.settle()
    assert await bare.sizes() == [3]


async def test_no_set_is_made_while_templates_are_missing(bare: Herd) -> None:
    await bare.world.cluster()
    await bare.create()
    assert await bare.sets() == []
    assert await bare.condition("ScalingUp") == (
        "True",
        "ScalingUp",
        "Scaling up from 0 to 3 replicas is blocked because TestConfigTemplate and TestMachineTemplate do not exist",
    )
    assert "observedGeneration" not in (await bare.get())["status"]
    await bare.world.create(TEST_CONFIG_TEMPLATES, thing(BOOTSTRAP, "TestConfigTemplate", "t1"))
    await bare.world.settle()
    assert (await bare.condition("ScalingUp"))[2].endswith("is blocked because TestMachineTemplate does not exist")
    await bare.world.create(TEST_MACHINE_TEMPLATES, thing(INFRA, "TestMachineTemplate", "t1"))
    await bare.world.settle()
    assert await bare.sizes() == [3]


async def test_a_template_of_an_unknown_kind_is_told_and_waited_for(herd: Herd) -> None:
    made = deployment()
    made["spec"]["template"]["spec"]["infrastructureRef"] |= {"apiGroup": "nobody.io", "kind": "NobodyTemplate"}
    await herd.create(made)
    assert await herd.sets() == []
    for kind in ("Available", "ScalingUp", "ScalingDown", "Deleting"):
        assert await herd.condition(kind) == ("Unknown", "InternalError", "Please check controller logs for errors")
    assert (await herd.get())["status"]["phase"] == "Unknown"


async def test_a_bootstrap_secret_needs_no_template(herd: Herd) -> None:
    made = deployment()
    made["spec"]["template"]["spec"]["bootstrap"] = {"dataSecretName": "data"}
    await herd.create(made)
    assert await herd.sizes() == [3]


async def test_without_replicas_nothing_is_made(herd: Herd) -> None:
    await herd.create(deployment(replicas=None))
    assert await herd.sets() == []
    assert await herd.condition("Available") == ("Unknown", "WaitingForReplicasSet", "Waiting for spec.replicas set")


async def test_an_idle_deployment_is_not_written(herd: Herd) -> None:
    await herd.create()
    await herd.play()
    before, sets = await herd.get(), await herd.sets()
    await herd.world.settle(3000)
    assert await herd.get() == before
    assert await herd.sets() == sets


# --- rolling out --------------------------------------------------------------------------------------------------------------


async def test_a_rolling_update_goes_step_by_step_and_cleans_up(herd: Herd) -> None:
    await herd.create()
    await herd.play()
    await herd.change_template("t2")
    seen = [await herd.sizes()]
    for _ in range(5):
        await herd.play()
        seen.append(await herd.sizes())
    assert seen == [[3, 1], [2, 1], [2, 2], [1, 2], [1, 3], [0, 3]]
    await herd.play()
    # The old set had no machines any more.
    assert await herd.sizes() == [3]
    events = await herd.events()
    assert [reason for reason, _ in events].count("SuccessfulScale") == 5
    assert events[-1][0] == "SuccessfulDelete"
    found = await herd.get()
    assert annotations_of(found)[REVISION] == "2"
    assert found["status"]["replicas"] == found["status"]["upToDateReplicas"] == 3


async def test_each_new_set_has_the_next_revision(herd: Herd) -> None:
    await herd.create()
    await herd.change_template("t2")
    await herd.change_template("t3")
    assert [annotations_of(each)[REVISION] for each in await herd.sets()] == ["1", "2", "3"]


async def test_going_back_takes_the_set_that_is_there(herd: Herd) -> None:
    await herd.create()
    first = await herd.only_set()
    await herd.play()
    await herd.change_template("t2")
    await herd.play()
    await herd.change_template("t1")
    second, again = await herd.sets()
    assert again["metadata"]["uid"] == first["metadata"]["uid"]
    assert annotations_of(again)[REVISION] == "3"
    assert annotations_of(again)["machinedeployment.clusters.x-k8s.io/revision-history"] == "1"
    for _ in range(4):
        await herd.play()
    assert name_of(await herd.only_set()) == name_of(first)
    assert name_of(second) != name_of(first)


async def test_what_changes_in_place_goes_to_every_set_and_rolls_nothing_out(herd: Herd) -> None:
    await herd.create()
    await herd.play()
    await herd.change_template("t2")
    before = [dig(each, "spec", "template", "spec", "infrastructureRef") for each in await herd.sets()]
    spec = {"minReadySeconds": 9, "deletion": {"nodeDrainTimeoutSeconds": 5}, "readinessGates": [{"conditionType": "Fed"}]}
    meta = {"labels": {"zone": "south"}, "annotations": {"seat": "aisle"}}
    await herd.world.patch(MACHINE_DEPLOYMENTS, "md", {"metadata": {"annotations": {"team": "blue"}}})
    await herd.patch({"template": {"metadata": meta, "spec": spec}, "deletion": {"order": "Oldest"}})
    sets = await herd.sets()
    assert len(sets) == 2
    assert [dig(each, "spec", "template", "spec", "infrastructureRef") for each in sets] == before
    for each in sets:
        template = each["spec"]["template"]
        assert {field: template["spec"][field] for field in spec} == spec
        assert template["metadata"]["annotations"] == {"seat": "aisle"}
        assert template["metadata"]["labels"]["zone"] == labels_of(each)["zone"] == "south"
        assert annotations_of(each)["team"] == "blue"
        assert each["spec"]["deletion"] == {"order": "Oldest"}
    await herd.patch({"template": {"spec": {"minReadySeconds": None, "deletion": None}}})
    for each in await herd.sets():
        assert "minReadySeconds" not in each["spec"]["template"]["spec"]
        assert "deletion" not in each["spec"]["template"]["spec"]


async def test_foreign_changes_of_a_set_are_reverted_and_additions_stay(herd: Herd) -> None:
    await herd.create()
    name = name_of(await herd.only_set())
    meta = {"labels": {NAME: "another", "mine": "yes"}, "annotations": {REVISION: None}}
    await herd.world.patch(MACHINE_SETS, name, {"metadata": meta, "spec": {"replicas": 9}})
    await herd.world.settle()
    found = await herd.only_set()
    assert labels_of(found)[NAME] == "md" and labels_of(found)["mine"] == "yes"
    assert annotations_of(found)[REVISION] == "1"
    assert found["spec"]["replicas"] == 3


async def test_scaling_goes_to_the_one_set(herd: Herd) -> None:
    await herd.create()
    await herd.play()
    await herd.patch({"replicas": 5})
    found = await herd.only_set()
    assert found["spec"]["replicas"] == 5
    assert annotations_of(found)["machinedeployment.clusters.x-k8s.io/desired-replicas"] == "5"
    assert annotations_of(found)["machinedeployment.clusters.x-k8s.io/max-replicas"] == "6"
    await herd.play()
    await herd.patch({"replicas": 1})
    assert await herd.sizes() == [1]
    name = name_of(found)
    assert [message for reason, message in await herd.events() if reason == "SuccessfulScale"] == [
        f"Scaled up MachineSet {name}: 3 -> 5",
        f"Scaled down MachineSet {name}: 5 -> 1",
    ]


async def test_an_autoscaler_may_change_the_size_in_the_middle(herd: Herd) -> None:
    await herd.create(deployment(replicas=4))
    await herd.play()
    await herd.change_template("t2")
    await herd.play()
    assert await herd.sizes() == [3, 1]
    await herd.patch({"replicas": 6})
    # One old machine is still there.
    assert await herd.sizes() == [3, 3]
    await herd.play()
    await herd.patch({"replicas": 2})
    for _ in range(4):
        await herd.play()
    assert await herd.sizes() == [2]


async def test_a_marked_machine_decides_which_old_set_shrinks(herd: Herd) -> None:
    await herd.create(deployment(replicas=4, surge=2, unavailable=0))
    await herd.play()
    await herd.change_template("t2")
    await herd.play()
    await herd.change_template("t3")
    await herd.play()
    sizes = await herd.sizes()
    second = (await herd.sets())[1]
    await herd.machine("marked", second, {"cluster.x-k8s.io/delete-machine": ""})
    await herd.play()
    after = await herd.sizes()
    assert after[1] < sizes[1]


async def test_on_delete_waits_for_the_deletion_of_machines(herd: Herd) -> None:
    await herd.create(deployment(**ON_DELETE))
    await herd.play()
    await herd.change_template("t2")
    await herd.play()
    assert await herd.sizes() == [3, 0]
    old, new = await herd.sets()
    assert annotations_of(old)["cluster.x-k8s.io/disable-machine-create"] == "true"
    assert annotations_of(new)["cluster.x-k8s.io/disable-machine-create"] == "false"
    assert annotations_of(new)["machinedeployment.clusters.x-k8s.io/max-replicas"] == "3"
    await herd.world.patch(MACHINE_SETS, name_of(old), {"status": {"replicas": 2, "availableReplicas": 2}}, "status")
    await herd.world.settle()
    assert await herd.sizes() == [2, 1]
    # Back to rolling: old sets may make machines again.
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    await herd.patch({"rollout": {"strategy": strategy}})
    assert {annotations_of(each)["cluster.x-k8s.io/disable-machine-create"] for each in await herd.sets()} == {"false"}


# --- rollout.after ------------------------------------------------------------------------------------------------------------


async def test_all_machines_are_replaced_at_the_rollout_time(herd: Herd) -> None:
    await herd.create()
    await herd.play()
    await herd.patch({"rollout": {"after": rfc3339(herd.world.clock.time() + 300)}})
    await herd.world.settle(200)
    assert await herd.sizes() == [3]
    await herd.world.settle(110)
    assert await herd.sizes() == [3, 1]
    await herd.world.settle(2000)
    assert len(await herd.sets()) == 2


async def test_a_time_that_has_passed_before_the_set_was_made_asks_for_nothing(herd: Herd) -> None:
    await herd.create()
    await herd.play()
    await herd.patch({"rollout": {"after": rfc3339(herd.world.clock.time() - 300)}})
    assert await herd.sizes() == [3]


# --- paused -------------------------------------------------------------------------------------------------------------------


async def test_a_paused_cluster_pauses_its_deployments(herd: Herd) -> None:
    await herd.world.patch(CLUSTERS, "c1", {"spec": {"paused": True}})
    await herd.create()
    assert await herd.sets() == []
    assert await herd.condition("Paused") == ("True", "Paused", "Cluster spec.paused is set to true")
    assert (await herd.get())["metadata"]["finalizers"] == ["cluster.x-k8s.io/machinedeployment"]
    await herd.world.patch(CLUSTERS, "c1", {"spec": {"paused": None}})
    await herd.world.settle()
    assert await herd.condition("Paused") == ("False", "NotPaused", "")
    assert await herd.sizes() == [3]


async def test_an_annotation_pauses_a_deployment(herd: Herd) -> None:
    made = deployment()
    made["metadata"]["annotations"] = {"cluster.x-k8s.io/paused": ""}
    await herd.create(made)
    assert await herd.sets() == []
    message = "MachineDeployment has the cluster.x-k8s.io/paused annotation"
    assert await herd.condition("Paused") == ("True", "Paused", message)


async def test_a_deployment_whose_rollout_is_paused_is_scaled_in_proportion_but_not_rolled_out(herd: Herd) -> None:
    await herd.create(deployment(replicas=10, surge=2, unavailable=2))
    await herd.play()
    await herd.change_template("t2")
    await herd.play()
    await herd.patch({"paused": True})
    before = await herd.sizes()
    assert sum(before) == 12
    told = len(await herd.events())
    await herd.change_template("t3")
    await herd.play()
    assert await herd.sizes() == before
    assert annotations_of(await herd.get())[REVISION] == "2"
    await herd.patch({"replicas": 22})
    assert await herd.sizes() == [size * 2 for size in before]
    scaled = (await herd.events())[told:]
    assert [reason for reason, _ in scaled] == ["SuccessfulScale", "SuccessfulScale"]
    assert all(message.startswith(f"Scaled MachineSet {NAMESPACE}/md-") for _, message in scaled)


async def test_a_rollout_that_is_paused_from_the_start_makes_no_set(herd: Herd) -> None:
    await herd.create(deployment(paused=True))
    assert await herd.sets() == []
    assert await herd.legacy("MachineSetReady") == ("False", "Info", "WaitingForMachineSet", "MachineSet not found")


# --- whose sets they are ------------------------------------------------------------------------------------------------------


def orphan(name: str = "orphan", **labels: str) -> Obj:
    found = {**SELECTED, HASH: "1-orphan", **labels}
    spec = {
        "clusterName": "c1",
        "replicas": 3,
        "selector": {"matchLabels": found},
        "template": {"metadata": {"labels": found}, "spec": machine_spec("t1")},
    }
    made = core_object("MachineSet", name, spec)
    made["metadata"]["labels"] = found
    return made


async def test_a_matching_set_without_an_owner_is_adopted(herd: Herd) -> None:
    await herd.world.create(MACHINE_SETS, orphan())
    await herd.create()
    found = await herd.only_set()
    assert [(owner["name"], owner["controller"]) for owner in owner_references_of(found)] == [("md", True)]
    assert await herd.events() == [("SuccessfulAdopt", 'Adopted MachineSet "orphan"')]
    assert annotations_of(found)[REVISION] == "1"


async def test_a_set_that_appears_later_is_adopted_too(herd: Herd) -> None:
    await herd.create()
    await herd.world.create(MACHINE_SETS, orphan())
    await herd.world.settle()
    adopted = await herd.world.get(MACHINE_SETS, "orphan")
    assert [owner["name"] for owner in owner_references_of(adopted)] == ["md"]


async def test_a_set_of_another_owner_or_with_other_labels_is_left_alone(herd: Herd) -> None:
    stolen = orphan("stolen")
    cluster = await herd.world.get(CLUSTERS, "c1")
    owner = {"apiVersion": API_VERSION, "kind": "Cluster", "name": "c1", "uid": cluster["metadata"]["uid"], "controller": True}
    stolen["metadata"]["ownerReferences"] = [owner]
    await herd.world.create(MACHINE_SETS, stolen)
    await herd.world.create(MACHINE_SETS, orphan("other", **{NAME: "another"}))
    await herd.create()
    assert owner_references_of(await herd.world.get(MACHINE_SETS, "stolen")) == [owner]
    assert owner_references_of(await herd.world.get(MACHINE_SETS, "other")) == []


async def test_a_set_without_the_label_that_keeps_sets_apart_keeps_its_own_selector(herd: Herd) -> None:
    made = orphan()
    for labels in (made["metadata"]["labels"], made["spec"]["selector"]["matchLabels"]):
        labels.pop(HASH, None)
        labels["own"] = "yes"
    await herd.world.create(MACHINE_SETS, made)
    await herd.create()
    found = await herd.only_set()
    assert found["spec"]["selector"] == {"matchLabels": {**SELECTED, "own": "yes"}}
    assert dig(found, "spec", "template", "metadata", "labels")["own"] == "yes"
    assert await herd.condition("ScalingDown") == ("False", "NotScalingDown", "")


async def test_two_deployments_keep_to_their_own_sets(herd: Herd) -> None:
    await herd.create()
    await herd.create(deployment("other", replicas=1))
    sets = await herd.sets()
    assert sorted((owner_references_of(each)[0]["name"], each["spec"]["replicas"]) for each in sets) == [("md", 3), ("other", 1)]


async def test_only_what_carries_the_watched_label_is_looked_after() -> None:
    async with world(MachineDeployments, options=ControllerOptions(watch_filter="blue")) as made:
        herd = Herd(made)
        await made.cluster()
        await made.templates("t1")
        await herd.create()
        assert await herd.sets() == []
        await made.patch(MACHINE_DEPLOYMENTS, "md", {"metadata": {"labels": {"cluster.x-k8s.io/watch-filter": "blue"}}})
        await made.settle()
        assert await herd.sizes() == [3]


# --- crashes ------------------------------------------------------------------------------------------------------------------


async def test_a_set_whose_making_was_not_heard_of_is_not_made_twice(herd: Herd) -> None:
    """The answer to the request that made the set is lost, and the next look comes before the cache has seen it."""
    client = herd.world.core.client
    apply = client.apply
    lost: list[str] = []

    async def unheard(*args: Any, **kwargs: Any) -> Obj:
        found = await apply(*args, **kwargs)
        if not lost:
            lost.append(name_of(found))
            raise ConnectionError("the connection broke")
        return found

    client.apply = unheard  # type: ignore[method-assign]
    await herd.create()
    assert lost == [name_of(await herd.only_set())]
    assert await herd.sizes() == [3]


async def test_another_process_goes_on_where_one_died(herd: Herd) -> None:
    await herd.create()
    await herd.play()
    await herd.change_template("t2")
    sets = await herd.sets()
    second = Manager(herd.world.core.client, herd.world.clock, herd.world.core.rng)
    second.add(MachineDeployments(Core(second, herd.world.workloads)))
    running = asyncio.create_task(second.run())
    await herd.world.settle(5)
    assert await herd.sets() == sets
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


# --- status -------------------------------------------------------------------------------------------------------------------


async def test_the_status_of_a_deployment_on_its_way(herd: Herd) -> None:
    await herd.create()
    found = (await herd.get())["status"]
    assert found["phase"] == "ScalingUp"
    assert "replicas" not in found
    assert await herd.condition("Available") == (
        "Unknown",
        "WaitingForAvailableReplicasSet",
        "Waiting for status.availableReplicas set",
    )
    assert await herd.condition("ScalingUp") == ("True", "ScalingUp", "Scaling up from 0 to 3 replicas")
    assert await herd.condition("MachinesReady") == ("True", "NoReplicas", "")
    assert await herd.condition("MachinesUpToDate") == ("True", "NoReplicas", "")
    assert {field: found["deprecated"]["v1beta1"][field] for field in ("updatedReplicas", "unavailableReplicas")} == {
        "updatedReplicas": 0,
        "unavailableReplicas": 3,
    }
    needed = ("False", "Warning", "WaitingForAvailableMachines", "Minimum availability requires 3 replicas, current 0 available")
    assert await herd.legacy("Available") == needed
    assert await herd.legacy("Ready") == needed
    assert await herd.legacy("MachineSetReady") == ("False", "Info", "WaitingForMachineSet", "")


async def test_the_status_of_a_complete_deployment(herd: Herd) -> None:
    await herd.create()
    await herd.play()
    found = (await herd.get())["status"]
    assert [found[field] for field in ("replicas", "readyReplicas", "availableReplicas", "upToDateReplicas")] == [3, 3, 3, 3]
    assert found["versions"] == [{"version": "v1.36.3", "replicas": 3}]
    assert found["phase"] == "Running"
    counts = {"updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3, "unavailableReplicas": 0}
    assert {field: found["deprecated"]["v1beta1"][field] for field in counts} == counts
    assert await herd.condition("Available") == ("True", "Available", "")
    assert await herd.legacy("Ready") == ("True", "", "", "")
    order = [condition["type"] for condition in found["conditions"]]
    assert order == [
        "Available",
        "RollingOut",
        "Remediating",
        "ScalingDown",
        "ScalingUp",
        "MachinesReady",
        "MachinesUpToDate",
        "Paused",
        "Deleting",
    ]


async def test_the_older_condition_of_the_new_set_is_shown(herd: Herd) -> None:
    await herd.create()
    ready = {"type": "Ready", "status": "False", "severity": "Warning", "reason": "Late", "message": "1 of 3"}
    ready["lastTransitionTime"] = rfc3339(herd.world.clock.time())
    status = {"deprecated": {"v1beta1": {"conditions": [ready], "readyReplicas": 0, "availableReplicas": 0}}}
    status["deprecated"]["v1beta1"]["fullyLabeledReplicas"] = 0
    await herd.world.patch(MACHINE_SETS, name_of(await herd.only_set()), {"status": status}, "status")
    await herd.world.settle()
    assert await herd.legacy("MachineSetReady") == ("False", "Warning", "Late", "1 of 3")


async def test_machines_are_summed_up(herd: Herd) -> None:
    await herd.create()
    found = await herd.only_set()
    outdated = ("False", "NotUpToDate", "* Version v1.36.2, v1.36.3 required")
    await herd.machine("a", found, conditions={"Ready": ("True", "Ready", ""), "UpToDate": outdated})
    await herd.machine("b", found, conditions={"Ready": ("False", "NotReady", "no node")})
    await herd.play()
    assert await herd.condition("MachinesReady") == ("False", "NotReady", "* Machine b: no node")
    assert await herd.condition("RollingOut") == (
        "True",
        "RollingOut",
        "Rolling out 1 not up-to-date replicas\n* Version v1.36.2, v1.36.3 required",
    )
    message = "* Machine a:\n  * Version v1.36.2, v1.36.3 required"
    assert await herd.condition("MachinesUpToDate") == ("False", "NotUpToDate", message)
    # The other one has not said anything for long enough.
    await herd.world.settle(15)
    assert "Condition UpToDate not yet reported" in (await herd.condition("MachinesUpToDate"))[2]


# --- deletion -----------------------------------------------------------------------------------------------------------------


async def test_a_deployment_goes_after_its_sets(herd: Herd) -> None:
    await herd.create()
    found = await herd.only_set()
    await herd.world.patch(MACHINE_SETS, name_of(found), {"metadata": {"finalizers": ["cluster.x-k8s.io/machineset"]}})
    await herd.play()
    await herd.machine("a", found)
    await herd.world.delete(MACHINE_DEPLOYMENTS, "md")
    await herd.world.settle()
    assert (await herd.only_set())["metadata"]["deletionTimestamp"]
    assert await herd.condition("Deleting") == ("True", "Deleting", "Deleting 1 Machine")
    assert await herd.condition("ScalingDown") == ("True", "ScalingDown", "Scaling down from 3 to 0 replicas")
    assert (await herd.get())["status"]["phase"] == "ScalingDown"
    await herd.world.patch(MACHINE_SETS, name_of(found), {"metadata": {"finalizers": None}})
    await herd.world.settle()
    assert await herd.world.find(MACHINE_DEPLOYMENTS, "md") is None


async def test_a_deployment_without_sets_goes_at_once(bare: Herd) -> None:
    await bare.world.cluster()
    await bare.create()
    await bare.world.delete(MACHINE_DEPLOYMENTS, "md")
    await bare.world.settle()
    assert await bare.world.find(MACHINE_DEPLOYMENTS, "md") is None


async def test_a_deployment_goes_also_when_its_cluster_is_gone(herd: Herd) -> None:
    await herd.create()
    found = await herd.only_set()
    await herd.world.patch(MACHINE_SETS, name_of(found), {"metadata": {"finalizers": ["cluster.x-k8s.io/machineset"]}})
    await herd.world.delete(CLUSTERS, "c1")
    await herd.world.settle(60)
    await herd.world.patch(MACHINE_SETS, name_of(found), {"metadata": {"finalizers": None}})
    await herd.world.settle(60)
    assert await herd.world.find(MACHINE_DEPLOYMENTS, "md") is None
