"""What a Job's status says of processes, as Kubernetes' own controller would of pods. Pure.

With `spec.managedBy` the API checks a status strictly: one that has ended has a start, no active pods, and the conditions that
lead to its last one (SuccessCriteriaMet before Complete, FailureTarget before Failed).
"""

from __future__ import annotations

from typing import Any

from remuda.kube.clock import rfc3339
from remuda.kube.objects import dig, find_by

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
