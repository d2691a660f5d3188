"""Files of snapshots are checked and deleted where they are, on hosts and in a bucket, and nothing restarts for it."""

from __future__ import annotations

from typing import Any

from remuda.api import rke_cattle_io as rke
from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.app.rehearsal import provisioning as provisioned
from remuda.client.idempotent import find
from remuda.kube.objects import annotations_of, dig, finalizers_of, name_of
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.etcd.s3.answers import Why
from remuda.provisioning.etcd.snapshot_sets import copy_of
from remuda.provisioning.well_known import SNAPSHOT_FILE, VERIFY_SNAPSHOT

from .provisioned import DEMO, FROM, build, machine_of, ready
from .test_restoring import ended, request, save
from .test_snapshot_inventory import ALL, COPIES, become, objects, with_bucket

Obj = dict[str, Any]


async def verify(world: ProvisioningWorld, name: str, at: str = "2027-01-15T08:00:00Z") -> None:
    await world.client.patch(rke.ETCD_SNAPSHOTS, name, {"metadata": {"annotations": {VERIFY_SNAPSHOT: at}}}, WORKSPACE)


async def delete(world: ProvisioningWorld, name: str) -> None:
    await world.client.patch(rke.ETCD_SNAPSHOTS, name, {"metadata": {"finalizers": [SNAPSHOT_FILE]}}, WORKSPACE)
    await world.client.delete(rke.ETCD_SNAPSHOTS, name, WORKSPACE)


async def checked(world: ProvisioningWorld, name: str) -> Obj:
    """The result of the check that is under way."""

    async def is_done() -> bool:
        found = await world.client.get(rke.ETCD_SNAPSHOTS, name, WORKSPACE)
        return bool(dig(found, "status", "verification")) and VERIFY_SNAPSHOT not in annotations_of(found)

    await world.until(f"{name} is checked", is_done, 300)
    result: Obj = dig(await world.client.get(rke.ETCD_SNAPSHOTS, name, WORKSPACE), "status", "verification")
    return result


async def gone(world: ProvisioningWorld, name: str, seconds: float = 300) -> None:
    async def is_gone() -> bool:
        return await find(world.client, rke.ETCD_SNAPSHOTS, name, WORKSPACE) is None

    await world.until(f"{name} is gone", is_gone, seconds)


async def of_storage(world: ProvisioningWorld, storage: str) -> list[str]:
    return [name_of(each) for each in await objects(world) if copy_of(each).storage == storage]


async def test_files_on_hosts_and_in_the_bucket_are_checked() -> None:
    async with provisioned() as world:
        await with_bucket(world, ["ec", "ec", "ec", "w"])
        await save(world, 1)
        await become(world, ALL | COPIES, 120)
        keys = {file: len(saved.state) for files in world.distribution(DEMO).snapshots.values() for file, saved in files.items()}
        for each in await objects(world):
            await verify(world, name_of(each))
        for each in await objects(world):
            found = await checked(world, name_of(each))
            assert (found["result"], found["keys"]) == ("valid", keys[each["snapshotFile"]["name"]]), name_of(each)
            assert found["sha256"] == each["status"]["sha256"]
        await ready(world)
        assert [version for _, version in world.distribution(DEMO).starts] == [FROM] * 4, "nothing was restarted"
        assert world.distribution(DEMO).violations == []


async def test_a_copy_that_is_not_there_any_more_and_a_bucket_that_is_away_are_told() -> None:
    async with provisioned() as world:
        await with_bucket(world, ["ecw"])
        await save(world, 1)
        await become(world, {"h0": "available", "s3 h0": "available"}, 120)
        (name,), (file,) = await of_storage(world, "s3"), world.distribution(DEMO).snapshots["h0"]
        world.hosts.buckets.of("backups").remove("demo", file)
        await verify(world, name)
        found = await checked(world, name)
        assert found["result"] == "invalid" and "there is no" in found["message"]
        world.hosts.buckets.of("backups").trouble = Why.UNREACHABLE
        await verify(world, name, "2027-01-15T09:00:00Z")
        await world.settle(5)
        found = await checked(world, name)
        assert found["result"] == "unknown" and "is away" in found["message"], "it says nothing about the copy"


async def test_deleted_files_are_gone_from_their_storage_and_do_not_come_back() -> None:
    async with provisioned() as world:
        await with_bucket(world, ["ec", "ec", "ec", "w"])
        await save(world, 1)
        await become(world, ALL | COPIES, 120)
        files = world.distribution(DEMO).snapshots
        for name in await of_storage(world, "s3"):
            await delete(world, name)
            await gone(world, name)
        assert world.hosts.buckets.of("backups").objects == {}, "the metadata, too"
        assert [len(each) for each in files.values()] == [1, 1, 1], "the files of the hosts stay"
        for name in await of_storage(world, "local"):
            await delete(world, name)
            await gone(world, name)
        assert not any(files.values())
        await world.settle(3000)
        assert await objects(world) == []


async def test_nothing_is_done_with_files_while_an_operation_runs() -> None:
    async with provisioned() as world:
        await build(world, ["ecw", "ecw", "ecw"])
        await save(world, 1)
        await become(world, ALL, 120)
        first, second, _ = [name_of(each) for each in await objects(world)]
        await request(world, first, 1)
        await world.until("the restore has begun", lambda: _is_in(world, "Shutdown"), 300)
        await delete(world, second)
        await world.settle(3)
        assert all(len(each) == 1 for each in world.distribution(DEMO).snapshots.values())
        assert finalizers_of(await world.client.get(rke.ETCD_SNAPSHOTS, second, WORKSPACE)) == [SNAPSHOT_FILE]
        assert await ended(world, 1) == "Finished"
        await gone(world, second, 600)
        assert world.distribution(DEMO).violations == []


async def _is_in(world: ProvisioningWorld, phase: str) -> bool:
    return dig(await world.control_plane(DEMO), "status", "etcdSnapshotRestorePhase") == phase


async def test_an_object_whose_host_is_off_waits_and_one_whose_machine_is_deleted_goes() -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ecw", "ecw", "ecw", "ecw"])
        await save(world, 1)
        await become(world, {**ALL, "h3": "available"}, 120)
        (name,) = [name_of(each) for each in await objects(world) if each["snapshotFile"]["nodeName"] == "h3"]
        machine = await machine_of(world, hosts[3])
        await world.hosts.power_off(hosts[3])
        await delete(world, name)
        await world.settle(60)
        waiting = await world.client.get(rke.ETCD_SNAPSHOTS, name, WORKSPACE)
        assert waiting["status"]["message"] == f"waiting for machine {name_of(machine)}"
        await world.client.delete(MACHINES, name_of(machine), WORKSPACE)
        await gone(world, name, 600)
