"""A snapshot in a bucket is looked for before anything stops: what is definite is refused, what may pass is waited for."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from remuda.api import rke_cattle_io as rke
from remuda.app.rehearsal import provisioning as provisioned
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import annotations_of
from remuda.kube.waits import Actor, Code
from remuda.lab.sim.bucket import SimulatedBucket
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.etcd.s3.answers import Why
from remuda.provisioning.etcd.snapshot_specs import SPEC_KEY
from remuda.provisioning.well_known import CLUSTER_SPEC

from .provisioned import DEMO, build, init_nodes, message, ready
from .soaking import SOAK
from .test_restoring import add_map, ended, listed, maps, request, save, status, why

BUCKET, FOLDER, CREDENTIAL = "backups", "demo", "keys-of-s3"
OF_HOSTS = {"bucket": BUCKET, "folder": FOLDER}
S3 = {**OF_HOSTS, "cloudCredentialName": f"{WORKSPACE}:{CREDENTIAL}"}
THREE = ["ec", "ec", "ec", "w"]


async def add_credential(world: ProvisioningWorld) -> None:
    keys = {"accessKey": "AKIA", "secretKey": "hidden"}
    data = {f"s3credentialConfig-{key}": base64.b64encode(value.encode()).decode() for key, value in keys.items()}
    await world.client.create(SECRETS, {"metadata": {"name": CREDENTIAL}, "data": data}, WORKSPACE)


async def saved(world: ProvisioningWorld, roles: list[str], s3: dict[str, Any] = S3) -> SimulatedBucket:
    """A cluster with a snapshot `snap` of its first host in a bucket, and a ConfigMap that is in it, and one that is not."""
    await add_credential(world)
    hosts = await build(world, roles, etcd={"s3": s3})
    await add_map(world, "before")
    await save(world, 1)
    (file,) = world.distribution(DEMO).snapshots[hosts[0].name]
    bucket = world.hosts.buckets.of(BUCKET)
    await record(world, file, bucket.objects[f"{FOLDER}/{file}"].size, s3)
    await add_map(world, "after")
    return bucket


async def record(world: ProvisioningWorld, file: str, size: int, s3: dict[str, Any]) -> None:
    remembered = {SPEC_KEY: annotations_of(await world.control_plane(DEMO))[CLUSTER_SPEC]}
    metadata = base64.b64encode(json.dumps(remembered).encode()).decode()
    location = f"s3://{BUCKET}/{FOLDER}/{file}"
    told = {"name": file, "location": location, "size": size, "s3": s3, "metadata": metadata, "status": "successful"}
    made = {"apiVersion": rke.API_VERSION, "kind": "ETCDSnapshot", "metadata": {"name": "snap"}, "spec": {"clusterName": DEMO}}
    await world.client.create(rke.ETCD_SNAPSHOTS, {**made, "snapshotFile": told}, WORKSPACE)


def key_of(bucket: SimulatedBucket) -> str:
    """The first host's snapshot."""
    return min(key for key in bucket.objects if key.startswith(f"{FOLDER}/on-demand"))


@pytest.mark.parametrize("roles", [["ecw"], THREE, ["e", "c", "w"]], ids=" ".join)
async def test_the_server_looks_first_and_then_a_host_restores(roles: list[str]) -> None:
    async with provisioned() as world:
        await saved(world, roles)
        await request(world, "snap")
        assert await ended(world) == "Finished", await why(world)
        await ready(world)
        assert await maps(world) == {"before"}
        assert world.distribution(DEMO).violations == []


def _remove(bucket: SimulatedBucket, key: str) -> None:
    del bucket.objects[key]


def _cut(bucket: SimulatedBucket, key: str) -> None:
    bucket.objects[key] = replace(bucket.objects[key], size=17)


def _deny(bucket: SimulatedBucket, key: str) -> None:
    bucket.trouble = Why.DENIED


@pytest.mark.parametrize(
    ("damage", "words", "s3"),
    [
        (_remove, "there is no", S3),
        (_cut, "has 17 bytes", S3),
        (_deny, "denied", S3),
        # A host lists the bucket, and a list has only names.
        (_remove, "there is no", OF_HOSTS),
        (_deny, "denied", OF_HOSTS),
    ],
)
async def test_what_can_not_be_restored_is_refused_while_the_cluster_runs(
    damage: Callable[[SimulatedBucket, str], None], words: str, s3: dict[str, Any]
) -> None:
    async with provisioned() as world:
        bucket = await saved(world, THREE, s3)
        damage(bucket, key_of(bucket))
        started = list(world.distribution(DEMO).starts)
        await request(world, "snap")
        assert await ended(world) == "Failed"
        assert words in await why(world) and "the cluster goes on without it" in await why(world)
        bucket.trouble = None
        await ready(world)
        assert world.distribution(DEMO).starts == started, "nothing was stopped or started"
        assert await maps(world) == {"before", "after"}


async def test_where_only_hosts_have_a_credential_one_of_them_lists_the_bucket() -> None:
    async with provisioned() as world:
        bucket = await saved(world, THREE, OF_HOSTS)
        before = bucket.requests
        await request(world, "snap")
        assert await ended(world) == "Finished", await why(world)
        await ready(world)
        assert await maps(world) == {"before"} and bucket.requests >= before + 2
        assert world.distribution(DEMO).violations == []


# What a service, or the way to it, may say for good.
_DEFINITE = [Why.NO_BUCKET, Why.WRONG_REGION, Why.UNTRUSTED, Why.UNREACHABLE, Why.OTHER]


@pytest.mark.soak
@pytest.mark.parametrize("reason", _DEFINITE if SOAK else _DEFINITE[-1:])
async def test_a_bucket_that_can_not_be_used_refuses_the_restore_and_another_one_goes_on(reason: Why) -> None:
    async with provisioned() as world:
        bucket = await saved(world, THREE)
        bucket.trouble = reason
        started = list(world.distribution(DEMO).starts)
        await request(world, "snap")
        assert await ended(world) == "Failed" and "the cluster goes on without it" in await why(world)
        assert world.distribution(DEMO).starts == started and await maps(world) == {"before", "after"}
        bucket.trouble = None
        await request(world, "snap", 2)
        assert await ended(world, 2) == "Finished", await why(world)
        await ready(world)
        assert await maps(world) == {"before"} and world.distribution(DEMO).violations == []


_ANY = [Why.FULL, Why.DENIED, Why.BUSY, Why.CUT, Why.UNREACHABLE]


@pytest.mark.soak
@pytest.mark.parametrize("reason", _ANY if SOAK else _ANY[:1])
async def test_a_bucket_that_takes_no_copy_does_not_lose_the_snapshot(reason: Why) -> None:
    """The files of the hosts are there, the copy is told as failed, and the next snapshot has one again."""
    async with provisioned() as world:
        bucket = await saved(world, THREE)
        before = set(bucket.objects)
        bucket.trouble = reason
        await save(world, 2)
        (host,) = [host for host in world.hosts.hosts.values() if host.name == "h0"]
        newest = max(world.distribution(DEMO).snapshots[host.name])
        assert set(bucket.objects) == before and newest in world.distribution(DEMO).failed_uploads
        await request(world, await listed(world, host))
        assert await ended(world) == "Finished", await why(world)
        bucket.trouble = None
        await ready(world)
        assert await maps(world) == {"before", "after"} and world.distribution(DEMO).violations == []
        await save(world, 3)
        assert set(bucket.objects) > before


@pytest.mark.parametrize("trouble", [Why.BUSY, Why.CUT, None] if SOAK else [Why.BUSY, None])
async def test_a_bucket_that_does_not_answer_is_waited_for(trouble: Why | None) -> None:
    """One that says so, and one that is only slow."""
    async with provisioned() as world:
        bucket = await saved(world, THREE)
        bucket.trouble, bucket.seconds = trouble, 0.0 if trouble else 7200.0
        started = list(world.distribution(DEMO).starts)
        await request(world, "snap")

        async def waits_for_it() -> bool:
            return "nothing is stopped before its bucket answers" in await message(world)

        await world.until("it says what it waits for", waits_for_it)
        await world.settle(300)
        (found,) = [each for each in world.waits() if each.code is Code.REFERENCE and "bucket answers" in each.evidence]
        assert found.actor is Actor.PROVIDER and found.on is not None
        assert (found.on.kind, found.on.name) == ("ETCDSnapshot", "snap")
        assert (await status(world))["etcdSnapshotRestorePhase"] == "Started"
        assert world.distribution(DEMO).starts == started
        bucket.trouble, bucket.seconds = None, 0.1
        assert await ended(world) == "Finished", await why(world)
        await ready(world)
        assert await maps(world) == {"before"}


@pytest.mark.parametrize("seed", range(3))
async def test_the_server_may_be_killed_while_it_looks(seed: int) -> None:
    dice = random.Random(seed)
    async with provisioned(seed=seed) as world:
        bucket = await saved(world, THREE)
        bucket.seconds = 3.0
        await request(world, "snap")
        for _ in range(15):
            await world.settle(dice.uniform(0.1, 5))
            if dice.random() < 0.6:
                await world.kill()
                world.begin()
            bucket.trouble = dice.choice([None, None, Why.BUSY])
            assert len(await init_nodes(world)) <= 1
        bucket.trouble = None
        assert await ended(world) == "Finished", await why(world)
        await ready(world)
        assert await maps(world) == {"before"}
        assert world.distribution(DEMO).violations == []
