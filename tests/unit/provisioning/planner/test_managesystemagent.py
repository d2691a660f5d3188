"""Agents of hosts that are not the server's own: who gets it, when, and what is said when it does not work."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

from remuda.kube.waits import Actor, Code
from remuda.provisioning import well_known
from remuda.provisioning.planner import managesystemagent
from remuda.provisioning.planner.decision import Decision
from remuda.provisioning.planner.managesystemagent import CONDITION, LIMIT, TRIES, noted
from remuda.provisioning.planner.snapshot import AgentProgram, ClusterSnapshot, Condition, Machine
from remuda.provisioning.plans.agent_report import AgentReport
from remuda.provisioning.plans.plan import Plan, only_minor

from .world import NEXT, NOW, applied, decide, done, named, running, with_machine, with_node, with_spec, written

NEW = replace(AgentProgram.of(b"the server's agent"), at_once=2)
OLD, PLACE = "0" * 64, "/var/lib/rancher/agent/successors"
BEFORE = AgentReport(OLD, PLACE)
THERE = f"{PLACE}/{NEW.checksum}.pyz"
HOSTS = (("a", "ecw"), ("b", "ecw"), ("c", "ecw"), ("w1", "w"), ("w2", "w"), ("w3", "w"))


def reporting(picture: ClusterSnapshot, name: str, report: AgentReport | None) -> ClusterSnapshot:
    def change(member: Machine) -> Machine:
        assert member.node is not None
        return with_node(member, replace(member.node, agent=report))

    return with_machine(picture, name, change)


def herd(*others: str, hosts: tuple[tuple[str, str], ...] = HOSTS) -> ClusterSnapshot:
    """A cluster that is up; the agents of these are not the server's, those of all the rest are."""
    picture = running(*hosts, agent=NEW)
    for name, _ in hosts:
        picture = reporting(picture, name, BEFORE if name in others else AgentReport(NEW.checksum, PLACE))
    return picture


def obeyed(picture: ClusterSnapshot, decision: Decision, seconds: float = 5.0) -> ClusterSnapshot:
    """Everybody whose plan was written has applied it; agents stay who they are."""
    after = applied(picture, decision)
    for name in written(decision):
        report = named(picture, name).node.agent  # type: ignore[union-attr]
        after = with_machine(after, name, lambda member: with_node(member, done(member.node.plan)))  # type: ignore[union-attr]
        after = reporting(after, name, report)
    return replace(after, now=picture.now + seconds)


def paths(plan: Plan | None) -> list[str]:
    assert plan is not None
    return [file.path for file in plan.files]


def condition(decision: Decision) -> Condition | None:
    return next((each for each in decision.conditions if each.type == CONDITION), None)


def offered(picture: ClusterSnapshot) -> ClusterSnapshot:
    """With w1 just having applied a plan that brings it the agent."""
    return obeyed(picture, decide(picture))


def test_hosts_that_are_up_to_date_or_say_nothing_never_see_any_of_it() -> None:
    for picture in (herd(), running(*HOSTS, agent=NEW), running(*HOSTS)):
        decision = decide(picture)
        assert not decision.secrets and decision.applied and not decision.waits
        assert condition(decision) is None


def test_another_agent_gets_the_servers_as_a_minor_file_of_its_plan_and_nobody_else_does() -> None:
    picture = herd("w1")
    decision = decide(picture)
    assert written(decision) == {"w1"}
    before, after = named(picture, "w1").node.plan, decision.secrets["w1"].plan  # type: ignore[union-attr]
    assert after is not None and only_minor(before, after)
    assert after.instructions == before.instructions, "the stamps that restart are the same"
    file = after.files[-1]
    assert (file.path, file.permissions, file.data, file.dynamic) == (THERE, "0755", b"the server's agent", True)
    assert decision.applied, "the cluster is as it should be"
    assert [(wait.code, wait.subject.name, wait.actor) for wait in decision.waits] == [(Code.AGENT, "w1", Actor.MACHINE)]
    said = condition(decision)
    assert said is not None and said.status == "Unknown" and "w1" in said.message


def test_nobody_waits_for_it_while_it_goes_on() -> None:
    picture = herd("w1")
    picture = reporting(applied(picture, decide(picture)), "w1", BEFORE)
    for state in ("pending", "in-progress"):
        node = named(picture, "w1").node
        assert node is not None
        busy = with_machine(picture, "w1", partial(with_node, node=replace(node, state=state)))
        decision = decide(busy)
        assert decision.applied and not written(decision) and "w1" not in decision.machines


def test_it_leaves_the_plan_as_soon_as_it_runs() -> None:
    picture = offered(herd("w1"))
    assert not written(decide(picture)), "it has still to start"
    picture = reporting(picture, "w1", AgentReport(NEW.checksum, PLACE))
    decision = decide(picture)
    assert written(decision) == {"w1"} and THERE not in paths(decision.secrets["w1"].plan)
    assert decision.secrets["w1"].annotations[well_known.AGENT_UPDATE] is None
    after = obeyed(picture, decision)
    quiet = decide(after)
    assert not quiet.secrets and quiet.applied and not quiet.waits
    assert {each.status for each in (*decision.conditions, *quiet.conditions) if each.type == CONDITION} == {"True"}
    assert named(after, "w1").node.plan == named(herd("w1"), "w1").node.plan  # type: ignore[union-attr]


def test_one_host_shows_the_way_then_a_few_go_at_once() -> None:
    everybody = [name for name, _ in HOSTS]
    picture = herd(*everybody)
    decision = decide(picture)
    assert written(decision) == {"w1"}, "a worker, and one"
    picture = obeyed(picture, decision)
    assert not written(decide(picture))
    picture = reporting(picture, "w1", AgentReport(NEW.checksum, PLACE))
    assert written(decide(picture)) == {"w1", "w2", "w3"}, "the first is done, and two follow"
    seen = []
    for _ in range(20):
        decision = decide(picture)
        begun = [name for name in written(decision) if THERE in paths(decision.secrets[name].plan)]
        seen += sorted(begun)
        picture = obeyed(picture, decision)
        for name in begun:
            picture = reporting(picture, name, AgentReport(NEW.checksum, PLACE))
    assert seen == ["w2", "w3", "a", "b", "c"]
    assert all(not managesystemagent.noted(member) for member in picture.machines)
    assert not decide(picture).secrets


def test_it_waits_until_nothing_else_is_to_be_done() -> None:
    changing = with_spec(herd("w1"), kubernetesVersion=NEXT)
    decision = decide(changing)
    assert written(decision) == {"a"} and THERE not in paths(decision.secrets["a"].plan)
    unwell = with_machine(herd("w1"), "w1", lambda member: replace(member, non_ready="NodeHealthy"))
    assert not written(decide(unwell))


def test_a_change_that_comes_meanwhile_is_waited_for_like_any_other() -> None:
    picture = offered(herd("w1", hosts=(("a", "ecw"), ("w1", "w"))))
    picture = with_spec(picture, minor="another")
    decision = decide(picture)
    assert "a" in written(decision)
    for _ in range(3):
        picture = obeyed(picture, decide(picture))
    assert THERE in paths(named(picture, "w1").node.plan)  # type: ignore[union-attr]
    changed = with_spec(picture, minor="a third")
    late = decide(obeyed(changed, decide(changed)))
    assert written(late) == {"w1"}
    assert not late.applied and Code.PLAN in {wait.code for wait in late.waits}


def test_an_agent_that_is_given_up_in_the_middle_of_a_change_does_not_hide_that() -> None:
    picture = offered(herd("w1", hosts=(("a", "ecw"), ("w1", "w"))))
    picture = with_spec(picture, felt="another")
    picture = obeyed(picture, decide(picture))
    picture = reporting(applied(picture, decide(picture)), "w1", BEFORE)
    late = decide(replace(picture, now=NOW + LIMIT))
    assert THERE not in paths(late.secrets["w1"].plan)
    # It has not answered all that time.
    assert not late.applied and Code.SILENT in {wait.code for wait in late.waits if wait.subject.name == "w1"}


def test_a_host_that_refuses_it_keeps_its_agent_and_says_why() -> None:
    picture = offered(herd("w1"))
    picture = reporting(picture, "w1", AgentReport(OLD, PLACE, refused=NEW.checksum, reason="it does not start: exit status 1"))
    decision = decide(picture)
    assert written(decision) == {"w1"} and THERE not in paths(decision.secrets["w1"].plan)
    assert decision.applied, "it holds up nothing"
    said = condition(decision)
    assert said is not None and (said.status, said.reason) == ("False", "UpdateFailed")
    assert "w1" in said.message and "it does not start: exit status 1" in said.message
    (wait,) = decision.waits
    assert (wait.code, wait.actor) == (Code.AGENT, Actor.USER) and "the one before stays" in wait.evidence
    after = obeyed(picture, decision)
    assert not decide(after).secrets, "it is not tried again at once"
    assert decide(after).waits == decision.waits


def test_one_that_does_not_come_up_in_time_is_given_up() -> None:
    picture = offered(herd("w1"))
    early, late = replace(picture, now=NOW + LIMIT - 1), replace(picture, now=NOW + LIMIT)
    assert not written(decide(early))
    assert decide(early).revisit_at == NOW + LIMIT
    decision = decide(late)
    assert written(decision) == {"w1"}
    said = condition(decision)
    assert said is not None and "it does not run after 10 minutes" in said.message


def test_a_plan_that_fails_with_it_goes_back_to_what_it_was() -> None:
    picture = herd("w1")
    picture = applied(picture, decide(picture))

    def fail(member: Machine) -> Machine:
        assert member.node is not None
        return with_node(member, replace(member.node, state="failed", failed=True, in_sync=False, failure="the disk is full"))

    picture = with_machine(picture, "w1", fail)
    decision = decide(picture)
    assert written(decision) == {"w1"} and THERE not in paths(decision.secrets["w1"].plan)
    said = condition(decision)
    assert said is not None and "the disk is full" in said.message


def test_it_is_tried_again_later_and_not_for_ever() -> None:
    picture = herd("w1")
    tries = []
    for _ in range(200):
        decision = decide(picture)
        if "w1" in written(decision) and THERE in paths(decision.secrets["w1"].plan):
            tries.append(picture.now - NOW)
        picture = obeyed(picture, decision, 600.0)
        if any(THERE in paths(member.node.plan) for member in picture.machines if member.node):
            picture = reporting(picture, "w1", AgentReport(OLD, PLACE, refused=NEW.checksum, reason="no"))
    assert len(tries) == TRIES and tries[1] - tries[0] >= 3600 and tries[2] - tries[1] >= 7200
    note = noted(named(picture, "w1"))
    assert note is not None and note.again_at is None and "not tried again" in decide(picture).waits[0].evidence
    head = replace(picture.control_plane, annotations={well_known.REDEPLOY_AGENT: "2"})
    picture = reporting(replace(picture, control_plane=head), "w1", BEFORE)
    again = decide(picture)
    assert THERE in paths(again.secrets["w1"].plan), "whoever asks for it gets another try"
    note = noted(named(applied(picture, again), "w1"))
    assert note is not None and (note.attempts, note.generation) == (1, "2")


def test_a_server_of_another_version_starts_anew() -> None:
    picture = offered(herd("w1", hosts=(("w1", "ecw"),)))
    newer = AgentProgram.of(b"yet another")
    picture = replace(picture, agent=newer)
    for _ in range(2):
        picture = obeyed(picture, decide(picture))
    found = paths(named(picture, "w1").node.plan)  # type: ignore[union-attr]
    assert f"{PLACE}/{newer.checksum}.pyz" in found and THERE not in found


def test_an_agent_that_does_not_say_who_it_is_any_more_is_left_alone() -> None:
    """Somebody has put Rancher's own into its place."""
    picture = reporting(offered(herd("w1")), "w1", None)
    decision = decide(picture)
    assert written(decision) == {"w1"} and THERE not in paths(decision.secrets["w1"].plan)
    assert not decide(obeyed(picture, decision)).secrets


def _noted_as(text: str, member: Machine) -> Machine:
    return member.with_plan_metadata({}, {well_known.AGENT_UPDATE: text})


def test_a_garbled_note_is_none() -> None:
    for text in ("{", "[]", "null", json.dumps({"at": "yesterday", "attempts": 1}), json.dumps({"attempts": "x", "at": 1})):
        marked = with_machine(herd("w1"), "w1", partial(_noted_as, text))
        assert noted(named(marked, "w1")) is None
        assert written(decide(marked)) == {"w1"}
