"""Change budgets where the planner acts: what they do not allow is not written, and waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from remuda.capi.change_budget import CHANGE_BUDGET, Holder
from remuda.kube.waits import Actor, Code
from remuda.provisioning import well_known
from remuda.provisioning.planner.decision import Decision
from remuda.provisioning.planner.snapshot import ClusterSnapshot

from .world import NEXT, NOW, World, decide, heard, named, running, with_machine, with_spec, written

SERVERS = (("a", "ec"), ("b", "ec"), ("c", "ec"))
WORKERS = (("v", "w"), ("w", "w"))


def budgeted(picture: ClusterSnapshot, text: str = "", *, pools: Mapping[str, str] | None = None) -> ClusterSnapshot:
    annotations = dict(picture.control_plane.annotations)
    if text:
        annotations[CHANGE_BUDGET] = text
    if pools:
        annotations[well_known.POOL_CHANGE_BUDGETS] = msgspec.json.encode(pools).decode()
    return replace(picture, control_plane=replace(picture.control_plane, annotations=annotations))


def upgrading(*more: tuple[str, str]) -> ClusterSnapshot:
    return heard(with_spec(running(*SERVERS, *more), kubernetesVersion=NEXT))


def codes(decision: Decision) -> set[Code]:
    return {wait.code for wait in decision.waits}


def test_without_a_budget_the_upgrade_begins() -> None:
    assert written(decide(upgrading(*WORKERS))) == {"a"}


@pytest.mark.parametrize("text", ["restart=0", "restart-etcd=0", "restart-control-plane=0%", "garbage", "window=Mon 03:00-03:01"])
def test_what_a_budget_does_not_allow_is_not_done(text: str) -> None:
    decision = decide(budgeted(upgrading(*WORKERS), text))
    assert written(decision) == set() and Code.BUDGET in codes(decision)
    wait = next(wait for wait in decision.waits if wait.code is Code.BUDGET)
    assert wait.actor is Actor.USER and "the change budget of Cluster" in wait.evidence
    assert [(event.machine, event.reason) for event in decision.events] == [("a", "ChangeBudget")]
    reconciled = decision.machines["a"].reconciled
    assert reconciled is not None and reconciled.message.startswith("waiting for the change budget: ")


def test_it_is_reported_once_and_judged_again() -> None:
    picture = budgeted(upgrading(*WORKERS), "restart=0")
    decision = decide(picture)
    told = decision.machines["a"].reconciled
    again = decide(with_machine(picture, "a", lambda machine: replace(machine, reconciled=told)))
    assert again.events == () and Code.BUDGET in codes(again)
    assert decision.revisit_at is not None and decision.revisit_at <= NOW + 60


def test_the_namespaces_budget_holds_too_also_if_it_cannot_be_read() -> None:
    picture = budgeted(upgrading(*WORKERS), "restart=5")
    for holder in (Holder("Namespace x", "restart=0"), Holder("Namespace x", problem="the server is away")):
        decision = decide(replace(picture, namespace_budget=holder))
        assert written(decision) == set() and Code.BUDGET in codes(decision)
    assert written(decide(replace(picture, namespace_budget=Holder("Namespace x", "restart=1")))) == {"a"}


def test_a_pools_budget_is_for_its_machines() -> None:
    pools = {well_known.POOL_NAME: "servers"}
    picture = with_machine(upgrading(*WORKERS), "a", lambda machine: replace(machine, labels={**machine.labels, **pools}))
    assert written(decide(budgeted(picture, pools={"servers": "restart=0"}))) == set()
    assert written(decide(budgeted(picture, pools={"others": "restart=0"}))) == {"a"}
    broken = replace(picture.control_plane, annotations={well_known.POOL_CHANGE_BUDGETS: "{"})
    assert Code.BUDGET in codes(decide(replace(picture, control_plane=broken)))


def test_what_restarts_nothing_and_what_has_not_begun_needs_no_budget() -> None:
    still = budgeted(running(*SERVERS, *WORKERS), "restart=0,drain=0")
    assert decide(still).waits == ()
    fresh = with_machine(still, "w", lambda machine: replace(machine, secret=replace(machine.secret, node=None)))  # type: ignore[type-var]
    assert written(decide(fresh)) == {"w"}, "a new machine joins"


def test_never_more_workers_restart_than_the_budget_allows() -> None:
    names = [(f"w{number}", "w") for number in range(6)]
    strategy = {"workerConcurrency": "5"}
    world = World(with_spec(running(*SERVERS, *names), upgradeStrategy=strategy, kubernetesVersion=NEXT))
    world.picture = budgeted(world.picture, "restart-worker=2,restart-etcd=1")
    most = 0
    for _ in range(400):
        decision = world.look()
        changing = {name for name in written(decision) if name.startswith("w")}
        busy = {each.name for each in world.picture.machines if each.is_only_worker and each.node and not each.node.in_sync}
        most = max(most, len(changing | busy))
        world.act()
    assert most == 2
    assert not world.look().waits
    assert all(named(world.picture, name).node.in_sync for name, _ in names)  # type: ignore[union-attr]


POOL = (("v", "w"), ("w", "w"), ("x", "w"))
DRAINS = {"workerDrainOptions": {"enabled": True}, "workerConcurrency": "3"}


def draining() -> ClusterSnapshot:
    """Three workers that are to be changed, and drained before."""
    before, after = (running(*SERVERS, *POOL, spec={"upgradeStrategy": DRAINS, "felt": felt}) for felt in ("old", "new"))
    return heard(
        replace(after, machines=tuple(named(before, each.name) if each.is_only_worker else each for each in after.machines))
    )


def drained(picture: ClusterSnapshot) -> set[str]:
    return {name for name, change in decide(picture).secrets.items() if change.annotations.get(well_known.DRAIN_OPTIONS)}


def test_drains_for_a_deletion_count_with_those_for_a_restart() -> None:
    picture = draining()
    going = with_machine(picture, "x", lambda machine: replace(machine, deleted_at=NOW))
    assert drained(budgeted(picture, "drain=2")) == {"v", "w"}
    assert drained(budgeted(going, "drain=2")) == {"v"}
    assert drained(budgeted(going, "drain=1")) == set()
    assert drained(budgeted(going, "drain-worker=1")) == set()


def test_deletions_count_that_the_machines_do_not_show_yet() -> None:
    picture = budgeted(draining(), "drain=1")
    assert drained(picture) == {"v"}
    assert drained(replace(picture, leaving=frozenset({"x"}))) == {"x"}, "it is drained in any case"


@pytest.mark.parametrize("fields", [{"node_name": ""}, {"annotations": {well_known.EXCLUDE_NODE_DRAINING: "true"}}])
def test_a_deletion_without_a_drain_does_not_count(fields: dict[str, Any]) -> None:
    picture = with_machine(draining(), "x", lambda machine: replace(machine, deleted_at=NOW, **fields))
    assert drained(budgeted(picture, "drain=1")) == {"v"}
