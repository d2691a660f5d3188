"""Draining before a change, with hooks, and the way back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from remuda.kube.waits import Actor, Code
from remuda.provisioning import well_known
from remuda.provisioning.planner.snapshot import ClusterSnapshot

from .world import NEXT, World, applied, decide, named, running, with_machine, with_spec, written

ENABLED = {"enabled": True, "timeout": 60}
TEXT = '{"enabled":true,"timeout":60}'


def upgrading(options: dict[str, Any], *members: tuple[str, str]) -> ClusterSnapshot:
    strategy = {"controlPlaneDrainOptions": options, "workerDrainOptions": options}
    return with_spec(running(*members, spec={"upgradeStrategy": strategy}), kubernetesVersion=NEXT)


def noted(picture: ClusterSnapshot, name: str, **notes: str | None) -> ClusterSnapshot:
    found = {f"rke.cattle.io/{key.replace('_', '-')}": value for key, value in notes.items()}
    return with_machine(picture, name, lambda m: m.with_plan_metadata({}, found))


def test_a_node_is_drained_before_it_is_changed_and_takes_pods_again_after() -> None:
    picture = upgrading(ENABLED, ("a", "ecw"), ("b", "w"))
    asked = decide(picture)
    assert asked.secrets["a"].annotations == {well_known.DRAIN_OPTIONS: TEXT} and not written(asked)
    assert asked.waits[0].evidence == "draining bootstrap node(s) a: draining node"
    assert asked.waits[0].code is Code.DRAIN
    place = World(picture)
    seen: list[str] = []
    while not (decision := place.look()).applied:
        seen.append(decision.waits[0].evidence)
        place.act()
    assert [text for index, text in enumerate(seen) if seen[index - 1 : index] != [text]][:5] == [
        "draining bootstrap node(s) a: draining node",
        "configuring bootstrap node(s) a: waiting for plan to be applied",
        "configuring bootstrap node(s) a: waiting for probes: kube-apiserver, kubelet",
        "uncordoning bootstrap node(s) a: waiting for uncordon to finish",
        "draining worker node(s) b: draining node",
    ]


def test_no_drain_without_need() -> None:
    several = (("a", "ecw"), ("b", "w"))
    assert written(decide(upgrading({}, *several))) == {"a"}
    assert written(decide(upgrading(ENABLED, ("a", "ecw")))) == {"a"}
    unfelt = with_spec(upgrading(ENABLED, *several), kubernetesVersion="v1.34.1+k3s1", minor="x")
    assert written(decide(unfelt)) == {"a"}
    nodeless = with_machine(upgrading(ENABLED, *several), "a", lambda m: replace(m, node_name=""))
    assert written(decide(nodeless)) == {"a"}


def test_hooks_run_also_where_nothing_is_drained() -> None:
    options = {"enabled": True, "preDrainHooks": [{"annotation": "example.com/pre"}]}
    picture = upgrading(options, ("a", "ecw"))
    asked = decide(picture)
    value = asked.secrets["a"].annotations[well_known.DRAIN_OPTIONS]
    assert value == '{"enabled":false,"preDrainHooks":[{"annotation":"example.com/pre"}]}'
    held = noted(applied(picture, asked), "a", pre_drain=value)
    wait = decide(held).waits[0]
    assert (wait.code, wait.actor) == (Code.HOOK, Actor.OTHER_CONTROLLER)
    assert wait.evidence == "draining bootstrap node(s) a: draining node: waiting for pre-drain hook example.com/pre"
    answered = with_machine(
        held, "a", lambda m: m.with_plan_metadata({}, {"example.com/pre": value, well_known.DRAIN_DONE: value})
    )
    assert written(decide(answered)) == {"a"}


def test_post_drain_hooks_are_named_on_the_way_back() -> None:
    options = {"enabled": True, "postDrainHooks": [{"annotation": "example.com/post"}]}
    picture = running(("a", "ecw"), ("b", "w"), spec={"upgradeStrategy": {"controlPlaneDrainOptions": options}})
    drained = noted(picture, "a", drain_options="x", drain_done="x")
    asked = decide(drained)
    assert asked.secrets["a"].annotations == {well_known.UNCORDON: "x"}
    wait = decide(noted(applied(drained, asked), "a", post_drain="x")).waits[0]
    assert wait.code is Code.HOOK and "post-drain hook example.com/post" in wait.evidence


def test_trouble_of_a_drain_is_told_unless_it_is_the_tunnel() -> None:
    picture = upgrading(ENABLED, ("a", "ecw"), ("b", "w"))
    picture = applied(picture, decide(picture))
    told = decide(noted(picture, "a", drain_error="pod web/x is protected by its budget")).waits[0]
    assert told.evidence == "draining bootstrap node(s) a: draining node: pod web/x is protected by its budget"
    passing = decide(noted(picture, "a", drain_error="error trying to reach service: EOF")).waits[0]
    assert passing.evidence == "draining bootstrap node(s) a: draining node"


def test_a_change_that_is_taken_back_while_draining_lets_the_node_go_back() -> None:
    picture = upgrading(ENABLED, ("a", "ecw"), ("b", "w"))
    back = with_spec(applied(picture, decide(picture)), kubernetesVersion="v1.34.1+k3s1")
    decision = decide(back)
    assert not written(decision) and decision.secrets["a"].annotations == {well_known.UNCORDON: TEXT}


def test_a_new_change_waits_for_the_way_back_to_end() -> None:
    picture = noted(upgrading(ENABLED, ("a", "ecw"), ("b", "w")), "a", drain_options=TEXT, drain_done=TEXT, uncordon=TEXT)
    decision = decide(picture)
    assert not written(decision)
    assert decision.waits[0].code is Code.UNCORDON


def test_one_server_drains_at_a_time_also_across_tiers() -> None:
    picture = upgrading(ENABLED, ("a", "ec"), ("b", "c"), ("c", "c"), ("w", "w"))
    busy = noted(picture, "b", drain_options=TEXT)
    decision = decide(busy)
    assert "a" not in decision.secrets
    assert decision.waits[0].code is Code.TURN and not written(decision)
    assert written(decide(noted(busy, "b", drain_done=TEXT))) == {"b"}
    assert named(busy, "b").plan_annotations[well_known.DRAIN_OPTIONS] == TEXT
