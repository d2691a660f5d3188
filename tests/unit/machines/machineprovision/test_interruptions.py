"""The controller dies after any write, or any write fails: a machine is made once, removed once, and nothing is left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from remuda.client.interface import Client
from remuda.kube.builtin_resources import ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from remuda.machines.machineprovision.well_known import JOBS
from tests.scenarios.soaking import SOAK, dice
from tests.unit.provisioning.cluster.test_interruptions import Mortal
from tests.unit.provisioning.rke_machines import FLEET

from .driver_machines import PAPERS, Papers, papers

# A step of a machine's life takes fewer writes than these.
MOMENTS = list(range(1, 12))
SAMPLED = MOMENTS if SOAK else sorted(dice("machineprovision").sample(MOMENTS, 5))


async def whole_life(made: Papers, wrap: Callable[[Client], Client]) -> None:
    await made.cluster()
    await made.machine()
    await lives(made, wrap)
    await has_job(made, "create")
    await made.begins()
    await made.keep()
    await made.succeeds()
    await lives(made, wrap)
    await made.world.patch(PAPERS, "m1", {"spec": {"providerID": "paper://m1"}}, FLEET)
    await lives(made, wrap)
    assert await made.job() is None, "all that was made for it is gone"
    await made.world.delete(PAPERS, "m1", FLEET)
    await lives(made, wrap)
    await has_job(made, "rm")
    await made.begins()
    await made.keep(empty=True)
    await made.succeeds()
    await lives(made, wrap)
    assert await made.gone()
    await made.world.settle(5)
    for resource in (JOBS, ROLES, ROLE_BINDINGS, SERVICE_ACCOUNTS, SECRETS):
        left = [each["metadata"]["name"] for each in await made.world.list(resource, FLEET)]
        assert not [name for name in left if name.startswith("m1-machine")], left
    assert [(each.action, each.result) for each in await made.attempts()] == [("create", "Complete"), ("remove", "Complete")]


async def has_job(made: Papers, verb: str) -> None:
    job = await made.job()
    assert job is not None and verb in job["spec"]["template"]["spec"]["containers"][0]["args"]


async def lives(made: Papers, wrap: Callable[[Client], Client]) -> None:
    """One that dies, and one that knows only what is written."""
    if made.world.lives:
        await made.world.lives[-1].stop()
    mortal = made.world.begin(wrap)
    await made.world.settle(3)
    await mortal.stop()
    made.world.begin()
    await made.world.settle(5)


@pytest.mark.parametrize("fails", [True, False], ids=["refused", "dead"])
@pytest.mark.parametrize("moment", SAMPLED)
async def test_a_controller_that_dies_is_followed_by_one_that_goes_on(moment: int, fails: bool) -> None:
    async with papers(begin=False) as made:
        await whole_life(made, lambda client: Mortal(client, moment, fails))  # type: ignore[arg-type,return-value]
