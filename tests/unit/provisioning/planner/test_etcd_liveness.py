"""Who is asked for a sign of life before a member of etcd is restarted, and what their silence means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from remuda.kube.clock import rfc3339
from remuda.kube.waits import Actor, Code, Wait
from remuda.provisioning import well_known
from remuda.provisioning import well_known as keys
from remuda.provisioning.planner.decision import Decision
from remuda.provisioning.planner.etcd_liveness import FRESH, IDLE_ANSWER
from remuda.provisioning.planner.snapshot import ClusterSnapshot, Condition, Machine
from remuda.provisioning.planner.waits import AGENTS_RESPONDING

from .world import NEXT, NOW, World, applied, decide, heard, running, with_machine, with_node, with_spec, written

THREE = (("a", "ecw"), ("b", "ecw"), ("c", "ecw"))


def late(*members: tuple[str, str]) -> ClusterSnapshot:
    """An upgrade is wanted of hosts that have said nothing for an hour."""
    return replace(with_spec(running(*(members or THREE)), kubernetesVersion=NEXT), now=NOW + 3600)


def asked(decision: Decision) -> set[str]:
    return {name for name, change in decision.secrets.items() if change.ask}


def wait_of(decision: Decision, name: str) -> Wait:
    return next(wait for wait in decision.waits if wait.subject.name == name)


def answered(member: Machine) -> Machine:
    assert member.node is not None
    return with_node(member, replace(member.node, asked=False))


def test_the_others_are_asked_before_a_member_is_restarted() -> None:
    decision = decide(late())
    assert not written(decision) and asked(decision) == {"b", "c"}
    assert wait_of(decision, "a").code is Code.STEP and wait_of(decision, "a").actor is Actor.MACHINE
    assert wait_of(decision, "a").evidence == "before it is restarted, waiting for an answer of b,c"
    assert decision.revisit_at == NOW + 3600 + FRESH + 1


def test_nobody_is_asked_twice_while_an_answer_may_come() -> None:
    picture = late()
    picture = replace(applied(picture, decide(picture)), now=picture.now + FRESH)
    assert not asked(decide(picture)) and not written(decide(picture))


def test_it_is_restarted_when_all_have_answered_and_no_sooner() -> None:
    picture = late()
    picture = with_machine(applied(picture, decide(picture)), "b", answered)
    assert not written(decide(picture))
    assert wait_of(decide(picture), "a").evidence.endswith("of c")
    assert written(decide(with_machine(picture, "c", answered))) == {"a"}


def test_an_answer_counts_for_a_moment_only() -> None:
    picture = heard(late())
    assert written(decide(replace(picture, now=picture.now + FRESH))) == {"a"}
    decision = decide(replace(picture, now=picture.now + FRESH + 1))
    assert not written(decision) and asked(decision) == {"b", "c"}


def test_an_answer_counts_for_one_restart_only() -> None:
    picture = with_machine(heard(late()), "a", lambda m: _planned(m, NOW + 3600))
    assert not written(decide(picture))
    picture = with_machine(heard(late()), "a", lambda m: _planned(m, NOW + 3599))
    assert written(decide(picture)) == {"a"}
    picture = with_machine(heard(late()), "a", lambda m: _planned(m, NOW + 90_000))
    assert written(decide(picture)) == {"a"}, "a clock was set back since"


def _planned(member: Machine, at: float) -> Machine:
    return member.with_plan_metadata({}, {well_known.PLAN_UPDATED: rfc3339(at)})


def test_who_does_not_answer_is_told_and_others_are_not_asked_again_and_again() -> None:
    picture = late()
    at = rfc3339(picture.now)
    picture = with_machine(applied(picture, decide(picture)), "b", answered)
    picture = replace(picture, now=picture.now + FRESH + 1)
    decision = decide(picture)
    held = wait_of(decision, "a")
    assert held.code is Code.QUORUM and held.actor is Actor.USER and held.on is not None and held.on.name == "c"
    assert held.evidence == f"etcd would lose its quorum, since c has not answered since {at}"
    # Who is away itself may be changed, if the others are there.
    assert asked(decision) == {"a", "b"} and not written(decision)
    picture = heard(replace(picture, now=picture.now))
    silent = with_machine(picture, "c", lambda m: _asked(m, NOW))
    assert not asked(decide(replace(silent, now=silent.now + 7200))) - {"a", "b"}


def _asked(member: Machine, at: float) -> Machine:
    assert member.node is not None
    return with_node(member.with_plan_metadata({}, {keys.ASKED_AT: rfc3339(at)}), replace(member.node, asked=True))


def test_one_that_comes_back_is_enough() -> None:
    place = World(late(), dead={"c"})
    for _ in range(10):
        assert not written(place.look()) & {"a", "b"}
        place.act()
    place.dead = set()
    for _ in range(60):
        if place.look().applied:
            return
        place.act()
    raise AssertionError


def test_of_five_members_one_may_be_silent() -> None:
    members = [(name, "ecw") for name in "abcde"]
    place = World(late(*members), dead={"e"})
    place.look()
    place.act()
    assert written(place.look()) == {"a"}


def test_one_of_two_is_restarted_only_if_the_other_is_there() -> None:
    picture = late(("a", "ecw"), ("b", "ecw"))
    assert asked(decide(picture)) == {"b"} and not written(decide(picture))
    assert written(decide(heard(picture))) == {"a"}


def test_a_single_member_and_workers_need_nobody() -> None:
    assert written(decide(late(("a", "ecw")))) == {"a"}
    place = World(late(("a", "ec"), ("w", "w")))
    for _ in range(20):
        decision = place.look()
        assert not asked(decision)
        if decision.applied:
            return
        place.act()
    raise AssertionError


def test_a_member_that_is_down_by_its_own_word_is_mended_at_once() -> None:
    def down(member: Machine) -> Machine:
        assert member.node is not None
        return with_node(member, replace(member.node, probes=dict.fromkeys(member.node.plan.probes, False)))

    assert written(decide(with_machine(late(), "a", down))) == {"a"}


def test_a_node_in_trouble_does_not_make_its_member_free_to_go() -> None:
    """A kubelet or a network may be broken on all of them, with etcd well: that must be mendable, but not at any price."""
    picture = late()
    for name in "abc":
        picture = with_machine(picture, name, lambda m: replace(m, non_ready="NodeHealthy: no network"))
    assert not written(decide(picture)) and asked(decide(picture)) == {"b", "c"}
    assert written(decide(heard(picture))) == {"a"}


def test_a_probe_that_wavers_is_no_sign() -> None:
    def wavers(member: Machine) -> Machine:
        assert member.node is not None
        return with_node(member, replace(member.node, wavering=True))

    picture = with_machine(heard(late()), "c", wavers)
    assert not written(decide(picture)) and not asked(decide(picture))
    assert asked(decide(replace(picture, now=picture.now + FRESH + 1))) == {"b", "c"}


def test_a_clock_that_was_set_back_keeps_nobody_waiting() -> None:
    picture = with_machine(heard(late()), "c", lambda m: _asked(m, NOW + 90_000))
    assert asked(decide(picture)) == {"c"}


def test_what_restarts_nothing_needs_no_sign() -> None:
    picture = replace(with_spec(running(*THREE), minor="new"), now=NOW + 3600)
    assert written(decide(picture)) == {"a"} and not asked(decide(picture))


# --- an agent that does not answer ------------------------------------------------------------------------------------------


def _pending(state: str) -> Callable[[Machine], Machine]:
    def changed(member: Machine) -> Machine:
        assert member.node is not None
        member = with_node(member, replace(member.node, state=state, in_sync=False))
        return _planned(member, NOW)

    return changed


def _unhealthy(member: Machine) -> Machine:
    assert member.node is not None
    return _planned(with_node(member, replace(member.node, probes={"kubelet": False}, healthy=False)), NOW)


@pytest.mark.parametrize(("state", "patience"), [("pending", 60), ("in-progress", 900)])
def test_an_agent_that_does_not_take_or_end_its_plan_is_silent(state: str, patience: float) -> None:
    picture = with_machine(running(("a", "ecw")), "a", _pending(state))
    early = decide(replace(picture, now=NOW + patience))
    assert wait_of(early, "a").code is Code.PLAN and early.revisit_at == min(NOW + patience + 1, NOW + patience + 300)
    found = wait_of(decide(replace(picture, now=NOW + patience + 1)), "a")
    assert (found.code, found.actor) == (Code.SILENT, Actor.USER)
    assert found.evidence == f"waiting for plan to be applied: its agent does not answer, since {rfc3339(NOW)}"


def test_an_agent_whose_services_are_not_healthy_is_asked_before_it_counts_as_silent() -> None:
    picture = with_machine(running(("a", "ecw")), "a", _unhealthy)
    early = decide(replace(picture, now=NOW + 60))
    assert wait_of(early, "a").code is Code.PROBES and not asked(early)
    picture = replace(picture, now=NOW + 61)
    first = decide(picture)
    assert asked(first) == {"a"} and wait_of(first, "a").code is Code.PROBES and first.revisit_at == NOW + 61 + FRESH + 1
    picture = applied(picture, first)
    silent = decide(replace(picture, now=NOW + 61 + FRESH + 1))
    assert wait_of(silent, "a").code is Code.SILENT and not asked(silent)
    assert wait_of(silent, "a").evidence.endswith(f"does not answer, since {rfc3339(NOW + 61)}")
    # An answer ends it, and it is asked again only after a while.
    heard_of = with_machine(picture, "a", answered)
    later = decide(replace(heard_of, now=NOW + 200))
    assert wait_of(later, "a").code is Code.PROBES and not asked(later)
    assert asked(decide(replace(heard_of, now=NOW + 61 + 301))) == {"a"}


def test_an_agent_that_prints_progress_is_at_work_however_long_it_takes() -> None:
    picture = with_machine(running(("a", "ecw")), "a", _pending("in-progress"))
    late_in = replace(picture, now=NOW + 2000)
    assert wait_of(decide(late_in), "a").code is Code.SILENT
    works = decide(replace(late_in, said_at={"a": NOW + 1990}))
    assert wait_of(works, "a").code is Code.PLAN and works.revisit_at == NOW + 1990 + 121
    assert wait_of(decide(replace(late_in, said_at={"a": NOW + 1800})), "a").code is Code.SILENT


def test_a_member_of_several_whose_services_are_not_healthy_is_asked_with_the_others() -> None:
    """Asked alone, its answer and theirs would never be recent at the same time."""
    picture = replace(with_machine(running(*THREE), "b", _unhealthy), now=NOW + 400)
    first = decide(picture)
    assert asked(first) == {"a", "b", "c"}
    picture = with_machine(with_machine(applied(picture, first), "a", answered), "c", answered)
    silent = decide(replace(picture, now=NOW + 400 + FRESH + 1))
    assert wait_of(silent, "b").code is Code.SILENT


def test_an_agent_whose_node_keeps_its_version_is_asked_before_it_counts_as_silent() -> None:
    def lags(member: Machine) -> Machine:
        return replace(_planned(member, NOW), kubelet_version="v1.33.0+k3s1")

    picture = replace(with_machine(running(("a", "ecw")), "a", lags), now=NOW + 400)
    first = decide(picture)
    assert wait_of(first, "a").code is Code.KUBELET and asked(first) == {"a"}
    silent = decide(replace(applied(picture, first), now=picture.now + FRESH + 1))
    assert wait_of(silent, "a").code is Code.SILENT and "waiting for kubelet to update" in wait_of(silent, "a").evidence


def test_a_server_that_is_off_is_silent_and_not_only_without_the_agent_of_its_cluster() -> None:
    picture = running(("a", "ec"), ("w", "w"))
    plane = replace(picture.control_plane, agent_connected=False)
    picture = with_machine(replace(picture, control_plane=plane), "a", lambda m: _planned(m, NOW))
    first = decide(replace(picture, now=NOW + 301))
    assert wait_of(first, "a").code is Code.CLUSTER_AGENT and asked(first) == {"a"}
    picture = replace(applied(replace(picture, now=NOW + 301), first), now=NOW + 301 + FRESH + 1)
    found = wait_of(decide(picture), "a")
    assert found.code is Code.SILENT and found.evidence.startswith("waiting for cluster agent to connect: its agent does not")
    answers = decide(with_machine(picture, "a", answered))
    assert wait_of(answers, "a").code is Code.CLUSTER_AGENT and not asked(answers)


# --- an agent that has nothing to do ----------------------------------------------------------------------------------------

HOUR = 3600.0


def condition_of(decision: Decision) -> Condition | None:
    return next((each for each in decision.conditions if each.type == AGENTS_RESPONDING), None)


def test_an_idle_agent_is_asked_every_half_hour_and_no_more_often() -> None:
    picture = running(("a", "ec"), ("w", "w"))
    assert not decide(replace(picture, now=NOW + 1800)).secrets
    first = decide(replace(picture, now=NOW + 1801))
    assert asked(first) == {"a", "w"} and first.applied and first.revisit_at == NOW + 1801 + IDLE_ANSWER + 1
    picture = replace(applied(replace(picture, now=NOW + 1801), first), now=NOW + 1830)
    assert not decide(picture).secrets and not decide(picture).waits
    for name in ("a", "w"):
        picture = with_machine(picture, name, answered)
    assert not decide(replace(picture, now=NOW + 3600)).secrets
    assert asked(decide(replace(picture, now=NOW + 3602))) == {"a", "w"}


def test_an_idle_agent_that_does_not_answer_is_silent_and_its_cluster_stays_ready() -> None:
    picture = replace(running(("a", "ec"), ("w", "w")), now=NOW + HOUR)
    picture = with_machine(applied(picture, decide(picture)), "a", answered)
    assert not decide(replace(picture, now=picture.now + IDLE_ANSWER)).waits
    decision = decide(replace(picture, now=picture.now + IDLE_ANSWER + 1))
    (found,) = decision.waits
    at = rfc3339(NOW + HOUR)
    assert (found.code, found.actor, found.subject.name, found.since) == (Code.SILENT, Actor.USER, "w", at)
    assert found.evidence == f"its agent does not answer, since {at}"
    told = condition_of(decision)
    assert told is not None and (told.status, told.message) == ("False", f"w: its agent does not answer, since {at}")
    assert decision.applied and not decision.secrets and not decision.machines
    # Its answer ends it; it is not asked again before.
    later = replace(applied(picture, decision), now=picture.now + 2 * HOUR)
    assert "w" not in asked(decide(later))
    again = condition_of(decide(with_machine(later, "w", answered)))
    assert again is not None and again.status == "True"


def test_an_idle_agent_is_asked_at_once_if_its_node_is_not_ready() -> None:
    picture = replace(running(("a", "ec"), ("w", "w")), now=NOW + 301)
    assert not decide(picture).secrets
    troubled = with_machine(picture, "w", lambda m: replace(m, non_ready="NodeReady: unknown"))
    first = decide(troubled)
    assert asked(first) == {"w"} and not first.applied
    silent = decide(replace(applied(troubled, first), now=NOW + 301 + IDLE_ANSWER + 1))
    assert [(each.code, each.subject.name) for each in silent.waits] == [(Code.MACHINES, "demo"), (Code.SILENT, "w")]


@pytest.mark.parametrize(
    "change",
    [
        lambda m: replace(m, deleted_at=NOW),
        lambda m: with_node(m, replace(m.node, asked=False, in_sync=False, state="in-progress")),
        lambda m: _planned(m, NOW + HOUR - 60),
    ],
)
def test_an_agent_that_goes_is_at_work_or_just_got_a_plan_is_not_asked(change: Callable[[Machine], Machine]) -> None:
    picture = with_machine(replace(running(("a", "ec"), ("w", "w"), ("x", "w")), now=NOW + HOUR), "x", change)
    assert "x" not in asked(decide(picture))
