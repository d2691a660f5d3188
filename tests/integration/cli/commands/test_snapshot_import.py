"""`remuda snapshot import` and `remuda cluster recover --from-s3` on simulated clusters."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

from remuda.lab.sim.provisioning_world import WORKSPACE
from remuda.provisioning.etcd.s3.bucket import SHA256
from tests.scenarios.provisioned import message, ready
from tests.scenarios.test_importing_snapshots import OLD, forgotten
from tests.scenarios.test_recovering import of_world
from tests.scenarios.test_restoring import maps
from tests.scenarios.test_restoring_from_buckets import BUCKET

from .served_world import ServedWorld, served


async def test_a_snapshot_is_imported_checked_restored_and_deleted(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        location = await forgotten(found.world)
        done = await found.run(f"snapshot import demo {location}")
        assert done.code == 0, done.err
        assert re.fullmatch(r"demo-s3-on-demand-h0-\d+-\w+: [\d.]+Ki, v1\.34\.1\+remuda1, on s3\n", done.out)
        assert re.fullmatch(rf"demo-s3-on-demand-h0-\d+-\w+: checking {location}\n", done.err)
        again = await found.run(f"snapshot import demo {location} -o json")
        (copy,) = json.loads(again.out)["copies"]
        assert again.code == 0 and copy["location"] == location and copy["verification"]["result"] == "valid"
        assert "otherCluster" not in copy
        restored = await found.run(f"snapshot restore demo {copy['name']} --yes")
        assert restored.code == 0, restored.err
        await ready(found.world)
        assert await maps(found.world) == {"before"}
        deleted = await found.run(f"snapshot delete demo {copy['name']} --yes")
        assert deleted.code == 0 and "s3: deleted" in deleted.err
        assert not [key for key in found.world.hosts.buckets.of(BUCKET).objects if key.startswith(OLD)]


async def test_what_is_not_there_or_not_valid_is_not_imported(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        location = await forgotten(found.world)
        key = location.removeprefix(f"s3://{BUCKET}/")
        bucket = found.world.hosts.buckets.of(BUCKET)
        for place, code, text in (
            ("s3://bucket", 2, "a snapshot in a bucket is named s3://BUCKET/FOLDER/FILE"),
            ("./file", 3, "file can't be read: No such file or directory"),
            (f"{location}9", 4, "is not imported: "),
        ):
            done = await found.run(f"snapshot import demo {place}")
            assert done.code == code and text in done.err, done
        damaged = bucket.objects[key]
        bucket.objects[key] = replace(damaged, user_metadata={**damaged.user_metadata, SHA256: "0" * 64})
        done = await found.run(f"snapshot import demo {location}")
        assert done.code == 1 and f"{location} is not imported: " in done.err, done
        listed = await found.run("snapshot ls demo -o json")
        assert location not in listed.out, "it is not kept"
        assert key in bucket.objects, "the file stays"


async def recovered(found: ServedWorld, source: str) -> str:
    """What is said while a cluster of three lost servers is recovered, for which others are registered."""
    running = asyncio.create_task(found.run(f"cluster recover demo {source}", typed="demo"))
    while "0 of 3 with etcd,controlplane" not in await message(found.world):
        assert not running.done(), running.result()
        await found.world.clock.sleep(1)
    for number in range(3):
        async with found.time:
            await found.world.host("demo", f"n{number}", "ec")
    done = await running
    assert done.code == 0 and "Kept: workers" in done.err, done.err
    await ready(found.world)
    assert await maps(found.world) == {"before"} and found.world.distribution("demo").violations == []
    return done.err


async def test_a_lost_cluster_comes_back_from_a_file_that_nothing_lists(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        location = await forgotten(found.world)
        for host in [host for host in of_world(found.world) if host.roles == "ec"]:
            await found.world.hosts.remove(host)
        for line, text in (
            (f"--from-s3 {location} --snapshot snap", "exclude each other"),
            ("--snapshot snap --other-cluster", "--other-cluster needs --from-s3 or --from-file"),
        ):
            refused = await found.run(f"cluster recover demo {line} --yes")
            assert refused.code == 2 and text in refused.err
        assert f"from      the bucket ({location})" in await recovered(found, f"--from-s3 {location}")


async def test_a_snapshot_of_another_cluster_says_what_it_needs(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        location = await forgotten(found.world)
        found.world.hosts.buckets.of(BUCKET).belongs_to(OLD, location.rpartition("/")[2], "another")
        done = await found.run(f"cluster recover demo --from-s3 {location} --yes")
        assert done.code == 4 and "it is of another cluster: its id is another" in done.err and "--other-cluster" in done.err
        done = await found.run(f"cluster recover demo --from-s3 {location} --other-cluster")
        assert done.code == 1 and "say --yes" in done.err
        assert "The snapshot is of another cluster: its objects, CA and service accounts come with it" in done.err
        assert "serverToken in the Secret demo-rke-state must be it before" in done.err and "Kept:" not in done.err
        listed = await found.run(f"snapshot ls demo -n {WORKSPACE} -o json")
        others = [copy["location"] for each in json.loads(listed.out) for copy in each["copies"] if copy.get("otherCluster")]
        assert others == [location]
