"""Clusters in bad weather: slow, failing, silent and unreachable ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINE_DEPLOYMENTS, MACHINES
from remuda.app.rehearsal import embedded
from remuda.lab.sim.delays_and_faults import Weather

from .health import check_health, healthy, nobody_goes
from .sizes import growing_and_shrinking
from .soaking import SOAK, dice
from .stage import all_run, condition, deployment_label, following, names, of_cluster, running, workers, workload

Obj = dict[str, Any]
pytestmark = pytest.mark.soak
SEEDS = range(30) if SOAK else (1,)


@pytest.mark.parametrize("seed", SEEDS)
async def test_slow_clusters_come_up_all_the_same(seed: int) -> None:
    weather = Weather(cluster=(10, 60), machine=(30, 300), join=(10, 120), bootstrap=(1, 30), removal=(5, 90), failing=0.5)
    async with embedded(seed=seed, weather=weather) as world:
        await world.add_cluster("slow", control_plane=3, workers=5)
        await world.until("all run", lambda: world.running("slow", 8), 7200)
        await world.delete(CLUSTERS, "slow")
        await world.until("it is gone", lambda: world.gone(CLUSTERS, "slow"), 7200)


async def test_scaling_in_slow_weather() -> None:
    async with embedded(weather=Weather(machine=(5, 30), join=(1, 10), removal=(1, 30))) as world:
        await growing_and_shrinking(world)


@pytest.mark.parametrize("seed", SEEDS)
async def test_machines_that_never_join_are_replaced_until_all_do(seed: int) -> None:
    async with embedded(seed=seed, weather=Weather(machine=(1, 20), join=(1, 10))) as world:
        await running(world, "lossy", 1)
        # Not from the start, or the only machine of the control plane might be among them.
        world.land.weather = replace(world.land.weather, lost=0.4)
        await world.patch(MACHINE_DEPLOYMENTS, "lossy-md", {"spec": {"replicas": 6}})
        await check_health(world, "lossy", startup=60)
        await world.until("all run", lambda: world.running("lossy", 7), 7200)
        await healthy(world, "lossy", 6)


@pytest.mark.parametrize("seed", SEEDS)
async def test_flapping_nodes_are_left_alone_by_patient_checks(seed: int) -> None:
    async with embedded(seed=seed, weather=Weather(flapping=20.0)) as world:
        await running(world, "flap", 3)
        await check_health(world, "flap", startup=600)
        before = names(await workers(world, "flap"))
        async with following(world, labels=deployment_label("flap"), check=nobody_goes):
            await world.settle(600)
        assert names(await workers(world, "flap")) == before


async def test_a_cluster_that_can_not_be_reached_loses_nobody() -> None:
    """Its line is cut for an hour. It is said that nobody knows, and nobody is deleted; then all is as before."""
    async with embedded() as world:
        await running(world, "cut", 3)
        await check_health(world, "cut")
        await healthy(world, "cut", 3)
        before = names(await world.machines("cut"))
        async with following(world, labels=of_cluster("cut"), check=nobody_goes):
            workload(world, "cut").cut = True
            await world.settle(3600)
            cluster = await world.get(CLUSTERS, "cut")
            assert condition(cluster, "RemoteConnectionProbe")["status"] == "False"
            for machine in await world.machines("cut"):
                assert condition(machine, "NodeHealthy")["status"] == "Unknown"
            workload(world, "cut").cut = False

            async def well() -> bool:
                found = await world.machines("cut")
                probe = condition(await world.get(CLUSTERS, "cut"), "RemoteConnectionProbe")
                return probe["status"] == "True" and all(condition(each, "NodeHealthy")["status"] == "True" for each in found)

            await world.until("all is well", well)
        assert names(await world.machines("cut")) == before


async def test_a_line_that_breaks_again_and_again() -> None:
    """Scaling works whenever the line does, and machines can be made and deleted while it does not."""
    choices = dice("line")
    async with embedded(seed=choices.randrange(1000)) as world:
        await running(world, "torn", 2)
        async with following(world, MACHINES, labels=of_cluster("torn")):
            for round_ in range(20 if SOAK else 4):
                workload(world, "torn").cut = round_ % 2 == 0
                await world.patch(MACHINE_DEPLOYMENTS, "torn-md", {"spec": {"replicas": choices.randrange(5)}})
                await world.settle(choices.choice((0.5, 20, 200)))
            workload(world, "torn").cut = False
            await world.patch(MACHINE_DEPLOYMENTS, "torn-md", {"spec": {"replicas": 2}})
            await all_run(world, "torn", 3)
