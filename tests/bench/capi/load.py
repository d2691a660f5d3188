"""What is asked of a core: clusters with workers, all at once, and a rolling update; and when that is done.

The same for every core and every API server. It is followed by the providers' own informers: asking costs next to nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from remuda.api.cluster_x_k8s_io import MACHINE_DEPLOYMENTS
from remuda.capi.well_known import DEPLOYMENT_NAME
from remuda.kube.objects import Key, dig, labels_of, uid_of
from remuda.lab.sim.capi_world import World
from remuda.lab.sim.providers import INFRASTRUCTURE, SIM_MACHINE_TEMPLATES
from remuda.runtime import Informer

Obj = dict[str, Any]

# How many clusters are being written at a time: as a few people, or one impatient script, would.
WRITERS = 8
LIMIT = 3600.0


@dataclass(frozen=True, slots=True)
class Load:
    """`clusters` of one control plane machine and `workers`. With a `surge` the first one's workers are then rolled over."""

    clusters: int
    workers: int
    surge: int | str = ""

    @property
    def machines(self) -> int:
        return self.clusters * (1 + self.workers)


class Until:
    """Waits until as many objects of an informer as wanted satisfy a condition, without asking for it again and again."""

    def __init__(self, informer: Informer, true: Callable[[Obj], bool]) -> None:
        self._true = true
        self._found: set[Key] = set()
        self._changed = asyncio.Event()
        for obj in informer.objects():
            self._see(obj, None)
        informer.on_change(self._see)

    def _see(self, new: Obj | None, old: Obj | None) -> None:
        obj = new if new is not None else old
        assert obj is not None
        if new is not None and self._true(new):
            self._found.add(Key.of(obj))
        else:
            self._found.discard(Key.of(obj))
        self._changed.set()

    async def count(self, wanted: int) -> None:
        async with asyncio.timeout(LIMIT):
            while len(self._found) != wanted:
                self._changed.clear()
                await self._changed.wait()


def runs(machine: Obj) -> bool:
    return bool(dig(machine, "status", "phase") == "Running")


async def build(world: World, load: Load) -> None:
    """All clusters, and return when all their Machines run."""
    running = Until(world.land.core_machines, runs)
    numbers = iter(range(load.clusters))

    async def write() -> None:
        for number in numbers:
            await world.add_cluster(f"c{number:04}", control_plane=1, workers=load.workers)

    await asyncio.gather(*(write() for _ in range(WRITERS)))
    await running.count(load.machines)


async def roll(world: World, load: Load) -> None:
    """Another template for the workers of the first cluster; return when all of them are new and run, and no old one is left."""
    name, fresh, machines = "c0000-md", "c0000-next", world.land.core_machines
    old = {uid_of(machine) for machine in machines.objects() if labels_of(machine).get(DEPLOYMENT_NAME) == name}
    assert len(old) == load.workers
    template = world.thing(INFRASTRUCTURE, "SimMachineTemplate", fresh, {"template": {"spec": {}}})
    await world.create(SIM_MACHINE_TEMPLATES, template)
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": load.surge, "maxUnavailable": 0}}
    spec = {"rollout": {"strategy": strategy}, "template": {"spec": {"infrastructureRef": {"name": fresh}}}}
    left = Until(machines, lambda machine: uid_of(machine) in old)
    running = Until(machines, lambda machine: uid_of(machine) not in old and runs(machine))
    await world.patch(MACHINE_DEPLOYMENTS, name, {"spec": spec})
    await left.count(0)
    # And the one of the control plane.
    await running.count(load.workers + 1)


async def quiet(revision: Callable[[], Awaitable[int]], *, seconds: float = 12.0, limit: float = 180.0) -> bool:
    """Whether nothing was written for a while, before the limit. The core has a word to say ten seconds after the last change."""
    since, known = 0.0, await revision()
    for _ in range(int(limit)):
        await asyncio.sleep(1)
        now = await revision()
        since, known = (since + 1, known) if now == known else (0.0, now)
        if since >= seconds:
            return True
    return False
