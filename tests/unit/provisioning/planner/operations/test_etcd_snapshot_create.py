"""A snapshot of etcd on request: every member that is up saves one, and nothing restarts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remuda.kube.clock import rfc3339
from remuda.kube.waits import Actor, Code
from remuda.provisioning import well_known
from remuda.provisioning.planner.snapshot import Cluster, ClusterSnapshot
from remuda.provisioning.plans.plan import Plan

from ..world import NEXT, World, applied, decide, heard, named, running, with_machine, with_node, with_spec, written

MEMBERS = (("a", "ec"), ("b", "ec"), ("c", "e"), ("w", "w"))


def asked(*members: tuple[str, str], generation: int = 1, **spec: Any) -> ClusterSnapshot:
    return running(*(members or MEMBERS), spec={"etcdSnapshotCreate": {"generation": generation}, **spec})


def phase(picture: ClusterSnapshot) -> str:
    return picture.control_plane.etcd_snapshot_create_phase


def verdict(picture: ClusterSnapshot) -> tuple[str, str]:
    found = picture.control_plane.condition("EtcdSnapshotCreated")
    assert found is not None
    return found.status, found.message


def saves(plan: Plan) -> bool:
    return any(instruction.name == "SaveSnapshot" for instruction in plan.instructions)


def with_tasks(picture: ClusterSnapshot) -> set[str]:
    return {member.name for member in picture.machines if member.node and saves(member.node.plan)}


def until(place: World, wanted: str) -> list[str]:
    """The first waits of all passes until the phase is there."""
    seen: list[str] = []
    for _ in range(40):
        decision = place.look()
        seen.extend(wait.evidence for wait in decision.waits[:1])
        if phase(place.picture) == wanted:
            return seen
        place.act()
    raise AssertionError(f"{phase(place.picture)}: {seen}")


def test_all_members_save_at_once_and_nothing_restarts() -> None:
    before = asked()
    stamps = {member.name: member.node.plan for member in before.machines if member.node}
    place = World(before)
    place.look()
    assert phase(place.picture) == "Started" and not with_tasks(place.picture)
    place.look()
    assert with_tasks(place.picture) == {"a", "b", "c"}
    seen = until(place, "Finished")
    assert seen[0] == "taking a snapshot of etcd on a,b,c"
    assert verdict(place.picture) == ("True", "saved on a,b,c")
    assert place.picture.control_plane.etcd_snapshot_create == {"generation": 1}
    assert {member.name: member.node.plan for member in place.picture.machines if member.node} == stamps
    place.act()
    place.act()
    place.look()
    place.act()
    assert place.look().applied


def test_the_same_generation_takes_no_second_one_and_the_next_does() -> None:
    place = World(asked())
    until(place, "Finished")
    for _ in range(5):
        place.act()
        assert not written(place.look())
    place.picture = with_spec(place.picture, etcdSnapshotCreate={"generation": 2})
    until(place, "Finished")
    assert place.picture.control_plane.etcd_snapshot_create == {"generation": 2}


def test_a_request_that_is_taken_back_leaves_no_trace() -> None:
    place = World(asked())
    place.look()
    place.look()
    place.picture = with_spec(place.picture, etcdSnapshotCreate=None)
    decision = place.look()
    assert decision.status == {"etcdSnapshotCreate": None, "etcdSnapshotCreatePhase": None}
    for _ in range(30):
        place.act()
        decision = place.look()
    assert decision.applied and not with_tasks(place.picture) and not decision.status


@pytest.mark.parametrize("fields", [{"initialized": None}, {"conditions": ()}])
def test_it_waits_for_a_cluster(fields: dict[str, Any]) -> None:
    picture = asked()
    decision = decide(replace(picture, control_plane=replace(picture.control_plane, **fields)))
    assert not decision.status


def test_a_newer_request_waits_until_the_older_one_has_ended() -> None:
    place = World(asked())
    place.look()
    place.look()
    place.picture = with_spec(place.picture, etcdSnapshotCreate={"generation": 2})
    started = 0
    for _ in range(60):
        decision = place.look()
        started += decision.status.get("etcdSnapshotCreate") == {"generation": 2}
        place.act()
    assert started == 1 and phase(place.picture) == "Finished"
    assert place.picture.control_plane.etcd_snapshot_create == {"generation": 2}


def test_a_member_that_fails_is_tried_three_times_and_named() -> None:
    place = World(asked(), failing={"b": 99})
    place.seconds = 30
    until(place, "Failed")
    status, message = verdict(place.picture)
    assert status == "False" and message.startswith("b: (3 times") and message.endswith("saved on a,c")
    place.failing = {}
    for _ in range(40):
        place.act()
        place.picture = heard(place.picture)
        decision = place.look()
    assert decision.applied and not with_tasks(place.picture) and phase(place.picture) == "Failed"


def test_after_a_failure_the_next_request_begins_with_the_normal_plans() -> None:
    place = World(asked(("a", "ec"), ("b", "ec"), ("c", "ec"), ("w", "w")), failing={"b": 3, "c": 3})
    place.seconds = 30
    until(place, "Failed")
    place.picture = with_spec(place.picture, etcdSnapshotCreate={"generation": 2})
    seen: list[str] = []
    while phase(place.picture) != "Started":
        decision = place.look()
        seen.extend(wait.evidence for wait in decision.waits)
        place.act()
        place.picture = heard(place.picture)
    assert any(text.startswith("taking a snapshot of etcd: waiting until") for text in seen)
    place.seconds = 5
    until(place, "Finished")
    assert verdict(place.picture) == ("True", "saved on a,b,c")


def test_a_member_that_is_down_takes_no_part_and_is_named() -> None:
    picture = with_machine(asked(), "b", lambda m: replace(m, failing="NodeHealthy: Node is gone"))
    place = World(picture, dead={"b"})
    until(place, "RestartCluster")
    assert verdict(place.picture) == ("True", "saved on a,c; b: not up")


def test_a_member_that_dies_meanwhile_is_given_up_after_a_while() -> None:
    place = World(asked())
    place.look()
    place.look()
    place.dead, place.seconds = {"b"}, 30
    seen = until(place, "RestartCluster")
    assert any("on b" in text for text in seen)
    assert verdict(place.picture) == ("True", "saved on a,c; b: no answer")


def test_members_that_all_die_meanwhile_are_given_up_too() -> None:
    place = World(asked())
    place.look()
    place.look()
    place.dead, place.seconds = {"a", "b", "c"}, 60
    until(place, "Failed")
    assert verdict(place.picture) == ("False", "a: no answer; b: no answer; c: no answer")


def test_a_pause_is_no_silence() -> None:
    place = World(asked())
    place.look()
    assert place.picture.cluster is not None
    place.picture = replace(place.picture, cluster=replace(place.picture.cluster, paused=True))
    place.picture = replace(place.picture, now=place.picture.now + 3600)
    place.look()
    assert phase(place.picture) == "Started"
    place.picture = replace(place.picture, cluster=Cluster("demo", infrastructure_provisioned=True))
    until(place, "Finished")


@pytest.mark.parametrize("seconds", [0, 2000])
def test_a_host_of_which_nothing_was_heard_for_long_before_gets_its_time(seconds: float) -> None:
    """The time of a plan counts from the request on, however old the plan before it was."""
    picture = asked()
    place = World(replace(picture, now=picture.now + seconds))
    place.look()
    for _ in range(3):
        assert phase(place.picture) == "Started"
        place.look()
    until(place, "Finished")


# --- a restore that is requested meanwhile ---------------------------------------------------------------------------------


def with_restore(picture: ClusterSnapshot) -> ClusterSnapshot:
    return with_spec(picture, etcdSnapshotRestore={"name": "snap", "generation": 1, "restoreRKEConfig": "none"})


def restoring(picture: ClusterSnapshot) -> str:
    return picture.control_plane.etcd_snapshot_restore_phase


def test_a_restore_waits_for_members_that_still_save() -> None:
    place = World(with_restore(asked()))
    place.look()
    for _ in range(2):
        decision = place.look()
        assert "etcdSnapshotRestore: waiting for etcdSnapshotCreate to end" in [wait.evidence for wait in decision.waits]
        assert not restoring(place.picture)


def test_a_restore_does_not_wait_for_members_that_are_dead() -> None:
    place = World(asked())
    place.look()
    place.look()
    place.dead, place.seconds = {"a", "b", "c"}, 120
    place.picture = with_restore(place.picture)
    for _ in range(12):
        place.look()
        place.act()
    assert verdict(place.picture) == ("False", "a: no answer; b: no answer; c: no answer") and restoring(place.picture)


def test_a_restore_does_not_wait_for_the_normal_plans_of_members_that_are_dead() -> None:
    place = World(asked())
    until(place, "RestartCluster")
    place.dead, place.seconds = {"a", "b", "c"}, 120
    place.picture = with_restore(place.picture)
    for _ in range(12):
        place.look()
        place.act()
    assert phase(place.picture) == "Finished" and verdict(place.picture)[0] == "True"
    assert restoring(place.picture)


def test_without_any_member_that_is_up_it_fails_and_says_so() -> None:
    picture = with_machine(asked(("a", "ecw")), "a", lambda m: replace(m, failing="NodeHealthy: Node is gone"))
    place = World(picture, dead={"a"})
    until(place, "Failed")
    assert verdict(place.picture) == ("False", "no member of etcd is up")


def test_a_pause_holds_it_between_the_plans_and_keeps_its_phase() -> None:
    place = World(asked())
    place.look()
    assert place.picture.cluster is not None
    place.picture = replace(place.picture, cluster=replace(place.picture.cluster, paused=True))
    for _ in range(5):
        decision = place.look()
        assert not written(decision) and phase(place.picture) == "Started"
        assert decision.waits[0].code is Code.PAUSED and decision.waits[0].actor is Actor.USER
        place.act()
    assert place.picture.cluster is not None
    place.picture = replace(place.picture, cluster=Cluster("demo", infrastructure_provisioned=True))
    until(place, "Finished")


def test_an_upgrade_right_after_it_still_drains() -> None:
    strategy = {"controlPlaneDrainOptions": {"enabled": True}, "workerDrainOptions": {"enabled": True}}
    place = World(asked(upgradeStrategy=strategy))
    until(place, "RestartCluster")
    picture = with_spec(place.picture, kubernetesVersion=NEXT)
    decision = decide(heard(picture))
    assert not written(decision) and well_known.DRAIN_OPTIONS in decision.secrets["a"].annotations


def test_the_wait_names_the_machine_that_is_waited_for() -> None:
    place = World(asked(), dead={"c"})
    for _ in range(8):
        decision = place.look()
        place.act()
    first = decision.waits[0]
    assert (first.code, first.on and first.on.name) == (Code.PLAN, "c")
    assert first.evidence == "taking a snapshot of etcd on c: waiting for plan to be applied"
    reconciled = named(place.picture, "c").reconciled
    assert reconciled is not None and reconciled.message == "taking a snapshot of etcd: waiting for plan to be applied"


def test_a_removed_member_that_is_in_no_plan_yet_is_no_reason_to_wait() -> None:
    picture = with_machine(asked(), "b", lambda m: with_node(m, None))
    decision = decide(applied(picture, decide(picture)))
    assert written(decision) == {"a", "c"}


def test_the_time_of_the_request_is_noted_with_the_plan() -> None:
    picture = asked()
    decision = decide(applied(picture, decide(picture)))
    notes = decision.secrets["b"].annotations
    assert notes[well_known.PLAN_UPDATED] == rfc3339(picture.now)
    assert decision.secrets["b"].max_failures == decision.secrets["b"].failure_threshold == 3
