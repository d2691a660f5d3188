"""The only etcd machine of a cluster that is up: nothing takes it away before another is there, unless a user means it."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.app.rehearsal import provisioning as provisioned
from remuda.kube.conditions import get
from remuda.kube.errors import ApiError
from remuda.kube.objects import name_of
from remuda.lab.sim import machine_jobs
from remuda.lab.sim.machine_jobs import pool
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.well_known import DELETE_LAST_ETCD

from .provisioned import DEMO, message, nodes, ready
from .test_pools import WORKERS, build, gone, of_pools, repool, until_pools

Obj = dict[str, Any]


async def the_server(world: ProvisioningWorld) -> str:
    (name,) = (await of_pools(world))["servers"]
    return name


async def test_it_is_deleted_once_another_one_is_there() -> None:
    async with provisioned(pools=True) as world:
        await build(world)
        server = await the_server(world)
        with pytest.raises(ApiError, match="it is the only etcd machine of its cluster"):
            await world.client.delete(capi.MACHINES, server, WORKSPACE)
        with pytest.raises(ApiError, match="it is the only etcd machine of its cluster"):
            await world.client.delete(machine_jobs.MACHINES, server, WORKSPACE)
        await repool(world, pool("servers", "ec", 2), WORKERS)
        await until_pools(world, servers=2, workers=2)
        await world.client.delete(capi.MACHINES, server, WORKSPACE)
        await world.until("it is gone", lambda: gone(world, [server]))
        await until_pools(world, servers=2, workers=2)
        assert world.distribution(DEMO).violations == []


async def test_a_rollout_without_surge_makes_the_next_one_first() -> None:
    async with provisioned(pools=True) as world:
        await build(world, pool("servers", "ec", rollingUpdate={"maxSurge": 0, "maxUnavailable": 1}), WORKERS)
        server = await the_server(world)
        await world.client.patch(machine_jobs.CONFIGS, "small", {"size": "m"}, WORKSPACE)
        await world.until("it is gone", lambda: gone(world, [server]))
        await until_pools(world, servers=1, workers=2)
        assert world.distribution(DEMO).violations == [] and len(await nodes(world)) == 3


async def test_a_pool_takes_the_place_of_another_in_one_edit() -> None:
    async with provisioned(pools=True) as world:
        await build(world)
        server = await the_server(world)
        await repool(world, pool("others", "ec"), WORKERS)
        await world.until("the old one is gone", lambda: gone(world, [server]))
        await until_pools(world, others=1, workers=2)
        assert world.distribution(DEMO).violations == []
        deployments = {name_of(each) for each in (await world.client.list(capi.MACHINE_DEPLOYMENTS, WORKSPACE))["items"]}
        assert deployments == {f"{DEMO}-others", f"{DEMO}-workers"}


async def test_a_set_that_is_scaled_away_keeps_it_and_says_why() -> None:
    async with provisioned(pools=True) as world:
        await build(world)
        server = await the_server(world)
        with pytest.raises(ApiError, match="it is the only etcd machine of its cluster"):
            await world.client.patch(capi.MACHINE_DEPLOYMENTS, f"{DEMO}-servers", {"spec": {"replicas": 0}}, WORKSPACE)
        (machine_set,) = [
            each for each in (await world.client.list(capi.MACHINE_SETS, WORKSPACE))["items"] if "-servers-" in name_of(each)
        ]
        scale: Obj = {"spec": {"replicas": 0}}
        await world.client.patch(capi.MACHINE_SETS, name_of(machine_set), scale, WORKSPACE, subresource="scale")
        await world.settle(60)
        assert await the_server(world) == server and await world.is_ready(DEMO)


async def test_a_health_check_does_not_replace_it_and_says_why() -> None:
    async with provisioned(pools=True) as world:
        made = await build(world, pool("servers", "ec", unhealthyNodeTimeout="60s"), WORKERS)
        server = await the_server(world)
        annotations = {"cluster.x-k8s.io/remediate-machine": ""}
        await world.client.patch(capi.MACHINES, server, {"metadata": {"annotations": annotations}}, WORKSPACE)
        await world.settle(60)
        machine = await world.client.get(capi.MACHINES, server, WORKSPACE)
        said = get(machine, "OwnerRemediated") or {}
        assert said["reason"] == "RemediationDeferred" and "it is the only etcd machine" in said["message"]
        assert "deletionTimestamp" not in machine["metadata"] and made.removed == []


async def test_with_the_annotation_it_goes() -> None:
    async with provisioned(pools=True) as world:
        made = await build(world)
        server = await the_server(world)
        annotations = {DELETE_LAST_ETCD: "true"}
        await world.client.patch(capi.MACHINES, server, {"metadata": {"annotations": annotations}}, WORKSPACE)
        await world.client.delete(capi.MACHINES, server, WORKSPACE)
        await world.until("it is gone", lambda: gone(world, [server]))
        assert server in made.removed
        await world.settle(60)
        assert "Restoration from etcd snapshot is required" in await message(world)


async def test_the_last_guard_holds_a_machine_whose_deletion_got_around_admission() -> None:
    async with provisioned(pools=True) as world:
        made = await build(world)
        server = await the_server(world)
        # Meant at first, and taken back before a controller saw it.
        await world.kill()
        await world.client.patch(capi.MACHINES, server, {"metadata": {"annotations": {DELETE_LAST_ETCD: "true"}}}, WORKSPACE)
        await world.client.delete(capi.MACHINES, server, WORKSPACE)
        await world.client.patch(capi.MACHINES, server, {"metadata": {"annotations": {DELETE_LAST_ETCD: None}}}, WORKSPACE)
        world.begin()
        await world.settle(120)
        assert made.removed == [] and "it is the only etcd machine of its cluster" in await message(world)
        # Another one takes over what it holds, and lets it go.
        await repool(world, pool("servers", "ec", 2), WORKERS)
        await world.until("it is gone", lambda: gone(world, [server]))
        await until_pools(world, servers=2, workers=2)
        await ready(world)
        assert world.distribution(DEMO).violations == []
