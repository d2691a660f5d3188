"""Snapshots of a bucket that no list shows are imported: the cluster comes back although its ETCDSnapshots are gone."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.access.rancher_conditions import condition_of
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.app.rehearsal import provisioning as provisioned
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, name_of
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.etcd.import_request import request_for
from remuda.provisioning.etcd.recovery_request import RecoveryRequest
from remuda.provisioning.etcd.s3.answers import Why
from remuda.provisioning.etcd.snapshot_sets import copy_of
from remuda.provisioning.well_known import IMPORT_SNAPSHOT, OTHER_CLUSTER

from .provisioned import DEMO, ready
from .test_recovering import ended, go_back, of_world, recover, says, stored, why
from .test_restoring import maps
from .test_restoring_from_buckets import BUCKET, FOLDER, key_of, saved
from .test_snapshot_files import checked, delete, gone, verify
from .test_snapshot_inventory import objects

Obj = dict[str, Any]
OLD = "archive/2026"


async def forgotten(world: ProvisioningWorld) -> str:
    """The location of a cluster's snapshot in a folder that nothing lists, without any ETCDSnapshot."""
    bucket = await saved(world, ["ec", "ec", "ec", "w"])
    key = key_of(bucket)
    file = key.rpartition("/")[2]
    bucket.move(FOLDER, file, OLD)
    for each in await objects(world):
        await world.client.delete(rke.ETCD_SNAPSHOTS, name_of(each), WORKSPACE)
    return f"s3://{BUCKET}/{OLD}/{file}"


async def ask(world: ProvisioningWorld, location: str, at: str = "1", *, other_cluster: bool = False) -> None:
    text = request_for(location, at, other_cluster=other_cluster).text()
    await world.client.patch(provisioning.CLUSTERS, DEMO, {"metadata": {"annotations": {IMPORT_SNAPSHOT: text}}}, WORKSPACE)

    async def is_answered() -> bool:
        return IMPORT_SNAPSHOT not in annotations_of(await world.client.get(provisioning.CLUSTERS, DEMO, WORKSPACE))

    await world.until("the import is answered", is_answered, 300)


async def answer(world: ProvisioningWorld) -> tuple[str, str]:
    found = condition_of(await world.control_plane(DEMO), "SnapshotImported") or {}
    return str(found.get("status")), str(found.get("message"))


async def at(world: ProvisioningWorld, location: str) -> list[Obj]:
    return [each for each in await objects(world) if copy_of(each).location == location]


async def test_a_cluster_comes_back_from_a_snapshot_that_was_imported() -> None:
    async with provisioned() as world:
        location = await forgotten(world)
        for host in [host for host in of_world(world) if host.roles == "ec"]:
            await world.hosts.remove(host)
        await ask(world, location)
        assert await answer(world) == ("True", location)
        (snapshot,) = await at(world, location)
        copy = copy_of(snapshot)
        assert copy.size > 0 and copy.sha256 and copy.version == "v1.34.1+remuda1", "it knows the spec of that time"
        await recover(world, RecoveryRequest(1, snapshot=name_of(snapshot)))
        await says(world, "recovering (Hosts)")
        for number in range(3):
            await world.host(DEMO, f"n{number}", "ec")
        assert await ended(world) == "Finished", await why(world)
        await ready(world)
        assert await maps(world) == {"before"} and world.distribution(DEMO).violations == []


async def test_the_management_server_comes_back_from_a_backup_without_the_objects() -> None:
    async with provisioned() as world:
        location = await forgotten(world)
        backup = {key: value for key, value in (await stored(world)).items() if "/etcdsnapshots/" not in key}
        await world.kill()
        await go_back(world, backup)
        for host in [host for host in of_world(world) if host.roles == "ec"]:
            await world.hosts.remove(host)
        world.begin()
        await ask(world, location)
        assert await answer(world) == ("True", location)
        (snapshot,) = await at(world, location)
        await recover(world, RecoveryRequest(1, snapshot=name_of(snapshot)))
        await says(world, "recovering (Hosts)")
        await world.host(DEMO, "n0", "ec")
        assert await ended(world) == "Finished", await why(world)
        await ready(world)
        assert await maps(world) == {"before"} and world.distribution(DEMO).violations == []


async def test_it_stays_in_the_list_is_checked_and_deleted_with_its_file() -> None:
    async with provisioned() as world:
        location = await forgotten(world)
        await ask(world, location)
        (snapshot,) = await at(world, location)
        await world.settle(6000)
        assert [name_of(each) for each in await at(world, location)] == [name_of(snapshot)]
        await verify(world, name_of(snapshot))
        assert (await checked(world, name_of(snapshot)))["result"] == "valid"
        await delete(world, name_of(snapshot))
        await gone(world, name_of(snapshot))
        assert not [key for key in world.hosts.buckets.of(BUCKET).objects if key.startswith(OLD)]


async def test_a_server_that_is_killed_does_it_when_it_is_back() -> None:
    async with provisioned() as world:
        location = await forgotten(world)
        world.hosts.buckets.of(BUCKET).seconds = 5.0
        text = request_for(location, "1").text()
        marks = {"metadata": {"annotations": {IMPORT_SNAPSHOT: text}}}
        await world.client.patch(provisioning.CLUSTERS, DEMO, marks, WORKSPACE)
        await world.settle(2)
        await world.kill()
        world.begin()

        async def is_there() -> bool:
            return bool(await at(world, location))

        await world.until("it is imported", is_there, 300)


async def test_what_can_not_be_imported_says_why() -> None:
    async with provisioned() as world:
        location = await forgotten(world)
        await ask(world, f"{location}9")
        status, text = await answer(world)
        assert status == "False" and text.startswith(f"{location}9: ") and "there is no" in text
        world.hosts.buckets.of(BUCKET).trouble = Why.DENIED
        await ask(world, location, "2")
        status, text = await answer(world)
        assert status == "False" and "denied" in text and not await at(world, location)
        with pytest.raises(ApiError, match="location: must be s3://BUCKET/FOLDER/FILE"):
            marks = {"metadata": {"annotations": {IMPORT_SNAPSHOT: '{"location":"/etc/passwd","at":"1"}'}}}
            await world.client.patch(provisioning.CLUSTERS, DEMO, marks, WORKSPACE)


async def test_a_snapshot_of_another_cluster_needs_the_users_word() -> None:
    async with provisioned() as world:
        location = await forgotten(world)
        world.hosts.buckets.of(BUCKET).belongs_to(OLD, location.rpartition("/")[2], "another")
        await ask(world, location)
        status, text = await answer(world)
        assert status == "False" and "it is of another cluster: its id is another" in text and not await at(world, location)
        await ask(world, location, "2", other_cluster=True)
        assert (await answer(world))[0] == "True"
        (snapshot,) = await at(world, location)
        assert annotations_of(snapshot)[OTHER_CLUSTER] == "true" and copy_of(snapshot).is_of_another
