"""What a plan says of change budgets: which machines they hold, and which of them does."""

from __future__ import annotations

from typing import Any

from remuda.api import provisioning_cattle_io as provisioning
from remuda.app.changeplan.changes import Patch
from remuda.app.changeplan.result import ChangePlan, Outcome, Verdict
from remuda.capi.change_budget import CHANGE_BUDGET
from remuda.kube.builtin_resources import NAMESPACES
from remuda.lab.sim.machine_jobs import pool
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld

from .predictions import SERVERS, WORKERS, hosts, made_real, plan_of_change, pools, predicted, same, spec
from .provisioned import DEMO, TO

Obj = dict[str, Any]


def budget(text: str | None) -> Obj:
    return {"metadata": {"annotations": {CHANGE_BUDGET: text}}}


async def allow(world: ProvisioningWorld, text: str) -> None:
    await world.client.patch(provisioning.CLUSTERS, DEMO, budget(text), WORKSPACE)
    await world.settle(60)


def told(plan: ChangePlan) -> set[tuple[Outcome, str]]:
    return {(each.outcome, each.why) for each in plan.held}


async def test_all_machines_that_may_not_restart_are_named_and_nothing_happens_to_them() -> None:
    async with hosts("ec", "ec", "ec", "w") as world:
        await allow(world, "restart=0")
        change = spec(kubernetesVersion=TO)
        plan = await plan_of_change(world, [change])
        assert plan.verdict is Verdict.OVER_BUDGET and plan.exit_code == 3 and plan.stuck == ()
        assert len(plan.held) == 4
        assert told(plan) == {(Outcome.RESTARTED, "the change budget of Cluster demo is restart=0: not allowed")}
        assert plan.counts()[Outcome.RESTARTED] == 0
        happened = await made_real(world, [change])
        assert happened.staying == predicted(plan).staying


async def test_what_the_budget_allows_happens_and_the_rest_is_named() -> None:
    async with hosts("ec", "ec", "ec", "w", "w") as world:
        await world.client.patch(NAMESPACES, WORKSPACE, budget("restart-worker=0,restart-etcd=1"))
        plan = await plan_of_change(world, [spec(kubernetesVersion=TO)])
        assert plan.verdict is Verdict.OVER_BUDGET
        assert (plan.counts()[Outcome.RESTARTED], len(plan.held)) == (3, 2)
        assert told(plan) == {(Outcome.RESTARTED, f"the change budget of Namespace {WORKSPACE} is restart-worker=0: not allowed")}


async def test_a_change_within_its_budget_is_only_a_change() -> None:
    async with hosts("ec", "ec", "ec", "w", "w") as world:
        await allow(world, "restart=1")
        plan = await same(world, spec(kubernetesVersion=TO))
        assert plan.verdict is Verdict.CHANGES and plan.held == ()


async def test_the_budget_that_comes_with_the_change_counts() -> None:
    async with hosts("ec", "w") as world:
        await allow(world, "restart=0")
        raised = Patch(provisioning.CLUSTERS, WORKSPACE, DEMO, {**budget("restart=1"), "spec": {"kubernetesVersion": TO}})
        assert (await plan_of_change(world, [raised])).verdict is Verdict.CHANGES
        removed = Patch(provisioning.CLUSTERS, WORKSPACE, DEMO, {**budget(None), "spec": {"kubernetesVersion": TO}})
        assert (await plan_of_change(world, [removed])).verdict is Verdict.CHANGES


async def test_the_budget_of_a_pool_holds_its_machines_only() -> None:
    others = {**pool("others", "w", 2, "big"), "machineDeploymentAnnotations": {CHANGE_BUDGET: "replace=0"}}
    async with pools(SERVERS, WORKERS, others) as world:
        small = [{**each, "machineConfigRef": SERVERS["machineConfigRef"]} for each in (WORKERS, others)]
        plan = await plan_of_change(world, [spec(rkeConfig={"machinePools": [SERVERS, *small]})])
        assert plan.verdict is Verdict.OVER_BUDGET
        assert told(plan) == {(Outcome.REPLACED, "the change budget of machine pool others is replace=0: not allowed")}
        assert (plan.counts()[Outcome.REPLACED], len(plan.held)) == (2, 2)


async def test_fewer_machines_than_the_budget_lets_go() -> None:
    async with pools() as world:
        await allow(world, "delete=0")
        plan = await plan_of_change(world, [spec(rkeConfig={"machinePools": [SERVERS, {**WORKERS, "quantity": 1}]})])
        assert plan.verdict is Verdict.OVER_BUDGET and plan.counts()[Outcome.DELETED] == 0
        assert told(plan) == {(Outcome.DELETED, "the change budget of Cluster demo is delete=0: not allowed")}


async def test_what_waits_without_the_change_is_not_counted_again() -> None:
    async with hosts("ec", "w") as world:
        await allow(world, "restart=0")
        await world.client.patch(provisioning.CLUSTERS, DEMO, {"spec": {"kubernetesVersion": TO}}, WORKSPACE)
        await world.settle(120)
        labelled = Patch(provisioning.CLUSTERS, WORKSPACE, DEMO, {"metadata": {"labels": {"team": "web"}}})
        assert (await plan_of_change(world, [labelled])).held == ()
        more = spec(rkeConfig={"machineGlobalConfig": {"kubelet-arg": ["max-pods=200"]}})
        assert len((await plan_of_change(world, [more])).held) == 2
