"""The controllers die after any write, any write fails, or two of them work at the same time: the objects are the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remuda.access.rancher_conditions import conditions_of
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.kube.objects import owner_references_of
from tests.unit.access.management_api import World
from tests.unit.provisioning.cluster.mirrored_clusters import FLEET, demo
from tests.unit.provisioning.cluster.test_interruptions import sample, through

from .graph_controllers import VERSION, cluster_world
from .test_provisioningcluster import PARTS, POOL, driver, machine_config

Obj = dict[str, Any]
WISH: Obj = {"kubernetesVersion": VERSION, "rkeConfig": {"machineGlobalConfig": {"cni": "canal"}, "machinePools": [POOL]}}
ALL = (*PARTS, capi.MACHINE_DEPLOYMENTS, capi.MACHINE_HEALTH_CHECKS)


async def outcome(made: World) -> Obj:
    """The objects, but for what differs between any two runs."""
    name = (await demo(made))["status"]["clusterName"]
    found: Obj = {}
    for resource in ALL:
        (obj,) = await made.list(resource)
        spec = str(obj.get("spec")).replace(name, "<id>")
        owners = [(each["kind"], each["name"]) for each in owner_references_of(obj)]
        found[resource.resource + resource.group] = spec, obj["metadata"]["labels"], owners, obj["metadata"].get("finalizers")
    said = {each["type"]: each["status"] for each in conditions_of(await demo(made))}
    return {**found, "said": said, "finalizers": (await demo(made))["metadata"]["finalizers"]}


async def run(writes: int | None, fails: bool = False) -> tuple[Obj, int]:
    async with cluster_world() as made:
        await driver(made)
        await machine_config(made)
        await made.end()
        parts, mortal = through(made, writes, fails)
        await made.settle(1)
        await made.wanted("demo", **WISH)
        await made.settle(10)
        await parts.stop()
        made.begin()
        await made.settle(60)
        return await outcome(made), mortal.written


@pytest.fixture(scope="module")
def undisturbed() -> tuple[Obj, int]:
    return asyncio.run(run(None))


@pytest.mark.soak
@pytest.mark.parametrize("fails", [True, False], ids=["refused", "dead"])
async def test_whichever_write_is_the_last_the_end_is_the_same(fails: bool, undisturbed: tuple[Obj, int]) -> None:
    wanted, writes = undisturbed
    assert writes > 30
    for number in sample(f"graph/{fails}", writes):
        found, _ = await run(number, fails)
        assert found == wanted, f"write {number}"


@pytest.mark.soak
async def test_a_deletion_that_was_begun_is_finished() -> None:
    for number in sample("graph/deletion", 30):
        async with cluster_world() as made:
            await driver(made)
            await machine_config(made)
            await made.wanted("demo", **WISH)
            await made.settle(5)
            await made.end()
            parts, _ = through(made, number)
            await made.settle(1)
            await made.delete(provisioning.CLUSTERS, "demo", FLEET)
            await made.settle(10)
            await parts.stop()
            made.begin()
            await made.settle(120)
            assert await made.find(provisioning.CLUSTERS, "demo", FLEET) is None, f"write {number}"
            for resource in ALL:
                assert await made.list(resource) == [], f"write {number}: {resource.resource}"


async def test_two_at_the_same_time_make_one_of_everything(undisturbed: tuple[Obj, int]) -> None:
    async with cluster_world() as made:
        await driver(made)
        await machine_config(made)
        made.begin()
        await made.settle(1)
        await made.wanted("demo", **WISH)
        await made.settle(60)
        assert await outcome(made) == undisturbed[0]
