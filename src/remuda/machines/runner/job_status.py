"""The status of a Job that runs as a process, written as Kubernetes' own controller would for pods. Pure.

With `spec.managedBy` the API checks a status strictly: one that has ended has a start, no active pods, and the conditions that
lead to its last one (SuccessCriteriaMet before Complete, FailureTarget before Failed).
"""

from __future__ import annotations

from typing import Any

from remuda.access.rancher_conditions import UNKNOWN
from remuda.kube.clock import rfc3339
from remuda.kube.objects import annotations_of, dig, find_by, is_being_deleted, name_of, uid_of

from ..machineprovision.job_objects import is_controlled_by
from ..machineprovision.machine_status import CREATE_JOB, DELETE_JOB, status_of
from ..machineprovision.well_known import JOB_UID, LOCAL_RUNNER, job_name

Obj = dict[str, Any]

# Kubernetes' own: ten seconds, twice as long each time, never longer than ten minutes.
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 600.0


def is_over(job: Obj) -> bool:
    return any(
        each.get("type") in ("Complete", "Failed") and each.get("status") == "True"
        for each in dig(job, "status", "conditions") or ()
    )


def failures(job: Obj) -> int:
    return int(dig(job, "status", "failed") or 0)


def began(job: Obj, now: float) -> Obj:
    """A merge patch: a process runs."""
    return {"status": {"startTime": dig(job, "status", "startTime") or rfc3339(now), "active": 1, "ready": 1}}


def succeeded(job: Obj, now: float) -> Obj:
    conditions = _with(job, "SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods", now)
    conditions = _and(conditions, "Complete", "CompletionsReached", "Reached expected number of succeeded pods", now)
    return {"status": {**_idle(job, now), "succeeded": 1, "completionTime": rfc3339(now), "conditions": conditions}}


def failed(job: Obj, message: str, now: float, *, retries: int) -> Obj:
    """One more failure; the last one if there were `retries` before."""
    count = failures(job) + 1
    status: Obj = {**_idle(job, now), "failed": count}
    if count > retries:
        conditions = _with(job, "FailureTarget", "BackoffLimitExceeded", message, now)
        status["conditions"] = _and(conditions, "Failed", "BackoffLimitExceeded", message, now)
    return {"status": status}


def pause(count: int) -> float:
    """Before the next process, when so many have failed."""
    return min(_FIRST_PAUSE * 2.0 ** max(count - 1, 0), _LONGEST_PAUSE)


def _idle(job: Obj, now: float) -> Obj:
    return {"startTime": dig(job, "status", "startTime") or rfc3339(now), "active": None, "ready": None}


def _with(job: Obj, kind: str, reason: str, message: str, now: float) -> list[Obj]:
    return _and(list(dig(job, "status", "conditions") or ()), kind, reason, message, now)


def _and(conditions: list[Obj], kind: str, reason: str, message: str, now: float) -> list[Obj]:
    if find_by(conditions, "type", kind) is not None:
        return conditions
    moment = rfc3339(now)
    made = {"type": kind, "status": "True", "reason": reason, "message": message}
    return [*conditions, {**made, "lastProbeTime": moment, "lastTransitionTime": moment}]


# --- job choice -----------------------------------------------------------------------------------------------------------
#
# The Jobs that are run here: those that machineprovision made for a machine that exists, and no others. Pure.
#
# Any user who may write in a cluster's namespace can create a Job that looks like one of ours. So only the identity of a Job
# counts: the machine names the one Job that was made for it, by uid, and says itself what to do; image, command, arguments,
# volumes and accounts of the Job are never looked at.


def is_managed(job: Obj) -> bool:
    """True if it asks to be run here; others belong to other controllers."""
    return bool(dig(job, "spec", "managedBy") == LOCAL_RUNNER)


def refusal(job: Obj, infra: Obj | None) -> str:
    """The reason why it is not run (yet); empty when it is."""
    if infra is None:
        return "no machine of a driver owns it"
    if not is_controlled_by(job, infra) or name_of(job) != job_name(name_of(infra)):
        return f"it is not the Job of {infra.get('kind')} {name_of(infra)}"
    if not uid_of(job) or annotations_of(infra).get(JOB_UID) != uid_of(job):
        return f"it was not made for {infra.get('kind')} {name_of(infra)} by this server"
    if is_being_deleted(job):
        return "it is being deleted"
    if wanted(infra) is None:
        return f"nothing is to be done for {infra.get('kind')} {name_of(infra)}"
    return ""


def wanted(infra: Obj) -> bool | None:
    """True if the machine's status says that it is to be removed, False if made, None if neither."""
    if status_of(infra, DELETE_JOB):
        return True if status_of(infra, DELETE_JOB) == UNKNOWN and is_being_deleted(infra) else None
    return False if status_of(infra, CREATE_JOB) == UNKNOWN else None
