"""Cluster controllers that die anywhere: whoever comes next brings every Cluster to the same end."""

from __future__ import annotations

import asyncio
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS
from remuda.apiserver.inprocess import InProcessClient
from remuda.capi.cluster import Clusters
from remuda.capi.controller_context import Core
from remuda.kube.clock import Rng
from remuda.runtime import Manager
from tests.unit.capi.memory_clusters import TEST_CLUSTERS, TEST_CONTROL_PLANES, World, world

Obj = dict[str, Any]


class Shift:
    """One life of the controllers."""

    def __init__(self, w: World) -> None:
        manager = Manager(InProcessClient(w.server, manager="manager"), w.clock, Rng(1))
        manager.add(Clusters(Core(manager, w.workloads)))
        self._task = asyncio.create_task(manager.run())

    async def die_after(self, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await self.die()

    async def die(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def essence(obj: Obj) -> Obj:
    """Without names, and without what differs between any two."""
    meta = obj["metadata"]
    kept = {key: meta.get(key) for key in ("finalizers", "generation")}
    conditions = [
        {key: value for key, value in each.items() if key != "lastTransitionTime"} for each in obj["status"]["conditions"]
    ]
    status = {key: value for key, value in obj["status"].items() if key not in ("conditions", "deprecated")}
    return {"metadata": kept, "status": status, "conditions": conditions}


async def test_the_next_controller_reaches_the_same_state() -> None:
    async with world() as w:
        ends = []
        for turns in (*range(1, 40, 2), *range(40, 200, 10), 1000):
            name = f"c{turns}"
            await w.cluster(name)
            await Shift(w).die_after(turns)
            await w.provision_cluster(name)
            await Shift(w).die_after(turns)
            await w.initialize_control_plane(name)
            await Shift(w).die_after(turns)
            last = Shift(w)
            await w.settle(3)
            ends.append(essence(await w.get(CLUSTERS, name)))
            for resource in (TEST_CLUSTERS, TEST_CONTROL_PLANES):
                found = await w.get(resource, name)
                assert [owner["name"] for owner in found["metadata"]["ownerReferences"]] == [name]
            await last.die()
        assert all(end == ends[-1] for end in ends)
        assert ends[-1]["status"]["phase"] == "Provisioned"


async def test_a_deletion_that_was_begun_is_finished_by_the_next_controller() -> None:
    async with world() as w:
        for turns in (*range(1, 40, 3), 100):
            name = f"c{turns}"
            await w.cluster(name)
            first = Shift(w)
            await w.settle(1)
            await first.die()
            await w.delete(CLUSTERS, name)
            await Shift(w).die_after(turns)
            last = Shift(w)
            await w.settle(10)
            await last.die()
            for resource in (CLUSTERS, TEST_CLUSTERS, TEST_CONTROL_PLANES):
                assert await w.find(resource, name) is None
