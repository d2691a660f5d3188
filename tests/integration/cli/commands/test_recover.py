"""`remuda cluster recover` on simulated clusters: what a user sees of it, and what becomes of a cluster that lost its servers."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from remuda.api import rke_cattle_io as rke
from remuda.kube.objects import name_of
from remuda.lab.sim.hosts import SimulatedHost
from remuda.lab.sim.provisioning_world import WORKSPACE
from remuda.provisioning.well_known import CLUSTER_NAME
from tests.scenarios.provisioned import DEMO, build, machine_of, message, ready
from tests.scenarios.test_restoring import add_map, maps
from tests.scenarios.test_restoring_from_buckets import saved

from .served_world import ServedWorld, served

Obj = dict[str, Any]
THREE = ["ec", "ec", "ec", "w"]


async def with_snapshot(found: ServedWorld) -> list[SimulatedHost]:
    """A cluster with the ETCDSnapshot `snap` of a bucket; its servers."""
    await saved(found.world, THREE)
    patch = {"metadata": {"labels": {CLUSTER_NAME: DEMO}}}
    await found.world.client.patch(rke.ETCD_SNAPSHOTS, "snap", patch, WORKSPACE)
    return [host for host in found.world.hosts.hosts.values() if host.roles == "ec"]


async def test_it_shows_asks_waits_for_hosts_and_ends_with_the_cluster(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        for host in await with_snapshot(found):
            await found.world.hosts.remove(host)
        refused = await found.run("cluster recover demo --snapshot snap")
        assert refused.code == 1 and "say --yes" in refused.err
        assert re.search(r"Cluster demo is recovered from snapshot \S+, taken \S+ ago", refused.err)
        assert re.search(r"from      the bucket \(s3://backups/demo/\S+\)", refused.err)
        assert len(re.findall(r"  custom-\w+  etcd,controlplane  ", refused.err)) == 3
        assert "Register new hosts in their places" in refused.err and "Erase it first" in refused.err
        wrong = await found.run("cluster recover demo --snapshot snap", typed="dmeo")
        assert wrong.code == 1 and "that is not demo: nothing was changed" in wrong.err

        running = asyncio.create_task(found.run("cluster recover demo --snapshot snap", typed="demo"))
        while "0 of 3 with etcd,controlplane" not in await message(found.world):
            assert not running.done(), running.result()
            await found.world.clock.sleep(1)
        for number in range(3):
            async with found.time:
                await found.world.host(DEMO, f"n{number}", "ec")
        done = await running
        assert done.code == 0, done.err
        assert re.fullmatch(r"cluster demo is recovered from snapshot \S+\n", done.out)
        assert re.search(r"recovery: running \d of 4 \(\w+\)", done.err)
        await ready(found.world)
        assert await maps(found.world) == {"before"} and found.world.distribution(DEMO).violations == []


async def test_a_server_that_is_left_is_named_by_its_node(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        hosts = await build(found.world, THREE)
        await add_map(found.world, "kept")
        machine = name_of(await machine_of(found.world, hosts[0]))
        for host in hosts[1:3]:
            await found.world.hosts.remove(host)
        done = await found.run("cluster recover demo --from-machine h0 --yes")
        assert done.code == 0, done.err
        assert done.out == f"cluster demo is recovered from the etcd data of machine {machine}\n"
        assert "Lost: the last changes, if only lost servers had them" in done.err
        assert await maps(found.world) == {"kept"} and found.world.distribution(DEMO).violations == []


async def test_without_anything_to_begin_with_it_says_what_there_is(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        hosts = await build(found.world, ["ec", "w"])
        machine = name_of(await machine_of(found.world, hosts[0]))
        done = await found.run("cluster recover demo")
        assert done.code == 4
        assert done.err == (
            "remuda: no snapshot of demo is known: import one (--from-file, --from-s3, or remuda snapshot import), or go on "
            f"from a server that still answers (--from-machine M; with etcd: {machine}). "
            "Without any of these the cluster's state is lost\n"
        )


async def test_what_can_not_be_used_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        servers = await with_snapshot(found)
        machine = name_of(await machine_of(found.world, servers[0]))
        await found.world.hosts.power_off(servers[0])
        for line, code, text in (
            ("cluster recover demo", 4, "say what to recover demo from: --snapshot NAME (the newest is "),
            ("cluster recover demo --snapshot none --yes", 3, "there is no snapshot none of cluster demo"),
            ("cluster recover demo --from-machine none --yes", 3, "there is no machine none of cluster demo"),
            ("cluster recover demo --snapshot snap --from-machine h0", 2, "exclude each other"),
            ("cluster recover demo --from-machine h0 --config all", 2, "needs a snapshot"),
            ("cluster recover local --from-machine h0 --yes", 3, "there is no machine h0 of cluster local"),
            ("cluster recover demo --from-machine h0 --yes", 1, f"machine {machine} does not answer"),
        ):
            done = await found.run(line)
            assert (done.code, text in done.err) == (code, True), (line, done)
        found.world.hosts.power_on(servers[0])
        await ready(found.world)
        assert await maps(found.world) == {"before", "after"} and found.world.distribution(DEMO).violations == []


PAGE = (Path(__file__).parents[4] / "docs" / "recover.md").read_text()
# What differs from one cluster to the next.
_VARIES = re.compile(r"on-demand-\S+|taken .*|from      .*|  \S+  etcd,.*|Pools make new.*|Register new.*")


async def test_the_examples_of_the_page_do_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"(?m)^\$ remuda (cluster recover demo .*)$", PAGE)
    shown = PAGE.partition("```console\n$ remuda cluster recover")[2].partition("Type the name")[0].splitlines()[1:]
    async with served(tmp_path) as found:
        servers = await with_snapshot(found)
        name = (await found.run("snapshot ls demo -o name")).out.split()[0]
        (kept,) = found.world.distribution(DEMO).snapshots["h0"].values()
        archive, now = found.world.hosts.buckets.of("archive"), found.world.clock.time()
        archive.upload("2026", "on-demand-n1-1795089600", kept, node="n1", cluster_id="", now=now)
        for host in servers:
            await found.world.hosts.remove(host)
            async with found.time:
                await found.world.host(DEMO, f"n-{host.name}", "ec")
        found.keep(kept, tmp_path / "on-demand-n1-1795089600")
        assert len(lines) == 6
        done = await found.run(lines[0].replace("on-demand-1795089600", name), typed="demo")
        assert done.code == 0 and done.out == f"cluster demo is recovered from snapshot {name}\n", done.err
        printed = [_VARIES.sub("", each) for each in done.err.splitlines()]
        assert [each for each in shown if _VARIES.sub("", each) not in printed] == []
        for line in lines[1:]:
            # The files of the lost servers are gone, and the copy in the bucket is known by its object.
            line = line.replace(" on-demand-1795089600", " snap").replace("-machine n1", "-machine n-h0")
            done = await found.run(line.replace(" --no-wait", "") + " --no-wait", typed="demo")
            assert done.code == 0 and "remuda cluster show demo --watch follows it" in done.err, (line, done.err)
