"""Pools whose machine config names an address, and users who lose and get the right to the credential that is sent there."""

from __future__ import annotations

import pytest

from remuda.api.cluster_x_k8s_io import MACHINE_DEPLOYMENTS
from remuda.kube.objects import dig
from remuda.lab.sim import machine_jobs
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from tests.security.test_addresses import ACCEPTED, cluster, pool, pooled, refusal, waits, written
from tests.security.test_references_used import GLOBAL, ROLE_BINDINGS, ROLES, let_read


@pytest.fixture(autouse=True)
def _driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_jobs, "FIELDS", (*machine_jobs.FIELDS, "endpoint"))


async def machines(world: ProvisioningWorld) -> list[str]:
    listed = (await world.client.list(machine_jobs.MACHINES, WORKSPACE))["items"]
    return [str(dig(each, "spec", "endpoint")) for each in listed if dig(each, "spec", "providerID")]


async def lost(world: ProvisioningWorld) -> None:
    """The user who wrote the address loses the right, and another owner of the cluster wants one more machine."""
    assert await written(world, "u-trusted", {"endpoint": "cloud.example.com"}) == ""
    await world.settle(5)
    await world.until("it is ready", lambda: world.is_ready("a"))
    await world.settle(120)
    assert await machines(world) == ["cloud.example.com"]
    await world.client.delete(ROLE_BINDINGS, "u-trusted-cc-x", GLOBAL)
    await world.settle(5)
    assert await pooled(world, "u-owner", pool(quantity=2)) == ""
    await world.settle(120)
    assert await refusal(world) and waits(world) and len(await machines(world)) == 1


async def grown(world: ProvisioningWorld) -> bool:
    return await machines(world) == ["cloud.example.com"] * 2


@pytest.mark.parametrize("dies", [False, True])
async def test_a_pool_goes_on_when_the_holder_of_its_credential_accepts_the_address(dies: bool) -> None:
    async with cluster(quantity=1) as world:
        await lost(world)
        if dies:
            await world.kill()
        assert await written(world, "u-holder", ACCEPTED) == ""
        if dies:
            world.begin()
        await world.until("the machine is there", lambda: grown(world), 600)
        assert not await refusal(world) and not waits(world)
        assert world.jobs is not None and len(world.jobs.made) == 3, "the machine that was there stayed"


async def test_a_pool_goes_on_when_its_author_gets_the_right_back() -> None:
    async with cluster(quantity=1) as world:
        await lost(world)
        await world.client.delete(ROLES, "u-trusted-cc-x", GLOBAL)
        await let_read(world, "u-trusted", "cc-x", GLOBAL)
        await world.until("the machine is there", lambda: grown(world), 600)
        assert not await refusal(world) and not waits(world)


async def test_a_machine_whose_job_was_not_made_gets_it_when_the_address_is_accepted() -> None:
    async with cluster(quantity=1) as world:
        await lost(world)
        # As an autoscaler does it: Cluster API makes the machine.
        await world.client.patch(MACHINE_DEPLOYMENTS, "a-w", {"spec": {"replicas": 2}}, WORKSPACE)
        await world.settle(60)
        told = [str(each.get("status")) for each in (await world.client.list(machine_jobs.MACHINES, WORKSPACE))["items"]]
        assert sorted("would be sent there" in each for each in told) == [False, True] and len(await machines(world)) == 1
        assert await written(world, "u-holder", ACCEPTED) == ""
        await world.until("the machine is there", lambda: grown(world), 600)
        assert not waits(world)
