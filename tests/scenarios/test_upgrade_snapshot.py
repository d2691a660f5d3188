"""An upgrade to another minor version waits for a snapshot of etcd with the old one, which is the way back."""

from __future__ import annotations

import random
from typing import Any

import pytest

from remuda.app.rehearsal import provisioning as provisioned
from remuda.kube.objects import annotations_of, dig
from remuda.kube.waits import Actor, Code
from remuda.lab.sim.provisioning_world import ProvisioningWorld
from remuda.provisioning.etcd.snapshot_specs import SPEC_KEY, packed_cluster_spec
from remuda.provisioning.well_known import UPGRADE_SNAPSHOT

from .provisioned import DEMO, FROM, TO, build, change, init_nodes, message, nodes, ready
from .test_restoring import add_map, ended, listed, maps, request, status, why

NEWER = "v1.35.0+remuda1"
PREFIX = "pre-upgrade-v1.34.1-remuda1"
THREE = ["ec", "ec", "ec", "w"]


async def upgraded(world: ProvisioningWorld, version: str = NEWER) -> None:
    await change(world, kubernetesVersion=version)
    await ready(world)
    assert set((await nodes(world)).values()) == {version}


def files(world: ProvisioningWorld, host: str = "h0") -> list[str]:
    return sorted(world.distribution(DEMO).snapshots.get(host, {}))


async def state(world: ProvisioningWorld) -> dict[str, Any]:
    return dict((await status(world)).get("upgradeSnapshot") or {})


async def test_all_members_save_before_any_of_them_is_upgraded() -> None:
    async with provisioned() as world:
        hosts = await build(world, THREE)
        await change(world, kubernetesVersion=NEWER)

        async def taken() -> bool:
            return all(files(world, host.name) for host in hosts[:3])

        await world.until("the snapshots are taken", taken)
        assert {version for _, version in world.distribution(DEMO).starts} == {FROM}
        (saved,) = world.distribution(DEMO).snapshots["h0"].values()
        assert packed_cluster_spec(saved.metadata[SPEC_KEY])["kubernetesVersion"] == FROM, "that is where the way back leads to"
        await ready(world)
        assert set((await nodes(world)).values()) == {NEWER}
        assert [name.startswith(f"{PREFIX}-h0-") for name in files(world)] == [True]
        found = await state(world)
        assert (found["from"], found["to"], found["phase"], found["name"]) == (FROM, NEWER, "Finished", PREFIX)
        assert not annotations_of(await world.control_plane(DEMO)).get(UPGRADE_SNAPSHOT)


async def test_the_way_back_and_another_upgrade() -> None:
    async with provisioned() as world:
        hosts = await build(world, THREE)
        await add_map(world, "before")
        await upgraded(world)
        await add_map(world, "after")
        await request(world, await listed(world, hosts[0]), mode="kubernetesVersion")
        assert await ended(world) == "Finished", await why(world)
        await ready(world)
        assert set((await nodes(world)).values()) == {FROM} and await maps(world) == {"before"}
        assert len(files(world)) == 1, "the way back takes none"
        await upgraded(world)
        assert len(files(world)) == 2, "and the same upgrade another one"
        assert world.distribution(DEMO).violations == []


@pytest.mark.parametrize(
    ("version", "etcd"), [(TO, None), (NEWER, {"snapshotBeforeUpgrade": False})], ids=["a patch", "switched off"]
)
async def test_no_snapshot_where_none_is_wanted(version: str, etcd: dict[str, Any] | None) -> None:
    async with provisioned() as world:
        await build(world, THREE, etcd=etcd)
        await upgraded(world, version)
        assert files(world) == [] and not await state(world)


async def test_a_failure_holds_the_upgrade_until_it_is_switched_off() -> None:
    async with provisioned() as world:
        hosts = await build(world, THREE)
        for host in hosts:
            host.failing = 3 if "e" in host.roles else 0
        await change(world, kubernetesVersion=NEWER)

        async def is_held() -> bool:
            return "the snapshot of etcd before it failed" in await message(world)

        await world.until("it is held", is_held)
        assert "snapshotBeforeUpgrade to false" in await message(world)
        (found,) = [wait for wait in world.waits() if wait.code is Code.SNAPSHOT]
        assert found.actor is Actor.USER
        assert {version for _, version in world.distribution(DEMO).starts} == {FROM}
        await change(world, rkeConfig={"etcd": {"snapshotBeforeUpgrade": False}})
        await ready(world)
        assert set((await nodes(world)).values()) == {NEWER} and files(world) == []


async def test_a_failure_that_passes_is_tried_again() -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ec", "w"])
        hosts[0].failing = 3
        await change(world, kubernetesVersion=NEWER)
        await ready(world, 3000)
        assert set((await nodes(world)).values()) == {NEWER} and len(files(world)) == 1


async def test_the_upgrade_is_taken_back_while_it_is_held() -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ec", "w"])
        hosts[0].failing = 3
        await change(world, kubernetesVersion=NEWER)
        await world.settle(20)
        await change(world, kubernetesVersion=FROM)
        await ready(world)
        assert {version for _, version in world.distribution(DEMO).starts} == {FROM}
        assert (await state(world)).get("phase") in (None, "Finished")


@pytest.mark.parametrize("seed", range(4))
async def test_it_goes_on_wherever_the_server_and_the_agents_are_killed(seed: int) -> None:
    dice = random.Random(seed)
    async with provisioned(seed=seed) as world:
        hosts = await build(world, THREE)
        await change(world, kubernetesVersion=NEWER)
        for _ in range(25):
            await world.settle(dice.uniform(0.1, 4))
            if dice.random() < 0.5:
                await world.kill()
                world.begin()
            else:
                host = dice.choice(hosts)
                if world.hosts.is_running(host):
                    await world.hosts.kill(host)
                    world.hosts.revive(host)
            assert len(await init_nodes(world)) <= 1
            started = {version for _, version in world.distribution(DEMO).starts}
            assert started == {FROM} or any(files(world, host.name) for host in hosts[:3])
        await ready(world, 3000)
        assert set((await nodes(world)).values()) == {NEWER}
        assert dig(await world.control_plane(DEMO), "status", "upgradeSnapshot", "phase") == "Finished"
        assert world.distribution(DEMO).violations == []
