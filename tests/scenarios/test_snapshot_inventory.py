"""A cluster's ETCDSnapshots follow what its hosts and its bucket have, also while the cluster itself is down."""

from __future__ import annotations

import base64
from typing import Any

from remuda.access.rancher_conditions import condition_of
from remuda.api import rke_cattle_io as rke
from remuda.app.rehearsal import provisioning as provisioned
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import dig, name_of
from remuda.lab.sim.capi_world import NeverHappened
from remuda.lab.sim.hosts import SimulatedHost
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.etcd.inventory import LATE
from remuda.provisioning.etcd.s3.answers import Why
from remuda.provisioning.etcd.snapshot_sets import SnapshotSet, grouped
from remuda.provisioning.etcd.snapshot_specs import cluster_spec

from .provisioned import DEMO, FROM, build, machine_of
from .test_restoring import ended, request, save

Obj = dict[str, Any]

BUCKET = {"etcd": {"s3": {"bucket": "backups", "folder": "demo", "cloudCredentialName": f"{WORKSPACE}:keys"}}}


async def objects(world: ProvisioningWorld) -> list[Obj]:
    return sorted((await world.client.list(rke.ETCD_SNAPSHOTS, WORKSPACE))["items"], key=name_of)


async def backups(world: ProvisioningWorld) -> list[SnapshotSet]:
    return grouped(await objects(world))


async def states(world: ProvisioningWorld) -> dict[str, str]:
    """available or missing, by the name of the machine's node, or s3 and that."""
    return {
        (copy.node if copy.storage == "local" else f"s3 {copy.file.split('-')[2]}"): copy.state
        for backup in await backups(world)
        for copy in backup.copies
    }


async def become(world: ProvisioningWorld, wanted: dict[str, str], seconds: float = 1200) -> None:
    async def are() -> bool:
        return await states(world) == wanted

    try:
        await world.until(f"the list is {wanted}", are, seconds)
    except NeverHappened:
        raise AssertionError(f"{await states(world)}, {(await world.control_plane(DEMO))['status']['conditions']}") from None


async def with_bucket(world: ProvisioningWorld, roles: list[str]) -> list[SimulatedHost]:
    keys = {name: base64.b64encode(b"secret").decode() for name in ("accessKey", "secretKey")}
    await world.client.create(SECRETS, {"metadata": {"name": "keys"}, "data": keys}, WORKSPACE)
    return await build(world, roles, **BUCKET)


ALL = {"h0": "available", "h1": "available", "h2": "available"}
COPIES = {"s3 h0": "available", "s3 h1": "available", "s3 h2": "available"}


async def test_a_backup_of_three_members_and_a_bucket_is_one_set() -> None:
    async with provisioned() as world:
        hosts = await with_bucket(world, ["ec", "ec", "ec", "w"])
        await save(world, 1)
        await become(world, ALL | COPIES, 120)
        (backup,) = await backups(world)
        assert backup.state == "available" and backup.version == FROM and len(backup.copies) == 6
        machine = name_of(await machine_of(world, hosts[0]))
        (local,) = (copy for copy in backup.copies if copy.machine == machine)
        (saved,) = world.distribution(DEMO).snapshots["h0"].values()
        assert (local.size, local.sha256) == (saved.size, saved.sha256)
        assert {copy.sha256 for copy in backup.copies if copy.storage == "s3" and "-h0-" in copy.file} == {saved.sha256}
        remembered = [cluster_spec(each) or {} for each in await objects(world)]
        assert [each.get("kubernetesVersion") for each in remembered] == [FROM] * 6
        plane = await world.control_plane(DEMO)
        assert (condition_of(plane, "SnapshotsListed") or {}).get("status") == "True" and dig(plane, "status", "clusterID")


async def test_what_it_makes_can_be_restored_by_name() -> None:
    async with provisioned() as world:
        await with_bucket(world, ["ecw", "ecw", "ecw"])
        await save(world, 1)
        await become(world, ALL | COPIES, 120)
        names = [name_of(each) for each in await objects(world)]
        for generation, name in enumerate((names[0], names[-1]), 1):
            await request(world, name, generation, mode="all")
            assert await ended(world, generation) == "Finished", name
        assert world.distribution(DEMO).violations == []
        await become(world, ALL | COPIES)
        assert [name_of(each) for each in await objects(world)] == names


async def test_a_cluster_that_is_down_still_has_its_list_and_new_copies_appear() -> None:
    async with provisioned() as world:
        hosts = await with_bucket(world, ["ecw", "ecw", "ecw"])
        await save(world, 1)
        await become(world, ALL | COPIES, 120)
        distribution = world.distribution(DEMO)
        for host in hosts:
            distribution.lose(host.name)
        (saved,) = distribution.snapshots["h0"].values()
        distribution.snapshots["h0"]["by-hand"] = saved
        uid = str(dig(await world.control_plane(DEMO), "status", "clusterID"))
        world.hosts.buckets.of("backups").upload("demo", "x-y-h7-1", saved, node="h7", cluster_id=uid, now=world.clock.time())
        await become(world, {**ALL, **COPIES, "s3 h7": "available"})
        assert "by-hand" in {backup.name for backup in await backups(world)}


async def test_what_is_removed_from_storage_goes_from_the_list() -> None:
    async with provisioned() as world:
        await with_bucket(world, ["ecw", "ecw", "ecw"])
        await save(world, 1)
        await become(world, ALL | COPIES, 120)
        distribution = world.distribution(DEMO)
        distribution.snapshots.pop("h1")
        (file,) = distribution.snapshots["h2"]
        world.hosts.buckets.of("backups").remove("demo", file)
        left = {key: state for key, state in (ALL | COPIES).items() if key not in ("h1", "s3 h2")}
        await become(world, left)


async def test_what_can_not_be_seen_is_missing_and_comes_back() -> None:
    async with provisioned() as world:
        hosts = await with_bucket(world, ["ecw", "ecw", "ecw"])
        await save(world, 1)
        await become(world, ALL | COPIES, 120)
        bucket = world.hosts.buckets.of("backups")
        bucket.trouble = Why.DENIED
        await world.hosts.power_off(hosts[2])
        await become(world, {"h0": "available", "h1": "available"} | dict.fromkeys((*COPIES, "h2"), "missing"), LATE + 1800)
        told = {copy.message for backup in await backups(world) for copy in backup.copies if copy.state == "missing"}
        machine = name_of(await machine_of(world, hosts[2]))
        assert told == {f"machine {machine} does not report its files", "the bucket backups is away: denied"}
        found = condition_of(await world.control_plane(DEMO), "SnapshotsListed") or {}
        assert (found["status"], found["message"]) == ("False", "the bucket backups is away: denied")
        bucket.trouble = None
        world.hosts.power_on(hosts[2])
        await become(world, ALL | COPIES)
        assert (condition_of(await world.control_plane(DEMO), "SnapshotsListed") or {})["status"] == "True"


async def test_an_object_that_a_user_deletes_comes_back_while_its_file_is_there() -> None:
    async with provisioned() as world:
        await build(world, ["ecw"])
        await save(world, 1)
        await become(world, {"h0": "available"}, 120)
        (found,) = await objects(world)
        await world.client.delete(rke.ETCD_SNAPSHOTS, name_of(found), WORKSPACE)
        await become(world, {"h0": "available"}, 60)


async def test_clusters_in_one_folder_see_their_own_copies_only() -> None:
    async with provisioned() as world:
        await with_bucket(world, ["ecw"])
        bucket = world.hosts.buckets.of("backups")
        await save(world, 1)
        (saved,) = world.distribution(DEMO).snapshots["h0"].values()
        bucket.upload("demo", "x-y-h0-1800000001", saved, node="h0", cluster_id="another", now=world.clock.time())
        await become(world, {"h0": "available", "s3 h0": "available"}, 120)
        await world.settle(2000)
        assert await states(world) == {"h0": "available", "s3 h0": "available"}


async def test_a_list_that_stays_as_it_is_writes_nothing() -> None:
    async with provisioned() as world:
        await with_bucket(world, ["ecw", "ecw", "ecw"])
        await save(world, 1)
        await become(world, ALL | COPIES, 120)
        await world.settle(2000)
        before = [each["metadata"]["resourceVersion"] for each in await objects(world)]
        plane = (await world.control_plane(DEMO))["metadata"]["resourceVersion"]
        await world.settle(7200)
        assert [each["metadata"]["resourceVersion"] for each in await objects(world)] == before
        assert (await world.control_plane(DEMO))["metadata"]["resourceVersion"] == plane
