"""Whether a plan runs, and what its Secret says afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.agent.clock import unix_date
from remuda.agent.plans import decide as d
from remuda.agent.plans.apply import Result

NOW = 1_800_000_000.0
SUM = "c" * 64


def secret(**texts: str) -> dict[str, bytes]:
    return {key.replace("_", "-"): value.encode() for key, value in texts.items()}


def decide(data: dict[str, bytes], first: bool = False, own: bool = False) -> d.Decision:
    return d.decide(data, SUM, "uid", NOW, first, own)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("state", "applies", "claims", "attempt"),
    [
        ("pending", True, True, 1),
        ("in-progress", True, False, 4),
        ("succeeded", False, False, 1),
        ("failed", False, False, 1),
        ("cancelled", False, False, 1),
    ],
)
def test_with_a_plan_state_the_server_says_when(state: str, applies: bool, claims: bool, attempt: int, first: bool) -> None:
    found = decide(secret(plan_state=state, failure_count="3", max_failures="1", failed_checksum=SUM), first=first)
    assert (found.apply, found.claim, found.attempt) == (applies, claims, attempt)


def test_a_claim_moves_state_and_revision() -> None:
    after = d.claimed(secret(plan_state="pending", plan_revision="6", appliedPlan="kept"))
    assert after == secret(plan_state="in-progress", plan_revision="7", appliedPlan="kept")


def test_a_crash_recovers_the_run_that_was_claimed_and_no_other() -> None:
    before = secret(plan_state="pending", plan_revision="6")
    assert decide(before).run == decide(d.claimed(before)).run
    assert decide(before).run != decide(secret(plan_state="pending", plan_revision="7")).run


@pytest.mark.parametrize(
    ("data", "first", "own", "applies"),
    [
        ({}, False, False, True),
        ({"applied_checksum": SUM}, False, False, False),
        ({"applied_checksum": SUM}, True, False, True),
        ({"applied_checksum": "old"}, False, True, False),
        ({"failure_count": "1", "failed_checksum": SUM, "last_apply_time": unix_date(NOW - 10)}, False, False, False),
        ({"failure_count": "1", "failed_checksum": SUM, "last_apply_time": unix_date(NOW - 10)}, True, False, False),
        ({"failure_count": "1", "failed_checksum": SUM, "last_apply_time": unix_date(NOW - 30)}, False, True, True),
        ({"failure_count": "1", "failed_checksum": SUM, "last_apply_time": unix_date(NOW + 9999)}, False, True, True),
        ({"failure_count": "2", "failed_checksum": SUM, "max_failures": "2"}, False, False, False),
        ({"failure_count": "2", "failed_checksum": SUM, "max_failures": "-1"}, False, False, True),
        ({"failure_count": "2", "failed_checksum": "other", "max_failures": "2"}, False, False, True),
    ],
)
def test_without_a_plan_state_checksums_and_counts_say(data: dict[str, str], first: bool, own: bool, applies: bool) -> None:
    assert decide(secret(**data), first, own).apply is applies


def report(data: dict[str, bytes], decision: d.Decision, **result: Any) -> dict[str, str]:
    known = {"ran": True, "succeeded": True, "one_time": b"out", "periodic": b"per"}
    after = d.reported(data, SUM, decision, Result(**{**known, **result}), b"{}", NOW)
    return {key: value.decode() for key, value in after.items()}


def test_success_with_a_plan_state() -> None:
    data = secret(
        plan="p", plan_state="in-progress", failure_count="2", failed_output="x", failed_checksum="y", success_count="4"
    )
    assert report(data, decide(data)) == {
        "plan": "p",
        "plan-state": "succeeded",
        "applied-checksum": SUM,
        "applied-output": "out",
        "applied-periodic-output": "per",
        "failure-count": "0",
        "failed-output": "",
        "failed-checksum": "",
        "last-apply-time": unix_date(NOW),
        "success-count": "5",
        "probe-statuses": "{}",
    }


def test_failure_with_a_plan_state_keeps_its_evidence() -> None:
    data = secret(plan_state="in-progress", applied_checksum="before")
    failed = report(data, decide(data), succeeded=False)
    assert (failed["plan-state"], failed["failed-checksum"], failed["failed-output"], failed["failure-count"]) == (
        "failed",
        SUM,
        "out",
        "1",
    )
    assert failed["applied-checksum"] == "before"
    again = {key: value.encode() for key, value in failed.items()}
    assert report(again, decide(again), ran=False, one_time=b"") == failed


@pytest.mark.parametrize("state", ["in-progress", ""])
def test_why_it_failed_is_told_until_it_does_not_fail_any_more(state: str) -> None:
    data = secret(plan_state=state)
    failed = report(data, decide(data), succeeded=False, why="instruction 0 (install): no such image")
    assert failed["failure-reason"] == "instruction 0 (install): no such image"
    again = {key: value.encode() for key, value in failed.items()} | secret(plan_state=state)
    assert report(again, decide(again))["failure-reason"] == ""


def test_the_older_flow_over_two_failures_and_the_limit() -> None:
    data = secret(max_failures="2", applied_checksum="old")
    first = report(data, decide(data, first=True), succeeded=False)
    assert (first["applied-checksum"], first["failure-count"], first["success-count"]) == ("", "1", "0")
    data = {key: value.encode() for key, value in first.items()} | secret(last_apply_time=unix_date(NOW - 31))
    assert decide(data).attempt == 2
    second = report(data, decide(data), succeeded=False)
    assert second["failure-count"] == "2"
    data = {key: value.encode() for key, value in second.items()} | secret(last_apply_time=unix_date(NOW - 31))
    assert not decide(data).apply
    assert report(data, decide(data), ran=False)["failed-output"] == "out"


def test_an_idle_pass_of_the_older_flow_changes_nothing() -> None:
    data = {key: value.encode() for key, value in report(secret(), decide(secret(), first=True)).items()}
    settled = report(data, decide(data), ran=False)
    assert settled == {key: value.decode() for key, value in data.items()}
