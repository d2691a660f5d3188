"""Growing and shrinking, and who goes first."""

from __future__ import annotations

from remuda.api.cluster_x_k8s_io import MACHINE_DEPLOYMENTS, MACHINES
from remuda.capi.well_known import DELETE_MACHINE
from remuda.kube.builtin_resources import NODES
from remuda.kube.objects import is_being_deleted, name_of
from remuda.lab.sim.capi_world import World
from remuda.lab.sim.providers import SIM_CONFIGS, SIM_MACHINES

from .stage import (
    Check,
    Obj,
    all_run,
    condition,
    deployment_label,
    following,
    hold,
    names,
    of_cluster,
    running,
    workers,
    workload,
)


async def _resize(world: World, cluster: str, replicas: int) -> None:
    await world.patch(MACHINE_DEPLOYMENTS, f"{cluster}-md", {"spec": {"replicas": replicas}})
    await all_run(world, cluster, replicas + 1)


async def growing_and_shrinking(world: World) -> None:
    name = "scaling"
    await running(world, name)
    first = names(await workers(world, name))
    await _resize(world, name, 5)
    assert first < names(await workers(world, name))
    await _resize(world, name, 1)
    await _resize(world, name, 0)
    for resource in (SIM_MACHINES, SIM_CONFIGS):
        assert len(await world.all(resource, of_cluster(name))) == 1, "nothing is left of those that went"
    await _resize(world, name, 2)


async def _one_by_one(world: World, name: str, order: str) -> list[str]:
    """Four workers, each made a while after the one before it; their names."""
    await running(world, name, 1, deletion={"order": order} if order else {})
    for count in (2, 3, 4):
        await world.settle(2)
        await _resize(world, name, count)
    return [name_of(machine) for machine in await workers(world, name)]


async def newest_first(world: World) -> None:
    made = await _one_by_one(world, "newest", "Newest")
    await _resize(world, "newest", 2)
    assert names(await workers(world, "newest")) == set(made[:2])


async def oldest_first(world: World) -> None:
    made = await _one_by_one(world, "oldest", "Oldest")
    await _resize(world, "oldest", 2)
    assert names(await workers(world, "oldest")) == set(made[2:])


async def any_first(world: World) -> None:
    """Random means by name; no more go than have to."""
    made = await _one_by_one(world, "random", "Random")
    async with following(world, labels=deployment_label("random"), check=_at_least(2)):
        await _resize(world, "random", 2)
    assert names(await workers(world, "random")) == set(sorted(made)[2:])


async def marked_first(world: World) -> None:
    made = await _one_by_one(world, "marked", "Newest")
    await world.patch(MACHINES, made[1], {"metadata": {"annotations": {DELETE_MACHINE: ""}}})
    await _resize(world, "marked", 3)
    assert names(await workers(world, "marked")) == {made[0], made[2], made[3]}
    await _resize(world, "marked", 2)
    assert names(await workers(world, "marked")) == {made[0], made[2]}


async def broken_first(world: World) -> None:
    """Before any order: what has no node, since it is the least of losses."""
    name = "broken"
    made = await _one_by_one(world, name, "Oldest")
    await hold(world, SIM_MACHINES, made[3])
    await workload(world, name).client.delete(NODES, made[3])

    async def noticed() -> bool:
        return condition(await world.get(MACHINES, made[3]), "NodeHealthy").get("status") == "False"

    await world.until("noticed", noticed)
    await world.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"replicas": 3}})

    async def going() -> bool:
        return is_being_deleted(await world.get(MACHINES, made[3]))

    await world.until("it goes", going)
    await hold(world, SIM_MACHINES, made[3], False)
    await all_run(world, name, 4)
    assert names(await workers(world, name)) == set(made[:3])


def _at_least(count: int) -> Check:
    def check(machines: dict[str, Obj]) -> str:
        standing = [machine for machine in machines.values() if not is_being_deleted(machine)]
        return "" if len(standing) >= count else f"only {len(standing)} are left"

    return check
