"""Validation of a job's status, and of its transitions."""

from __future__ import annotations

from remuda.kube.errors import OMITTED, duplicate, invalid_value, required

from .. import checks
from ..checks import Errors, Obj, same, sub


def _true(obj: Obj, kind: str) -> bool:
    conditions = sub(obj, "status").get("conditions") or ()
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions)


def status_update_errors(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old)
    status, before = sub(obj, "status"), sub(old, "status")
    errors += checks.all_nonnegative(status, ("active", "succeeded", "failed", "ready", "terminating"), "status")
    errors += _uncounted_errors(sub(status, "uncountedTerminatedPods"), "status.uncountedTerminatedPods")
    errors += _condition_errors(obj, old) + _finished_errors(obj, old)
    return errors + _history_errors(obj, old, status, before)


def _uncounted_errors(pods: Obj, path: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for field in ("succeeded", "failed"):
        for index, uid in enumerate(pods.get(field) or ()):
            at = f"{path}.{field}[{index}]"
            if not uid:
                errors.append(invalid_value(at, uid, "must not be empty"))
            elif uid in seen:
                errors.append(duplicate(at, uid))
            seen.add(uid)
    return errors


def _condition_errors(obj: Obj, old: Obj) -> Errors:
    path, status = "status.conditions", sub(obj, "status")
    complete, failed = _true(obj, "Complete"), _true(obj, "Failed")
    target, met = _true(obj, "FailureTarget"), _true(obj, "SuccessCriteriaMet")

    def wrong(why: str) -> Errors:
        return [invalid_value(path, OMITTED, why)]

    errors: Errors = []
    if complete and failed:
        errors += wrong("cannot set Complete=True and Failed=true conditions")
    if complete and target:
        errors += wrong("cannot set Complete=True and FailureTarget=true conditions")
    start, end = status.get("startTime"), status.get("completionTime")
    if end and not complete:
        why = "cannot set completionTime when there is no Complete=True condition"
        errors.append(invalid_value("status.completionTime", end, why))
    if complete and not end and not (_true(old, "Complete") and not sub(old, "status").get("completionTime")):
        errors.append(required("status.completionTime", "completionTime is required for Complete jobs"))
    if start and end and end < start:
        errors.append(invalid_value("status.completionTime", end, "must be equal to or after `startTime`"))
    if failed and not target and not _true(old, "Failed"):
        errors += wrong("cannot set Failed=True condition without the FailureTarget=true condition")
    if complete and not met and not _true(old, "Complete"):
        errors += wrong("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
    return errors


def _finished_errors(obj: Obj, old: Obj) -> Errors:
    status = sub(obj, "status")
    finished = _true(obj, "Complete") or _true(obj, "Failed")
    errors: Errors = []
    if finished:
        if status.get("active"):
            errors.append(invalid_value("status.active", status["active"], "active>0 is invalid for finished job"))
        idle = sub(obj, "spec").get("suspend") and sub(obj, "spec").get("completions") == 0
        if not status.get("startTime") and not idle:
            errors.append(required("status.startTime", "startTime is required for finished job"))
        pods = sub(status, "uncountedTerminatedPods")
        if pods.get("succeeded") or pods.get("failed"):
            errors.append(invalid_value("status.uncountedTerminatedPods", pods, "must be empty for finished job"))
        if status.get("terminating"):
            why = "terminating>0 is invalid for finished job"
            errors.append(invalid_value("status.terminating", status["terminating"], why))
    indexed = sub(obj, "spec").get("completionMode") == "Indexed"
    if status.get("completedIndexes") and not indexed:
        why = "cannot set non-empty completedIndexes when non-indexed completion mode"
        errors.append(invalid_value("status.completedIndexes", status["completedIndexes"], why))
    if status.get("failedIndexes") is not None and sub(obj, "spec").get("backoffLimitPerIndex") is None:
        why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        errors.append(invalid_value("status.failedIndexes", status["failedIndexes"], why))
    if (status.get("ready") or 0) > (status.get("active") or 0):
        errors.append(invalid_value("status.ready", status["ready"], "cannot set more ready pods than active"))
    met, path = _true(obj, "SuccessCriteriaMet"), "status.conditions"
    for kind in ("Failed", "FailureTarget"):
        if met and _true(obj, kind):
            why = f"cannot set SuccessCriteriaMet=True and {kind}=true conditions"
            errors.append(invalid_value(path, OMITTED, why))
    return errors


def _history_errors(obj: Obj, old: Obj, status: Obj, before: Obj) -> Errors:
    errors: Errors = []
    for kind in ("Failed", "Complete", "FailureTarget"):
        if _true(old, kind) and not _true(obj, kind):
            why = f"cannot disable the terminal {kind}=True condition"
            errors.append(invalid_value("status.conditions", OMITTED, why))
    spec = sub(obj, "spec")
    elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    for field in ("failed", "succeeded"):
        if (status.get(field) or 0) < (before.get(field) or 0) and not (field == "succeeded" and elastic):
            errors.append(invalid_value(f"status.{field}", status.get(field) or 0, f"cannot decrease the {field} counter"))
    end, start = before.get("completionTime"), before.get("startTime")
    if end and status.get("completionTime") and not same(end, status["completionTime"]):
        errors.append(invalid_value("status.completionTime", status["completionTime"], "field is immutable"))
    if start and status.get("startTime") != start and not spec.get("suspend") and not _true(old, "Suspended"):
        why = "field is immutable for unsuspended job once set"
        errors.append(invalid_value("status.startTime", status.get("startTime"), why))
    if _true(old, "SuccessCriteriaMet") and not _true(obj, "SuccessCriteriaMet"):
        why = "cannot disable the SuccessCriteriaMet=True condition"
        errors.append(invalid_value("status.conditions", OMITTED, why))
    return errors
