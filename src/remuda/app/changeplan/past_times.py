"""How long the hosts of these clusters took before to apply a plan, and to be made: the times of a rehearsal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from remuda.kube.clock import time_of
from remuda.kube.objects import annotations_of, dig, find_by
from remuda.lab.sim.hosts import Times
from remuda.lab.sim.machine_jobs import JobTimes
from remuda.provisioning.well_known import MACHINE_GROUP, PLAN_TYPE, PLAN_UPDATED, PROBES_PASSED

Obj = dict[str, Any]

# What is longer was a fault, or a user who waited.
_LONGEST = 900.0


def host_times(secrets: Iterable[Obj]) -> Times:
    """From the plans that hosts applied last, each until its probes passed; half of it for the plan, half for the services."""
    seconds = _middle(
        _between(annotations_of(each), PLAN_UPDATED, PROBES_PASSED) for each in secrets if each.get("type") == PLAN_TYPE
    )
    return Times() if seconds is None else Times((seconds / 2, seconds / 2), (seconds / 2, seconds / 2))


def job_times(machines: Iterable[Obj]) -> JobTimes:
    """From the Machines of pools: until each had its infrastructure."""
    made = (each for each in machines if dig(each, "spec", "infrastructureRef", "apiGroup") == MACHINE_GROUP)
    seconds = _middle(_between(_moments(each), "created", "ready") for each in made)
    return JobTimes() if seconds is None else JobTimes(create=(seconds, seconds))


def _moments(machine: Obj) -> dict[str, str]:
    ready = find_by(dig(machine, "status", "conditions") or (), "type", "InfrastructureReady") or {}
    return {"created": machine["metadata"].get("creationTimestamp") or "", "ready": ready.get("lastTransitionTime") or ""}


def _between(moments: Mapping[str, str], first: str, last: str) -> float | None:
    begin, end = (time_of(moments.get(each)) for each in (first, last))
    if begin is None or end is None:
        return None
    return end - begin if 0 < end - begin <= _LONGEST else None


def _middle(found: Iterable[float | None]) -> float | None:
    known = [each for each in found if each is not None]
    return median(known) if known else None
