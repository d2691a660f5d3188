"""Simulated clusters and machines outlive their objects where these only go to another management cluster."""

from __future__ import annotations

from remuda.api.cluster_x_k8s_io import CLUSTERS
from remuda.app.rehearsal import embedded
from remuda.capi.well_known import MOVED_AWAY
from remuda.kube.builtin_resources import NODES
from remuda.kube.conditions import is_true
from remuda.kube.objects import dig
from remuda.lab.sim.capi_world import EmbeddedWorld, key
from remuda.lab.sim.providers import SIM_CLUSTERS, SIM_MACHINES


async def running(world: EmbeddedWorld) -> str:
    """A cluster of one machine; its name."""
    await world.add_cluster("c1")
    await world.until("it runs", lambda: world.running("c1", 1))
    (machine,) = await world.machines("c1")
    return str(machine["metadata"]["name"])


async def test_what_is_paused_is_not_removed_until_it_is_not_paused_any_more() -> None:
    async with embedded() as world:
        name = await running(world)
        await world.patch(CLUSTERS, "c1", {"spec": {"paused": True}})
        await world.settle(5)
        await world.delete(SIM_MACHINES, name)
        await world.delete(SIM_CLUSTERS, "c1")
        await world.settle(60)
        assert dig(await world.get(SIM_CLUSTERS, "c1"), "metadata", "deletionTimestamp")
        workload = world.clusters.get(key("c1"))
        assert workload is not None
        assert is_true(await workload.client.get(NODES, name), "Ready")
        await world.patch(CLUSTERS, "c1", {"spec": {"paused": None}})
        await world.until("it is gone", lambda: world.gone(SIM_CLUSTERS, "c1"))
        assert world.clusters.get(key("c1")) is None


async def test_what_is_deleted_for_a_move_is_left_alone() -> None:
    async with embedded() as world:
        name = await running(world)
        moved = {"metadata": {"annotations": {MOVED_AWAY: ""}}}
        for resource, each in ((SIM_MACHINES, name), (SIM_CLUSTERS, "c1")):
            await world.patch(resource, each, moved)
            await world.delete(resource, each)
        await world.settle(60)
        workload = world.clusters.get(key("c1"))
        assert workload is not None
        assert is_true(await workload.client.get(NODES, name), "Ready")


async def test_a_machine_that_has_an_id_was_made_before_and_is_there_at_once() -> None:
    async with embedded() as world:
        name = await running(world)
        before = await world.get(SIM_MACHINES, name)
        # As clusterctl leaves it at the target: without its status.
        await world.patch(SIM_MACHINES, name, {"status": None}, "status")
        await world.settle(1)
        after = await world.get(SIM_MACHINES, name)
        assert dig(after, "status", "addresses") == dig(before, "status", "addresses")
        assert dig(after, "spec", "providerID") == dig(before, "spec", "providerID")
