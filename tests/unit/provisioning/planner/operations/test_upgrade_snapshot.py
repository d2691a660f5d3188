"""A snapshot of etcd before an upgrade: the planner takes it when the generated control plane asks, and a failure holds it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remuda.kube.clock import rfc3339
from remuda.kube.waits import Actor, Code
from remuda.provisioning.planner.snapshot import Cluster, ClusterSnapshot, Machine
from remuda.provisioning.well_known import UPGRADE_SNAPSHOT

from ..world import NEXT, VERSION, World, applied, decide, heard, named, running, with_machine, with_node, with_spec, written

MEMBERS = (("a", "ec"), ("b", "ec"), ("c", "ec"), ("w", "w"))
ASKED = f"{VERSION} {NEXT} 5"
NAME = "pre-upgrade-v1.34.1-k3s1"


def asking(picture: ClusterSnapshot, text: str = ASKED) -> ClusterSnapshot:
    return replace(picture, control_plane=replace(picture.control_plane, annotations={UPGRADE_SNAPSHOT: text} if text else {}))


def asked(*members: tuple[str, str], **spec: Any) -> ClusterSnapshot:
    return asking(running(*(members or MEMBERS), spec=spec))


def state(picture: ClusterSnapshot) -> dict[str, Any]:
    return dict(picture.control_plane.upgrade_snapshot or {})


def verdict(picture: ClusterSnapshot) -> tuple[str, str]:
    found = picture.control_plane.condition("UpgradeSnapshotTaken")
    assert found is not None
    return found.status, found.message


def until(place: World, *phases: str, passes: int = 60) -> list[str]:
    """The first waits of all passes until one of the phases is there."""
    seen: list[str] = []
    for _ in range(passes):
        place.picture = heard(place.picture)
        seen.extend(wait.evidence for wait in place.look().waits[:1])
        if state(place.picture).get("phase") in phases:
            return seen
        place.act()
    raise AssertionError(f"{state(place.picture)}: {seen[-5:]}")


def test_all_members_save_under_the_name_of_the_version_and_nothing_restarts() -> None:
    place = World(asked())
    stamps = {member.name: member.node.plan for member in place.picture.machines if member.node}
    seen = until(place, "Finished")
    assert seen[0] == f"taking a snapshot of etcd before the upgrade to {NEXT}: beginning"
    assert seen[1] == f"taking a snapshot of etcd before the upgrade to {NEXT} on a,b,c"
    told = {"request": ASKED, "from": VERSION, "to": NEXT, "name": NAME, "phase": "Finished", "message": "saved on a,b,c"}
    assert state(place.picture) == told and verdict(place.picture) == ("True", "saved on a,b,c")
    for name in "abc":
        node = named(place.picture, name).node
        assert node is not None and NAME in str(node.plan.instructions[-1].args)
    decision = place.look()
    assert not written(decision) and decision.waits[0].evidence.endswith("done, the upgrade begins")
    for _ in range(20):
        place.picture = heard(place.picture)
        place.act()
        decision = place.look()
    assert decision.applied and state(place.picture) == told
    assert {member.name: member.node.plan for member in place.picture.machines if member.node} == stamps


def test_it_is_taken_once_for_a_request_and_stays_known_afterwards() -> None:
    place = World(asked())
    until(place, "Finished")
    place.picture = asking(place.picture, "")
    before = state(place.picture)
    for _ in range(30):
        place.picture = heard(place.picture)
        assert not place.look().status
        place.act()
    assert state(place.picture) == before
    place.picture = asking(place.picture, f"{VERSION} {NEXT} 9")
    until(place, "Finished")
    assert state(place.picture)["request"].endswith(" 9")


def test_a_failure_holds_the_upgrade_and_nothing_else_and_is_tried_again() -> None:
    place = World(asked(), failing={"a": 99, "b": 99, "c": 99}, seconds=30)
    before = {member.name: member.node.plan.instructions[0].env for member in place.picture.machines if member.node}
    until(place, "Failed")
    failed_at = place.picture.now
    assert verdict(place.picture)[1].startswith("a: (3 times")
    place.failing = {}
    place.picture = with_spec(place.picture, felt="another setting")
    for _ in range(12):
        place.picture = heard(place.picture)
        place.act()
        decision = place.look()
    assert not decision.applied and state(place.picture)["phase"] == "Failed"
    (first,) = [wait for wait in decision.waits if wait.code is Code.SNAPSHOT]
    assert first.actor is Actor.USER
    assert first.evidence.startswith(f"the upgrade to {NEXT} waits: the snapshot of etcd before it failed (a: (3 times")
    assert "snapshotBeforeUpgrade to false" in first.evidence
    stamps = {member.name: member.node.plan.instructions[0].env for member in place.picture.machines if member.node}
    assert stamps["a"] != before["a"], "the other change goes on"
    place.seconds = 60
    until(place, "Finished")
    assert place.picture.now - failed_at >= 600


def test_one_copy_is_enough_for_the_way_back() -> None:
    place = World(asked(), failing={"b": 99}, seconds=30)
    until(place, "Finished")
    assert verdict(place.picture)[0] == "True" and "saved on a,c" in verdict(place.picture)[1]


def test_members_that_die_meanwhile_are_given_up() -> None:
    place = World(asked(), seconds=60)
    place.look()
    place.look()
    place.dead = {"a", "b", "c"}
    until(place, "Failed")
    assert verdict(place.picture) == ("False", "a: no answer; b: no answer; c: no answer")


@pytest.mark.parametrize("looks", [0, 1])
def test_members_that_are_just_restarting_are_waited_for(looks: int) -> None:
    place = World(asked())
    for _ in range(looks):
        place.look()
    for name in "abc":
        place.picture = with_machine(place.picture, name, down)
    for _ in range(10):
        decision = decide(place.picture)
        place.picture = applied(place.picture, decision)
    (first,) = [wait for wait in decision.waits if wait.code is Code.SNAPSHOT]
    assert first.actor is Actor.MACHINE and "no member of etcd is up" in first.evidence and not decision.applied
    place.picture = with_machine(place.picture, "b", up)
    before = place.picture.now
    until(place, "Finished")
    assert place.picture.now - before < 600


def down(member: Machine) -> Machine:
    return (
        with_node(member, replace(member.node, healthy=False, probes=dict.fromkeys(member.node.probes, False)))
        if member.node
        else member
    )


def up(member: Machine) -> Machine:
    return (
        with_node(member, replace(member.node, healthy=True, probes=dict.fromkeys(member.node.probes, True)))
        if member.node
        else member
    )


def test_the_request_may_be_taken_back_at_any_time() -> None:
    for looks in range(6):
        place = World(asked())
        for _ in range(looks):
            place.picture = heard(place.picture)
            place.look()
            place.act()
        place.picture = asking(place.picture, "")
        for _ in range(30):
            place.picture = heard(place.picture)
            decision = place.look()
            place.act()
        assert decision.applied and state(place.picture).get("phase") in (None, "Finished")


def test_a_cluster_whose_etcd_is_elsewhere_needs_none() -> None:
    picture = asked(("a", "ec"), ("w", "w"))
    place = World(with_machine(picture, "a", lambda m: replace(m, secret=m.secret and replace(m.secret, labels={}))))
    for _ in range(3):
        place.look()
    assert not written(decide(place.picture))


def test_a_pause_holds_it() -> None:
    place = World(asked())
    place.look()
    assert place.picture.cluster is not None
    place.picture = replace(place.picture, cluster=replace(place.picture.cluster, paused=True))
    for _ in range(5):
        decision = place.look()
        assert not written(decision) and decision.waits[0].code is Code.PAUSED
        place.act()
    place.picture = replace(place.picture, cluster=Cluster("demo", infrastructure_provisioned=True))
    until(place, "Finished")


@pytest.mark.parametrize("other", ["etcdSnapshotCreate", "rotateCertificates"])
def test_one_operation_runs_at_a_time(other: str) -> None:
    place = World(asked(**{other: {"generation": 1}}))
    place.look()
    evidence = [wait.evidence for wait in place.look().waits]
    assert f"{other}: waiting for upgradeSnapshot to end" in evidence


@pytest.mark.parametrize("text", ["", "x", "a b", "a b c d"])
def test_an_annotation_that_is_none_of_ours_asks_for_nothing(text: str) -> None:
    picture = asking(running(*MEMBERS), text)
    assert decide(picture).applied and not decide(picture).status


def test_the_name_has_no_character_that_a_file_may_not_have() -> None:
    place = World(asking(running(*MEMBERS), f"../v1/.34+x$y {NEXT} 5"))
    until(place, "Finished")
    assert state(place.picture)["name"] == "pre-upgrade-..-v1-.34-x-y"


def test_it_does_not_begin_while_there_is_no_cluster() -> None:
    picture = asked()
    bare = replace(picture, control_plane=replace(picture.control_plane, initialized=None), now=picture.now + 1)
    assert "upgradeSnapshot" not in decide(bare).status
    assert rfc3339(bare.now)
