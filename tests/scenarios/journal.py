"""A full life of two clusters in bad weather, and the sum of everything that was written meanwhile.

`python -m tests.scenarios.journal SEED` prints that sum: processes with the same seed must print the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Callable

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINE_DEPLOYMENTS
from remuda.app.rehearsal import embedded
from remuda.lab.sim.capi_world import EmbeddedWorld
from remuda.lab.sim.delays_and_faults import Weather

from .health import check_health
from .rollouts import change, rolled_out
from .stage import turn, workers

WEATHER = Weather(cluster=(1, 5), machine=(5, 30), join=(1, 10), bootstrap=(0, 5), removal=(0, 20), failing=0.3, flapping=300.0)

Journal = list[tuple[int, str, bool]]


async def life(seed: int) -> tuple[Journal, str]:
    """The journal, and the sum of all values that were written."""
    digest = hashlib.sha256()
    async with embedded(seed=seed, weather=WEATHER, pods=True) as world:
        reading = asyncio.create_task(_read(world, digest.update))
        try:
            await _live(world)
            assert not reading.done(), reading.result()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        return list(world.journal), digest.hexdigest()


async def _read(world: EmbeddedWorld, update: Callable[[bytes], None]) -> None:
    async with world.server.store.watch(world.begins) as batches:
        async for batch in batches:
            for event in batch:
                update(f"{event.revision} {event.key} ".encode() + (event.kv.value if event.kv else b"-"))


async def _live(world: EmbeddedWorld) -> None:
    for name in ("one", "two"):
        await world.add_cluster(name, control_plane=1, workers=3)
        await check_health(world, name, startup=90)

    async def up() -> bool:
        found = [machine for name in ("one", "two") for machine in await workers(world, name)]
        return len(found) == 6 and all(machine["status"].get("nodeRef") for machine in found)

    await world.until("both are up", up, 3600)
    await change(world, "one", "b")
    await turn(world, "two", (await workers(world, "two"))[0], False)
    await world.settle(20)
    await world.kill_core()
    await world.settle(5)
    world.start_core()
    await world.patch(MACHINE_DEPLOYMENTS, "two-md", {"spec": {"replicas": 1}})
    await rolled_out(world, "one", "b", 3)
    await world.delete(CLUSTERS, "two")
    await world.until("one is gone", lambda: world.gone(CLUSTERS, "two"), 3600)


if __name__ == "__main__":
    print(asyncio.run(life(int(sys.argv[1])))[1])
