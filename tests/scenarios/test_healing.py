"""A corrected spec heals: clusters whose first machines came to nothing become ready by a correction alone."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.app.rehearsal import provisioning as provisioned
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import dig, labels_of, name_of
from remuda.lab.sim import machine_jobs
from remuda.lab.sim.machine_jobs import SimulatedJobs, Trouble, config, pool
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.well_known import INIT_NODE, plan_name

from .provisioned import DEMO, FROM, change, nodes, ready
from .soaking import SOAK

Obj = dict[str, Any]

BAD, GOOD = "bad", "good"
# Configs by the names of pools: what is corrected, and what was well from the beginning.
ONE_SERVER = [pool("servers", "ec", config="first"), pool("workers", "w", config="other")]
THREE_SERVERS = [pool("servers", "ecw", 3, config="first")]
APART = [pool("etcd", "e", config="first"), pool("control", "c", config="other"), pool("workers", "w", config="other")]
CONTROL_APART = [pool("etcd", "e", config="other"), pool("control", "c", config="first"), pool("workers", "w", config="other")]
THREE_APART = [pool("etcd", "e", 3, config="first"), pool("control", "c", config="first"), pool("workers", "w", config="other")]
GOES_FIRST = [
    pool("servers", "ec", config="first", rollingUpdate={"maxSurge": 0, "maxUnavailable": 1}),
    pool("workers", "w", config="other"),
]
LAYOUTS = {
    "one server": ONE_SERVER,
    "three servers": THREE_SERVERS,
    "etcd apart": APART,
    "control plane apart": CONTROL_APART,
    "three with etcd apart": THREE_APART,
    "no surge": GOES_FIRST,
}


async def broken(world: ProvisioningWorld, pools: list[Obj], trouble: Trouble) -> SimulatedJobs:
    """The cluster as it is after a while with a bad config."""
    assert world.jobs is not None
    world.jobs.troubles[BAD] = trouble
    for name, size in (("first", BAD), ("other", GOOD)):
        await world.client.create(machine_jobs.CONFIGS, config(name, WORKSPACE, size=size), WORKSPACE)
    await world.want(DEMO, FROM, machinePools=pools)
    await world.settle(120)
    assert not await world.is_ready(DEMO)
    return world.jobs


async def is_healed(world: ProvisioningWorld, pools: list[Obj]) -> bool:
    machines = await world.machines(DEMO)
    whole = len(machines) == sum(each["quantity"] for each in pools)
    return whole and all(dig(each, "status", "phase") == "Running" for each in machines) and await world.is_ready(DEMO)


EVERY = [(layout, trouble) for layout in LAYOUTS for trouble in Trouble]
# The others are played by `make soak`.
USUAL = [each for each in EVERY if each[1] is Trouble.NEVER_REGISTERS or each[0] == "one server"]


@pytest.mark.parametrize(("layout", "trouble"), EVERY if SOAK else USUAL, ids=str)
async def test_a_corrected_machine_config_replaces_machines_that_never_became_nodes(layout: str, trouble: Trouble) -> None:
    pools = LAYOUTS[layout]
    async with provisioned(pools=True) as world:
        made = await broken(world, pools, trouble)
        await world.client.patch(machine_jobs.CONFIGS, "first", {"size": GOOD}, WORKSPACE)
        await world.settle(1)
        await world.until("the cluster is healed", lambda: is_healed(world, pools), 1800)
        for machine in await world.machines(DEMO):
            infra = await world.client.get(machine_jobs.MACHINES, name_of(machine), WORKSPACE)
            assert infra["spec"]["size"] == GOOD
        plans = [await world.client.get(SECRETS, plan_name(name_of(each)), WORKSPACE) for each in await world.machines(DEMO)]
        assert len([each for each in plans if INIT_NODE in labels_of(each)]) == 1
        assert set(await nodes(world)) == {host.name for host in made.hosts.values()}
        assert world.distribution(DEMO).violations == []
        # What was well from the beginning was not replaced.
        assert not [name for name in made.removed if "-workers-" in name and pools[-1]["machineConfigRef"]["name"] == "other"]


@pytest.mark.parametrize("trouble", [Trouble.NEVER_REGISTERS, Trouble.PLANS_FAIL], ids=str)
async def test_etcd_that_runs_and_has_no_node_yet_is_replaced_with_what_never_came_up(trouble: Trouble) -> None:
    """As long as no host has joined it there is nothing in it, and it goes; else its successor joins it first."""
    pools = CONTROL_APART
    async with provisioned(pools=True) as world:
        await broken(world, pools, trouble)
        for name in ("first", "other"):
            await world.client.patch(machine_jobs.CONFIGS, name, {"size": "better"}, WORKSPACE)
        await world.settle(1)
        await world.until("the cluster is healed", lambda: is_healed(world, pools), 1800)
        assert world.distribution(DEMO).violations == []
        for machine in await world.machines(DEMO):
            assert (await world.client.get(machine_jobs.MACHINES, name_of(machine), WORKSPACE))["spec"]["size"] == "better"


async def test_a_corrected_argument_is_delivered_to_the_hosts_that_failed_on_it() -> None:
    async with provisioned(pools=True) as world:
        made = await broken(world, ONE_SERVER, Trouble.PLANS_FAIL)
        before = sorted(name_of(each) for each in await world.machines(DEMO))
        for host in made.hosts.values():
            host.failing = 0
        await change(world, rkeConfig={"machineGlobalConfig": {"kube-apiserver-arg": ["v=2"]}})
        await ready(world)
        assert sorted(name_of(each) for each in await world.machines(DEMO)) == before and made.removed == []
        assert world.distribution(DEMO).violations == []
