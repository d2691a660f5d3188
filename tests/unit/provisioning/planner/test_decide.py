"""The pass as a whole: what comes first, what is said, what becomes of conditions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remuda import __version__
from remuda.capi.well_known import HOLDS_DATA
from remuda.kube.clock import rfc3339
from remuda.kube.waits import Actor, Code
from remuda.provisioning import well_known
from remuda.provisioning import well_known as keys
from remuda.provisioning.planner.decide import RESYNC, plan
from remuda.provisioning.planner.decision import Decision
from remuda.provisioning.planner.snapshot import CannotRender, Cluster, ClusterSnapshot, Condition, Join, Machine, PlanNode
from remuda.provisioning.plans.plan import Plan

from .world import (
    NEXT,
    NOW,
    World,
    applied,
    decide,
    machine,
    named,
    render,
    running,
    snapshot,
    url,
    with_machine,
    with_node,
    with_spec,
    written,
)


def said(decision: Decision) -> dict[str, tuple[str, str, str]]:
    return {c.type: (c.status, c.reason, c.message) for c in decision.conditions}


def going(member: Machine) -> Machine:
    return replace(member, deleted_at=NOW)


@pytest.mark.parametrize(
    ("fields", "code", "actor", "text"),
    [
        ({"cluster": None}, Code.REFERENCE, Actor.REMUDA, "CAPI cluster does not exist"),
        ({"cluster": Cluster("demo")}, Code.PROVISIONING, Actor.PROVIDER, "waiting for infrastructure ready"),
        ({"paused": True}, Code.PAUSED, Actor.USER, "CAPI cluster or RKEControlPlane is paused"),
        ({"cluster": Cluster("demo", paused=True)}, Code.PAUSED, Actor.USER, "CAPI cluster or RKEControlPlane is paused"),
        ({"release_error": "nothing known of v9"}, Code.RELEASE, Actor.USER, "nothing known of v9"),
    ],
)
def test_what_is_around_comes_first(fields: dict[str, object], code: Code, actor: Actor, text: str) -> None:
    decision = decide(snapshot(machine("a"), **fields))
    assert (decision.waits[0].code, decision.waits[0].actor, decision.waits[0].evidence) == (code, actor, text)
    assert said(decision)["Ready"] == ("Unknown", "Waiting", text)
    assert said(decision)["Reconciled"] == ("Unknown", "Waiting", "RKEControlPlane has not been fully reconciled yet")
    assert not decision.secrets and decision.revisit_at == NOW + RESYNC


def test_a_cluster_that_is_deleted_is_left_alone_and_not_held_by_a_pause() -> None:
    leaving = snapshot(machine("a"), cluster=Cluster("demo", deleting=True, paused=True))
    assert decide(leaving) == Decision(unpause_cluster=True)
    assert decide(snapshot(machine("a"), deleting=True)) == Decision()


@pytest.mark.parametrize(
    ("roles", "missing"),
    [
        ([], ""),
        (["ec"], " (missing: worker)"),
        (["cw"], " (missing: etcd)"),
        (["e"], " (missing: control plane, worker)"),
    ],
)
def test_all_roles_must_be_there(roles: list[str], missing: str) -> None:
    decision = decide(snapshot(*(machine(f"m{index}", role) for index, role in enumerate(roles))))
    assert decision.waits[0].code is Code.ROLES
    text = "waiting for at least one control plane, etcd, and worker node to be registered"
    assert decision.waits[0].evidence == f"{text}{missing}"
    assert said(decision)["Stable"] == ("False", "", "")


def test_without_workers_a_control_plane_stays_initialized_and_members_leave_in_order() -> None:
    picture = running(("a", "ec"), ("b", "ec"), ("w", "w"))
    picture = with_machine(with_machine(picture, "w", going), "b", going)
    decision = decide(picture)
    assert decision.initialized is None and not decision.machines


def test_members_are_let_go_only_when_none_stays() -> None:
    meant = {well_known.DELETE_LAST_ETCD: "true"}
    picture = with_machine(running(("a", "ec"), ("w", "w")), "a", lambda m: replace(going(m), annotations=meant))
    initialized = Condition("ControlPlaneInitialized", "True")
    assert picture.cluster is not None
    picture = replace(picture, cluster=replace(picture.cluster, control_plane_initialized=initialized))
    decision = decide(picture)
    assert decision.waits[0].evidence == "waiting for all etcd machines to be deleted"
    assert decision.initialized is False
    assert decision.cluster_condition == Condition("ControlPlaneInitialized", "False", "NotInitialized")
    change = decision.machines["a"]
    assert change.annotations == {keys.EXCLUDE_NODE_DRAINING: "true", keys.EXCLUDE_VOLUME_DETACH: "true"}
    assert change.bootstrap_annotations == {well_known.ETCD_FORCE_REMOVE: "true"}
    assert not decide(applied(picture, decision)).machines


def test_the_last_etcd_machine_of_a_cluster_that_was_up_is_not_let_go_without_a_users_word() -> None:
    picture = with_machine(running(("a", "ec"), ("w", "w")), "a", going)
    decision = decide(picture)
    assert (decision.waits[0].code, decision.waits[0].actor) == (Code.LAST_ETCD, Actor.USER)
    assert decision.waits[0].evidence.startswith("a: it is the only etcd machine of its cluster")
    assert decision.waits[0].on == named(picture, "a").ref()
    assert not decision.machines and decision.initialized is None, "it is still up"
    # What the control plane took back is no proof that nothing was there.
    taken_back = replace(picture, control_plane=replace(picture.control_plane, initialized=False))
    assert not decide(taken_back).machines
    # Another one takes over what it holds.
    helped = replace(picture, machines=(*picture.machines, machine("b", "ec")))
    assert decide(helped).secrets["b"].annotations[well_known.JOINED_TO] == url("a")


def test_etcd_machines_of_a_cluster_that_never_came_up_are_let_go() -> None:
    picture = with_machine(snapshot(machine("a", "ec"), machine("w", "w")), "a", going)
    assert decide(picture).machines["a"].bootstrap_annotations == {well_known.ETCD_FORCE_REMOVE: "true"}


def test_a_member_without_a_node_is_marked_as_soon_as_etcd_holds_something() -> None:
    first = machine(
        "a", "e", marks={well_known.INIT_NODE: "true"}, notes={well_known.JOINED_TO: "", well_known.JOIN_URL: url("a")}
    )
    first = with_node(first, named(running(("a", "e")), "a").node)
    second = machine("b", "e", notes={well_known.JOINED_TO: url("a")})
    told, at_work = (with_node(second, PlanNode(Plan(), state=state)) for state in ("pending", "in-progress"))

    def marked(*members: Machine) -> set[str]:
        found = decide(snapshot(*members, machine("c", "c"), machine("w", "w"))).machines
        return {name for name, change in found.items() if HOLDS_DATA in change.annotations}

    assert marked(first) == marked(first, told) == set()
    assert marked(first, at_work) == {"a", "b"}
    assert marked(replace(first, node_name="a"), at_work) == {"b"}, "who has a node needs no mark"


def test_tokens_are_made_once_and_never_after_somebody_joined_by_them() -> None:
    assert decide(snapshot(machine("a"), tokens=None)).create_tokens
    lost = decide(replace(running(("a", "ecw")), tokens=None))
    assert not lost.create_tokens and lost.error.startswith("the tokens of the cluster are lost")
    garbled = decide(snapshot(machine("a"), tokens=None, tokens_error="the Secret holds no tokens"))
    assert not garbled.create_tokens and garbled.error == "the Secret holds no tokens"
    for decision, code in ((lost, Code.CONTENT), (garbled, Code.MALFORMED)):
        (wait,) = decision.waits
        assert (wait.code, wait.actor, wait.evidence) == (code, Actor.USER, decision.error)


def test_bootstrapped_means_bootstrapped() -> None:
    place = World(snapshot(machine("a"), machine("w", "w")))
    while "Bootstrapped" not in said(decision := place.look()):
        place.act()
    node = named(place.picture, "a").node
    assert node is not None and node.in_sync and all(node.probes.values())
    assert decision.waits[0].evidence != "waiting for viable init node"


def test_a_first_plan_that_can_not_be_made_begins_nothing() -> None:
    """Else the cluster would count as one whose etcd is lost, and never begin."""

    def unable(found: ClusterSnapshot, member: Machine, join: Join) -> Plan:
        raise CannotRender("a Secret is not there", Actor.USER)

    picture = snapshot(machine("a"))
    for _ in range(3):
        decision = plan(picture, unable)
        assert "Bootstrapped" not in said(decision)
        picture = applied(picture, decision)
    assert "a Secret is not there" in decision.waits[0].evidence
    assert written(decide(picture)) == {"a"}


def test_a_machine_is_not_healthy_before_its_probes_were_asked() -> None:
    picture = running(("a", "ecw"))
    silent = with_machine(picture, "a", lambda m: with_node(m, replace(m.node, probes={})) if m.node else m)
    assert decide(silent).waits[0].evidence == "configuring bootstrap node(s) a: waiting for probes: kube-apiserver, kubelet"


def test_tiers_come_in_order_and_those_who_wait_know_for_whom() -> None:
    picture = snapshot(
        machine("a", "e", marks={well_known.INIT_NODE: "true"}), machine("b", "e"), machine("c", "c"), machine("w", "w")
    )
    decision = decide(picture)
    assert written(decision) == {"a"}
    assert {wait.subject.name: wait.evidence for wait in decision.waits} == {
        "demo": "configuring bootstrap node(s) a: waiting for agent to check in and apply initial plan",
        "a": "waiting for agent to check in and apply initial plan",
        "b": "waiting for bootstrap etcd to be available",
        "c": "waiting for etcd to be available",
        "w": "waiting for control plane to be available",
    }
    assert all(wait.on is not None and wait.on.name == "a" for wait in decision.waits if wait.code is Code.TIER)
    assert decision.machines["w"].reconciled == Condition(
        "Reconciled", "Unknown", "Waiting", "waiting for control plane to be available"
    )


def test_a_plan_is_written_with_whom_it_joins_and_when() -> None:
    decision = decide(snapshot(machine("a", marks={well_known.INIT_NODE: "true"})))
    change = decision.secrets["a"]
    assert change.annotations == {
        well_known.JOINED_TO: "",
        well_known.PLAN_UPDATED: rfc3339(NOW),
        well_known.PROBES_PASSED: "",
        well_known.RENDERED_BY: __version__,
    }
    assert (change.max_failures, change.failure_threshold) == (-1, 1)


def test_the_cluster_agent_is_awaited_and_then_the_join_url() -> None:
    picture = running(("a", "ecw"))
    unconnected = replace(picture, control_plane=replace(picture.control_plane, agent_connected=False))
    assert decide(unconnected).waits[0].evidence == "configuring bootstrap node(s) a: waiting for cluster agent to connect"
    unknown = with_machine(picture, "a", lambda m: replace(m, addresses=()).with_plan_metadata({}, {well_known.JOIN_URL: None}))
    wait = decide(unknown).waits[0]
    assert (wait.code, wait.evidence) == (Code.JOIN_URL, "waiting for join url to be available on bootstrap node")
    assert wait.on is not None and wait.on.name == "a"


def test_all_done_is_said_once() -> None:
    picture = running(("a", "ecw"), ("w", "w"))
    decision = decide(picture)
    assert decision.applied and not decision.waits
    kinds = {kind: status for kind, (status, _, _) in said(decision).items()}
    assert kinds == {
        "Ready": "True",
        "Stable": "True",
        "Reconciled": "True",
        "ScalingUp": "False",
        "ScalingDown": "False",
        "RollingOut": "False",
    }
    assert decision.machines["w"].reconciled == Condition("Reconciled", "True", "Reconciled")
    assert not decide(applied(picture, decision)).writes


def test_the_control_plane_is_marked_initialized_before_workers_come() -> None:
    picture = replace(running(("a", "ec"), ("w", "w")))
    picture = with_machine(picture, "w", lambda m: with_node(m, None))
    fresh = replace(picture, control_plane=replace(picture.control_plane, initialized=None))
    decision = decide(fresh)
    assert decision.initialized is True and written(decision) == {"w"}


def test_minor_changes_need_no_turn_no_drain_and_no_quorum() -> None:
    options = {"controlPlaneDrainOptions": {"enabled": True}, "workerDrainOptions": {"enabled": True}}
    picture = running(("b", "ec"), ("w", "w"), ("x", "w"), spec={"upgradeStrategy": options})
    place = World(with_spec(picture, minor="other"))
    first = place.look()
    assert written(first) == {"b"} and well_known.DRAIN_OPTIONS not in first.secrets["b"].annotations
    while not (decision := place.look()).applied:
        assert not any(well_known.DRAIN_OPTIONS in change.annotations for change in decision.secrets.values())
        if "w" in written(decision):
            assert written(decision) == {"w", "x"}
        place.act()


def test_a_plan_that_is_being_applied_is_not_changed_until_it_hangs() -> None:
    picture = with_spec(running(("a", "ecw")), kubernetesVersion=NEXT)
    busy = with_machine(
        picture, "a", lambda m: with_node(m, replace(m.node, state="in-progress", in_sync=False)) if m.node else m
    )
    busy = with_machine(busy, "a", lambda m: m.with_plan_metadata({}, {well_known.PLAN_UPDATED: rfc3339(NOW)}))
    assert (
        decide(busy).waits[0].evidence == "configuring bootstrap node(s) a: waiting for plan to be applied, before it is changed"
    )
    assert written(decide(replace(busy, now=NOW + 901))) == {"a"}


def test_a_plan_that_nobody_began_is_replaced_at_once() -> None:
    picture = with_spec(running(("a", "ecw"), ("w", "w")), kubernetesVersion=NEXT)
    waiting = with_machine(picture, "a", lambda m: with_node(m, replace(m.node, state="pending", in_sync=False)) if m.node else m)
    assert written(decide(waiting)) == {"a"}


def test_a_first_plan_that_failed_is_not_taken_for_an_agent_that_is_away() -> None:
    picture = running(("a", "ecw"))
    broken = with_machine(
        picture,
        "a",
        lambda m: with_node(m, replace(m.node, applied=None, state="failed", failed=True, in_sync=False)) if m.node else m,
    )
    assert decide(broken).waits[0].code is Code.PLAN_FAILED


def test_a_plan_that_can_not_be_made_holds_up_nobody_else() -> None:
    picture = running(("a", "ec"), ("w", "w"), ("x", "w"))
    for name in ("w", "x"):
        picture = with_machine(picture, name, lambda m: with_node(m, None))

    def picky(of: ClusterSnapshot, member: Machine, join: Join) -> Plan:
        if member.name == "w":
            raise CannotRender("waiting for machine fleet-default/w driver config to be saved", Actor.PROVIDER)
        if member.name == "x" and of.control_plane.spec.get("bad"):
            return Plan(error="config can't be read")
        return render(of, member, join)

    decision = plan(picture, picky)
    assert written(decision) == {"x"}
    wait = next(wait for wait in decision.waits if wait.subject.name == "w")
    assert (wait.code, wait.actor) == (Code.RENDER, Actor.PROVIDER)
    refused = plan(with_spec(picture, bad=True), picky)
    assert not written(refused) and "config can't be read" in {wait.evidence for wait in refused.waits}


def test_trouble_of_machines_is_reported_when_all_else_is_done() -> None:
    picture = with_machine(running(("a", "ecw"), ("w", "w")), "w", lambda m: replace(m, failing="disk is full"))
    decision = decide(picture)
    assert not decision.applied and decision.waits[0].evidence == "failing worker machine(s) w: disk is full"


def test_arguments_without_effect_are_reported_and_block_nothing() -> None:
    picture = replace(running(("a", "ecw")), ignored_arguments=("made-up: v1.34.1+k3s1 has no such argument",))
    decision = decide(picture)
    text = "arguments without effect: made-up: v1.34.1+k3s1 has no such argument"
    assert said(decision)["OperationsSupported"] == ("False", "NotSupported", text)
    assert decision.applied and [(wait.code, wait.actor) for wait in decision.waits] == [(Code.WITHOUT_EFFECT, Actor.USER)]
    assert said(decide(replace(applied(picture, decision), ignored_arguments=())))["OperationsSupported"][0] == "True"


def test_windows_machines_are_told_that_they_have_to_wait() -> None:
    picture = running(("a", "ecw"))
    window = machine("z", "w", marks={keys.OS_LABEL: "windows"})
    decision = decide(replace(picture, machines=(*picture.machines, window)))
    assert decision.waits[0].code is Code.UNSUPPORTED and decision.waits[0].subject.name == "z"
    assert not decision.applied


def test_since_is_kept_as_long_as_the_words_are_the_same() -> None:
    picture = snapshot(machine("a", marks={well_known.INIT_NODE: "true"}))
    picture = applied(picture, decide(picture))
    later = decide(replace(picture, now=NOW + 500))
    assert {wait.since for wait in later.waits} == {rfc3339(NOW)}
    assert not later.writes


def test_at_most_three_machines_are_named() -> None:
    picture = running(("a", "ec"), *((f"w{number}", "w") for number in range(5)))
    for number in range(5):
        picture = with_machine(picture, f"w{number}", lambda m: with_node(m, None))
    assert decide(picture).waits[0].evidence == "configuring worker node(s) w0,w1,w2 and 2 more"


@pytest.mark.parametrize("deleted_at", [None, NOW])
def test_a_machine_without_a_plans_secret_is_not_written_to(deleted_at: float | None) -> None:
    """It has none yet, or any more: a machine of a pool takes its time to go."""
    members = running(("a", "ec"), ("b", "w"), ("c", "w"))
    picture = with_machine(members, "b", lambda b: replace(b, secret=None, deleted_at=deleted_at))
    assert "b" not in decide(with_spec(picture, kubernetesVersion=NEXT)).secrets
