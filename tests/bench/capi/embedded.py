"""One load on the embedded management API: a program of its own, so that its CPU and memory are nobody else's.

`python -m tests.bench.capi.embedded LOAD DIRECTORY IDLE` with the load as JSON prints one JSON line. The directory is for the
store, with fsync; `memory` keeps it in memory. IDLE seconds are watched afterwards. Everything is in this process: API, store,
kube-controller-manager's part, the core, the simulated providers and the workload clusters.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remuda.apiserver.inprocess import InProcessClient
from remuda.app.rehearsal import embedded
from remuda.cli.programs.event_loop import collect_seldom, loop_factory, raise_file_limit
from remuda.kube.clock import SYSTEM_CLOCK
from remuda.kube.errors import ApiError
from remuda.lab.sim.capi_world import EmbeddedWorld
from tests.bench.capi.load import Load, build, quiet, roll
from tests.bench.processes import peak_mib

Found = dict[str, Any]


class Conflicts:
    """Counts the writes that this process's clients were refused because somebody else had been quicker."""

    def __init__(self) -> None:
        self.count = 0
        for verb in ("update", "patch", "apply", "delete"):
            setattr(InProcessClient, verb, self._counted(getattr(InProcessClient, verb)))

    def _counted(self, write: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(write)
        async def counted(*arguments: Any, **options: Any) -> Any:
            try:
                return await write(*arguments, **options)
            except ApiError as error:
                self.count += error.code == 409
                raise

        return counted


class Meter:
    """What a step cost: seconds, CPU seconds, writes to the management API, conflicts."""

    def __init__(self, world: EmbeddedWorld, conflicts: Conflicts) -> None:
        self._world = world
        self._conflicts = conflicts
        self._before = self._now()

    def _now(self) -> tuple[float, float, int, int]:
        return time.monotonic(), time.process_time(), self._world.server.store.revision, self._conflicts.count

    def read(self) -> Found:
        wall, cpu, writes, conflicts = (now - before for now, before in zip(self._now(), self._before, strict=True))
        return {"wall": wall, "cpu": cpu, "writes": writes, "conflicts": conflicts}


async def measure(load: Load, directory: Path | None, idle: float) -> Found:
    conflicts = Conflicts()
    async with embedded(clock=SYSTEM_CLOCK, data_dir=directory) as world:
        empty = peak_mib("self")
        meter = Meter(world, conflicts)
        await build(world, load)
        found: Found = {**meter.read(), "memory": peak_mib("self"), "memory_before": empty, "reconciles": reconciles(world)}
        if idle or load.surge:
            found["quiet"] = await quiet(functools.partial(_revision, world))
        if idle:
            meter = Meter(world, conflicts)
            await asyncio.sleep(idle)
            found["idle"] = meter.read()
        if load.surge:
            meter = Meter(world, conflicts)
            await roll(world, load)
            found["roll"] = meter.read()
        return found


async def _revision(world: EmbeddedWorld) -> int:
    return world.server.store.revision


def reconciles(world: EmbeddedWorld) -> dict[str, float]:
    """How often each controller has looked at something."""
    assert world.core is not None
    found: dict[str, float] = {}
    for manager in (world.core.core.manager, world.manager):
        for line in manager.registry.text().splitlines():
            if line.startswith("controller_runtime_reconcile_total{"):
                name = line.partition('controller="')[2].partition('"')[0]
                found[name] = found.get(name, 0.0) + float(line.rpartition(" ")[2])
    return found


def main(arguments: list[str]) -> None:
    # That workload clusters do not answer before they have a machine is no news.
    logging.disable(logging.WARNING)
    raise_file_limit()
    collect_seldom()
    load = Load(**json.loads(arguments[0]))
    directory = None if arguments[1] == "memory" else Path(arguments[1])
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        print(json.dumps(runner.run(measure(load, directory, float(arguments[2])))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
