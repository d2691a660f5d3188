"""Rolling out changes: within the bounds at every write, only what was asked for, and to the end."""

from __future__ import annotations

import math
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES
from remuda.capi.well_known import PAUSED
from remuda.kube.objects import dig, name_of
from remuda.lab.sim.capi_world import World
from remuda.lab.sim.providers import INFRASTRUCTURE, SIM_MACHINE_TEMPLATES, SIM_MACHINES, ref

from .stage import (
    Check,
    all_run,
    condition,
    deployment_label,
    following,
    hold,
    hold_clones,
    ignoring_gone,
    is_available,
    names,
    running,
    runs,
    workers,
)

Obj = dict[str, Any]
Amount = int | str


# --- rolling update ----------------------------------------------------------------------------------------------------------


def bounds(replicas: int, surge: Amount, unavailable: Amount) -> tuple[int, int]:
    """How many machines must be available at least, and may be there at most."""

    def number(amount: Amount, up: bool) -> int:
        if isinstance(amount, int):
            return amount
        exact = replicas * int(amount.removesuffix("%")) / 100
        return math.ceil(exact) if up else math.floor(exact)

    more, less = number(surge, True), number(unavailable, False)
    if more == 0 and less == 0:
        less = 1
    return max(replicas - less, 0), replicas + more


def within(least: int, most: int) -> Check:
    def check(machines: dict[str, Obj]) -> str:
        available = sum(1 for machine in machines.values() if is_available(machine))
        if available < least:
            return f"{available} machines are available, fewer than {least}"
        return f"{len(machines)} machines are there, more than {most}" if len(machines) > most else ""

    return check


async def change(world: World, cluster: str, domain: str) -> None:
    """The smallest change that needs new machines."""
    await world.patch(MACHINE_DEPLOYMENTS, f"{cluster}-md", {"spec": {"template": {"spec": {"failureDomain": domain}}}})


async def rolled_out(world: World, cluster: str, domain: str, replicas: int) -> None:
    async def check() -> bool:
        found = await workers(world, cluster)
        return len(found) == replicas and all(
            machine["spec"].get("failureDomain") == domain and is_available(machine) for machine in found
        )

    await world.until(f"{cluster} is rolled out to {domain}", check, 1800)


async def available(world: World, cluster: str, replicas: int) -> None:
    async def check() -> bool:
        return sum(1 for machine in await workers(world, cluster) if is_available(machine)) == replicas

    await world.until(f"{replicas} workers of {cluster} are available", check)


async def taken_up(world: World, cluster: str, domain: str) -> None:
    """There is a set for a change."""

    async def check() -> bool:
        sets = await world.all(MACHINE_SETS, deployment_label(cluster))
        return any(dig(each, "spec", "template", "spec", "failureDomain") == domain for each in sets)

    await world.until(f"there is a set for {domain}", check)


async def roll(
    world: World,
    name: str,
    replicas: int,
    surge: Amount,
    unavailable: Amount,
    *,
    min_ready: int = 0,
    interrupted_after: float | None = None,
) -> None:
    """One rolling update; with `interrupted_after` so many seconds another change comes, in the middle of the first."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    spec = {**world.machine_spec(name), **({"minReadySeconds": min_ready} if min_ready else {})}
    await running(world, name, replicas, rollout={"strategy": strategy}, template={"spec": spec})
    await available(world, name, replicas)
    async with following(world, labels=deployment_label(name), check=within(*bounds(replicas, surge, unavailable))):
        last = "b"
        await change(world, name, last)
        if interrupted_after is not None:
            await taken_up(world, name, last)
            await world.settle(interrupted_after)
            last = "c"
            await change(world, name, last)
        await rolled_out(world, name, last, replicas)
        await world.settle(5)
    sets = [each for each in await world.all(MACHINE_SETS, deployment_label(name)) if each["spec"]["replicas"]]
    assert len(sets) == 1


async def one_more_at_a_time(world: World) -> None:
    await roll(world, "surge", 3, 1, 0)


async def one_fewer_at_a_time(world: World) -> None:
    await roll(world, "tight", 3, 0, 1)


async def all_at_once(world: World) -> None:
    await roll(world, "flood", 3, "100%", "100%")


async def changed_again_in_the_middle(world: World) -> None:
    """Another change comes while the machines of the first are still on their way."""
    name = "twice"
    rolling = {"maxSurge": 1, "maxUnavailable": 1}
    await running(world, name, 3, rollout={"strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}})
    await available(world, name, 3)
    await hold_clones(world, name)
    async with following(world, labels=deployment_label(name), check=within(2, 4)):
        await change(world, name, "b")

        async def on_their_way() -> list[Obj]:
            return [machine for machine in await workers(world, name) if machine["spec"].get("failureDomain") == "b"]

        await world.until("some are on their way", on_their_way)
        await world.settle(5)
        await hold_clones(world, name, False)
        held = await on_their_way()
        await change(world, name, "c")
        await taken_up(world, name, "c")
        for machine in held:
            await ignoring_gone(hold(world, SIM_MACHINES, name_of(machine), False))
        await rolled_out(world, name, "c", 3)


async def stuck_and_taken_back(world: World) -> None:
    """A change whose machines never come up costs nothing, and is taken back without a trace."""
    name = "undone"
    await running(world, name)
    await available(world, name, 2)
    before = names(await workers(world, name))
    await hold_clones(world, name)
    async with following(world, labels=deployment_label(name), check=within(2, 3)):
        await change(world, name, "b")

        async def stuck() -> set[str]:
            return names(await workers(world, name)) - before

        (new,) = await world.until("the first new one is made", stuck)
        await world.settle(30)
        await hold_clones(world, name, False)
        await world.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"template": {"spec": {"failureDomain": None}}}})

        async def back() -> bool:
            await ignoring_gone(hold(world, SIM_MACHINES, new, False))
            return names(await workers(world, name)) == before

        await world.until("it is as before", back)
        await all_run(world, name, 3)

    async def one_set() -> bool:
        return len(await world.all(MACHINE_SETS, deployment_label(name))) == 1

    await world.until("the other set is gone", one_set)


async def scaled_in_the_middle(world: World) -> None:
    name = "grown"
    await running(world, name, 4)
    await available(world, name, 4)
    async with following(world, labels=deployment_label(name), check=within(2, 6)):
        await change(world, name, "b")
        await world.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"replicas": 2}})
        await rolled_out(world, name, "b", 2)


# --- other ways --------------------------------------------------------------------------------------------------------------


async def on_delete(world: World) -> None:
    """Nothing is replaced before somebody deletes it."""
    name = "ondelete"
    await running(world, name, 3, rollout={"strategy": {"type": "OnDelete"}})
    before = await workers(world, name)
    async with following(world, labels=deployment_label(name), check=within(2, 3)):
        await change(world, name, "b")
        await world.settle(5)
        assert names(await workers(world, name)) == names(before)
        for done, machine in enumerate(before, 1):
            await world.delete(MACHINES, name_of(machine))

            async def replaced(done: int = done) -> bool:
                found = await workers(world, name)
                return (
                    len(found) == 3 and all(map(runs, found)) and sum("failureDomain" in each["spec"] for each in found) == done
                )

            await world.until(f"{done} replaced", replaced)
            await available(world, name, 3)


async def a_template_edited_in_place(world: World) -> None:
    """What exists stays as it is; the next clone is of the new kind; only another reference rolls out."""
    name = "inplace"
    await running(world, name)
    before = await workers(world, name)
    await world.patch(SIM_MACHINE_TEMPLATES, name, {"spec": {"template": {"spec": {"size": "large"}}}})
    await world.settle(5)
    assert names(await workers(world, name)) == names(before)
    for machine in before:
        assert "size" not in (await world.get(SIM_MACHINES, name_of(machine)))["spec"]
    await world.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"replicas": 3}})
    await all_run(world, name, 4)
    (added,) = names(await workers(world, name)) - names(before)
    assert (await world.get(SIM_MACHINES, added))["spec"]["size"] == "large"
    assert "size" not in (await world.get(SIM_MACHINES, name_of(before[0])))["spec"]
    await world.create(
        SIM_MACHINE_TEMPLATES,
        world.thing(INFRASTRUCTURE, "SimMachineTemplate", f"{name}-2", {"template": {"spec": {"size": "huge"}}}),
    )
    reference = ref(INFRASTRUCTURE, "SimMachineTemplate", f"{name}-2")
    await world.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"template": {"spec": {"infrastructureRef": reference}}}})

    async def rolled() -> bool:
        found = [await world.find(SIM_MACHINES, name_of(machine)) for machine in await workers(world, name)]
        return len(found) == 3 and all(dig(infra, "spec", "size") == "huge" for infra in found)

    await world.until("the other template is everywhere", rolled)
    await all_run(world, name, 4)


async def spread_in_place(world: World) -> None:
    """Labels, annotations, timeouts and taints reach what exists, without a new machine."""
    name = "spread"
    await running(world, name)
    before = names(await workers(world, name))
    template = {
        "metadata": {"labels": {"team": "red"}, "annotations": {"note": "hello"}},
        "spec": {"deletion": {"nodeDrainTimeoutSeconds": 60}},
    }
    await world.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"template": template}})

    async def spread() -> bool:
        found = await workers(world, name)
        return all(
            dig(each, "metadata", "labels", "team") == "red"
            and dig(each, "metadata", "annotations", "note") == "hello"
            and dig(each, "spec", "deletion", "nodeDrainTimeoutSeconds") == 60
            for each in found
        )

    await world.until("it is everywhere", spread)
    assert names(await workers(world, name)) == before


# --- pausing -----------------------------------------------------------------------------------------------------------------


async def paused_by_annotation(world: World) -> None:
    """A paused deployment is left alone, and goes on where it was."""
    name = "halted"
    await running(world, name)
    await world.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"metadata": {"annotations": {PAUSED: ""}}})
    await _is_paused(world, name, "True")
    before = names(await workers(world, name))
    await world.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"replicas": 3}})
    await change(world, name, "b")
    await world.settle(5)
    assert names(await workers(world, name)) == before
    await world.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"metadata": {"annotations": {PAUSED: None}}})
    await rolled_out(world, name, "b", 3)
    await _is_paused(world, name, "False")


async def a_paused_cluster(world: World) -> None:
    """Nothing of a paused cluster moves, deletions included."""
    name = "frozen"
    await running(world, name)
    await world.patch(CLUSTERS, name, {"spec": {"paused": True}})
    await _is_paused(world, name, "True")
    before = await workers(world, name)
    await world.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"replicas": 3}})
    await world.delete(MACHINES, name_of(before[0]))
    await world.settle(5)
    assert names(await workers(world, name)) == names(before)
    await world.patch(CLUSTERS, name, {"spec": {"paused": None}})
    await all_run(world, name, 4)
    assert name_of(before[0]) not in names(await workers(world, name))
    await _is_paused(world, name, "False")


async def _is_paused(world: World, name: str, status: str) -> None:
    async def told() -> bool:
        return condition(await world.get(MACHINE_DEPLOYMENTS, f"{name}-md"), "Paused").get("status") == status

    await world.until(f"Paused is {status}", told)
