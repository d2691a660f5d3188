"""Many clusters of two pools each, on one server with all controllers: from nothing to Ready, and then at rest.

Machines are made by Jobs whose work is done in memory, as are hosts and clusters (`remuda.lab.sim`): so what counts is processor
time, and it includes an agent for each machine and an API server for each cluster. Time is virtual, also while nothing happens:
what would be done in ten minutes is done at once, and its processor time divided by ten minutes. A process of its own for each
number of clusters, for the sake of its memory.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import subprocess
import sys
import time

from remuda.app.rehearsal import provisioning
from remuda.lab.sim import machine_jobs
from remuda.lab.sim.machine_jobs import config, pool
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from tests.bench.processes import resident_mib

VERSION = "v1.34.1+remuda1"
SERVERS, WORKERS = 3, 2
_REST_SECONDS = 600.0


def measured(clusters: int) -> dict[str, float]:
    command = [sys.executable, "-m", __name__, str(clusters)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{clusters} clusters:\n{done.stderr[-4000:]}")
    return {f"{name}_{clusters}": value for name, value in json.loads(done.stdout).items()}


async def _measured(clusters: int) -> dict[str, float]:
    names = [f"c{number}" for number in range(clusters)]
    async with provisioning(pools=True) as world:
        await world.settle(10)
        began, wall, revision = time.process_time(), time.perf_counter(), await world.server.store.current()
        for name in names:
            await _declare(world, name)
        declared = world.clock.monotonic()
        await world.until("all are ready", lambda: _all_ready(world, names), 3600)
        cpu, machines = time.process_time() - began, clusters * (SERVERS + WORKERS)
        found = {
            "cpu": cpu,
            "cpu_machine": cpu / machines,
            "wall": time.perf_counter() - wall,
            "virtual": world.clock.monotonic() - declared,
            "writes": (await world.server.store.current() - revision) / machines,
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        assert world.jobs is not None and len(world.jobs.made) == machines, "some were made twice"
        # What comes after Ready is not rest yet.
        await world.settle(120)
        return found | await _at_rest(world)


async def _at_rest(world: ProvisioningWorld) -> dict[str, float]:
    began, revision = time.process_time(), await world.server.store.current()
    await world.settle(_REST_SECONDS)
    return {
        "idle_cpu": (time.process_time() - began) / _REST_SECONDS * 1000,
        "idle_writes": (await world.server.store.current() - revision) / _REST_SECONDS * 60,
        "idle_memory": resident_mib([os.getpid()]),
    }


async def _declare(world: ProvisioningWorld, name: str) -> None:
    servers, workers = f"{name}-servers", f"{name}-workers"
    for each in (servers, workers):
        await world.client.create(machine_jobs.CONFIGS, config(each, WORKSPACE, size="s"), WORKSPACE)
    pools = [pool("servers", "ec", SERVERS, servers), pool("workers", "w", WORKERS, workers)]
    await world.want(name, VERSION, machinePools=pools)


async def _all_ready(world: ProvisioningWorld, names: list[str]) -> bool:
    for name in names:
        if not await world.is_ready(name):
            return False
    return True


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    print(json.dumps(asyncio.run(_measured(int(sys.argv[1])))))
