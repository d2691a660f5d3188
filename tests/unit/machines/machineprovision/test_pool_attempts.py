"""What was tried is kept, newest last, and not for ever; and a pool that fails is tried more and more slowly."""

from __future__ import annotations

from remuda.machines.errors import Reason
from remuda.machines.machineprovision.job_outcome import (
    MOST,
    JobAttempt,
    JobEnd,
    JobOutcome,
    attempt,
    attempts_of,
    config_map,
    failure_of,
    failures_in_a_row,
    pause,
    text_of,
    with_attempt,
)


def tried(job: str, result: str = "Failed", action: str = "create") -> JobAttempt:
    return JobAttempt(job=job, machine=f"m-{job}", kind="PodMachine", action=action, result=result)


def test_an_attempt_says_what_a_person_needs() -> None:
    failed = JobOutcome(JobEnd.FAILED, 1_800_000_000.0, 1_800_000_060.0, failure_of("trying\nAuthFailed: wrong key"))
    made = attempt("u1", "m", "PodMachine", removing=False, outcome=failed)
    assert made == JobAttempt(
        job="u1",
        machine="m",
        kind="PodMachine",
        action="create",
        result="Failed",
        began="2027-01-15T08:00:00Z",
        ended="2027-01-15T08:01:00Z",
        reason="AuthFailed",
        message="wrong key",
        text="trying\nAuthFailed: wrong key",
    )
    assert attempt("u1", "m", "K", removing=True, outcome=JobOutcome(JobEnd.COMPLETE)).result == "Complete"
    assert attempt("u1", "m", "K", removing=True, outcome=failed, abandoned=True).result == "Abandoned"


def test_an_attempt_is_kept_once_and_old_ones_make_room() -> None:
    before = [tried(str(number)) for number in range(MOST)]
    after = with_attempt(before, tried("new"))
    assert after is not None and len(after) == MOST and after[-1].job == "new" and after[0].job == "1"
    assert with_attempt(after, tried("new")) is None


def test_it_is_read_back_and_what_others_wrote_is_nothing() -> None:
    listed = [tried("1"), tried("2", "Complete")]
    made = config_map("n", "ns", {"kind": "Cluster"}, {}, listed)
    assert attempts_of(made) == listed
    assert attempts_of(None) == [] and attempts_of({"data": {"attempts": "no"}}) == [] and attempts_of({"data": {}}) == []
    assert text_of([]) == "[]"


def test_the_first_failure_costs_nothing_and_each_further_one_in_a_row_more() -> None:
    failures = [tried(str(number)) for number in range(20)]
    assert [pause(failures[:count]) for count in (0, 1, 2, 3, 4)] == [0, 0, 10, 20, 40]
    assert pause(failures) == 300
    assert pause([*failures, tried("x", "Complete")]) == 0
    assert pause([*failures[:2], tried("x", "Complete", "remove")]) == 10, "a removal says nothing about making"


def test_failures_in_a_row_are_counted_by_action_and_machine() -> None:
    def one(action: str, result: str, machine: str = "m", reason: str = "AuthFailed", message: str = "no") -> JobAttempt:
        return JobAttempt("j", machine, "PodMachine", action, result, reason=reason, message=message)

    made = [one("create", "Failed"), one("create", "Complete"), one("create", "Failed"), one("remove", "Failed", "other")]
    made.append(one("create", "Failed", message="still no"))
    count, last = failures_in_a_row(made)
    assert count == 2 and last is not None and (last.reason, last.message) == (Reason.AUTH_FAILED, "still no")
    assert failures_in_a_row(made, "m") == (0, None)
    assert failures_in_a_row(made, "other")[0] == 1
    # A record that another version wrote.
    assert failures_in_a_row([one("create", "Failed", reason="Tomorrow")]) == (1, None)
