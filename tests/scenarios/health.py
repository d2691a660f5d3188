"""Health checks: what they replace, and when they rather do nothing."""

from __future__ import annotations

from typing import Any

from remuda.api.cluster_x_k8s_io import MACHINE_DEPLOYMENTS, MACHINE_HEALTH_CHECKS, MACHINES
from remuda.capi.well_known import DEPLOYMENT_NAME, PAUSED, SKIP_REMEDIATION
from remuda.kube.objects import dig, is_being_deleted, name_of
from remuda.lab.sim.capi_world import World
from remuda.lab.sim.providers import SIM_MACHINES

from .stage import (
    all_run,
    condition,
    deployment_label,
    following,
    hold,
    hold_clones,
    ignoring_gone,
    names,
    running,
    turn,
    workers,
)

Obj = dict[str, Any]
SICK_AFTER = 3


async def check_health(world: World, cluster: str, *, startup: int = 600, **remediation: Any) -> None:
    """A MachineHealthCheck `<cluster>-mhc` for the workers."""
    spec: Obj = {
        "clusterName": cluster,
        "selector": {"matchLabels": {DEPLOYMENT_NAME: f"{cluster}-md"}},
        "checks": {
            "nodeStartupTimeoutSeconds": startup,
            "unhealthyNodeConditions": [{"type": "Ready", "status": "Unknown", "timeoutSeconds": SICK_AFTER}],
        },
    }
    if remediation:
        spec["remediation"] = remediation
    await world.create(MACHINE_HEALTH_CHECKS, world.core_object("MachineHealthCheck", f"{cluster}-mhc", spec))


async def healthy(world: World, cluster: str, count: int) -> None:
    async def check() -> bool:
        found = await world.get(MACHINE_HEALTH_CHECKS, f"{cluster}-mhc")
        counts = dig(found, "status", "currentHealthy"), dig(found, "status", "expectedMachines")
        return counts == (count, count)

    await world.until(f"{count} of {cluster} are healthy", check)


async def allowed(world: World, cluster: str, status: str) -> Obj:
    async def check() -> Obj:
        found = condition(await world.get(MACHINE_HEALTH_CHECKS, f"{cluster}-mhc"), "RemediationAllowed")
        return found if found.get("status") == status else {}

    return await world.until(f"RemediationAllowed of {cluster} is {status}", check)


async def one_is_replaced(world: World) -> None:
    name = "sick"
    await running(world, name, 3)
    await check_health(world, name)
    await healthy(world, name, 3)
    before = await workers(world, name)
    await turn(world, name, before[1], False)
    await world.until("it is gone", lambda: world.gone(MACHINES, name_of(before[1])))
    await healthy(world, name, 3)
    await all_run(world, name, 4)
    assert names([before[0], before[2]]) < names(await workers(world, name))


async def a_short_silence_is_nothing(world: World) -> None:
    name = "cough"
    await running(world, name, 1)
    await check_health(world, name)
    await healthy(world, name, 1)
    (machine,) = await workers(world, name)
    await turn(world, name, machine, False)
    await world.settle(1)
    await turn(world, name, machine, True)
    await world.settle(SICK_AFTER + 2)
    assert names(await workers(world, name)) == {name_of(machine)}
    await healthy(world, name, 1)


async def a_storm_is_waited_out(world: World) -> None:
    """Too many are sick: more likely the network than the machines. It is said, and nothing is deleted."""
    name = "storm"
    await running(world, name, 3)
    await check_health(world, name, triggerIf={"unhealthyLessThanOrEqualTo": "40%"})
    await healthy(world, name, 3)
    before = await workers(world, name)
    async with following(world, labels=deployment_label(name), check=nobody_goes):
        for machine in before[:2]:
            await turn(world, name, machine, False)
        assert (await allowed(world, name, "False"))["reason"] == "TooManyUnhealthy"
        await world.settle(SICK_AFTER + 5)

        async def both_are_counted() -> bool:
            return "(total: 3, unhealthy: 2, maxUnhealthy: 40%)" in (await allowed(world, name, "False"))["message"]

        await world.until("both are counted", both_are_counted)
        # All of them at once: one after the other there would be a moment at which few enough are sick.
        await _pause(world, name, True)
        for machine in before[:2]:
            await turn(world, name, machine, True)
        await _pause(world, name, False)
        await allowed(world, name, "True")
        await healthy(world, name, 3)
    assert names(await workers(world, name)) == names(before)


async def _pause(world: World, cluster: str, paused: bool) -> None:
    name = f"{cluster}-mhc"
    await world.patch(MACHINE_HEALTH_CHECKS, name, {"metadata": {"annotations": {PAUSED: "" if paused else None}}})

    async def told() -> bool:
        found = condition(await world.get(MACHINE_HEALTH_CHECKS, name), "Paused")
        return found.get("status") == ("True" if paused else "False")

    await world.until("it says so", told)


async def a_storm_that_calms_down(world: World) -> None:
    """As soon as few enough are sick, those are replaced."""
    name = "calm"
    await running(world, name, 3)
    await check_health(world, name, triggerIf={"unhealthyLessThanOrEqualTo": 1})
    await healthy(world, name, 3)
    before = await workers(world, name)
    for machine in before:
        await turn(world, name, machine, False)
    await allowed(world, name, "False")
    for machine in before[1:]:
        await turn(world, name, machine, True)
    await world.until("the sick one is gone", lambda: world.gone(MACHINES, name_of(before[0])))
    await healthy(world, name, 3)
    await all_run(world, name, 4)
    assert names(before[1:]) < names(await workers(world, name))


async def only_in_a_range(world: World) -> None:
    name = "range"
    await running(world, name, 3)
    await check_health(world, name, triggerIf={"unhealthyInRange": "[2-3]"})
    await healthy(world, name, 3)
    before = await workers(world, name)
    async with following(world, labels=deployment_label(name), check=nobody_goes):
        await turn(world, name, before[0], False)
        await world.settle(SICK_AFTER + 2)
        await allowed(world, name, "False")
        await turn(world, name, before[0], True)
        await healthy(world, name, 3)
    for machine in before[:2]:
        await turn(world, name, machine, False)
    for machine in before[:2]:
        await world.until("it is gone", lambda machine=machine: world.gone(MACHINES, name_of(machine)))  # type: ignore[misc]
    await healthy(world, name, 3)
    await all_run(world, name, 4)


async def one_after_the_other(world: World) -> None:
    """`maxInFlight` holds while all are sick at once."""
    name = "inflight"
    await running(world, name, 3, remediation={"maxInFlight": 1})
    await check_health(world, name)
    await healthy(world, name, 3)
    before = await workers(world, name)

    def one_at_a_time(machines: dict[str, Obj]) -> str:
        going = [each for each in machines.values() if is_being_deleted(each)]
        return "" if len(going) <= 1 else f"{len(going)} go at once"

    async with following(world, labels=deployment_label(name), check=one_at_a_time):
        for machine in before:
            await turn(world, name, machine, False)

        async def replaced() -> bool:
            return names(await workers(world, name)).isdisjoint(names(before))

        await world.until("all are replaced", replaced)
        await healthy(world, name, 3)
    await all_run(world, name, 4)


async def one_that_never_starts(world: World) -> None:
    """A machine without a node is given up after a while, and another one tried."""
    name = "stillborn"
    await running(world, name, 1)
    await check_health(world, name, startup=30)
    before = names(await workers(world, name))
    await hold_clones(world, name)
    await world.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"replicas": 2}})

    async def made() -> set[str]:
        return names(await workers(world, name)) - before

    (dead,) = await world.until("another one is made", made)
    await hold_clones(world, name, False)

    async def given_up() -> bool:
        found = await world.find(MACHINES, dead)
        return found is None or is_being_deleted(found)

    await world.until("it is given up", given_up)
    await ignoring_gone(hold(world, SIM_MACHINES, dead, False))
    await all_run(world, name, 3)
    assert before < names(await workers(world, name))


async def skipped(world: World) -> None:
    """Whoever is marked so is not touched, sick or not."""
    name = "spared"
    await running(world, name, 2)
    before = await workers(world, name)
    await world.patch(MACHINES, name_of(before[0]), {"metadata": {"annotations": {SKIP_REMEDIATION: ""}}})
    await check_health(world, name)
    await world.settle(2)
    for machine in before:
        await turn(world, name, machine, False)
    await world.until("the other is gone", lambda: world.gone(MACHINES, name_of(before[1])))

    async def replaced() -> bool:
        found = await workers(world, name)
        return len(found) == 2 and name_of(before[0]) in names(found) and all(dig(each, "status", "nodeRef") for each in found)

    await world.until("the other is replaced", replaced)


def nobody_goes(machines: dict[str, Obj]) -> str:
    going = sorted(name for name, machine in machines.items() if is_being_deleted(machine))
    return f"{', '.join(going)} go" if going else ""


async def while_its_provider_hangs(world: World) -> None:
    """One that is to go and does not, because its provider hangs, keeps nobody from replacing the next."""
    name = "hanging"
    await running(world, name, 3)
    await check_health(world, name)
    await healthy(world, name, 3)
    before = await workers(world, name)
    await hold(world, SIM_MACHINES, name_of(before[0]))
    await turn(world, name, before[0], False)

    async def going() -> bool:
        return is_being_deleted(await world.get(MACHINES, name_of(before[0])))

    await world.until("it is to go", going)
    await turn(world, name, before[1], False)
    await world.until("the second is gone", lambda: world.gone(MACHINES, name_of(before[1])))
    await hold(world, SIM_MACHINES, name_of(before[0]), False)
    await world.until("the first is gone", lambda: world.gone(MACHINES, name_of(before[0])))
    await healthy(world, name, 3)
    await all_run(world, name, 4)
