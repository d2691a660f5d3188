"""Many clusters of four hosts each, on one server with all controllers; hosts and clusters are in memory (`remuda.lab.sim`).

Time is virtual, so what counts is processor time. It includes the agents, and an API server for each cluster.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import time

from remuda.app.rehearsal import provisioning
from remuda.lab.sim.provisioning_world import ProvisioningWorld

ROLES = ("ecw", "ecw", "ecw", "w")
VERSION = "v1.34.1+remuda1"


def measured(clusters: int) -> dict[str, float]:
    logging.disable(logging.WARNING)
    try:
        return asyncio.run(_measured(clusters))
    finally:
        logging.disable(logging.NOTSET)


async def _measured(clusters: int) -> dict[str, float]:
    gc.collect()
    async with provisioning() as world:
        await world.settle(10)
        began, wall, revision = time.process_time(), time.perf_counter(), await world.server.store.current()
        names = [f"c{number}" for number in range(clusters)]
        for name in names:
            await world.want(name, VERSION)
            for number, roles in enumerate(ROLES):
                await world.host(name, f"{name}-{number}", roles)
        started = world.clock.monotonic()
        await world.until("all are ready", lambda: _all_ready(world, names), 3600)
        cpu = time.process_time() - began
        writes = await world.server.store.current() - revision
        return {
            "cpu": cpu,
            "cpu_host": cpu / clusters / len(ROLES),
            "wall": time.perf_counter() - wall,
            "writes": writes / clusters,
            "virtual": world.clock.monotonic() - started,
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }


async def _all_ready(world: ProvisioningWorld, names: list[str]) -> bool:
    for name in names:
        if not await world.is_ready(name):
            return False
    return True
