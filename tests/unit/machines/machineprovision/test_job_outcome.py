"""How a Job went, and why it failed."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.machines.errors import Reason
from remuda.machines.machineprovision.job_outcome import JobEnd, failure_of, last_words, outcome_of, stuck_of

Obj = dict[str, Any]
T = "2026-01-02T03:04:05Z"


def job(*conditions: str, message: str = "") -> Obj:
    listed = [{"type": each, "status": "True", "message": message, "lastTransitionTime": T} for each in conditions]
    return {"status": {"startTime": T, "conditions": listed}}


def pod(code: int, message: str, made: str) -> Obj:
    ended = {"state": {"terminated": {"exitCode": code, "message": message}}}
    return {"metadata": {"creationTimestamp": made}, "status": {"containerStatuses": [ended]}}


def test_a_job_without_conditions_has_not_ended() -> None:
    assert outcome_of({}).ended is JobEnd.NOT_YET and outcome_of({}).began == 0
    assert outcome_of(job("SuccessCriteriaMet")).ended is JobEnd.NOT_YET
    assert outcome_of(job()).began > 0


def test_a_job_is_complete_or_failed_since_a_moment() -> None:
    assert outcome_of(job("SuccessCriteriaMet", "Complete")).ended is JobEnd.COMPLETE
    failed = outcome_of(job("FailureTarget", "Failed", message="x\nAuthFailed: wrong key\n"))
    assert failed.ended is JobEnd.FAILED and failed.since == failed.began
    assert failed.failure is not None and (failed.failure.reason, failed.failure.message) == (Reason.AUTH_FAILED, "wrong key")


def test_the_newest_pod_that_failed_has_the_last_word() -> None:
    pods = [
        pod(1, "old", "2026-01-01T00:00:00Z"),
        pod(1, " QuotaExceeded: no more \n", T),
        pod(0, "fine", "2026-01-01T01:00:00Z"),
    ]
    assert last_words(pods) == "QuotaExceeded: no more"
    failed = outcome_of(job("Failed", message="Job has reached the specified backoff limit"), pods)
    assert failed.failure is not None and failed.failure.reason is Reason.QUOTA_EXCEEDED


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("Error creating machine: AuthFailure: AWS was not able to validate the provided access credentials", Reason.AUTH_FAILED),
        ("POST https://api.digitalocean.com/v2/droplets: 401 Unable to authenticate you", Reason.AUTH_FAILED),
        ("UnauthorizedOperation: You are not authorized to perform this operation", Reason.PERMISSION_DENIED),
        ("VcpuLimitExceeded: You have requested more vCPU capacity than your current vCPU limit", Reason.QUOTA_EXCEEDED),
        ("creating this/these droplet(s) will exceed your droplet limit", Reason.QUOTA_EXCEEDED),
        ("InsufficientInstanceCapacity: We currently do not have sufficient capacity", Reason.OUT_OF_CAPACITY),
        ("RequestLimitExceeded: Request limit exceeded.", Reason.THROTTLED),
        ("InvalidAMIID.NotFound: The image id '[ami-1]' does not exist", Reason.NOT_FOUND),
        ("dial tcp: lookup ec2.amazonaws.com: no such host", Reason.UNAVAILABLE),
        (
            "Too many retries waiting for SSH to be available. Last error: Maximum number of retries (60) exceeded",
            Reason.TIMED_OUT,
        ),
        ('Driver "foo" not found. Do you have the plugin binary "docker-machine-driver-foo"?', Reason.MISSING_PROGRAM),
        ("panic: runtime error", Reason.FAILED),
        ("", Reason.FAILED),
    ],
)
def test_what_providers_say_is_told_apart(said: str, reason: Reason) -> None:
    assert failure_of(said).reason is reason


def test_our_own_word_wins_over_what_else_was_said() -> None:
    found = failure_of("connection refused, again\nInvalid: region must be one of a, b\nEnd of it")
    assert (found.reason, found.message) == (Reason.INVALID, "region must be one of a, b")
    assert not found.passes and failure_of("Throttled: later").passes


def test_what_is_kept_is_no_longer_than_a_termination_message() -> None:
    assert len(failure_of("x" * 10_000).text) == 4096


def test_what_the_runner_writes_below_it_is_not_what_the_program_said() -> None:
    found = failure_of("--- create, 2026-11-16T03:02:58Z\nthere is no command 'provision'\n--- ended with exit status 2")
    assert (found.reason, found.message) == (Reason.FAILED, "there is no command 'provision'")
    assert failure_of("--- ended with exit status 2").message == "it printed nothing, and ended with exit status 2"


def test_the_reason_is_of_the_last_try_and_of_no_earlier_one() -> None:
    first = "--- create, 2026-11-16T03:02:58Z\nAuthFailed: the key is wrong\n--- ended with exit status 1\n"
    second = "--- create, 2026-11-16T03:03:58Z\n"
    found = failure_of(f"{first}{second}the disk burns\n--- ended with exit status 2")
    assert (found.reason, found.message) == (Reason.FAILED, "the disk burns") and "AuthFailed" not in found.text
    found = failure_of(f"{first}{second}--- ended with signal 9")
    assert (found.reason, found.message) == (Reason.FAILED, "it printed nothing, and ended with signal 9")
    assert failure_of(f"{second}QuotaExceeded: no more").reason is Reason.QUOTA_EXCEEDED


def test_an_older_pod_does_not_speak_for_a_newer_one() -> None:
    older = pod(1, "AuthFailed: the key is wrong", "2026-01-01T00:00:00Z")
    evicted = {"metadata": {"creationTimestamp": T}, "status": {"reason": "Evicted", "message": "the node was low on memory"}}
    assert last_words([older, evicted]) == "Evicted: the node was low on memory"
    silent = {"metadata": {"creationTimestamp": T}, "status": {}}
    failed = outcome_of(job("Failed", message="Job has reached the specified backoff limit"), [older, silent])
    assert failed.failure is not None and failed.failure.reason is not Reason.AUTH_FAILED
    assert failed.failure.message == "Job has reached the specified backoff limit"


def waiting(reason: str, message: str = "", made: str = T) -> Obj:
    container = {"state": {"waiting": {"reason": reason, "message": message}}}
    return {"metadata": {"creationTimestamp": made}, "status": {"containerStatuses": [container]}}


def test_a_pod_that_does_not_start_says_why() -> None:
    assert stuck_of([]) == "" and stuck_of([waiting("ContainerCreating")]) == ""
    assert (
        outcome_of(job(), [waiting("ErrImagePull", "x509: unknown authority")]).stuck == "ErrImagePull: x509: unknown authority"
    )
    assert stuck_of([waiting("ErrImagePull", made="2026-01-01T00:00:00Z"), waiting("ContainerCreating")]) == "", "that was before"
    full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
    assert stuck_of([{"status": {"conditions": [full]}}]) == "Unschedulable: 0/1 nodes are available"
    assert len(stuck_of([waiting("ErrImagePull", "x" * 5000)])) == 600
