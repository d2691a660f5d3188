"""New certificates for machines in turns: healthy ones, and ones whose certificates have expired."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from remuda.kube.waits import Actor, Code
from remuda.provisioning import well_known
from remuda.provisioning.planner.snapshot import Cluster, ClusterSnapshot, Condition, Machine
from remuda.provisioning.plans.plan import Plan

from ..world import NOW, World, applied, decide, heard, machine, named, running, with_machine, with_node, with_spec, written

# By name in another order than that of their turns.
MEMBERS = (("m1", "ec"), ("m2", "ec"), ("m3", "ec"), ("a", "e"), ("b", "e"), ("c", "c"), ("d", "w"), ("e", "w"))
TURNS = ["a", "b", "m1", "m2", "m3", "c", "d", "e"]


def asked(*members: tuple[str, str], generation: int = 1, services: tuple[str, ...] = (), **spec: Any) -> ClusterSnapshot:
    request: dict[str, Any] = {"generation": generation}
    if services:
        request["services"] = list(services)
    return running(*(members or MEMBERS), spec={"rotateCertificates": request, **spec})


def rotates(plan: Plan) -> bool:
    return plan.instructions[0].name == "RotateCertificates"


def rotating(picture: ClusterSnapshot) -> list[str]:
    return [each.name for each in picture.machines if each.node and rotates(each.node.plan)]


def is_settled(each: Machine) -> bool:
    return each.node is not None and each.node.in_sync and all(each.node.probes.values())


def result(picture: ClusterSnapshot) -> Condition:
    found = picture.control_plane.condition("CertificatesRotated")
    assert found is not None
    return found


def generation(picture: ClusterSnapshot) -> int:
    return picture.control_plane.certificate_rotation_generation


@dataclass
class Turns(World):
    """Records the order in which machines get the plan, and that all others are well at that moment."""

    def run(self, steps: int = 200, wanted: int = 1, *, hear: bool = True) -> list[str]:
        order: list[str] = []
        for _ in range(steps):
            if hear:
                self.picture = heard(self.picture)
            unsettled = {each.name for each in self.picture.machines if each.secret and not is_settled(each)}
            decision = self.look()
            for name in sorted(written(decision)):
                plan = decision.secrets[name].plan
                assert plan is not None
                if rotates(plan):
                    order.append(name)
                    assert self.stubborn or not unsettled
            if generation(self.picture) == wanted:
                return order
            self.act()
        raise AssertionError((order, decide(self.picture).waits))


def test_machines_rotate_one_by_one_by_their_roles() -> None:
    place = Turns(asked())
    assert place.run() == TURNS
    assert result(place.picture).status == "True" and result(place.picture).message == "generation 1: 8 machines"


def test_afterwards_the_normal_plans_return_with_their_stamps() -> None:
    before = asked()
    plans = {each.name: each.node.plan for each in before.machines if each.node}
    place = Turns(before)
    place.run()
    for _ in range(40):
        place.picture = heard(place.picture)
        decision = place.look()
        place.act()
    assert decision.applied and {each.name: each.node.plan for each in place.picture.machines if each.node} == plans


def test_the_same_generation_rotates_nothing_again_and_the_next_does() -> None:
    place = Turns(asked())
    place.run()
    for _ in range(40):
        place.act()
        place.picture = heard(place.picture)
        place.look()
        assert not rotating(place.picture) or generation(place.picture) == 1
    place.picture = with_spec(place.picture, rotateCertificates={"generation": 2})
    assert place.run(wanted=2) == TURNS


@pytest.mark.parametrize(
    ("services", "turns"),
    [
        (("etcd",), ["a", "b", "m1", "m2", "m3"]),
        (("scheduler",), ["m1", "m2", "m3", "c"]),
        (("kubelet",), TURNS),
        (("kube-proxy",), ["m1", "m2", "m3", "c", "d", "e"]),
        (("nothing",), []),
    ],
)
def test_only_machines_with_the_services_rotate(services: tuple[str, ...], turns: list[str]) -> None:
    assert Turns(asked(services=services)).run() == turns


@pytest.mark.parametrize("fields", [{"initialized": None}, {"initialized": False}])
def test_it_waits_for_a_cluster(fields: dict[str, Any]) -> None:
    picture = asked()
    decision = decide(replace(picture, control_plane=replace(picture.control_plane, **fields)))
    assert "CertificatesRotated" not in {condition.type for condition in decision.conditions}


def test_new_and_deleted_machines_take_no_part() -> None:
    picture = with_machine(asked(), "e", lambda each: replace(each, deleted_at=NOW))
    picture = replace(picture, machines=(*picture.machines, machine("f", "w")))
    assert Turns(with_machine(picture, "f", lambda each: replace(each, secret=None))).run() == TURNS[:-1]


def test_no_member_restarts_while_another_one_is_down() -> None:
    picture = with_machine(asked(("a", "ec"), ("b", "ec"), ("c", "ec"), ("w", "w")), "c", lambda m: replace(m, failing="gone"))
    place = World(picture)
    for _ in range(20):
        place.picture = heard(place.picture)
        decision = place.look()
        place.act()
    assert not rotating(place.picture)
    assert decision.waits[0].code is Code.QUORUM and decision.waits[0].actor is Actor.USER
    assert decision.waits[0].evidence.startswith("rotating certificates on a: etcd would lose its quorum, since c")


def test_members_are_asked_for_a_sign_of_life_first() -> None:
    place = World(replace(asked(("a", "ec"), ("b", "ec"), ("c", "ec"), ("w", "w")), now=1_800_001_000.0))
    place.look()
    decision = place.look()
    assert not written(decision) and {name for name, change in decision.secrets.items() if change.ask} == {"b", "c"}
    assert "waiting for an answer of b,c" in decision.waits[0].evidence


def expired(*members: tuple[str, str]) -> ClusterSnapshot:
    """Hosts were switched on after two years: agents answer, and no service works."""
    picture = asked(*members)
    bad = []
    for each in picture.machines:
        assert each.node is not None
        node = replace(each.node, probes=dict.fromkeys(each.node.plan.probes, False), healthy=False)
        bad.append(replace(with_node(each, node), failing="NodeHealthy: no answer"))
    plane = replace(picture.control_plane, agent_connected=False, conditions=picture.control_plane.conditions)
    return replace(picture, machines=tuple(bad), control_plane=plane)


@dataclass
class Expired(Turns):
    """Services of a cluster work a while after a majority of etcd and a control plane have new certificates."""

    starting: int = 3

    def act(self) -> None:
        super().act()
        fresh = [each.name for each in self.picture.machines if each.node and each.node.in_sync and rotates(each.node.plan)]
        members = [each for each in self.picture.machines if each.is_etcd]
        etcd = sum(each.name in fresh for each in members) > len(members) // 2
        self.starting -= etcd and any(each.is_control_plane and each.name in fresh for each in self.picture.machines)
        healed = []
        for each in self.picture.machines:
            assert each.node is not None
            works = self.starting <= 0 and each.name in fresh
            node = replace(each.node, probes=dict.fromkeys(each.node.plan.probes, works), healthy=works)
            healed.append(replace(with_node(each, node), failing="" if works else each.failing))
        self.picture = replace(self.picture, machines=tuple(healed))


def test_a_member_without_probes_rotates_though_it_looks_like_the_last_one() -> None:
    """An etcd-only k3s host has none: its report is good whatever its service does."""
    picture = expired(("a", "e"), ("b", "ec"), ("c", "ec"), ("w", "w"))

    def without_probes(each: Machine) -> Machine:
        assert each.node is not None
        return replace(with_node(each, replace(each.node, healthy=True, probes={}, plan=_bare(each.node.plan))), failing="")

    place = World(with_machine(picture, "a", without_probes))
    for _ in range(3):
        place.picture = heard(place.picture)
        place.look()
    assert rotating(place.picture) == ["a"]
    connected = replace(place.picture.control_plane, agent_connected=True, conditions=picture.control_plane.conditions)
    place = World(replace(with_machine(picture, "a", without_probes), control_plane=connected))
    for _ in range(3):
        place.picture = heard(place.picture)
        decision = place.look()
    assert not rotating(place.picture) and decision.waits[0].code is Code.QUORUM


def _bare(plan: Plan) -> Plan:
    return Plan(plan.files, plan.instructions)


@pytest.mark.parametrize(
    "members",
    [
        (("a", "ecw"), ("b", "ecw"), ("c", "ecw"), ("w", "w")),
        (("a", "e"), ("b", "e"), ("c", "e"), ("p", "c"), ("q", "c"), ("w", "w")),
        (("a", "ecw"), ("w", "w")),
    ],
)
def test_expired_certificates_are_rotated_though_nothing_works(members: tuple[tuple[str, str], ...]) -> None:
    place = Expired(expired(*members), stubborn=True)
    assert place.run() == [name for name, _ in members]
    assert not any(each.failing for each in place.picture.machines)


def test_an_expired_cluster_that_works_again_waits_for_each_machine() -> None:
    """With two of three members done there is an API, so that the third waits for their probes."""
    place = Expired(expired(("a", "ec"), ("b", "ec"), ("c", "ec"), ("w", "w")), stubborn=True)
    seen: list[str] = []
    while "c" not in rotating(place.picture):
        place.picture = heard(place.picture)
        seen.extend(wait.evidence for wait in place.look().waits[:1])
        place.act()
    assert is_settled(named(place.picture, "a")) and is_settled(named(place.picture, "b"))
    assert any("waiting for probes" in text for text in seen)


def test_a_failing_machine_is_tried_again_and_holds_the_others() -> None:
    place = Turns(asked(("a", "ec"), ("b", "e"), ("w", "w")), failing={"a": 3})
    place.seconds = 60
    assert place.run() == ["b", "a", "w"]
    assert place.failing == {"a": 0}


def test_a_silent_worker_is_left_out_after_a_while() -> None:
    place = World(asked(("a", "ec"), ("v", "w"), ("w", "w")), dead={"v"}, seconds=60.0)
    for _ in range(60):
        place.picture = heard(place.picture)
        place.look()
        place.act()
        if generation(place.picture) == 1:
            break
    assert result(place.picture).reason == "Incomplete"
    assert result(place.picture).message == "generation 1: 2 machines; not on v, whose agents do not answer"


def test_a_request_that_is_taken_back_ends_it() -> None:
    place = World(asked())
    for _ in range(4):
        place.picture = heard(place.picture)
        place.look()
        place.act()
    assert rotating(place.picture)
    place.picture = with_spec(place.picture, rotateCertificates=None)
    for _ in range(40):
        place.picture = heard(place.picture)
        decision = place.look()
        place.act()
    assert not rotating(place.picture) and decision.applied
    assert result(place.picture).status == "False" and generation(place.picture) == 0


RESTORE = {"name": "snap", "generation": 1, "restoreRKEConfig": "none"}


@pytest.mark.parametrize("dead", [{"a"}, {"a", "b", "m1"}])
def test_a_restore_waits_for_it_only_while_it_can_go_on(dead: set[str]) -> None:
    place = World(asked())
    for _ in range(4):
        place.picture = heard(place.picture)
        place.look()
        place.act()
    assert rotating(place.picture) == ["a"]
    place.dead, place.seconds = dead, 100
    # Its host has begun with the plan, and is gone.
    node = named(place.picture, "a").node
    assert node is not None
    begun = replace(node, state="in-progress", in_sync=False)
    place.picture = with_machine(place.picture, "a", lambda m: with_node(m, begun))
    place.picture = with_spec(place.picture, etcdSnapshotRestore=RESTORE)
    for number in range(12):
        decision = place.look()
        place.act()
        if number < 8:
            assert "etcdSnapshotRestore: waiting for rotateCertificates to end" in [wait.evidence for wait in decision.waits]
    assert result(place.picture) == replace(
        result(place.picture), status="False", reason="Stopped", message="given up for etcdSnapshotRestore"
    )
    assert place.picture.control_plane.etcd_snapshot_restore_phase and generation(place.picture) == 0


def test_a_pause_holds_it_between_machines() -> None:
    place = World(asked())
    for _ in range(2):
        place.picture = heard(place.picture)
        place.look()
    begun = rotating(place.picture)
    assert begun == ["a"]
    place.picture = replace(place.picture, cluster=Cluster("demo", infrastructure_provisioned=True, paused=True))
    for _ in range(10):
        place.picture = heard(place.picture)
        decision = place.look()
        place.act()
    assert rotating(place.picture) == begun and decision.waits[0].code is Code.PAUSED
    place.picture = replace(place.picture, cluster=Cluster("demo", infrastructure_provisioned=True))
    assert Turns(place.picture).run() == TURNS[1:]


def test_it_brings_no_other_configuration() -> None:
    """A change of the spec comes by its own plan, with its drains: not by this restart."""
    picture = asked(felt="new")
    config = {each.name: each.node.plan.files for each in picture.machines if each.node}
    place = World(with_spec(picture, kubernetesVersion="v1.35.0+k3s1"))
    place.look()
    place.picture = heard(place.picture)
    plan = place.look().secrets["a"].plan
    assert plan is not None and plan.files == config["a"]


def test_it_begins_after_a_drain() -> None:
    drained = {well_known.DRAIN_OPTIONS: "{}", well_known.DRAIN_DONE: "{}"}
    picture = with_machine(asked(), "d", lambda each: each.with_plan_metadata({}, dict(drained)))
    decision = decide(picture)
    assert "rotating certificates: waiting until d is uncordoned" in [wait.evidence for wait in decision.waits]
    assert not any(condition.type == "CertificatesRotated" for condition in decision.conditions)


def test_a_snapshot_waits_for_the_rotation() -> None:
    place = World(asked())
    place.look()
    place.picture = with_spec(place.picture, etcdSnapshotCreate={"generation": 1})
    place.picture = heard(place.picture)
    decision = place.look()
    assert not decision.status
    assert "etcdSnapshotCreate: waiting for rotateCertificates to end" in [wait.evidence for wait in decision.waits]


def test_the_order_of_machines_in_the_snapshot_changes_nothing() -> None:
    picture = applied(asked(), decide(asked()))
    shuffled = replace(picture, machines=tuple(reversed(picture.machines)))
    assert decide(picture) == decide(shuffled)
