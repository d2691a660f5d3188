"""CronJobs."""

from __future__ import annotations

import re
import zoneinfo

from remuda.kube.errors import go_quote, invalid_value, not_supported, required

from ...registry import object_meta
from ...registry.strategy import (
    AGE,
    NAME,
    NONE,
    UNSET,
    Elapsed,
    Strategy,
    at,
    column,
    container_columns,
    format_selector,
    length,
    number,
)
from .. import checks, workloads
from ..checks import Errors, Obj, same, sub
from ..pods.defaults import default_template
from .job import default_failure_policy, job_spec_errors, job_spec_warnings

_ZONE_PART = re.compile(r"[A-Za-z.\-_0-9+]{1,14}")


def _default(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("concurrencyPolicy"):
        spec["concurrencyPolicy"] = "Allow"
    for field, value in (("suspend", False), ("successfulJobsHistoryLimit", 3), ("failedJobsHistoryLimit", 1)):
        if spec.get(field) is None:
            spec[field] = value
    job = spec.setdefault("jobTemplate", {}).setdefault("spec", {})
    default_template(job.setdefault("template", {}))
    default_failure_policy(job)


def _schedule_errors(schedule: str, before: Obj | None, zone: str | None) -> Errors:
    path = "spec.schedule"
    if not schedule:
        return [required(path)]
    problem = schedule_problem(schedule)
    errors = [invalid_value(path, schedule, problem)] if problem else []
    if "TZ" in schedule:
        tolerated = before is not None and "TZ" in (before.get("schedule") or "")
        if not tolerated:
            why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            errors.append(invalid_value(path, schedule, why))
        elif zone is not None:
            why = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
            errors.append(invalid_value(path, schedule, why))
    return errors


def _zone_errors(zone: str | None) -> Errors:
    path = "spec.timeZone"
    if zone is None:
        return []
    if not zone:
        return [invalid_value(path, zone, "timeZone must be nil or non-empty string")]
    unknown = [invalid_value(path, zone, f"unknown time zone {zone}")]
    for part in zone.split("/"):
        if part in (".", "..") or part.startswith("-") or not _ZONE_PART.fullmatch(part):
            return unknown
    errors: Errors = []
    if zone.lower() == "local":
        why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        errors.append(invalid_value(path, zone, why))
        return errors if zone == "Local" else errors + unknown
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return unknown
    return []


def _spec_errors(spec: Obj, before: Obj | None) -> Errors:
    zone = spec.get("timeZone")
    errors = _schedule_errors(spec.get("schedule") or "", before, zone)
    errors += checks.nonnegative(spec.get("startingDeadlineSeconds"), "spec.startingDeadlineSeconds")
    if before is None or before.get("timeZone") != zone:
        errors += _zone_errors(zone)
    policies = ("Allow", "Forbid", "Replace")
    errors += checks.supported(spec.get("concurrencyPolicy") or "", policies, "spec.concurrencyPolicy")
    job, path = sub(spec, "jobTemplate", "spec"), "spec.jobTemplate.spec"
    errors += job_spec_errors(job, path)
    if job.get("selector") is not None:
        shown = checks.shown_selector(job["selector"])
        errors.append(invalid_value(f"{path}.selector", shown, "`selector` will be auto-generated"))
    if job.get("manualSelector"):
        errors.append(not_supported(f"{path}.manualSelector", True, ("nil", "false")))
    limits = ("successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    return errors + checks.all_nonnegative(spec, limits, "spec")


def _validate(obj: Obj) -> Errors:
    errors = checks.meta_errors(obj, True, object_meta.subdomain_name) + _spec_errors(sub(obj, "spec"), None)
    name = sub(obj, "metadata").get("name") or ""
    if len(name) > 52:
        errors.append(invalid_value("metadata.name", name, "must be no more than 52 characters"))
    return errors


def _warnings(obj: Obj, old: Obj | None) -> list[str]:
    found = workloads.hostname_warnings(obj, workloads.HOSTNAMES) if old is None else []
    if old is None or not same(obj.get("spec"), old.get("spec")):
        found += job_spec_warnings(sub(obj, "spec", "jobTemplate", "spec"), "spec.jobTemplate.spec")
    if old is not None and "TZ" in (sub(obj, "spec").get("schedule") or ""):
        found.append(
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
            "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        )
    return found


def _suspend(obj: Obj) -> str:
    value = sub(obj, "spec").get("suspend")
    return UNSET if value is None else str(bool(value))


def _last(obj: Obj) -> str | Elapsed:
    last = sub(obj, "status").get("lastScheduleTime")
    return Elapsed(last) if last else NONE


_JOB = ("spec", "jobTemplate", "spec")

STRATEGY = Strategy(
    default=_default,
    prepare_for_create=checks.drop_status,
    validate=_validate,
    prepare_for_update=checks.keep_status,
    validate_update=lambda obj, old: checks.meta_update_errors(obj, old) + _spec_errors(sub(obj, "spec"), sub(old, "spec")),
    prepare_for_status_update=checks.keep_spec,
    validate_status_update=checks.meta_update_errors,
    warnings=_warnings,
    name_problems=object_meta.subdomain_name,
    columns=(
        NAME,
        column("Schedule", at("spec", "schedule"), "When jobs start."),
        column("Timezone", at("spec", "timeZone", default=NONE), "The time zone of the schedule."),
        column("Suspend", _suspend, "Whether no jobs start for now.", type="boolean"),
        number("Active", length("status", "active"), "Jobs that run now."),
        column("Last Schedule", _last, "When a job last started."),
        AGE,
        *container_columns(*_JOB, "template", "spec", "containers"),
        column("Selector", lambda obj: format_selector(sub(obj, *_JOB).get("selector")), "Its pods.", wide=True),
    ),
    generation=True,
)


# --- schedules ------------------------------------------------------------------------------------------------------------
#
# The syntax of cron schedules: five fields or a descriptor. Validation only.


_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: i + 1 for i, name in enumerate(_MONTH_NAMES)}
_DAYS = {name: i for i, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)
_DESCRIPTORS = frozenset(("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"))
_DURATION = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))*|0")


class _Wrong(ValueError):
    """An error in a part of a schedule."""


def schedule_problem(schedule: str) -> str:
    """The error in `schedule`; "" when it is valid."""
    try:
        _check(schedule)
    except _Wrong as error:
        return str(error)
    return ""


def _check(schedule: str) -> None:
    if not schedule:
        raise _Wrong("empty spec string")
    if schedule.startswith(("TZ=", "CRON_TZ=")):
        _, space, schedule = schedule.partition(" ")
        if not space:
            raise _Wrong("provided bad location")
        schedule = schedule.strip()
    if schedule.startswith("@"):
        _check_descriptor(schedule)
        return
    fields = schedule.split()
    if len(fields) != 5:
        raise _Wrong(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    for field, (low, high, names) in zip(fields, _FIELDS, strict=True):
        for expression in field.split(","):
            if expression:
                _check_range(expression, low, high, names)


def _check_descriptor(text: str) -> None:
    if text in _DESCRIPTORS:
        return
    if text.startswith("@every "):
        duration = text.removeprefix("@every ")
        if not _DURATION.fullmatch(duration):
            raise _Wrong(f"failed to parse duration {text}: time: invalid duration {go_quote(duration)}")
        return
    raise _Wrong(f"unrecognized descriptor: {text}")


def _check_range(expression: str, low: int, high: int, names: dict[str, int]) -> None:
    parts = expression.split("/")
    ends = parts[0].split("-")
    single = len(ends) == 1
    if ends[0] in ("*", "?"):
        start, end = low, high
    else:
        start = _number(ends[0], names)
        if single:
            end = start
        elif len(ends) == 2:
            end = _number(ends[1], names)
        else:
            raise _Wrong(f"too many hyphens: {expression}")
    if len(parts) > 2:
        raise _Wrong(f"too many slashes: {expression}")
    step = 1
    if len(parts) == 2:
        step = _number(parts[1], {})
        if single:
            end = high
    if start < low:
        raise _Wrong(f"beginning of range ({start}) below minimum ({low}): {expression}")
    if end > high:
        raise _Wrong(f"end of range ({end}) above maximum ({high}): {expression}")
    if start > end:
        raise _Wrong(f"beginning of range ({start}) beyond end of range ({end}): {expression}")
    if step == 0:
        raise _Wrong(f"step of range should be a positive number: {expression}")


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not re.fullmatch(r"[-+]?\d+", text, re.ASCII):
        raise _Wrong(f"failed to parse int from {text}: strconv.Atoi: parsing {go_quote(text)}: invalid syntax")
    number = int(text)
    if number < 0:
        raise _Wrong(f"negative number ({number}) not allowed: {text}")
    return number
