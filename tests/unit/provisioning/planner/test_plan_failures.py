"""A plan that failed is tried again, later each time, and stops the wave meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from remuda.gateway.explain.waits import meaning
from remuda.kube.clock import rfc3339
from remuda.kube.waits import Actor, Code
from remuda.provisioning import well_known
from remuda.provisioning.planner import waits
from remuda.provisioning.planner.plan_failures import LONGEST_PAUSE, judge, noted, pause
from remuda.provisioning.planner.snapshot import Machine
from remuda.provisioning.releases.catalog import NO_IMAGE

from .world import NEXT, NOW, World, applied, decide, heard, machine, named, running, with_machine, with_node, with_spec, written


def failed(member: Machine, revision: int = 1) -> Machine:
    assert member.node is not None
    return with_node(member, replace(member.node, state="failed", failed=True, in_sync=False, revision=revision))


def test_the_first_failure_is_noted_with_the_time_of_the_next_try() -> None:
    picture = with_machine(running(("a", "ecw")), "a", failed)
    decision = decide(picture)
    note = json.loads(decision.secrets["a"].annotations[well_known.PLAN_FAILURE] or "")
    assert note == {"attempts": 1, "retryAt": rfc3339(NOW + 10), "revision": 1}
    assert not decision.secrets["a"].retry and decision.revisit_at == NOW + 10
    assert decision.waits[0].code is Code.PLAN_FAILED
    text = f"failure while applying plan (once, next try at {rfc3339(NOW + 10)})"
    assert decision.waits[0].evidence == f"configuring bootstrap node(s) a: {text}"
    changed = decision.machines["a"].reconciled
    assert changed is not None and (changed.status, changed.reason, changed.message) == ("Unknown", "Waiting", text)


def test_it_is_tried_again_when_it_is_time_and_not_twice() -> None:
    picture = with_machine(running(("a", "ecw")), "a", failed)
    picture = applied(picture, decide(picture))
    assert not decide(replace(picture, now=NOW + 9)).secrets
    due = replace(picture, now=NOW + 10)
    again = decide(due)
    assert again.secrets["a"].retry and again.secrets["a"].plan is None
    tried = decide(applied(due, again))
    assert not tried.secrets and "tried again by its agent" in tried.waits[0].evidence


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 10), (2, 20), (3, 40), (7, 600), (10_000, 600)])
def test_pauses_grow_up_to_a_limit(attempts: int, seconds: float) -> None:
    assert pause(attempts) == seconds


def test_tries_are_counted_by_the_agents_revision_and_forgotten_after_success() -> None:
    place = World(running(("a", "ecw")), {"a": 3}, seconds=60)
    place.picture = with_spec(place.picture, felt="x")
    most = 0
    for _ in range(80):
        if place.look().applied:
            break
        note = noted(named(place.picture, "a"))
        most = max(most, note.attempts if note else 0)
        place.act()
    assert most == 3
    assert noted(named(place.picture, "a")) is None
    assert well_known.PLAN_FAILURE not in named(place.picture, "a").plan_annotations


def test_a_garbled_note_and_a_clock_that_was_set_back_stop_nothing() -> None:
    far = json.dumps({"attempts": 1, "revision": 1, "retryAt": rfc3339(NOW + 10**8)})
    member = failed(named(running(("a", "ecw")), "a"))
    assert member.node is not None
    late = judge(member.with_plan_metadata({}, {well_known.PLAN_FAILURE: far}), member.node, NOW)
    assert late.revisit_at == NOW + LONGEST_PAUSE
    fresh = judge(member.with_plan_metadata({}, {well_known.PLAN_FAILURE: "{"}), member.node, NOW)
    assert fresh.note is not None and fresh.note.attempts == 1


def test_older_agents_try_again_by_themselves() -> None:
    member = named(running(("a", "ecw")), "a")
    assert member.node is not None
    node = replace(member.node, state="", failed=True, failure_count=4, in_sync=False, failure="sh: 1\nno space left")
    verdict = judge(member, node, NOW)
    assert verdict.message == "failure while applying plan (4 times, tried again by its agent): no space left"
    assert verdict.note is None and not verdict.retry


def test_another_plan_is_given_at_once() -> None:
    picture = with_machine(running(("a", "ecw")), "a", failed)
    decision = decide(with_spec(applied(picture, decide(picture)), felt="mended"))
    assert written(decision) == {"a"}
    assert decision.secrets["a"].annotations[well_known.PLAN_FAILURE] is None


def test_a_failure_stops_the_wave_and_says_where() -> None:
    strategy = {"workerConcurrency": "0"}
    picture = running(("a", "ec"), ("w1", "w"), ("w2", "w"), ("w3", "w"), spec={"upgradeStrategy": strategy})
    place = World(with_spec(picture, kubernetesVersion=NEXT))
    while "configuring worker" not in place.look().waits[0].evidence:
        place.act()
    midway = with_machine(with_machine(place.picture, "w2", failed), "w1", lambda m: with_node(m, named(picture, "w1").node))
    decision = decide(midway)
    assert "w1" not in written(decision)
    held = next(wait for wait in decision.waits if wait.subject.name == "w1")
    assert held.code is Code.TURN and held.evidence == "not changed, since w2 failed" and held.on is not None
    assert held.on.name == "w2"
    assert decision.waits[0].code is Code.PLAN_FAILED and decision.waits[0].on is not None and decision.waits[0].on.name == "w2"


def test_members_that_failed_but_serve_are_not_all_tried_again_at_once() -> None:
    picture = running(("a", "ecw"), ("b", "ecw"), ("c", "ecw"))
    for name in ("b", "c"):
        picture = with_machine(picture, name, failed)
    picture = heard(replace(applied(picture, decide(picture)), now=NOW + 60))
    again = [name for name, change in decide(picture).secrets.items() if change.retry]
    assert again == ["b"]


def test_a_machine_without_a_plan_has_nothing_to_try_again() -> None:
    assert noted(machine("a")) is None


KNOWN = ("v1.33.5+remuda1", "v1.34.1+remuda1")
PULL = "instruction 0 (install): can't pull r:8443/rancher/system-agent-installer-remuda:v1.99.0-remuda1: r:8443: "


@pytest.mark.parametrize(
    ("failure", "tries", "code", "actor", "text"),
    [
        (f"{PULL}manifest v1.99.0-remuda1: HTTP 404 Not Found", 1, Code.RELEASE, Actor.USER, "v1.99.0+remuda1 (known: v1.33.5"),
        ("can't pull r/other:v1: r: manifest v1: HTTP 404 Not Found", 1, Code.REFERENCE, Actor.USER, waits.IMAGE_MISSING),
        (f"{PULL}the image is not made for linux/riscv64, only for linux/amd64", 1, Code.RELEASE, Actor.USER, NO_IMAGE),
        (f"{PULL}manifest v1: HTTP 401 Unauthorized", 1, Code.REFERENCE, Actor.USER, waits.IMAGE_REFUSED),
        (f"{PULL}no answer from r:443: Connection refused", 1, Code.REFERENCE, Actor.USER, waits.IMAGE_REFUSED),
        ("instruction 0 (install): tar: No space left on device", 1, Code.PLAN_FAILED, Actor.USER, "No space left"),
        ("instruction 0 (install): exit status 1: odd", 1, Code.PLAN_FAILED, Actor.MACHINE, "odd"),
        ("instruction 0 (install): exit status 1: odd", 2, Code.PLAN_FAILED, Actor.USER, "odd"),
    ],
)
def test_a_failure_is_blamed_on_the_party_that_can_mend_it(failure: str, tries: int, code: Code, actor: Actor, text: str) -> None:
    def broken(member: Machine) -> Machine:
        member = failed(member)
        assert member.node is not None
        return with_node(member, replace(member.node, failure=failure, failure_count=tries))

    picture = replace(with_machine(running(("a", "ecw")), "a", broken), known_versions=KNOWN)
    picture = with_spec(picture, kubernetesVersion="v1.99.0+remuda1")
    member = named(picture, "a")
    assert member.node is not None
    found = judge(member, member.node, NOW, picture.control_plane, KNOWN)
    assert (found.code, found.actor) == (code, actor)
    assert found.message.startswith(waits.PLAN_FAILED) and text in found.message
    # Conditions alone say the same code.
    assert meaning(found.message)[0] is code


GLOBAL, SELECTED = "spec.rkeConfig.machineGlobalConfig", "spec.rkeConfig.machineSelectorConfig"


@pytest.mark.parametrize(
    ("failure", "field"),
    [
        ("instruction 0: exit status 1: remuda: write-kubeconfig-mode is like 0600, not 'rw'", f"{GLOBAL}.write-kubeconfig-mode"),
        ('level=fatal msg="Error: flag provided but not defined: -system-default-registry"', f"{GLOBAL}.system-default-registry"),
        ("Error: unknown flag: --no-such-flag", f"{GLOBAL}.kubelet-arg[1]"),
        ('Error: invalid argument "many" for "--max-pods" flag: strconv.ParseInt', f"{GLOBAL}.kubelet-arg[2]"),
        ("exit status 1: remuda: debug is true or false, not 'loud'", f"{GLOBAL}.debug"),
        # What selects the machine counts before what is for all.
        ("remuda: node-ip is an address, not 'here'", f"{SELECTED}[0].config.node-ip"),
        # Neither what selects other machines, nor what the spec does not set.
        ("remuda: node-external-ip is an address, not 'there'", ""),
        ("Error: unknown flag: --other", ""),
        # Not every sentence with such a word is about its value.
        ("system-default-registry r:5000 does not answer", ""),
        ("the debug container is invalid", ""),
    ],
)
def test_a_value_that_the_host_refuses_is_named_by_its_field(failure: str, field: str) -> None:
    selected = [
        {"machineLabelSelector": {"matchLabels": {"a": "b"}}, "config": {"node-ip": "here"}},
        {"machineLabelSelector": {"matchLabels": {"a": "c"}}, "config": {"node-external-ip": "there"}},
    ]
    config = {"write-kubeconfig-mode": "rw", "system-default-registry": "r:5000", "debug": "loud", "node-ip": "127.0.0.1"}
    config["kubelet-arg"] = ["v=2", "no-such-flag", "--max-pods=many"]
    picture = with_spec(running(("a", "ecw")), machineGlobalConfig=config, machineSelectorConfig=selected)

    def broken(member: Machine) -> Machine:
        member = failed(member)
        assert member.node is not None
        return replace(with_node(member, replace(member.node, failure=failure)), labels={"a": "b"})

    member = named(with_machine(picture, "a", broken), "a")
    assert member.node is not None
    found = judge(member, member.node, NOW, picture.control_plane)
    assert (found.code, found.actor) == (Code.PLAN_FAILED, Actor.USER if field else Actor.MACHINE)
    assert (f"): {waits.VALUE_REFUSED} {field}: " in found.message) == bool(field)
    assert meaning(found.message) == (found.code, found.actor)


def test_the_waits_have_the_code_of_the_cause() -> None:
    def broken(member: Machine) -> Machine:
        member = failed(member)
        assert member.node is not None
        return with_node(member, replace(member.node, failure=f"{PULL}manifest v1: HTTP 401 Unauthorized"))

    told = decide(with_machine(running(("a", "ecw")), "a", broken)).waits
    assert {(wait.code, wait.actor) for wait in told} == {(Code.REFERENCE, Actor.USER)}


def test_of_our_agents_words_the_first_line_and_of_others_the_last_is_told() -> None:
    for failure, line in (("instruction 0 (x): exit status 1: why\nmore\nlast", "why"), ("first\nthe reason\n", "the reason")):
        member = failed(named(running(("a", "ecw")), "a"))
        assert member.node is not None
        assert judge(member, replace(member.node, failure=failure), NOW).message.endswith(line)
