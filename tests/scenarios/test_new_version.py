"""A new version of Remuda takes over: nothing restarts by itself, it is told what would, and the user decides when."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from remuda import __version__
from remuda.app.changeplan import upgrade
from remuda.app.changeplan.changes import write
from remuda.app.changeplan.rehearsed import rest
from remuda.app.changeplan.result import Outcome
from remuda.kube import conditions
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import annotations_of, name_of
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld, Surroundings
from remuda.provisioning.planner.render import config
from remuda.provisioning.planner.waits import PLANS_HELD
from remuda.provisioning.well_known import PLAN_TYPE, RENDERED_BY

from .predictions import CLUSTER, hosts, plan_of_change, seen, spec
from .provisioned import DEMO, TO

Obj = dict[str, Any]
OLD = "0.0.9"


@asynccontextmanager
async def upgraded(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProvisioningWorld]:
    """A cluster whose plans another version has rendered; this one renders an argument more."""
    async with hosts("ec", "ec", "ec", "w") as world:
        await world.kill()
        for secret in (await world.client.list(SECRETS, WORKSPACE))["items"]:
            if secret.get("type") == PLAN_TYPE:
                assert annotations_of(secret)[RENDERED_BY] == __version__
                note = {"metadata": {"annotations": {RENDERED_BY: OLD}}}
                await world.client.patch(SECRETS, name_of(secret), note, WORKSPACE)
        before = config.pruned
        monkeypatch.setattr(config, "pruned", lambda found: {**before(found), "debug": True})
        yield world


def outcomes(found: upgrade.UpgradeCheck) -> set[tuple[Outcome, Outcome]]:
    return {(each.outcome, each.accepted) for each in found.machines}


async def held(world: ProvisioningWorld) -> Obj:
    return conditions.get(await world.control_plane(DEMO), PLANS_HELD) or {}


async def test_the_check_before_the_upgrade_names_what_would_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    async with upgraded(monkeypatch) as world:
        found = await upgrade.check(world.client, Surroundings(), world.clock.time())
        assert found.clusters == (str(CLUSTER),) and len(found.machines) == 4
        assert outcomes(found) == {(Outcome.UNTOUCHED, Outcome.RESTARTED)}
        assert {reason.field for each in found.machines for reason in each.reasons} == {"config.debug"}


async def test_a_new_version_restarts_nothing_until_it_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with upgraded(monkeypatch) as world:
        before, starts = await seen(world), list(world.distribution(DEMO).starts)
        world.begin()
        await rest(world, [CLUSTER])
        assert await seen(world) == before and world.distribution(DEMO).starts == starts
        condition = await held(world)
        assert condition["status"] == "True" and OLD in condition["message"], condition
        accept = upgrade.accept(CLUSTER)
        plan = await plan_of_change(world, [accept])
        assert plan.counts()[Outcome.RESTARTED] == 4 and plan.already == ()
        await write(world.client, accept)
        await rest(world, [CLUSTER])
        assert len(world.distribution(DEMO).starts) == len(starts) + 4
        assert (await held(world))["status"] == "False"
        again = await upgrade.check(world.client, Surroundings(), world.clock.time())
        assert again.machines == ()


async def test_the_users_next_change_brings_the_new_plans_to_the_machines_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    async with upgraded(monkeypatch) as world:
        world.begin()
        await rest(world, [CLUSTER])
        selected = [
            {
                "config": {"kubelet-arg": ["max-pods=99"]},
                "machineLabelSelector": {"matchLabels": {"rke.cattle.io/worker-role": "true"}},
            }
        ]
        change = spec(rkeConfig={"machineSelectorConfig": selected})
        plan = await plan_of_change(world, [change])
        restarted = [each for each in plan.machines if each.outcome is Outcome.RESTARTED]
        assert [each.roles for each in restarted] == [("worker",)]
        assert {reason.field for reason in restarted[0].reasons} == {"config.debug", "config.kubelet-arg"}
        assert (await held(world))["status"] == "True"


async def test_a_new_version_of_kubernetes_brings_the_new_plans_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async with upgraded(monkeypatch) as world:
        world.begin()
        await rest(world, [CLUSTER])
        await write(world.client, spec(kubernetesVersion=TO))
        await rest(world, [CLUSTER])
        assert (await held(world))["status"] == "False"
        assert (await upgrade.check(world.client, Surroundings(), world.clock.time())).machines == ()
