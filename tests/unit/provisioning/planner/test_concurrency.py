"""How many may change at once, and who waits for whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remuda.kube.waits import Code
from remuda.provisioning.planner.concurrency import InvalidConcurrency, limit
from remuda.provisioning.planner.snapshot import ClusterSnapshot, Machine

from .world import NEXT, World, decide, running, with_machine, with_node, with_spec, written

WORKERS = tuple((f"w{number}", "w") for number in range(5))


@pytest.mark.parametrize(
    ("text", "of", "most"),
    [("", 9, 1), ("1", 9, 1), ("3", 2, 3), ("0", 9, None), ("50%", 5, 3), ("10%", 5, 1), ("0%", 5, 1), ("100%", 4, 4)],
)
def test_numbers_and_percentages(text: str, of: int, most: int | None) -> None:
    assert limit(text, of) == most


@pytest.mark.parametrize("text", ["-1", "half", "50 %", "1.5", "%", "１"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidConcurrency):
        limit(text, 5)


def test_a_concurrency_that_can_not_be_read_is_an_error_of_the_control_plane() -> None:
    picture = running(("a", "ec"), ("w", "w"), spec={"upgradeStrategy": {"workerConcurrency": "many"}})
    decision = decide(picture)
    assert decision.error == "upgradeStrategy of the worker tier: concurrency 'many' is no number and no percentage"
    assert {c.type: (c.status, c.reason) for c in decision.conditions}["Ready"] == ("False", "Error")


def servers_done(picture: ClusterSnapshot) -> ClusterSnapshot:
    """The upgrade has come to the workers."""
    place = World(with_spec(picture, kubernetesVersion=NEXT))
    while not any(name.startswith("w") for name in written(decide(place.picture))):
        place.look()
        place.act()
    return place.picture


@pytest.mark.parametrize(("at_once", "count"), [("", 1), ("2", 2), ("50%", 3), ("0", 5)])
def test_as_many_workers_change_at_once_as_may(at_once: str, count: int) -> None:
    picture = servers_done(running(("a", "ec"), *WORKERS, spec={"upgradeStrategy": {"workerConcurrency": at_once}}))
    decision = decide(picture)
    assert written(decision) == {f"w{number}" for number in range(count)}
    waiting = [wait for wait in decision.waits if wait.code is Code.TURN and wait.subject.kind == "Machine"]
    assert len(waiting) == 5 - count and all(wait.on is not None and wait.on.name == "w0" for wait in waiting)


def unhealthy(member: Machine) -> Machine:
    assert member.node is not None
    return with_node(member, replace(member.node, probes=dict.fromkeys(member.node.plan.probes, False)))


def test_broken_machines_are_changed_first_and_do_not_wait_for_each_other() -> None:
    picture = servers_done(running(("a", "ec"), *WORKERS))
    picture = with_machine(with_machine(picture, "w3", unhealthy), "w4", unhealthy)
    assert written(decide(picture)) == {"w3"}


def test_a_node_that_still_reports_the_old_version_keeps_its_turn() -> None:
    picture = servers_done(running(("a", "ec"), *WORKERS))
    place = World(picture)
    place.look()
    for _ in range(4):
        place.act()
    late = with_machine(place.picture, "w0", lambda m: replace(m, kubelet_version="v1.34.1"))
    decision = decide(late)
    assert not written(decision)
    assert next(wait for wait in decision.waits if wait.subject.name == "w0").evidence == "waiting for kubelet to update"
    assert written(decide(with_machine(late, "w0", lambda m: replace(m, kubelet_version="v1.35.0")))) == {"w1"}


def test_etcd_members_change_one_by_one_whatever_is_asked_for() -> None:
    picture = running(
        ("a", "ec"), ("b", "ec"), ("c", "ec"), ("w", "w"), spec={"upgradeStrategy": {"controlPlaneConcurrency": "0"}}
    )
    place = World(with_spec(picture, kubernetesVersion=NEXT))
    order: list[str] = []
    for _ in range(60):
        decision = place.look()
        assert len(written(decision)) <= 1
        order += sorted(written(decision))
        if decision.applied:
            break
        place.act()
    assert order == ["a", "b", "c", "w"]


def test_no_member_is_touched_while_etcd_could_not_bear_it() -> None:
    picture = with_spec(running(("a", "ecw"), ("b", "ecw"), ("c", "ecw")), kubernetesVersion=NEXT)
    down = with_machine(picture, "c", lambda m: replace(m, non_ready="node does not answer"))
    decision = decide(down)
    assert written(decision) == {"c"}
    held = next(wait for wait in decision.waits if wait.subject.name == "a")
    assert held.code is Code.QUORUM and held.on is not None and held.on.name == "c"
    assert held.evidence == "etcd would lose its quorum, since c is not available"


def test_new_machines_need_no_turn() -> None:
    picture = running(("a", "ec"), *WORKERS)
    for name in ("w1", "w3"):
        picture = with_machine(picture, name, lambda m: with_node(m, None))
    busy = with_machine(picture, "w0", applying)
    assert written(decide(busy)) == {"w1", "w3"}


def applying(member: Machine) -> Machine:
    assert member.node is not None
    return with_node(member, replace(member.node, state="in-progress", in_sync=False))
