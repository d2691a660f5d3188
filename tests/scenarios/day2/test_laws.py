"""The laws notice what they forbid."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable

import pytest

from remuda.app.rehearsal import provisioning as provisioned
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import name_of
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.well_known import INIT_NODE, plan_name

from ..provisioned import DEMO, build, change
from ..test_restoring import status
from .laws import Broken, Laws

Crime = Callable[[ProvisioningWorld], Awaitable[None]]


async def elect_another(world: ProvisioningWorld) -> None:
    for machine in await world.machines(DEMO):
        patch = {"metadata": {"labels": {INIT_NODE: "true"}}}
        await world.client.patch(SECRETS, plan_name(name_of(machine)), patch, WORKSPACE)


async def change_a_token(world: ProvisioningWorld) -> None:
    patch = {"data": {"serverToken": base64.b64encode(b"another").decode()}}
    await world.client.patch(SECRETS, f"{DEMO}-rke-state", patch, WORKSPACE)


async def lose_the_tokens(world: ProvisioningWorld) -> None:
    await world.client.delete(SECRETS, f"{DEMO}-rke-state", WORKSPACE)


async def break_the_distribution(world: ProvisioningWorld) -> None:
    world.distribution(DEMO).violations.append("it began a second cluster")


async def plan_something_else(world: ProvisioningWorld) -> None:
    machine = (await world.machines(DEMO))[-1]
    patch = {"data": {"plan": base64.b64encode(b'{"files":[]}').decode()}}
    await world.client.patch(SECRETS, plan_name(name_of(machine)), patch, WORKSPACE)


@pytest.mark.parametrize(
    ("crime", "words"),
    [
        (elect_another, "two init nodes"),
        (change_a_token, "the tokens of machines changed"),
        (lose_the_tokens, "the tokens of machines changed"),
        (break_the_distribution, "it began a second cluster"),
        (plan_something_else, "got another plan while etcdSnapshotCreate was running"),
    ],
)
async def test_a_crime_is_noticed(crime: Crime, words: str) -> None:
    async with provisioned() as world:
        await build(world, ["ec", "ec", "ec", "w"])
        laws = Laws(world)
        await laws.check()
        await change(world, rkeConfig={"etcdSnapshotCreate": {"generation": 1}})

        async def has_begun() -> bool:
            return (await status(world)).get("etcdSnapshotCreatePhase") == "Started"

        await world.until("an operation runs", has_begun)
        await laws.check()
        await world.kill()
        await crime(world)
        with pytest.raises(Broken, match=words):
            await laws.check()
