"""The simulated world keeps what it promises: time, journal, holding, lines and cores that come and go."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINE_DEPLOYMENTS
from remuda.app.rehearsal import embedded
from remuda.client.interface import Client
from remuda.kube.builtin_resources import NODES
from remuda.kube.objects import Key, name_of
from remuda.lab.sim.capi_world import NeverHappened
from remuda.lab.sim.delays_and_faults import Weather
from remuda.lab.sim.providers import HOLD, INFRASTRUCTURE, SIM_CLUSTERS, SIM_MACHINES

Obj = dict[str, Any]


async def test_what_never_happens_is_said() -> None:
    async with embedded() as world:
        before = world.clock.time()
        with pytest.raises(NeverHappened, match="pigs fly did not happen within 30 s"):
            await world.until("pigs fly", _never, 30)
        assert world.clock.time() - before == 30


async def _never() -> bool:
    return False


async def test_the_journal_has_every_write_once_and_in_order() -> None:
    async with embedded() as world:
        await world.add_cluster("c1", workers=1)
        await world.until("all run", lambda: world.running("c1", 2))
        revisions = [revision for revision, _, _ in world.journal]
        assert revisions == sorted(revisions)
        assert revisions[-1] == world.server.store.revision
        assert [key for _, key, _ in world.journal].count("/registry/cluster.x-k8s.io/clusters/herd/c1") > 1


async def test_a_held_object_is_left_alone_until_it_is_let_go() -> None:
    async with embedded() as world:
        await world.add_cluster("c1")
        held = world.thing(INFRASTRUCTURE, "SimCluster", "c2")
        held["metadata"]["annotations"] = {HOLD: ""}
        await world.create(SIM_CLUSTERS, held)
        spec = {"infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": "SimCluster", "name": "c2"}}
        await world.create(CLUSTERS, world.core_object("Cluster", "c2", spec))
        await world.settle(60)
        assert "status" not in await world.get(SIM_CLUSTERS, "c2")
        await world.patch(SIM_CLUSTERS, "c2", {"metadata": {"annotations": {HOLD: None}}})
        await world.settle(1)
        assert (await world.get(SIM_CLUSTERS, "c2"))["status"]["initialization"]["provisioned"] is True


async def test_machines_take_the_time_that_the_weather_says() -> None:
    async with embedded(weather=Weather(machine=(100, 100), join=(50, 50))) as world:
        began = world.clock.time()
        await world.add_cluster("c1")
        await world.until("it has a node", lambda: world.running("c1", 1))
        # A little longer: the core looks now and then whether the cluster answers.
        assert 150 <= world.clock.time() - began <= 190


async def test_a_machine_that_fails_at_first_takes_twice_as_long() -> None:
    async with embedded(weather=Weather(machine=(100, 100), failing=1.0)) as world:
        began = world.clock.time()
        await world.add_cluster("c1")
        await world.until("it runs", lambda: world.running("c1", 1))
        assert 200 <= world.clock.time() - began <= 240


async def test_a_lost_machine_never_joins() -> None:
    async with embedded(weather=Weather(lost=1.0)) as world:
        await world.add_cluster("c1")
        await world.settle(3600)
        (infra,) = await world.all(SIM_MACHINES)
        assert infra["status"]["initialization"]["provisioned"] is True
        assert not await world.running("c1", 1)


async def test_a_flapping_node_is_silent_a_tenth_of_the_time() -> None:
    async with embedded(weather=Weather(flapping=100.0)) as world:
        await world.add_cluster("c1")
        await world.until("it runs", lambda: world.running("c1", 1))
        workload = world.clusters.get(Key("herd", "c1"))
        assert workload is not None
        silent = 0
        for _ in range(1100):
            await world.settle(1)
            (node,) = (await workload.client.list(NODES))["items"]
            silent += any(each["type"] == "Ready" and each["status"] == "Unknown" for each in node["status"]["conditions"])
        assert 90 <= silent <= 110


async def test_a_cut_line_passes_nothing_and_ends_watches() -> None:
    async with embedded() as world:
        await world.add_cluster("c1")
        await world.until("it runs", lambda: world.running("c1", 1))
        workload = world.clusters.get(Key("herd", "c1"))
        assert workload is not None
        line = await world.clusters.connect(Key("herd", "c1"), b"")
        assert len((await line.list(NODES))["items"]) == 1
        workload.cut = True
        with pytest.raises(ConnectionError):
            await line.list(NODES)
        with pytest.raises(ConnectionError):
            await world.clusters.connect(Key("herd", "c1"), b"")
        # Who is on the other side does not notice.
        assert len((await workload.client.list(NODES))["items"]) == 1


async def test_a_killed_core_does_nothing_and_the_next_one_goes_on() -> None:
    async with embedded() as world:
        await world.add_cluster("c1", workers=1)
        await world.until("all run", lambda: world.running("c1", 2))
        await world.kill_core()
        await world.patch(MACHINE_DEPLOYMENTS, "c1-md", {"spec": {"replicas": 3}})
        await world.settle(600)
        assert len(await world.machines("c1")) == 2
        seen: list[Client] = []

        def through(client: Client) -> Client:
            seen.append(client)
            return client

        world.start_core(through)
        await world.until("all run", lambda: world.running("c1", 4))
        assert len(seen) == 1


async def test_a_deleted_cluster_takes_its_workload_cluster_with_it() -> None:
    async with embedded() as world:
        await world.add_cluster("c1", control_plane=3, workers=2)
        await world.until("all run", lambda: world.running("c1", 5))
        await world.delete(CLUSTERS, "c1")
        await world.until("it is gone", lambda: world.gone(CLUSTERS, "c1"))
        assert world.clusters.get(Key("herd", "c1")) is None
        assert [name_of(each) for each in await world.all(SIM_MACHINES)] == []
