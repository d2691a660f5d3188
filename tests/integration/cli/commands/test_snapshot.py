"""`remuda snapshot` on simulated clusters: what a user sees of whole operations, and what becomes of the clusters."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from remuda.api import rke_cattle_io as rke
from remuda.kube.objects import annotations_of, name_of
from remuda.lab.sim.provisioning_world import WORKSPACE
from remuda.provisioning.etcd.inventory import LATE
from remuda.provisioning.well_known import VERIFY_SNAPSHOT
from tests.scenarios.provisioned import DEMO, FROM, TO, build, change, nodes, ready
from tests.scenarios.test_restoring import add_map, maps, status
from tests.scenarios.test_snapshot_inventory import become
from tests.scenarios.test_upgrade_snapshot import NEWER

from .served_world import ServedWorld, served

Obj = dict[str, Any]


async def taken(found: ServedWorld) -> str:
    """The name of a new snapshot."""
    done = await found.run("snapshot create demo -o name")
    assert done.code == 0, done.err
    return done.out.strip()


async def asked(found: ServedWorld) -> list[str]:
    """The ETCDSnapshots with a request to check them."""
    snapshots = (await found.world.client.list(rke.ETCD_SNAPSHOTS, WORKSPACE))["items"]
    return [name_of(each) for each in snapshots if VERIFY_SNAPSHOT in annotations_of(each)]


async def test_a_snapshot_is_taken_and_told_with_its_copies(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        await build(found.world, ["ec", "ec", "ec", "w"])
        done = await found.run("snapshot create demo")
        assert done.code == 0, done.err
        assert re.fullmatch(r"on-demand-\d+: [\d.]+Ki, v1\.34\.1\+remuda1, on h0, h1, h2\n", done.out)
        assert "snapshot of etcd: done: saved on custom-" in done.err
        name = done.out.partition(":")[0]
        both = await asyncio.gather(*(found.run("snapshot create demo -o json") for _ in range(2)))
        assert [each.code for each in both] == [0, 0], "of two users at the same time both have a snapshot"
        assert all(len(json.loads(each.out)["copies"]) == 3 for each in both)
        listed = await found.run("snapshot ls demo -o name")
        assert name in listed.out.split() and len(listed.out.split()) > 1


async def test_a_snapshot_that_fails_says_why(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        (host,) = await build(found.world, ["ecw"])
        found.world.distribution(DEMO).members[host.name].up = False
        done = await found.run("snapshot create demo")
        assert done.code == 1 and "remuda: the snapshot of etcd has failed: " in done.err, done


async def test_a_restore_shows_what_is_lost_and_asks_for_the_clusters_name(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        await build(found.world, ["ec", "ec", "ec", "w"])
        await add_map(found.world, "before")
        name = await taken(found)
        for number in range(3):
            await add_map(found.world, f"after-{number}")

        refused = await found.run(f"snapshot restore demo {name}")
        assert refused.code == 1 and "say --yes" in refused.err
        assert re.search(rf"Cluster demo goes back to snapshot {name}, taken \S+ ago", refused.err)
        assert "created since then: 3 configmaps\n" in refused.err
        assert f"version   {FROM} then, {FROM} now\n" in refused.err

        wrong = await found.run(f"snapshot restore demo {name}", typed="dmeo")
        assert wrong.code == 1 and "that is not demo: nothing was changed" in wrong.err
        assert (await status(found.world)).get("etcdSnapshotRestore") is None

        done = await found.run(f"snapshot restore demo {name}", typed="demo")
        assert done.code == 0, done.err
        assert done.out == f"cluster demo is restored to {name}\n"
        assert re.search(r"restore of etcd: running \d of 7 \(\w+\)", done.err)
        await ready(found.world)
        assert await maps(found.world) == {"before"} and found.world.distribution(DEMO).violations == []


async def test_a_restore_brings_the_version_back(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        await build(found.world, ["ec", "w"])
        name = await taken(found)
        await change(found.world, kubernetesVersion=TO)
        await ready(found.world)
        done = await found.run(f"snapshot restore demo {name} --config version --yes")
        assert done.code == 0, done.err
        assert f"version   {FROM} then, {TO} now; that of the snapshot comes back\n" in done.err
        assert f"spec      kubernetesVersion: {TO} → {FROM}\n" in done.err
        await ready(found.world)
        assert (await found.world.cluster(DEMO))["spec"]["kubernetesVersion"] == FROM


async def test_an_upgrade_is_undone_with_its_version_and_all_changes_since(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        await build(found.world, ["ec", "ec", "ec", "w"])
        refused = await found.run("cluster undo demo --yes")
        assert refused.code == 4 and "cluster demo can't go back: " in refused.err, refused
        await add_map(found.world, "before")
        await change(found.world, kubernetesVersion=NEWER)
        await ready(found.world)
        await add_map(found.world, "after")

        refused = await found.run("cluster undo demo", typed="dmeo")
        assert refused.code == 1 and "that is not demo: nothing was changed" in refused.err
        done = await found.run("cluster undo demo", typed="demo")
        assert done.code == 0, done.err
        assert re.fullmatch(r"cluster demo is restored to pre-upgrade-v1\.34\.1-remuda1-\d+\n", done.out)
        assert f"spec      kubernetesVersion: {NEWER} → {FROM}\n" in done.err
        await ready(found.world)
        assert (await found.world.cluster(DEMO))["spec"]["kubernetesVersion"] == FROM
        assert set((await nodes(found.world)).values()) == {FROM}
        assert await maps(found.world) == {"before"} and found.world.distribution(DEMO).violations == []
        again = await found.run("cluster undo demo --yes")
        assert again.code == 4 and "can't go back" in again.err, again


async def test_a_restore_that_can_not_succeed_says_why_and_the_cluster_goes_on(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        await build(found.world, ["ec", "ec", "ec", "w"])
        name = await taken(found)
        for files in found.world.distribution(DEMO).snapshots.values():
            files.clear()
        done = await found.run(f"snapshot restore demo {name} --yes")
        assert done.code == 1 and "there is no snapshot at" in done.err and "the cluster goes on without it" in done.err
        shown = await found.run("cluster show demo")
        assert re.search(r"restore of etcd  failed  .* ago", shown.out) and "cluster demo  active" in shown.out
        explained = json.loads((await found.run("explain demo -o json")).out)
        assert explained["waits"][0]["code"] == "Operation"
        assert explained["commands"][0] == "remuda snapshot ls demo -n fleet-default"


async def test_what_can_not_be_restored_is_refused_at_once(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        host, _ = await build(found.world, ["ec", "w"])
        name = await taken(found)
        await found.world.hosts.power_off(host)
        await become(found.world, {host.name: "missing"}, LATE + 1800)
        for line, code, text in (
            ("snapshot restore demo nothing --yes", 3, "there is no snapshot nothing of cluster demo"),
            ("snapshot restore nowhere nothing --yes", 3, "cluster nowhere was not found in the workspace fleet-default"),
            (f"snapshot restore demo {name} --yes", 4, f"can be restored: on {host.name}: missing (machine "),
            ("snapshot create local", 4, "cluster local was not made by this server"),
        ):
            done = await found.run(line)
            assert (done.code, text in done.err) == (code, True), (line, done)
        assert (await status(found.world)).get("etcdSnapshotRestore") is None


async def test_the_copies_of_a_snapshot_are_checked_and_deleted(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        await build(found.world, ["ec", "ec", "ec", "w"])
        name, files = await taken(found), found.world.distribution(DEMO).snapshots
        done = await found.run(f"snapshot verify demo {name}")
        assert done.code == 0, done.err
        numbers = {host: len(saved.state) for host, (saved,) in ((host, each.values()) for host, each in files.items())}
        assert [line.split()[:4] for line in done.out.splitlines()[1:]] == [
            [host, "valid", str(number + 1), str(number)] for host, number in sorted(numbers.items())
        ]
        assert await asked(found) == [], "an answer ends its request"
        ((file, saved),) = files["h1"].items()
        files["h1"][file] = replace(saved, state={**saved.state, "more": b""})
        done = await found.run(f"snapshot verify demo {file} -o json")
        assert done.code == 1 and "remuda: not valid: h1\n" in done.err
        (told,) = json.loads(done.out)
        assert told["verification"]["message"] == f"{file} is not the file that was taken: its SHA-256 differs"

        refused = await found.run(f"snapshot delete demo {name}")
        assert refused.code == 1 and "say --yes" in refused.err and files["h0"]
        refused = await found.run(f"snapshot delete demo {name}", typed="n")
        assert refused.code == 1 and "nothing was deleted" in refused.err and files["h0"]
        done = await found.run(f"snapshot delete demo {name} --yes")
        assert done.code == 0 and "h2: deleted\n" in done.err, done
        assert not any(files.values())
        assert (await found.run("snapshot ls demo -o name")).out == ""
        await found.world.settle(2000)
        assert (await found.run("snapshot ls demo -o name")).out == "", "what is deleted does not come back"
        assert [version for _, version in found.world.distribution(DEMO).starts] == [FROM] * 4, "nothing was restarted"
