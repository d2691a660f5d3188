"""Providers that take back what they said, or say nonsense: what was made stays, and is well again when they are."""

from __future__ import annotations

from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINES
from remuda.kube.builtin_resources import NODES
from remuda.kube.objects import dig, name_of
from remuda.lab.sim.capi_world import World
from remuda.lab.sim.providers import SIM_CLUSTERS, SIM_CONFIGS, SIM_CONTROL_PLANES, SIM_MACHINES

from .health import nobody_goes
from .stage import all_run, condition, following, hold, names, of_cluster, running, workers, workload

Obj = dict[str, Any]


async def machines_that_are_taken_back(world: World) -> None:
    name = "liar"
    await running(world, name)
    before = names(await world.machines(name))
    machine = await _held(world, name)
    async with following(world, labels=of_cluster(name), check=nobody_goes):
        for part, lie in _MACHINE_LIES:
            truth = await world.get(SIM_MACHINES, name_of(machine))
            await _say(world, SIM_MACHINES, name_of(machine), part, lie)
            await world.settle(5)
            now = await world.get(MACHINES, name_of(machine))
            assert now["status"]["initialization"]["infrastructureProvisioned"] is True, lie
            assert now["status"]["nodeRef"] == machine["status"]["nodeRef"], lie
            assert now["spec"]["providerID"], lie
            back = {key: truth[part][key] for key in lie}
            await _say(world, SIM_MACHINES, name_of(machine), part, back)

            async def well() -> bool:
                now = await world.get(MACHINES, name_of(machine))
                return bool(now["spec"] == machine["spec"] and now["status"]["addresses"] == machine["status"]["addresses"])

            await world.until(f"{lie} is forgotten", well)
            await all_run(world, name, 3)
        assert names(await world.machines(name)) == before
    await hold(world, SIM_MACHINES, name_of(machine), False)


_MACHINE_LIES: tuple[tuple[str, Obj], ...] = (
    ("status", {"initialization": {"provisioned": False}}),
    ("status", {"initialization": None}),
    ("status", {"addresses": None}),
    ("spec", {"providerID": ""}),
    ("spec", {"providerID": None}),
    ("spec", {"providerID": "sim.remuda.dev://herd/somebody-else"}),
    ("status", {"initialization": "yes", "addresses": "here"}),
    ("spec", {"providerID": 7}),
    ("status", {"conditions": "fine"}),
)


async def _held(world: World, cluster: str) -> Obj:
    machine = (await workers(world, cluster))[0]
    await hold(world, SIM_MACHINES, name_of(machine))
    await hold(world, SIM_CONFIGS, name_of(machine))
    return await world.get(MACHINES, name_of(machine))


async def _say(world: World, resource: Any, name: str, part: str, what: Obj) -> None:
    await world.patch(resource, name, {part: what}, "status" if part == "status" else "")


async def secrets_that_are_taken_back(world: World) -> None:
    name = "forgetful"
    await running(world, name)
    machine = await _held(world, name)
    async with following(world, labels=of_cluster(name), check=nobody_goes):
        for lie in ({"dataSecretName": None}, {"dataSecretName": "another"}, {"initialization": {"dataSecretCreated": False}}):
            truth = await world.get(SIM_CONFIGS, name_of(machine))
            await _say(world, SIM_CONFIGS, name_of(machine), "status", lie)
            await world.settle(5)
            now = await world.get(MACHINES, name_of(machine))
            assert now["spec"]["bootstrap"] == machine["spec"]["bootstrap"]
            assert now["status"]["initialization"]["bootstrapDataSecretCreated"] is True
            assert now["status"]["phase"] == "Running"
            await _say(world, SIM_CONFIGS, name_of(machine), "status", {key: truth["status"][key] for key in lie})
    await all_run(world, name, 3)


async def clusters_that_are_taken_back(world: World) -> None:
    name = "wobbly"
    await running(world, name)
    before = await world.get(CLUSTERS, name)
    machines = names(await world.machines(name))
    lies: tuple[tuple[Any, str, Obj], ...] = (
        (SIM_CLUSTERS, "status", {"initialization": {"provisioned": False}}),
        (SIM_CLUSTERS, "status", {"initialization": None}),
        (SIM_CLUSTERS, "spec", {"controlPlaneEndpoint": {"host": "127.0.0.2", "port": 1}}),
        (SIM_CLUSTERS, "spec", {"controlPlaneEndpoint": None}),
        (SIM_CONTROL_PLANES, "status", {"initialization": {"controlPlaneInitialized": False}}),
        (SIM_CONTROL_PLANES, "status", {"initialization": None}),
        (SIM_CONTROL_PLANES, "status", {"readyReplicas": "many"}),
    )
    for resource in (SIM_CLUSTERS, SIM_CONTROL_PLANES):
        await hold(world, resource, name)
    async with following(world, labels=of_cluster(name), check=nobody_goes):
        for resource, part, lie in lies:
            truth = await world.get(resource, name)
            await _say(world, resource, name, part, lie)
            await world.settle(5)
            now = await world.get(CLUSTERS, name)
            assert now["spec"]["controlPlaneEndpoint"] == before["spec"]["controlPlaneEndpoint"], lie
            assert now["status"]["initialization"] == before["status"]["initialization"], lie
            assert now["status"]["phase"] == "Provisioned", lie
            await _say(world, resource, name, part, {key: truth[part][key] for key in lie})
    for resource in (SIM_CLUSTERS, SIM_CONTROL_PLANES):
        await hold(world, resource, name, False)
    await all_run(world, name, 3)
    assert names(await world.machines(name)) == machines


async def objects_that_vanish(world: World) -> None:
    """The infra machine of one and the node of another are deleted behind everybody's back: it is said, nobody is replaced."""
    name = "vanished"
    await running(world, name)
    first, second = [name_of(machine) for machine in await workers(world, name)]
    await hold(world, SIM_MACHINES, first)
    await hold(world, SIM_MACHINES, second)
    await world.patch(SIM_MACHINES, first, {"metadata": {"finalizers": None}})
    await world.delete(SIM_MACHINES, first)
    await workload(world, name).client.delete(NODES, second)

    async def noticed() -> bool:
        one, other = await world.get(MACHINES, first), await world.get(MACHINES, second)
        return (condition(one, "InfrastructureReady").get("reason"), condition(other, "NodeHealthy").get("reason")) == (
            "ObjectDeleted",
            "NodeDeleted",
        )

    await world.until("it is noticed", noticed)
    await world.settle(5)
    assert names(await workers(world, name)) == {first, second}
    await hold(world, SIM_MACHINES, second, False)
    await world.delete(MACHINES, first)
    await world.until("it is gone", lambda: world.gone(MACHINES, first))

    async def replaced() -> bool:
        found = await workers(world, name)
        return len(found) == 2 and all(dig(each, "status", "phase") == "Running" for each in found)

    await world.until("it is replaced", replaced)
