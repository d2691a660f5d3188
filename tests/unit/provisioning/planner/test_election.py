"""Who is the init node, and what becomes of the mark when machines come and go."""

from __future__ import annotations

from dataclasses import replace

from remuda.kube.waits import Code
from remuda.provisioning import well_known
from remuda.provisioning import well_known as keys
from remuda.provisioning.planner.election import elect
from remuda.provisioning.planner.snapshot import ClusterSnapshot, Condition, Machine, PlanNode
from remuda.provisioning.plans.plan import Plan

from .world import NOW, applied, decide, machine, named, running, snapshot, url, with_machine, with_node, written

MARK = {well_known.INIT_NODE: "true"}


def elected(picture: ClusterSnapshot) -> tuple[str | None, list[tuple[str, str | None]]]:
    result = elect(picture, picture.by_name())
    return result.init and result.init.name, [(member.name, mark) for member, mark in result.marks]


def going(member: Machine) -> Machine:
    return replace(member, deleted_at=NOW)


def test_the_first_etcd_machine_by_name_begins_a_cluster() -> None:
    assert elected(snapshot(machine("b"), machine("a", "cw"), machine("c"))) == ("b", [("b", "true")])


def test_a_mark_is_written_alone_and_plans_come_with_the_next_look() -> None:
    picture = snapshot(machine("a"))
    first = decide(picture)
    assert not written(first) and first.waits[0].evidence == "electing a as init node"
    assert written(decide(applied(picture, first))) == {"a"}


def test_a_marked_machine_stays_it() -> None:
    assert elected(snapshot(machine("a"), machine("b", marks=MARK))) == ("b", [])


def test_of_two_marked_ones_only_one_stays_so() -> None:
    assert elected(snapshot(machine("a", marks=MARK), machine("b", marks=MARK))) == ("a", [("b", None)])


def test_failed_machines_and_those_without_infrastructure_are_passed_over() -> None:
    lost = replace(machine("b"), infrastructure_ready=False)
    assert elected(snapshot(replace(machine("a"), phase="Failed"), lost, machine("c"))) == ("c", [("c", "true")])
    decision = decide(snapshot(lost))
    assert decision.waits[0].code is Code.INIT_NODE
    assert decision.waits[0].evidence == "waiting for viable init node (b: infrastructure not ready)"


def test_a_successor_is_one_that_has_joined() -> None:
    picture = with_machine(running(("a", "ecw"), ("b", "ecw"), ("c", "ecw")), "a", going)
    picture = with_machine(picture, "b", lambda m: m.with_plan_metadata({}, {well_known.JOIN_URL: None}))
    assert elected(picture) == ("c", [("a", None), ("c", "true")])


def test_an_init_node_that_goes_stays_the_one_to_join_until_there_is_a_successor() -> None:
    picture = with_machine(running(("a", "ecw")), "a", going)
    picture = replace(picture, machines=(*picture.machines, machine("b")))
    assert elected(picture) == ("a", [])
    decision = decide(picture)
    assert written(decision) == {"b"}
    assert decision.secrets["b"].annotations[well_known.JOINED_TO] == url("a")


def test_infrastructure_that_flickers_moves_no_mark() -> None:
    picture = running(("a", "ecw"), ("b", "ecw"))
    assert elected(with_machine(picture, "a", lambda m: replace(m, infrastructure_ready=False))) == ("a", [])


def test_a_mark_lost_between_two_writes_is_given_back_to_the_machine_that_began() -> None:
    begun = machine("b", notes={well_known.JOINED_TO: ""})
    begun = with_node(begun, named(running(("b", "ecw")), "b").node)
    assert elected(snapshot(machine("a"), begun)) == ("b", [("b", "true")])


def test_nobody_begins_a_second_cluster() -> None:
    picture = with_machine(running(("a", "ecw"), ("b", "ecw")), "a", going)
    alone = replace(picture, machines=(with_node(machine("c"), named(picture, "b").node),))
    decision = decide(alone)
    assert decision.waits[0].code is Code.INIT_NODE
    assert decision.waits[0].evidence == "waiting for viable init node (c: has not joined)"
    assert not written(decision)


def test_an_outdated_machine_that_no_host_came_for_makes_room_for_a_current_one() -> None:
    told = replace(
        with_node(machine("a", marks=MARK, notes={well_known.JOINED_TO: ""}), PlanNode(Plan(), state="pending")), outdated=True
    )
    assert elected(snapshot(told)) == ("a", []), "there is nobody else yet"
    assert elected(snapshot(told, replace(machine("b"), outdated=True))) == ("a", [])
    coming = replace(machine("b"), infrastructure_ready=False)
    assert elected(snapshot(told, coming)) == ("a", [])
    assert elected(snapshot(told, machine("b"))) == ("b", [("a", None), ("b", "true")])
    # And stays it, also when the outdated one comes late.
    late = with_node(told.with_plan_metadata({well_known.INIT_NODE: None}, {}), PlanNode(Plan(), state="in-progress"))
    begun = with_node(machine("b", marks=MARK, notes={well_known.JOINED_TO: ""}), PlanNode(Plan(), state="pending"))
    assert elected(snapshot(late, begun)) == ("b", [])


def test_an_outdated_machine_whose_host_is_there_may_be_beginning_the_cluster_and_stays_it() -> None:
    at_work = with_node(machine("a", marks=MARK, notes={well_known.JOINED_TO: ""}), PlanNode(Plan(), state="in-progress"))
    assert elected(snapshot(replace(at_work, outdated=True), machine("b"))) == ("a", [])
    registered = replace(machine("a", marks=MARK), labels={well_known.MACHINE_ID: "id"}, outdated=True)
    assert elected(snapshot(registered, machine("b"))) == ("a", [])
    assert elected(snapshot(going(registered), machine("b"))) == ("b", [("a", None), ("b", "true")])


def test_a_cluster_in_which_there_is_nothing_is_begun_anew_once_the_machine_that_began_it_is_gone() -> None:
    alone = with_node(machine("a", "ec", marks=MARK, notes={well_known.JOINED_TO: ""}), named(running(("a", "ec")), "a").node)
    bootstrapped = (Condition("Bootstrapped", "True"),)
    picture = snapshot(going(alone), machine("b", "ec"), machine("w", "w"), conditions=bootstrapped)
    decision = decide(picture)
    assert not decision.secrets and decision.waits[0].code is Code.DELETION
    assert decision.waits[0].evidence == "a is being deleted; the cluster is begun anew when it is gone"
    picture = replace(picture, machines=picture.machines[1:])
    decision = decide(picture)
    assert decision.secrets["b"].labels == {well_known.INIT_NODE: "true"}
    assert ("Bootstrapped", "False") in {(condition.type, condition.status) for condition in decision.conditions}
    assert written(decide(applied(picture, decision))) == {"b"}


def test_a_cluster_that_anybody_could_have_used_or_joined_is_never_begun_anew() -> None:
    begun = snapshot(machine("b", "ec"), machine("w", "w"), conditions=(Condition("Bootstrapped", "True"),))
    assert begun.cluster is not None
    joined = machine("c", "c", notes={well_known.JOINED_TO: url("a")}, labels={well_known.MACHINE_ID: "id"})
    for picture in (
        replace(begun, control_plane=replace(begun.control_plane, initialized=True)),
        replace(begun, control_plane=replace(begun.control_plane, initialized=False)),
        replace(begun, control_plane=replace(begun.control_plane, agent_connected=True)),
        replace(begun, control_plane=replace(begun.control_plane, applied_spec={})),
        replace(begun, cluster=replace(begun.cluster, was_initialized=True)),
        replace(begun, machines=(*begun.machines, joined)),
        replace(begun, machines=(*begun.machines, machine("n", "c", node_name="n"))),
    ):
        decision = decide(picture)
        assert decision.waits[0].code is Code.RESTORE and not decision.secrets


def test_a_pinned_machine_is_it_whatever_else_holds() -> None:
    picture = running(("a", "ecw"), ("b", "ecw"))
    picture = with_machine(picture, "b", lambda m: replace(m, labels={well_known.MACHINE_ID: "id-b"}))
    pinned = replace(picture.control_plane, labels={keys.INIT_NODE_MACHINE_ID: "id-b"})
    assert elected(replace(picture, control_plane=pinned)) == ("b", [("a", None), ("b", "true")])


def test_without_any_etcd_data_left_only_a_restore_helps() -> None:
    picture = running(("a", "ecw"))
    decision = decide(replace(picture, machines=(machine("z"),)))
    assert decision.waits[0].code is Code.RESTORE
    assert decision.waits[0].evidence.startswith(
        "rkecontrolplane was already initialized but no etcd machines exist that have plans"
    )
    assert ("Stable", "False") in {(condition.type, condition.status) for condition in decision.conditions}


def test_a_dead_init_node_that_is_deleted_does_not_hold_those_who_joined_it() -> None:
    """It waits until nobody has joined it, and the others may not restart while it is a member that is down."""
    dead = with_machine(running(("a", "ec"), ("b", "ec"), ("c", "ec"), ("w", "w")), "a", going)
    dead = with_machine(dead, "a", lambda m: replace(m, non_ready="node does not answer"))
    dead = applied(dead, decide(dead))
    assert [member.name for member in dead.machines if member.is_init] == ["b"]
    decision = decide(dead)
    assert not written(decision) and decision.waits[0].code is Code.QUORUM
    moved = applied(dead, decision)
    assert {member.name: member.joined_to for member in moved.machines if not member.deleting} == {
        "b": "",
        "c": url("b"),
        "w": named(moved, "w").joined_to,
    }
    assert named(moved, "w").joined_to in (url("b"), url("c"))
    assert not decide(moved).secrets
    assert written(decide(replace(moved, machines=moved.machines[1:]))) == {"b"}
