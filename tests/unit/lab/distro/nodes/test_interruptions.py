"""The controllers die after any write while workloads come, change and move: the same is there in the end, and nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from remuda.client.interface import Client
from remuda.kube.builtin_resources import DAEMON_SETS, DEPLOYMENTS, JOBS, POD_DISRUPTION_BUDGETS, REPLICA_SETS, STATEFUL_SETS
from remuda.kube.conditions import is_true
from remuda.kube.objects import dig
from tests.scenarios.mortal import Mortal
from tests.scenarios.soaking import SOAK, dice

from .simulated_cluster import NAMESPACE, Village, budget, deployment, image, job, on, village, workload

Obj = dict[str, Any]


async def _story(place: Village) -> None:
    await place.make(POD_DISRUPTION_BUDGETS, budget("web", maxUnavailable=1))
    await place.make(DEPLOYMENTS, deployment("web", 4))
    await place.make(DAEMON_SETS, workload("DaemonSet", "guard"))
    await place.make(STATEFUL_SETS, workload("StatefulSet", "db", serviceName="db", replicas=2))
    await place.make(JOBS, job("sums", completions=3, parallelism=2))
    await place.until("all of web run", lambda: place.running("web", 4), 600)
    await place.patch(DEPLOYMENTS, "web", image("web", "example.org/web:2"))
    await place.until("web is new", lambda: place.current("web", 4, "example.org/web:2"), 600)
    await place.drain("a")
    await place.until("all of web run elsewhere", lambda: place.running("web", 4), 600)
    await place.until("all of db run", lambda: place.running("db", 2), 600)
    await place.until("the guards run", lambda: place.running("guard", 3), 600)

    async def complete() -> bool:
        return is_true(await place.get(JOBS, "sums"), "Complete")

    await place.until("the job is complete", complete, 600)


async def _outcome(place: Village) -> Any:
    await place.settle(120)
    sets = (await place.client.list(REPLICA_SETS, NAMESPACE))["items"]
    return {
        "web": len(await place.running("web", 4)),
        "where": set(on(await place.pods("web"))) <= {"b", "c"},
        "db": sorted(pod["metadata"]["name"] for pod in await place.running("db", 2)),
        "guard": on(await place.running("guard", 3)),
        "job": dig(await place.get(JOBS, "sums"), "status", "succeeded"),
        "sets": sorted(dig(each, "spec", "replicas") for each in sets),
        "status": dig(await place.get(DEPLOYMENTS, "web"), "status", "availableReplicas"),
        "held": [pod for pod in await place.pods("sums") if pod["metadata"].get("finalizers")],
    }


async def _lives(place: Village, writes: Callable[[int], int | None], reigns: list[Mortal]) -> None:
    """One reign of controllers after the other."""
    while True:

        def through(client: Client) -> Any:
            reigns.append(Mortal(client, writes(len(reigns))))
            return reigns[-1]

        place.control(through)
        await reigns[-1].died.wait()
        await place.kill_controllers()
        reigns[-1].bury()


async def _run(writes: Callable[[int], int | None]) -> tuple[Any, list[Mortal]]:
    reigns: list[Mortal] = []
    async with village("a", "b", "c") as place:
        await place.kill_controllers()
        living = asyncio.create_task(_lives(place, writes, reigns))
        try:
            await _story(place)
            return await _outcome(place), reigns
        finally:
            living.cancel()
            await asyncio.gather(living, return_exceptions=True)


async def test_whichever_write_they_die_after_the_same_comes_of_it() -> None:
    expected, (reign,) = await _run(lambda _: None)
    assert expected["web"] == 4
    assert expected["sets"] == [0, 4]
    writes = reign.written
    chance = dice("controllers of workloads")
    moments = range(1, writes + 1) if SOAK else sorted(chance.sample(range(1, writes + 1), 6))
    for moment in moments:
        found, _ = await _run(lambda number, moment=moment: moment if number == 0 else None)  # type: ignore[misc]
        assert found == expected, f"died after write {moment} of {writes}"


async def test_short_lives_one_after_the_other() -> None:
    chance = dice("short lives")
    found, reigns = await _run(lambda number: chance.randint(1, 12) if number < 40 else None)
    assert len(reigns) > 10
    assert (found["web"], found["sets"], found["job"]) == (4, [0, 4], 3)
