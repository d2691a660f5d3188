"""Who belongs to whom: orphans find parents, and nobody makes what is there already."""

from __future__ import annotations

from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES
from remuda.kube.objects import name_of, owner_references_of
from remuda.kube.owners import controller_of
from remuda.lab.sim.capi_world import World

from .births import a_machine_alone
from .rollouts import within
from .stage import all_run, deployment_label, following, is_available, names, running, workers

Obj = dict[str, Any]


def controlled_by(obj: Obj) -> tuple[str, str]:
    owner = controller_of(obj) or {}
    return owner.get("kind", ""), owner.get("name", "")


async def a_machine_finds_its_set_again(world: World) -> None:
    name = "lost"
    await running(world, name)
    before = names(await workers(world, name))
    machine = (await workers(world, name))[0]
    parent = controlled_by(machine)
    async with following(world, labels=deployment_label(name), check=within(2, 2)):
        await world.patch(MACHINES, name_of(machine), {"metadata": {"ownerReferences": None}})

        async def adopted() -> bool:
            return controlled_by(await world.get(MACHINES, name_of(machine))) == parent

        await world.until("it is adopted", adopted)
        await world.settle(5)
    assert names(await workers(world, name)) == before


async def a_set_finds_its_deployment_again(world: World) -> None:
    name = "found"
    await running(world, name)
    before = names(await workers(world, name))
    (machine_set,) = names(await world.all(MACHINE_SETS, deployment_label(name)))
    async with following(world, labels=deployment_label(name), check=within(2, 2)):
        await world.patch(MACHINE_SETS, machine_set, {"metadata": {"ownerReferences": None}})

        async def adopted() -> bool:
            return controlled_by(await world.get(MACHINE_SETS, machine_set)) == ("MachineDeployment", f"{name}-md")

        await world.until("it is adopted", adopted)
        await world.settle(5)
    assert names(await workers(world, name)) == before
    assert names(await world.all(MACHINE_SETS, deployment_label(name))) == {machine_set}


async def a_set_takes_over_a_machine_of_nobody(world: World) -> None:
    name = "joined"
    await a_machine_alone(world, name=name)
    await world.patch(MACHINES, f"{name}-m", {"metadata": {"labels": {"pool": name}}})
    spec = {
        "clusterName": name,
        "replicas": 1,
        "selector": {"matchLabels": {"pool": name}},
        "template": {"metadata": {"labels": {"pool": name}}, "spec": world.machine_spec(name)},
    }
    await world.create(MACHINE_SETS, world.core_object("MachineSet", f"{name}-s", spec))

    async def adopted() -> bool:
        return controlled_by(await world.get(MACHINES, f"{name}-m")) == ("MachineSet", f"{name}-s")

    await world.until("it is adopted", adopted)
    await world.settle(5)
    assert names(await world.all(MACHINES, f"pool={name}")) == {f"{name}-m"}
    await all_run(world, name, 2)


async def a_deployment_takes_over_a_set_of_nobody(world: World) -> None:
    """A set that is as the deployment wants it becomes its current one; its machines stay."""
    name = "takeover"
    await world.add_cluster(name)
    await all_run(world, name, 1)
    shared: Obj = {
        "clusterName": name,
        "replicas": 2,
        "selector": {"matchLabels": {"pool": name}},
        "template": {"metadata": {"labels": {"pool": name}}, "spec": world.machine_spec(name)},
    }
    machine_set = world.core_object("MachineSet", f"{name}-s", shared)
    machine_set["metadata"]["labels"] = {"pool": name}
    await world.create(MACHINE_SETS, machine_set)
    await all_run(world, name, 3)
    before = names(await world.all(MACHINES, f"pool={name}"))
    await world.create(MACHINE_DEPLOYMENTS, world.core_object("MachineDeployment", f"{name}-md", shared))

    async def adopted() -> bool:
        return controlled_by(await world.get(MACHINE_SETS, f"{name}-s")) == ("MachineDeployment", f"{name}-md")

    await world.until("it is adopted", adopted)
    await world.settle(5)
    assert names(await world.all(MACHINES, f"pool={name}")) == before
    assert all(is_available(machine) for machine in await world.all(MACHINES, f"pool={name}"))
    assert len(await world.all(MACHINE_SETS, f"pool={name}")) == 1


async def everything_loses_its_parents(world: World) -> None:
    """As after a restore from a backup that keeps no owners: all of it comes together again, and nothing is made."""
    name = "restored"
    await running(world, name)
    before = names(await world.machines(name))
    await world.patch(CLUSTERS, name, {"spec": {"paused": True}})
    await world.settle(1)
    for resource in (MACHINE_DEPLOYMENTS, MACHINE_SETS):
        for obj in await world.all(resource, f"cluster.x-k8s.io/cluster-name={name}"):
            await world.patch(resource, name_of(obj), {"metadata": {"ownerReferences": None}})
    for machine in await workers(world, name):
        await world.patch(MACHINES, name_of(machine), {"metadata": {"ownerReferences": None}})
    await world.patch(CLUSTERS, name, {"spec": {"paused": None}})

    async def together() -> bool:
        sets = await world.all(MACHINE_SETS, deployment_label(name))
        deployment = await world.get(MACHINE_DEPLOYMENTS, f"{name}-md")
        return (
            len(sets) == 1
            and controlled_by(sets[0]) == ("MachineDeployment", f"{name}-md")
            and [owner["kind"] for owner in owner_references_of(deployment)] == ["Cluster"]
            and all(controlled_by(each) == ("MachineSet", name_of(sets[0])) for each in await workers(world, name))
        )

    await world.until("it is together again", together)
    await world.settle(5)
    assert names(await world.machines(name)) == before
