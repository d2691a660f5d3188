"""Provisioned clusters when hosts, lines, people and other controllers do what they should not, or take their time."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.app.rehearsal import provisioning as provisioned
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, dig, name_of
from remuda.lab.sim.hosts import SimulatedHost
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.well_known import DELETE_LAST_ETCD, POST_DRAIN, PRE_DRAIN, plan_name

from .provisioned import DEMO, FROM, NODES, TO, build, change, conditions, init_nodes, machine_of, message, nodes, plans, ready

PRE, POST = "hooks.example.com/pre", "hooks.example.com/post"


@pytest.mark.parametrize(("concurrency", "most"), [("1", 1), ("2", 2), ("50%", 2), ("0", 4)])
async def test_workers_change_as_many_at_once_as_may(concurrency: str, most: int) -> None:
    async with provisioned() as world:
        await build(world, ["ec", "w", "w", "w", "w"], upgradeStrategy={"workerConcurrency": concurrency})
        await change(world, kubernetesVersion=TO)
        await ready(world)
        assert world.distribution(DEMO).most_down["worker"] == most
        assert set((await nodes(world)).values()) == {TO}


async def test_nodes_are_drained_and_hooks_have_their_say() -> None:
    options: Any = {"enabled": True, "preDrainHooks": [{"annotation": PRE}], "postDrainHooks": [{"annotation": POST}]}
    async with provisioned() as world:
        hosts = await build(world, ["ecw", "w"], upgradeStrategy={"workerDrainOptions": options})
        await change(world, kubernetesVersion=TO)
        worker = plan_name(name_of(await machine_of(world, hosts[1])))

        async def asked(mark: str) -> str:
            return annotations_of(await world.client.get(SECRETS, worker, WORKSPACE)).get(mark, "")

        text = await world.until("the first hook is asked", lambda: asked(PRE_DRAIN))
        client = world.distribution(DEMO).cluster.client
        await world.settle(30)
        assert dig(await client.get(NODES, "h1"), "spec", "unschedulable") is True
        assert (await nodes(world))["h1"] == FROM, "nothing changes before the hook has answered"
        assert "draining worker node(s)" in await message(world)
        await world.client.patch(SECRETS, worker, {"metadata": {"annotations": {PRE: text}}}, WORKSPACE)
        text = await world.until("the last hook is asked", lambda: asked(POST_DRAIN))
        assert (await nodes(world))["h1"] == TO
        await world.client.patch(SECRETS, worker, {"metadata": {"annotations": {POST: text}}}, WORKSPACE)
        await ready(world)
        assert not dig(await client.get(NODES, "h1"), "spec", "unschedulable")
        left = annotations_of(await world.client.get(SECRETS, worker, WORKSPACE))
        assert not {PRE, POST, PRE_DRAIN, POST_DRAIN} & set(left)


async def test_a_host_that_dies_in_the_middle_holds_up_the_others_and_is_named() -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ecw", "ecw", "ecw"])
        hosts[0].dead = True
        await change(world, kubernetesVersion=TO)
        await world.settle(1200)
        dead = name_of(await machine_of(world, hosts[0]))
        assert dead in await message(world)
        assert set((await nodes(world)).values()) == {FROM}, "nobody follows where one does not answer"
        assert world.distribution(DEMO).violations == []
        hosts[0].dead = False
        await ready(world)
        assert set((await nodes(world)).values()) == {TO}


async def test_a_cluster_that_is_away_for_minutes_is_told_of_and_left_as_it_is() -> None:
    async with provisioned() as world:
        await build(world, ["ecw", "w"])
        managed, before = await world.managed_name(DEMO), await plans(world)
        line = world.distribution(DEMO).cluster
        line.cut = True
        world.downstreams.tell(managed)
        await world.settle(400)
        assert (await conditions(world, management.CLUSTERS, managed, ""))["Connected"] == "False"
        assert await plans(world) == before
        line.cut = False
        world.downstreams.tell(managed)
        await ready(world)
        await world.settle(60)
        assert (await conditions(world, management.CLUSTERS, managed, ""))["Connected"] == "True"
        assert await plans(world) == before


async def test_a_paused_cluster_is_not_touched() -> None:
    async with provisioned() as world:
        await build(world, ["ecw"])
        await world.client.patch(capi.CLUSTERS, DEMO, {"spec": {"paused": True}}, WORKSPACE)
        await change(world, kubernetesVersion=TO)
        await world.settle(60)
        assert await message(world) == "CAPI cluster or RKEControlPlane is paused"
        assert await nodes(world) == {"h0": FROM}
        await world.client.patch(capi.CLUSTERS, DEMO, {"spec": {"paused": False}}, WORKSPACE)
        await ready(world)
        assert await nodes(world) == {"h0": TO}


async def test_without_any_member_of_etcd_only_a_snapshot_helps() -> None:
    async with provisioned() as world:
        hosts = await build(world, ["e", "c", "w"])
        name = name_of(await machine_of(world, hosts[0]))
        await world.client.patch(capi.MACHINES, name, {"metadata": {"annotations": {DELETE_LAST_ETCD: "true"}}}, WORKSPACE)
        await world.client.delete(capi.MACHINES, name, WORKSPACE)
        await world.until("it has gone", lambda: _is_gone(world, hosts[0]))
        await world.host(DEMO, "new", "e")
        await world.until("it says so", lambda: _says(world, "Restoration from etcd snapshot is required"))
        assert await init_nodes(world) == [], "no second cluster is begun in the place of the first"
        assert world.distribution(DEMO).violations == []


async def _is_gone(world: ProvisioningWorld, host: SimulatedHost) -> bool:
    return host.name not in [name for name, _ in (await _hosts(world)).items()]


async def _hosts(world: ProvisioningWorld) -> dict[str, str]:
    found = {dig(each, "metadata", "labels", "rke.cattle.io/node-name"): name_of(each) for each in await world.machines(DEMO)}
    return {str(name): machine for name, machine in found.items()}


async def _says(world: ProvisioningWorld, text: str) -> bool:
    return text in await message(world)


async def test_two_at_the_same_time_make_one_cluster() -> None:
    async with provisioned() as world:
        world.begin()
        await build(world, ["ecw", "ecw", "w"])
        await change(world, kubernetesVersion=TO)
        await ready(world)
        assert world.distribution(DEMO).violations == []
        assert len(await init_nodes(world)) == 1
        assert sorted(await nodes(world)) == ["h0", "h1", "h2"]


async def test_versions_that_can_not_follow_are_refused_with_the_reason() -> None:
    async with provisioned() as world:
        await build(world, ["ecw"])
        for version, why in (("v1.36.0+remuda1", "minor"), ("v1.33.5+remuda1", ""), ("v1.34.2+k3s1", "")):
            with pytest.raises(ApiError) as refused:
                await change(world, kubernetesVersion=version)
            assert refused.value.code == 422 and "spec.kubernetesVersion" in refused.value.message
            assert why in refused.value.message
        assert dig(await world.client.get(provisioning.CLUSTERS, DEMO, WORKSPACE), "spec", "kubernetesVersion") == FROM
