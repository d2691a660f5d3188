"""An infrastructure machine's status about its Jobs (docs/reference/machines.md#status-of-a-machine): CreateJob, DeleteJob and
Ready, and failures. Pure."""

from __future__ import annotations

from typing import Any

from remuda.access.rancher_conditions import FALSE, TRUE, UNKNOWN, condition_of, with_condition
from remuda.kube.objects import dig, labels_of, name_of, namespace_of, with_path, without_path

from .job_arguments import DriverFacts
from .job_outcome import JobEnd, JobOutcome
from .well_known import CAPI_MACHINE

Obj = dict[str, Any]

CREATE_JOB, DELETE_JOB, READY = "CreateJob", "DeleteJob", "Ready"
# Cluster API's words.
CREATE_ERROR, DELETE_ERROR = "CreateError", "DeleteError"
# The reason in a CreateJob whose Job was deleted before it ended.
INTERRUPTED = "Interrupted"
CREATING, DELETING = "creating machine provision job", "creating machine deletion job"


def condition_kind(*, removing: bool) -> str:
    return DELETE_JOB if removing else CREATE_JOB


def status_of(infra: Obj, kind: str) -> str:
    """True, False or Unknown; empty when there is no such condition."""
    return str((condition_of(infra, kind) or {}).get("status") or "")


def reason_of(infra: Obj, kind: str) -> str:
    return str((condition_of(infra, kind) or {}).get("reason") or "")


def described(infra: Obj, *, removing: bool) -> str:
    doing = "deleting" if removing else "creating"
    machine = labels_of(infra).get(CAPI_MACHINE) or ""
    return (
        f"{doing} server [{namespace_of(infra)}/{name_of(infra)}] of kind ({infra.get('kind')}) for machine {machine} "
        "in infrastructure provider"
    )


def begun(infra: Obj, facts: DriverFacts, credential: tuple[str, str], *, removing: bool, now: float) -> Obj:
    """Before the Job is there: from now on there may be something that has to be removed. `credential` is its name and uid."""
    after = without_failure(infra) if removing else infra
    after = with_condition(after, condition_kind(removing=removing), UNKNOWN, "", DELETING if removing else CREATING, now=now)
    for field, value in (
        ("driverUrl", facts.url),
        ("driverHash", facts.hash),
        ("cloudCredentialSecretName", credential[0]),
        ("cloudCredentialUID", credential[1]),
    ):
        if (dig(after, "status", field) or "") != value:
            after = with_path(after, ("status", field), value)
    return with_condition(after, READY, FALSE, "", described(infra, removing=removing), now=now)


def with_outcome(infra: Obj, job: str, outcome: JobOutcome, *, removing: bool, now: float) -> Obj:
    kind, after = condition_kind(removing=removing), infra
    if dig(infra, "status", "jobName") != job:
        after = with_path(after, ("status", "jobName"), job)
    if outcome.ended is JobEnd.NOT_YET:
        message = described(infra, removing=removing)
        if outcome.stuck:
            message += f": its pod does not start: {outcome.stuck}"
        return with_condition(after, READY, FALSE, "", message, now=now)
    if outcome.ended is JobEnd.COMPLETE:
        after = without_failure(with_condition(after, kind, TRUE, now=now))
        return with_condition(after, READY, TRUE, now=now)
    assert outcome.failure is not None
    reason, text = DELETE_ERROR if removing else CREATE_ERROR, outcome.failure.text or outcome.failure.message
    message = f"failed {described(infra, removing=removing)}: {reason}: {outcome.failure.reason}: {outcome.failure.message}"
    after = with_condition(after, kind, FALSE, reason, message, now=now)
    after = with_condition(after, READY, FALSE, reason, message, now=now)
    after = with_path(after, ("status", "failureReason"), reason)
    return with_path(after, ("status", "failureMessage"), text)


def with_interruption(infra: Obj, *, now: float) -> Obj:
    return with_condition(infra, CREATE_JOB, FALSE, INTERRUPTED, "its Job was deleted before it had ended", now=now)


def without_failure(infra: Obj) -> Obj:
    after = infra
    for field in ("failureReason", "failureMessage"):
        if dig(after, "status", field) is not None:
            after = without_path(after, ("status", field))
    return after


def with_provision(infra: Obj) -> Obj:
    """Provisioned once its node's identity is known, which others write."""
    there = bool(dig(infra, "spec", "providerID"))
    if dig(infra, "status", "initialization", "provisioned") is there or (not there and not infra.get("status")):
        return infra
    after = with_path(infra, ("status", "initialization", "provisioned"), there)
    return with_path(after, ("status", "ready"), there) if there else after


def waiting(infra: Obj, message: str, *, now: float) -> Obj:
    """The status with the reason why the machine waits, for users."""
    return with_condition(infra, READY, FALSE, "Waiting", message, now=now)
