"""After an upgrade of Remuda no machine restarts for a plan that only the new program renders differently."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from remuda.provisioning import well_known as keys
from remuda.provisioning.planner.decide import plan
from remuda.provisioning.planner.decision import Decision
from remuda.provisioning.planner.held_plans import judge
from remuda.provisioning.planner.snapshot import ClusterSnapshot, Condition, Join, Machine, Task
from remuda.provisioning.planner.waits import PLANS_HELD
from remuda.provisioning.plans.plan import File, Plan

from .world import NEXT, named, render, running, with_machine, with_node, with_spec, written

OLD, NEW = "1.0.0", "2.0.0"


def marked(picture: ClusterSnapshot, **notes: str | None) -> ClusterSnapshot:
    return replace(picture, machines=tuple(each.with_plan_metadata({}, notes) for each in picture.machines))


BEFORE = marked(running(("a", "ec"), ("b", "ec"), ("c", "ec"), ("w", "w"), rendering=NEW), **{keys.RENDERED_BY: NEW})
UPGRADED = marked(BEFORE, **{keys.RENDERED_BY: OLD})


def newer(picture: ClusterSnapshot, machine: Machine, join: Join, task: Task | None = None) -> Plan:
    """The renderer of the new version has a file more."""
    found = render(picture, machine, join, task)
    return msgspec.structs.replace(found, files=(*found.files, File.of("/etc/more", "more")))


def minor(picture: ClusterSnapshot, machine: Machine, join: Join, task: Task | None = None) -> Plan:
    found = render(picture, machine, join, task)
    return msgspec.structs.replace(found, files=(*found.files, File.of("/etc/more", "more", dynamic=True, minor=True)))


def told(picture: ClusterSnapshot, decision: Decision) -> ClusterSnapshot:
    """The annotations and conditions of a decision are written; no host has done anything."""
    for name, change in decision.secrets.items():
        notes = dict(change.annotations)
        picture = with_machine(picture, name, lambda each, notes=notes: each.with_plan_metadata({}, notes))  # type: ignore[misc]
    known = {each.type: each for each in (*picture.control_plane.conditions, *decision.conditions)}
    return replace(picture, control_plane=replace(picture.control_plane, conditions=tuple(known.values())))


def held(decision: Decision) -> Condition | None:
    return next((each for each in decision.conditions if each.type == PLANS_HELD), None)


def test_a_new_rendering_without_a_change_of_the_spec_is_held_and_told() -> None:
    decision = plan(UPGRADED, newer)
    found = held(decision)
    assert written(decision) == set() and decision.applied
    assert found is not None and found.status == "True"
    assert "a,b,c and 1 more" in found.message and OLD in found.message and NEW in found.message
    assert sorted(event.machine for event in decision.events if event.reason == "PlanHeld") == ["a", "b", "c", "w"]
    again = plan(told(UPGRADED, decision), newer)
    assert written(again) == set() and again.secrets == {} and again.conditions == ()
    assert [event for event in again.events if event.reason == "PlanHeld"] == []


def test_without_the_version_of_a_plan_it_is_held_too() -> None:
    assert written(plan(marked(BEFORE, **{keys.RENDERED_BY: None}), newer)) == set()


def test_the_same_rendering_is_only_marked() -> None:
    decision = plan(UPGRADED, render)
    assert written(decision) == set() and held(decision) is None
    assert {change.annotations[keys.RENDERED_BY] for change in decision.secrets.values()} == {NEW}
    assert plan(told(UPGRADED, decision), render).secrets == {}


def test_the_program_that_rendered_the_plans_changes_them() -> None:
    assert written(plan(BEFORE, newer)) == {"a"}, "one after another"


def test_what_restarts_nothing_comes_by_itself() -> None:
    decision = plan(UPGRADED, minor)
    assert written(decision) == {"a"} and held(decision) is None
    assert decision.secrets["a"].annotations[keys.RENDERED_BY] == NEW


def test_a_change_that_restarts_nothing_comes_beside_a_plan_that_is_held() -> None:
    picture = told(UPGRADED, plan(UPGRADED, newer))
    decision = plan(with_spec(picture, minor="new"), newer)
    found = decision.secrets["a"]
    assert written(decision) == {"a"} and found.plan is not None and keys.RENDERED_BY not in found.annotations
    assert {file.path: file.data for file in found.plan.files if file.minor} == {"/manifest": b"new"}
    assert "/etc/more" not in {file.path for file in found.plan.files}


def test_the_users_next_change_brings_the_new_rendering() -> None:
    picture = told(UPGRADED, plan(UPGRADED, newer))
    decision = plan(with_spec(picture, kubernetesVersion=NEXT), newer)
    assert written(decision) == {"a"}
    assert (decision.secrets["a"].annotations[keys.RENDERED_BY], decision.secrets["a"].annotations[keys.HELD_RENDERING]) == (
        NEW,
        None,
    )


def test_a_change_that_was_on_its_way_is_not_held() -> None:
    assert written(plan(with_spec(UPGRADED, kubernetesVersion=NEXT), newer)) == {"a"}


def test_what_changes_for_another_reason_is_not_held_any_more() -> None:
    picture = told(UPGRADED, plan(UPGRADED, newer))
    changed = replace(picture, control_plane=replace(picture.control_plane, config_generation=7))
    assert written(plan(changed, newer)) == {"a"}


def test_an_accepted_rendering_is_not_held() -> None:
    picture = told(UPGRADED, plan(UPGRADED, newer))
    for version, expected in ((NEW, {"a"}), (OLD, set())):
        accepted = replace(picture.control_plane, annotations={keys.ACCEPT_RENDERING: version})
        assert written(plan(replace(picture, control_plane=accepted), newer)) == expected


def test_the_next_upgrade_holds_what_the_one_before_has_held() -> None:
    picture = replace(told(UPGRADED, plan(UPGRADED, newer)), rendering="3.0.0")

    def newest(picture: ClusterSnapshot, machine: Machine, join: Join, task: Task | None = None) -> Plan:
        found = newer(picture, machine, join, task)
        return msgspec.structs.replace(found, files=(*found.files, File.of("/etc/most", "most")))

    assert written(plan(picture, newest)) == set()


def test_the_condition_ends_with_the_last_held_plan() -> None:
    picture = told(UPGRADED, plan(UPGRADED, newer))
    found = held(plan(picture, render))
    assert found is not None and found.status == "False"


def test_a_plan_that_fails_belongs_to_an_operation_or_was_never_applied_is_not_held() -> None:
    machine = named(UPGRADED, "w")
    node = machine.node
    assert node is not None
    wanted = newer(UPGRADED, machine, Join(server="https://10.0.0.1:9345"))
    cases = (
        (machine, True),
        (machine.with_plan_metadata({}, {keys.TASK: "clean"}), False),
        (with_node(machine, replace(node, failed=True, in_sync=False, state="failed")), False),
        (with_node(machine, replace(node, applied=None, in_sync=False, revision=0)), False),
        (with_node(machine, None), False),
    )
    for each, expected in cases:
        found = judge(UPGRADED, each, wanted)
        assert found.held is expected
        assert found.plan == (node.plan if expected else wanted)
