"""A machine whose removal can't even be begun: who is told, and how it is let go."""

from __future__ import annotations

from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.waits import Actor, Code
from remuda.machines.machineprovision.well_known import FORCE_REMOVE, JOBS, job_name
from tests.unit.provisioning.rke_machines import FLEET

from .driver_machines import CREDENTIAL, PAPERS, Papers, papers

Obj = dict[str, Any]
FORCED = {"metadata": {"annotations": {FORCE_REMOVE: "true"}}}


async def without_its_credential(made: Papers) -> None:
    """A machine that is there and shall go, after somebody deleted the credential that it was made with."""
    await made.credential(token="t")
    await made.cluster(CREDENTIAL)
    await made.machine(credential=CREDENTIAL)
    await made.world.settle()
    await made.begins()
    await made.keep()
    await made.succeeds()
    await made.world.delete(SECRETS, "cc-paper", "cattle-global-data")
    await made.world.delete(PAPERS, "m1", FLEET)
    await made.world.settle(5)


async def test_a_removal_without_its_credential_says_so_and_goes_on_when_it_is_back() -> None:
    async with papers() as made:
        await without_its_credential(made)
        (wait,) = [each for each in made.world.lives[0].manager.waits() if each.subject.name == "m1"]
        assert (wait.code, wait.actor, wait.on and wait.on.name) == (Code.DELETION, Actor.USER, "cc-paper")
        assert wait.evidence == (
            f"it can't be removed, for there is no cloud credential {CREDENTIAL}; {FORCE_REMOVE}=true lets it go without"
        )
        ready = next(each for each in (await made.get())["status"]["conditions"] if each["type"] == "Ready")
        assert f"there is no cloud credential {CREDENTIAL}" in ready["message"]
        assert await made.condition("DeleteJob") == ("", "")
        await made.credential(token="t")
        await made.world.settle(400)
        assert await made.condition("DeleteJob") == ("Unknown", "")
        await made.keep(empty=True)
        await made.succeeds()
        assert await made.gone()


async def test_a_removal_that_failed_and_goes_on_says_so() -> None:
    async with papers() as made:
        await made.cluster()
        await made.made()
        await made.world.delete(PAPERS, "m1", FLEET)
        await made.world.settle(5)
        await made.begins()
        await made.world.patch(JOBS, job_name("m1"), {"status": {"failed": 2}}, FLEET, "status")
        await made.world.settle(5)
        (wait,) = [each for each in made.world.lives[0].manager.waits() if each.subject.name == "m1"]
        assert (wait.code, wait.actor) == (Code.DELETION, Actor.PROVIDER)
        assert wait.evidence == "the Job is still running: 2 of its tries failed, and it goes on"


async def test_force_skips_a_removal_that_can_not_begin() -> None:
    async with papers() as made:
        await without_its_credential(made)
        assert not await made.gone()
        await made.world.patch(PAPERS, "m1", FORCED, FLEET)
        await made.world.settle(5)
        assert await made.gone()
        assert [(each.action, each.result) for each in await made.attempts()] == [("create", "Complete"), ("remove", "Abandoned")]


async def test_force_on_its_machine_lets_go_of_a_job_that_can_not_begin() -> None:
    async with papers() as made:
        await made.credential(token="t")
        await made.cluster(CREDENTIAL)
        await made.machine(credential=CREDENTIAL)
        await made.world.settle()
        await made.keep()
        await made.succeeds()
        await made.world.delete(PAPERS, "m1", FLEET)
        await made.world.settle(5)
        assert await made.condition("DeleteJob") == ("Unknown", "") and await made.job() is not None
        await made.world.delete(SECRETS, "cc-paper", "cattle-global-data")
        await made.world.patch(capi.MACHINES, "m1", FORCED, FLEET)
        await made.world.settle(5)
        assert await made.gone() and await made.job() is None


async def test_force_does_not_let_go_of_what_can_be_removed() -> None:
    async with papers() as made:
        await made.cluster()
        await made.made()
        await made.world.patch(PAPERS, "m1", FORCED, FLEET)
        await made.world.delete(PAPERS, "m1", FLEET)
        await made.world.settle(5)
        assert not await made.gone() and await made.job() is not None
        await made.begins()
        await made.world.settle(5)
        assert not await made.gone(), "it may well succeed"
        await made.keep(empty=True)
        await made.succeeds()
        assert await made.gone()
        assert (await made.attempts())[-1].result == "Complete"
