"""A cluster that lost its servers: those that do not answer are replaced, and a restore brings the cluster back."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from remuda.kube.waits import Actor, Code, Wait
from remuda.provisioning import well_known
from remuda.provisioning.etcd.recovery_request import RecoveryRequest
from remuda.provisioning.etcd.stored_snapshots import StoredSnapshot
from remuda.provisioning.planner.decision import Decision
from remuda.provisioning.planner.snapshot import ClusterSnapshot, Machine, Periodic

from ..world import World, applied, decide, machine, named, running, url, with_machine, with_node, with_spec, written
from .test_etcd_snapshot_restore import LOCAL, MEMBERS, S3, Data, phase, task_of

SNAP = RecoveryRequest(1, snapshot="snap")
FORCED = (well_known.ETCD_FORCE_REMOVE, "true")


def asked(request: RecoveryRequest | None, picture: ClusterSnapshot, stored: StoredSnapshot | None = S3) -> ClusterSnapshot:
    annotations = {key: said for key, said in picture.control_plane.annotations.items() if key != well_known.RECOVER}
    annotations |= {well_known.RECOVER: request.text()} if request else {}
    return replace(picture, control_plane=replace(picture.control_plane, annotations=annotations), surveyed=stored, stored=stored)


def custom(*members: tuple[str, str], **spec: Any) -> ClusterSnapshot:
    picture = running(*(members or MEMBERS), spec=spec)
    return replace(picture, machines=tuple(replace(each, infrastructure_kind="CustomMachine") for each in picture.machines))


@dataclass
class Ranch(World):
    """A world in which Cluster API lets machines go and the graph's controller requests restores. `pools` makes a new machine for
    each deleted one. `deleted` are the names of those that the planner has deleted."""

    pools: bool = False
    deleted: list[str] = field(default_factory=list)
    answering: list[str] = field(default_factory=list)
    data: Data = field(default_factory=Data)

    def look(self) -> Decision:
        decision = decide(self.picture)
        self._written(decision)
        return decision

    def _written(self, decision: Decision) -> None:
        for name, change in decision.machines.items():
            if change.delete:
                self.deleted.append(name)
                self.answering += [] if name in self.dead else [name]
        self.picture = applied(self.picture, decision)

    def act(self) -> None:
        super().act()
        self._let_go()
        self._request()

    def _acted(self, member: Machine) -> Machine:
        """A member without an API reports its own address."""
        member = super()._acted(member)
        if member.node is None or member.node.state != "succeeded" or not member.is_only_etcd:
            return member
        members = [{"name": member.name, "clientURLs": [url(member.name).replace("9345", "2379")]}]
        printed = {"capture-address": Periodic(json.dumps({"members": members})), "etcd-name": Periodic(member.name)}
        return with_node(member, replace(member.node, periodic=printed))

    def _let_go(self) -> None:
        cluster = self.picture.cluster
        if cluster is None or cluster.paused:
            return
        kept: list[Machine] = []
        for each in self.picture.machines:
            if not (each.deleting and (not each.is_etcd or FORCED in each.bootstrap_annotations.items())):
                kept.append(each)
                continue
            self.data.of.pop(each.name, None)
            self.data.up.discard(each.name)
            self.dead.discard(each.name)
            if self.pools:
                kept.append(machine(f"{each.name}n", _letters(each), infrastructure_kind="PaperMachine"))
        self.picture = replace(self.picture, machines=tuple(kept))

    def register(self, name: str, roles: str) -> None:
        fresh = machine(name, roles, infrastructure_kind="CustomMachine")
        self.picture = replace(self.picture, machines=(*self.picture.machines, fresh))

    def _request(self) -> None:
        plane = self.picture.control_plane
        said = plane.annotations.get(well_known.RECOVER, "")
        if plane.recover_phase != "Restoring" or not said or plane.annotations.get(well_known.RECOVERED) == said:
            return
        state = plane.recover or {}
        request = RecoveryRequest(state["generation"], state.get("snapshot", ""), state.get("machine", ""))
        if request.text() != said:
            return
        generation = 1 + int((plane.spec.get("etcdSnapshotRestore") or {}).get("generation") or 0)
        spec = {**plane.spec, "etcdSnapshotRestore": request.restore(generation)}
        annotations = {**plane.annotations, well_known.RECOVERED: said}
        self.picture = replace(self.picture, control_plane=replace(plane, spec=spec, annotations=annotations))


def _letters(each: Machine) -> str:
    has = {"e": each.is_etcd, "c": each.is_control_plane, "w": each.is_worker}
    return "".join(letter for letter, is_set in has.items() if is_set)


def ranch(picture: ClusterSnapshot, **fields: Any) -> Ranch:
    data = Data.of_cluster(picture)
    found = Ranch(picture, on_applied=data.apply, data=data, **fields)
    data.up -= found.dead
    return found


def stage(place: Ranch) -> str:
    return place.picture.control_plane.recover_phase


def until(place: Ranch, *wanted: str, passes: int = 300) -> list[Wait]:
    """The first waits of all passes until one of the phases is there."""
    seen: list[Wait] = []
    for _ in range(passes):
        decision = place.look()
        seen.extend(decision.waits[:1])
        if stage(place) in wanted:
            return seen
        place.act()
    raise AssertionError(f"{stage(place)}: {[wait.evidence for wait in seen[-5:]]}")


def until_says(place: Ranch, text: str, passes: int = 100) -> Wait:
    for _ in range(passes):
        for wait in place.look().waits[:1]:
            if text in wait.evidence:
                return wait
        place.act()
    raise AssertionError([wait.evidence for wait in place.look().waits])


def until_applied(place: Ranch) -> None:
    for _ in range(120):
        if place.look().applied:
            return
        place.act()
    raise AssertionError(place.look().waits)


def verdict(place: Ranch) -> tuple[str, str]:
    found = place.picture.control_plane.condition("ClusterRecovered")
    assert found is not None
    return found.status, found.message


def lost_all(**fields: Any) -> Ranch:
    return ranch(asked(SNAP, custom()), dead={"a", "b", "c"}, **fields)


# --- the whole way --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "members",
    [
        (("a", "ec"), ("w", "w")),
        MEMBERS,
        tuple((name, "ecw") for name in "abcde"),
        (("a", "e"), ("b", "e"), ("c", "e"), ("d", "c"), ("w", "w")),
    ],
    ids=["one", "three", "five for all", "split"],
)
def test_pools_replace_all_servers_and_workers_stay(members: tuple[tuple[str, str], ...]) -> None:
    servers = {name for name, roles in members if roles != "w"}
    place = ranch(asked(SNAP, running(*members)), dead=set(servers), pools=True)
    seen: list[str] = []
    for _ in range(300):
        place.look()
        seen += [stage(place)] if stage(place) not in seen[-1:] else []
        if seen[-1] == "Finished":
            break
        place.act()
    assert seen == ["Survey", "Machines", "Hosts", "Restoring", "Finished"]
    assert verdict(place) == ("True", "recovered from snap")
    until_applied(place)
    assert sorted(place.deleted) == sorted(servers) and place.answering == []
    workers = {name for name, roles in members if roles == "w"}
    assert {each.name for each in place.picture.machines} == {f"{name}n" for name in servers} | workers
    assert place.data.wrong == [] and place.data.up == {each.name for each in place.picture.machines}
    assert len(place.data.restored_on) == 1
    assert not place.picture.control_plane.spec["etcdSnapshotRestore"].get("fromMachine")


def test_hosts_are_waited_for_by_number_and_role_and_one_is_enough() -> None:
    place = lost_all()
    wait = until_says(place, "waiting for hosts")
    assert wait.evidence == (
        "recovering (Hosts): waiting for hosts to be registered: 0 of 3 with etcd,controlplane (missing: etcd, control plane); "
        "on each, run what remuda cluster registration-command demo prints"
    )
    assert (wait.code, wait.actor) == (Code.ROLES, Actor.USER)
    place.register("e", "e")
    assert "0 of 3 with etcd,controlplane (missing: control plane)" in until_says(place, "waiting for hosts").evidence
    place.register("x", "ec")
    until(place, "Finished")
    until_applied(place)
    assert place.data.wrong == [] and place.data.up == {"e", "x", "w"}
    place.register("y", "ec")
    until_applied(place)
    assert place.data.up == {"e", "x", "y", "w"} and place.data.wrong == []


def test_machines_of_pools_are_waited_for_by_number() -> None:
    place = ranch(asked(SNAP, running(*MEMBERS)), dead={"a", "b", "c"})
    wait = until_says(place, "waiting for machines of the pools")
    assert "0 of 3 with etcd,controlplane (missing: etcd, control plane)" in wait.evidence
    assert (wait.code, wait.actor) == (Code.PROVISIONING, Actor.PROVIDER)


def test_workers_are_not_stopped() -> None:
    place = ranch(asked(SNAP, running(*MEMBERS)), dead={"a", "b", "c"}, pools=True)
    until(place, "Restoring")
    while stage(place) == "Restoring":
        assert "StopForRestore" not in task_of(named(place.picture, "w"))
        place.look()
        place.act()
    assert stage(place) == "Finished" and place.data.wrong == []


@pytest.mark.parametrize("alive", [("b",), ("a", "b")])
def test_a_server_that_is_left_begins_with_its_own_data(alive: tuple[str, ...]) -> None:
    place = ranch(asked(RecoveryRequest(1, machine="b"), custom(), None), dead={"a", "b", "c"} - set(alive))
    until(place, "Finished")
    until_applied(place)
    assert place.answering == [] and set(place.deleted) == {"a", "b", "c"} - set(alive)
    assert place.data.restored_on == ["b"] and place.data.wrong == []
    assert [each.name for each in place.picture.machines if each.is_init] == ["b"]
    assert verdict(place) == ("True", "recovered from machine b")


# --- the survey -----------------------------------------------------------------------------------------------------------


def test_nothing_is_deleted_before_all_servers_had_a_minute_to_answer() -> None:
    place = lost_all()
    seen = until(place, "Machines")
    assert seen[0].evidence == "recovering from snap: beginning"
    assert any(wait.evidence == "recovering (Survey): waiting for an answer of a,b,c" for wait in seen)
    assert place.deleted == [] and place.picture.now - 1_800_000_000 > 60
    assert place.picture.control_plane.recover is not None
    assert place.picture.control_plane.recover["lost"] == [{"name": name, "roles": "etcd,controlplane"} for name in "abc"]


def test_a_server_that_answers_after_all_is_kept() -> None:
    place = lost_all()
    until(place, "Machines")
    place.dead.discard("b")
    place.act()
    place.look()
    assert "b" not in place.deleted and set(place.deleted) <= {"a", "c"}
    until(place, "Finished")
    until_applied(place)
    assert place.answering == [] and {each.name for each in place.picture.machines} == {"b", "w"}
    assert place.data.wrong == []


def test_an_agent_at_work_is_given_more_time() -> None:
    place = lost_all()
    for name in "abc":
        place.picture = with_machine(
            place.picture,
            name,
            lambda each: with_node(
                each, replace(each.node, state="in-progress", in_sync=False) if each.node else None
            ).with_plan_metadata({}, {well_known.PLAN_UPDATED: "2027-01-15T07:55:00Z"}),
        )
    for _ in range(60):
        place.look()
        place.act()
    assert stage(place) == "Survey" and place.deleted == []
    until(place, "Machines")


@pytest.mark.parametrize(
    ("request_", "stored", "why"),
    [
        (SNAP, None, "there is no ETCDSnapshot snap: choose one that is listed (remuda snapshot ls), or import one"),
        (SNAP, replace(S3, cluster="other"), "there is no ETCDSnapshot snap of this cluster"),
        (SNAP, LOCAL, "machine b, the only one with the file, does not answer: repair its host, choose a snapshot in a bucket"),
        (SNAP, replace(LOCAL, machine="z"), "machine z, the only one with the file, is gone: choose a snapshot in a bucket"),
        (RecoveryRequest(1, machine="a"), None, "machine a does not answer"),
        (RecoveryRequest(1, machine="z"), None, "machine z is gone"),
        (RecoveryRequest(1, machine="w"), None, "machine w can't begin: no etcd role"),
    ],
)
def test_what_can_not_succeed_is_refused_before_anything_is_deleted(
    request_: RecoveryRequest, stored: StoredSnapshot | None, why: str
) -> None:
    place = ranch(asked(request_, custom(), stored), dead={"a", "b", "c"})
    until(place, "Failed")
    status, text = verdict(place)
    assert status == "False" and text.startswith(f"Survey: {why}") and text.endswith("(remuda cluster recover)")
    assert place.deleted == [] and not place.picture.control_plane.spec.get("etcdSnapshotRestore")


def test_lost_tokens_are_said_and_never_made_anew() -> None:
    place = lost_all()
    place.picture = replace(place.picture, tokens=None)
    until(place, "Failed")
    assert "restore this server's backup" in verdict(place)[1] and place.deleted == []


def test_a_cluster_that_was_never_up_is_not_recovered_not_even_later() -> None:
    picture = asked(SNAP, custom())
    never = replace(picture.control_plane, initialized=None, applied_spec=None)
    place = ranch(replace(picture, control_plane=never))
    until(place, "Failed")
    until_applied(place)
    assert stage(place) == "Failed" and place.deleted == []


# --- other requests -------------------------------------------------------------------------------------------------------


def test_a_request_that_is_taken_back_stops_what_has_not_begun() -> None:
    place = lost_all()
    until(place, "Hosts")
    place.picture = asked(None, place.picture)
    place.look()
    assert stage(place) == "" and place.picture.control_plane.recover is None
    assert verdict(place) == ("False", "the request was withdrawn in the phase Hosts")
    assert not place.picture.control_plane.spec.get("etcdSnapshotRestore")


def test_the_same_request_does_nothing_twice_and_another_begins_anew() -> None:
    place = ranch(asked(SNAP, running(*MEMBERS)), dead={"a", "b", "c"}, pools=True)
    until(place, "Finished")
    until_applied(place)
    for _ in range(5):
        assert not written(place.look())
        place.act()
    place.picture = asked(RecoveryRequest(2, snapshot="snap"), place.picture)
    until(place, "Survey")
    until(place, "Finished")
    until_applied(place)
    assert len(place.data.restored_on) == 2 and place.data.wrong == [] and place.answering == []


def test_it_ends_operations_that_wait_for_lost_machines() -> None:
    picture = with_spec(custom(), etcdSnapshotCreate={"generation": 1})
    place = ranch(picture)
    while place.picture.control_plane.etcd_snapshot_create_phase != "Started":
        place.look()
    place.dead = {"a", "b", "c"}
    place.picture = asked(SNAP, place.picture)
    place.register("x", "ec")
    until(place, "Finished")
    until_applied(place)
    assert place.picture.control_plane.etcd_snapshot_create_phase == "Failed"
    assert place.data.wrong == []


def test_a_failed_restore_is_the_result_and_another_request_goes_on_from_there() -> None:
    place = ranch(asked(SNAP, running(*MEMBERS)), dead={"a", "b", "c"}, pools=True)
    until(place, "Restoring")
    while phase(place.picture) != "Restore":
        place.look()
        place.act()
    place.failing = {each.name: 1 for each in place.picture.machines if each.is_init}
    until(place, "Failed")
    assert verdict(place)[1].startswith("Restoring: Restore on ")
    for _ in range(10):
        decision = place.look()
        assert not written(decision) and decision.waits[0].code is Code.RESTORE
        place.act()
    place.picture = asked(RecoveryRequest(2, snapshot="snap"), place.picture)
    until(place, "Finished")
    until_applied(place)
    assert place.data.wrong == [] and len(place.data.restored_on) == 1


def test_hosts_that_die_in_the_middle_are_replaced_by_another_request() -> None:
    place = ranch(asked(SNAP, running(*MEMBERS)), dead={"a", "b", "c"}, pools=True)
    until(place, "Restoring")
    while phase(place.picture) != "Restore":
        place.look()
        place.act()
    (init,) = [each.name for each in place.picture.machines if each.is_init]
    place.dead = {init}
    for _ in range(30):
        wait = place.look().waits[0]
        place.act()
    assert wait.on is not None and wait.on.name == init, "the machine that is waited for is named"
    place.picture = asked(RecoveryRequest(2, snapshot="snap"), place.picture)
    until(place, "Finished", passes=500)
    until_applied(place)
    assert init in place.deleted and place.answering == [] and place.data.wrong == []


def test_data_that_was_given_up_is_not_used() -> None:
    place = ranch(asked(SNAP, custom()), dead={"a", "b"})
    place.register("x", "ec")
    until(place, "Restoring")
    while phase(place.picture) != "Restore":
        place.look()
        place.act()
    place.picture = asked(RecoveryRequest(2, machine="c"), place.picture, None)
    until(place, "Failed")
    assert "machine c has no data of the cluster, or it was given up" in verdict(place)[1]


def test_a_pause_holds_it_between_the_phases() -> None:
    place = lost_all()
    until(place, "Machines")
    place.picture = replace(place.picture, control_plane=replace(place.picture.control_plane, paused=True))
    for _ in range(5):
        decision = place.look()
        assert decision.waits[0].code is Code.PAUSED and not decision.machines and place.deleted == []
        place.act()
    place.picture = replace(place.picture, control_plane=replace(place.picture.control_plane, paused=False))
    until(place, "Hosts")
    assert sorted(place.deleted) == ["a", "b", "c"]


# --- laws -----------------------------------------------------------------------------------------------------------------


def lose_writes(decision: Decision, dice: random.Random) -> Decision:
    """The server is killed after some of its writes, which come in order."""
    kept = dict(list(decision.secrets.items())[: dice.randint(0, len(decision.secrets))])
    machines = dict(list(decision.machines.items())[: dice.randint(0, len(decision.machines))])
    if len(kept) < len(decision.secrets):
        machines = {}
    return replace(decision, secrets=kept, machines=machines, conditions=(), status={}, initialized=None, pause_for=None)


def _change(place: Ranch, generation: int, dice: random.Random) -> int:
    """Another request, or none; its generation."""
    names = [each.name for each in place.picture.machines if each.is_etcd and not each.deleting]
    wanted: list[RecoveryRequest | None] = [None, RecoveryRequest(generation + 1, snapshot="snap")]
    wanted += [RecoveryRequest(generation + 1, machine=dice.choice(names))] if names else []
    place.picture = asked(dice.choice(wanted), place.picture)
    return generation + 1


@pytest.mark.parametrize("seed", range(60))
def test_no_fault_deletes_a_living_machine_or_begins_a_second_cluster(seed: int) -> None:
    """Hosts die and come back, writes are lost, requests are changed and taken back: no machine that answers is deleted, there
    are never two init nodes and never two states of etcd; and in the end there is the cluster."""
    dice = random.Random(seed)
    shape = dice.choice([(("a", "ecw"),), MEMBERS, (("a", "e"), ("b", "ec"), ("c", "e"), ("d", "c"), ("w", "w"))])
    servers = [name for name, roles in shape if roles != "w"]
    place = ranch(asked(SNAP, running(*shape)), dead=set(dice.sample(servers, dice.randint(1, len(servers)))), pools=True)
    generation = 1
    for _ in range(200):
        decision = decide(place.picture)
        place._written(lose_writes(decision, dice) if dice.random() < 0.2 else decision)
        assert sum(each.is_init for each in place.picture.machines) <= 1
        trouble, names = dice.random(), [each.name for each in place.picture.machines]
        if trouble < 0.03 and names:
            place.failing[dice.choice(names)] = 1
        elif trouble < 0.05 and names:
            place.dead |= {dice.choice(names)}
        elif trouble < 0.06:
            place.dead = set()
        elif trouble < 0.08:
            generation = _change(place, generation, dice)
        place.act()
        assert place.data.wrong == [] and place.answering == []
    place.dead, place.failing = set(), {}
    place.picture = asked(RecoveryRequest(generation + 1, snapshot="snap"), place.picture)
    until(place, "Finished", passes=600)
    until_applied(place)
    assert place.data.wrong == [] and place.answering == []
    assert len({place.data.of[each.name] for each in place.picture.machines if each.is_etcd}) == 1


def test_every_step_is_decided_again_from_what_was_written() -> None:
    place = ranch(asked(SNAP, running(*MEMBERS)), dead={"a", "b", "c"}, pools=True)
    for _ in range(150):
        assert decide(place.picture) == decide(place.picture)
        place.look()
        place.act()
    assert stage(place) == "Finished"
