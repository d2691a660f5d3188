"""Conditions of Rancher's kinds: what moves which time, and how a status is written."""

from __future__ import annotations

from remuda.management.conditions import condition_of, conditions_of, is_true, with_condition, without_condition

AT, LATER = 1_800_000_000.0, 1_800_000_060.0
AT_TEXT, LATER_TEXT = "2027-01-15T08:00:00Z", "2027-01-15T08:01:00Z"


def test_a_condition_is_set_once() -> None:
    made = with_condition({}, "Created", "True", now=AT)
    assert condition_of(made, "Created") == {
        "type": "Created",
        "status": "True",
        "lastUpdateTime": AT_TEXT,
        "lastTransitionTime": AT_TEXT,
    }
    assert is_true(made, "Created")
    assert with_condition(made, "Created", "True", now=LATER) is made


def test_another_message_moves_the_update_and_another_status_the_transition() -> None:
    made = with_condition(with_condition({}, "Ready", "False", "Error", "first", now=AT), "Other", "True", now=AT)
    said = with_condition(made, "Ready", "False", "Error", "second", now=LATER)
    found = condition_of(said, "Ready")
    assert found is not None
    assert (found["lastUpdateTime"], found["lastTransitionTime"]) == (LATER_TEXT, AT_TEXT)
    moved = condition_of(with_condition(said, "Ready", "True", now=LATER), "Ready")
    assert moved == {"type": "Ready", "status": "True", "lastUpdateTime": LATER_TEXT, "lastTransitionTime": LATER_TEXT}
    assert [each["type"] for each in conditions_of(said)] == ["Ready", "Other"]


def test_what_is_not_there_is_not_taken_away() -> None:
    made = with_condition({}, "Ready", "True", now=AT)
    assert without_condition(made, "Other") is made
    assert conditions_of(without_condition(made, "Ready")) == []
