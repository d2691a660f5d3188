"""Conditions: set in both kinds, merged between writers, summed up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube import conditions as c
from remuda.kube.condition_summaries import (
    LegacySum,
    Reasons,
    Sum,
    aggregate,
    legacy_aggregate,
    legacy_mirror,
    legacy_summary,
    summary,
)

Obj = dict[str, Any]
EPOCH = "1970-01-01T00:00:0{}Z"


def machine(name: str = "m", *conditions: Obj, **labels: str) -> Obj:
    return {
        "kind": "Machine",
        "metadata": {"name": name, "generation": 3, "labels": labels},
        "status": {"conditions": list(conditions)},
    }


def condition(kind: str, status: str, message: str = "", at: int = 1) -> Obj:
    return {
        "type": kind,
        "status": status,
        "reason": f"{kind}{status}",
        "message": message,
        "lastTransitionTime": EPOCH.format(at),
    }


def test_the_time_moves_with_the_status_and_nothing_else() -> None:
    first = c.with_condition({"metadata": {"generation": 3}}, "Ready", c.FALSE, "NotReady", "a", now=1)
    assert c.conditions_of(first) == [
        {
            "type": "Ready",
            "status": "False",
            "reason": "NotReady",
            "message": "a",
            "observedGeneration": 3,
            "lastTransitionTime": EPOCH.format(1),
        }
    ]
    assert c.with_condition(first, "Ready", c.FALSE, "NotReady", "a", now=2) is first
    second = c.with_condition(first, "Ready", c.FALSE, "Other", "b", now=2)
    found = c.get(second, "Ready")
    assert found is not None and (found["reason"], found["lastTransitionTime"]) == ("Other", EPOCH.format(1))
    third = c.with_condition(second, "Ready", c.TRUE, "Ready", now=3)
    assert c.is_true(third, "Ready") and c.get(third, "Ready")["lastTransitionTime"] == EPOCH.format(3)  # type: ignore[index]
    assert c.with_condition(third, "Ready", c.TRUE, "Ready", now=4, since=EPOCH.format(2)) is third
    mirrored = c.with_condition(third, "Ready", c.FALSE, "NotReady", now=9, since=EPOCH.format(5))
    assert c.get(mirrored, "Ready")["lastTransitionTime"] == EPOCH.format(5)  # type: ignore[index]
    assert c.conditions_of(c.without(mirrored, "Ready")) == []


def test_the_older_kind_has_its_own_place_order_and_time() -> None:
    obj: Obj = {}
    for kind in ("Zed", "Ready", "Alpha"):
        obj = c.with_legacy(obj, kind, c.FALSE, "Why", "what", c.WARNING, now=1)
    assert [each["type"] for each in obj["status"]["deprecated"]["v1beta1"]["conditions"]] == ["Ready", "Alpha", "Zed"]
    later = c.with_legacy(obj, "Ready", c.FALSE, "Why", "else", c.WARNING, now=2)
    assert c.get(later, "Ready", c.LEGACY)["lastTransitionTime"] == EPOCH.format(2)  # type: ignore[index]
    assert c.with_legacy(obj, "Ready", c.FALSE, "Why", "what", c.WARNING, now=2) is obj
    assert c.get(c.with_legacy({}, "Ready", c.TRUE, now=1), "Ready", c.LEGACY) == {
        "type": "Ready",
        "status": "True",
        "lastTransitionTime": EPOCH.format(1),
    }


def test_the_telling_ones_come_first() -> None:
    obj: Obj = {}
    for kind in ("Deleting", "Paused", "Mine", "Ready", "ScalingUp", "Available", "Another"):
        obj = c.with_condition(obj, kind, c.TRUE, "R", now=1)
    order = ["Available", "Ready", "ScalingUp", "Another", "Mine", "Paused", "Deleting"]
    assert [each["type"] for each in c.conditions_of(obj)] == order


KINDS = st.sampled_from(["Ready", "Available", "Paused", "X", "Y"])
ONE = st.builds(
    condition, KINDS, st.sampled_from(["True", "False", "Unknown"]), st.sampled_from(["", "a", "b"]), st.integers(1, 5)
)
SET = st.lists(ONE, unique_by=lambda each: str(each["type"])).map(lambda found: sorted(found, key=c.CURRENT.order))


@given(SET, SET, SET)
def test_of_two_writers_each_keeps_what_it_changed(before: list[Obj], mine: list[Obj], theirs: list[Obj]) -> None:
    try:
        merged = c.merged(before, mine, theirs)
    except c.ConditionConflict:
        both = {
            kind
            for kind in kinds(before, mine, theirs)
            if of(before, kind) != of(mine, kind) and of(before, kind) != of(theirs, kind)
        }
        assert both, "a conflict needs two who changed the same"
        return
    assert merged == sorted(merged, key=c.CURRENT.order)
    for kind in kinds(before, mine, theirs):
        wanted = of(mine, kind) if of(before, kind) != of(mine, kind) else of(theirs, kind)
        assert state(of(merged, kind)) == state(wanted)


@given(SET, SET, SET)
def test_who_owns_a_condition_has_the_last_word(before: list[Obj], mine: list[Obj], theirs: list[Obj]) -> None:
    merged = c.merged(before, mine, theirs, owned=kinds(before, mine, theirs))
    for kind in kinds(before, mine, theirs):
        wanted = of(mine, kind) if of(before, kind) != of(mine, kind) else of(theirs, kind)
        assert state(of(merged, kind)) == state(wanted)


@given(SET, SET)
def test_merging_twice_changes_nothing_more(before: list[Obj], mine: list[Obj]) -> None:
    once = c.merged(before, mine, before)
    assert c.merged(before, mine, once, owned=kinds(before, mine)) == once


def kinds(*sets: list[Obj]) -> set[str]:
    return {each["type"] for found in sets for each in found}


def of(found: list[Obj], kind: str) -> Obj | None:
    return next((each for each in found if each["type"] == kind), None)


def state(found: Obj | None) -> Any:
    return None if found is None else (found["status"], found["reason"], found["message"])


READY = Reasons("NotReady", "ReadyUnknown", "Ready")


def test_a_summary_names_issues_and_missing_reports() -> None:
    found = machine("m", condition("A", "True", "fine"), condition("B", "False", "bad"), condition("D", "True", "going"))
    assert summary(found, ["A", "B", "C", "D", "E"], negative=["D"], optional=["E"], reasons=READY) == Sum(
        "False", "NotReady", "* B: bad\n* C: Condition not yet reported\n* D: going"
    )
    assert summary(found, ["A"], reasons=READY) == Sum("True", "Ready", "* A: fine")
    assert summary(found, ["C"], reasons=READY).status == "Unknown"
    lines = machine("m", condition("A", "False", "* x\n* y"), condition("B", "False", "one\n* two"), condition("C", "False"))
    assert summary(lines, ["A", "B", "C"]).message == "* A:\n  * x\n  * y\n* B:\n  * one\n    * two\n* C: CFalse"
    with pytest.raises(ValueError, match="at least one"):
        summary(found, [], reasons=READY)


def test_an_aggregate_shows_three_groups_and_counts_the_rest() -> None:
    plane = {"cluster.x-k8s.io/control-plane": ""}
    machines = [
        *(machine(f"w{number}", condition("Ready", "False", "slow")) for number in range(5)),
        machine("cp", condition("Ready", "Unknown", "lost"), **plane),
        machine("x", condition("Ready", "False", "odd")),
        machine("y", condition("Ready", "False", "strange")),
        machine("z"),
        machine("good", condition("Ready", "True", "fine")),
    ]
    assert aggregate(machines, "Ready", reasons=READY) == Sum(
        "False",
        "NotReady",
        "* Machine cp: lost\n* Machines w0, w1, w2, ... (2 more): slow\n* Machine x: odd\n"
        "And 1 Machine with other issues\nAnd 1 Machine with status unknown",
    )
    good = [machine(name, condition("Ready", "True", "fine" if name == "b" else "")) for name in "abc"]
    assert aggregate(good, "Ready", reasons=READY) == Sum("True", "Ready", "* Machine b: fine")
    going = [machine("a", condition("Deleting", "True", "going"))]
    assert aggregate(going, "Deleting", negative=True).status == "True"


def legacy(name: str = "m", *conditions: tuple[str, str, str]) -> Obj:
    obj: Obj = {"kind": "Machine", "metadata": {"name": name}}
    for kind, status, severity in conditions:
        obj = c.with_legacy(obj, kind, status, f"Why{kind}" if status != "True" else "", f"what {kind}", severity, now=1)
    return obj


def test_an_older_summary_takes_the_worst_and_counts_steps() -> None:
    found = legacy("m", ("A", "True", ""), ("B", "False", "Info"), ("C", "False", "Error"), ("D", "False", "Error"))
    assert legacy_summary(found) == LegacySum("False", "WhyC", "what C", "Error")
    assert legacy_summary(found, ["D", "C", "A"], steps=True) == LegacySum("False", "WhyD", "1 of 3 completed", "Error")
    assert legacy_summary(found, ["A"]) == LegacySum("True")
    assert legacy_summary(found, ["A"], negative=["A"]) == LegacySum("False", "", "what A")
    two = legacy("m", ("A", "True", ""), ("B", "False", "Info"))
    assert legacy_summary(two, steps=True, steps_if_only=["A", "B", "X"]) == LegacySum(
        "False", "WhyB", "1 of 3 completed", "Info"
    )
    assert legacy_summary(two, steps=True, steps_if_only=["A"]) == LegacySum("False", "WhyB", "what B", "Info")
    assert legacy_summary(legacy()) is None


def test_an_older_aggregate_names_the_object_of_its_reason() -> None:
    machines = [
        legacy("b", ("Ready", "False", "Warning")),
        legacy("a", ("Ready", "False", "Warning")),
        legacy("c", ("Ready", "True", "")),
        legacy("d"),
    ]
    assert legacy_aggregate(machines, source=True) == LegacySum("False", "WhyReady @ Machine/a", "1 of 4 completed", "Warning")
    assert legacy_aggregate([legacy("d")]) is None
    assert legacy_mirror(machines[0]) == LegacySum("False", "WhyReady", "what Ready", "Warning")
    assert legacy_mirror(legacy(), LegacySum("False", "Waiting", "", "Info")) == LegacySum("False", "Waiting", "", "Info")
