"""The status of a MachineDeployment: counts, phase and both sets of conditions, from a snapshot. Pure.

Other programs parse messages and reasons. :mod:`..machine_messages` has the messages about machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from remuda.kube.clock import time_of
from remuda.kube.condition_summaries import LegacySum, Reasons, Sum, aggregate, legacy_mirror, legacy_summary
from remuda.kube.conditions import FALSE, INFO, TRUE, UNKNOWN, WARNING, get, is_false, with_condition, with_legacy
from remuda.kube.objects import dig, is_being_deleted, with_path, without_path
from remuda.kube.selectors import LabelSelector

from .. import kubernetes_versions
from ..machine_messages import in_deletion_for_long, not_to_be_remediated
from .machineset_view import RolloutBounds, count, created, max_unavailable_of, spec_replicas

Obj = dict[str, Any]

OWNED = (
    "Paused",
    "Available",
    "MachinesReady",
    "MachinesUpToDate",
    "RollingOut",
    "ScalingDown",
    "ScalingUp",
    "Remediating",
    "Deleting",
    # Of the older kind; Available is in both.
    "Ready",
)
_INTERNAL_ERROR = Sum(UNKNOWN, "InternalError", "Please check controller logs for errors")
_NO_REPLICAS = Sum(UNKNOWN, "WaitingForReplicasSet", "Waiting for spec.replicas set")
# Seconds until a machine's missing UpToDate condition is reported.
UP_TO_DATE_GRACE = 10.0


@dataclass(frozen=True, slots=True)
class Rolled:
    """The result of a plan that was carried out."""

    new: Obj | None
    machine_sets: Sequence[Obj]


@dataclass(frozen=True, slots=True)
class MachineDeploymentSnapshot:
    """`machine_sets` is None when they could not be read; `rolled` when the plan was not carried out."""

    deployment: Obj
    now: float
    selector: LabelSelector | None = None
    machine_sets: Sequence[Obj] | None = None
    machines: Sequence[Obj] = ()
    bootstrap_missing: bool = False
    infrastructure_missing: bool = False
    rolled: Rolled | None = None

    @property
    def deleting(self) -> bool:
        return is_being_deleted(self.deployment)

    @property
    def wanted(self) -> int | None:
        """The number of machines that there should be in the end."""
        replicas = spec_replicas(self.deployment)
        return 0 if self.deleting and replicas is not None else replicas

    @property
    def present(self) -> int:
        return total(self.machine_sets or (), "replicas") or 0


def total(machine_sets: Iterable[Obj], field: str) -> int | None:
    """The sum of a count in the status of sets; None when none of them has it yet."""
    found = [number for each in machine_sets if (number := count(each, "status", field)) is not None]
    return sum(found) if found else None


def with_status(snapshot: MachineDeploymentSnapshot) -> Obj:
    """The deployment with its new status."""
    deployment = snapshot.deployment
    if snapshot.rolled is not None:
        deployment = _with_legacy(deployment, snapshot.rolled, snapshot.now)
    if snapshot.selector is not None:
        deployment = with_path(deployment, ("status", "selector"), str(snapshot.selector))
    if snapshot.machine_sets is not None:
        deployment = _with_counts(deployment, snapshot.machine_sets)
    deployment = with_path(deployment, ("status", "phase"), _phase(snapshot))
    for kind, found in (
        ("Available", _available(snapshot, deployment)),
        ("RollingOut", _rolling_out(snapshot.machines)),
        ("ScalingUp", _scaling_up(snapshot)),
        ("ScalingDown", _scaling_down(snapshot)),
        ("MachinesReady", _machines_ready(snapshot.machines)),
        ("MachinesUpToDate", _machines_up_to_date(snapshot.machines, snapshot.now)),
        ("Remediating", _remediating(snapshot.machines)),
        ("Deleting", _deleting(snapshot)),
    ):
        deployment = with_condition(deployment, kind, found.status, found.reason, found.message, now=snapshot.now)
    return _with_legacy_condition(deployment, "Ready", legacy_summary(deployment, ("Available",)), snapshot.now)


# --- counts ------------------------------------------------------------------------------------------------------------------


def _with_counts(deployment: Obj, machine_sets: Sequence[Obj]) -> Obj:
    counts: Obj = {field: total(machine_sets, field) for field in _COUNTS}
    counts["versions"] = kubernetes_versions.summed(_versions(machine_sets)) or None
    for field, value in counts.items():
        path = ("status", field)
        deployment = without_path(deployment, path) if value is None else with_path(deployment, path, value)
    return deployment


_COUNTS = ("replicas", "readyReplicas", "availableReplicas", "upToDateReplicas")


def _versions(machine_sets: Iterable[Obj]) -> Iterable[Obj]:
    for each in machine_sets:
        found = dig(each, "status", "versions")
        yield from (version for version in found or () if isinstance(version, dict))


def _phase(snapshot: MachineDeploymentSnapshot) -> str:
    if snapshot.machine_sets is None or (wanted := spec_replicas(snapshot.deployment)) is None:
        return "Unknown"
    if snapshot.deleting or wanted < snapshot.present:
        return "ScalingDown"
    return "Running" if wanted == snapshot.present else "ScalingUp"


def is_complete(deployment: Obj, machine_sets: Sequence[Obj]) -> bool:
    """True if all machines exist, are up to date and available, and there are no others."""
    wanted = spec_replicas(deployment)
    return all((total(machine_sets, field) or 0) == wanted for field in ("replicas", "upToDateReplicas", "availableReplicas"))


# --- the older kind ----------------------------------------------------------------------------------------------------------


def _with_legacy(deployment: Obj, rolled: Rolled, now: float) -> Obj:
    available = _legacy_total(rolled.machine_sets, "availableReplicas")
    specified = sum(spec_replicas(each) or 0 for each in rolled.machine_sets)
    counts = {
        "updatedReplicas": count(rolled.new, "status", "replicas") or 0,
        "readyReplicas": _legacy_total(rolled.machine_sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(specified - available, 0),
    }
    for field, value in counts.items():
        deployment = with_path(deployment, ("status", "deprecated", "v1beta1", field), value)
    needed = RolloutBounds.of(deployment).least
    if available >= needed:
        enough = LegacySum(TRUE)
    else:
        present = total(rolled.machine_sets, "availableReplicas") or 0
        message = f"Minimum availability requires {needed} replicas, current {present} available"
        enough = LegacySum(FALSE, "WaitingForAvailableMachines", message, WARNING)
    deployment = _with_legacy_condition(deployment, "Available", enough, now)
    missing = LegacySum(FALSE, "WaitingForMachineSet", "" if rolled.new is not None else "MachineSet not found", INFO)
    return _with_legacy_condition(deployment, "MachineSetReady", legacy_mirror(rolled.new, missing), now)


def _legacy_total(machine_sets: Iterable[Obj], field: str) -> int:
    return sum(count(each, "status", "deprecated", "v1beta1", field) or 0 for each in machine_sets)


def _with_legacy_condition(deployment: Obj, kind: str, found: LegacySum | None, now: float) -> Obj:
    return deployment if found is None else with_legacy(deployment, kind, *found, now=now)


# --- conditions --------------------------------------------------------------------------------------------------------------


def _available(snapshot: MachineDeploymentSnapshot, counted: Obj) -> Sum:
    if snapshot.machine_sets is None:
        return _INTERNAL_ERROR
    if spec_replicas(snapshot.deployment) is None:
        return _NO_REPLICAS
    available = count(counted, "status", "availableReplicas")
    if available is None:
        return Sum(UNKNOWN, "WaitingForAvailableReplicasSet", "Waiting for status.availableReplicas set")
    bounds = RolloutBounds.of(snapshot.deployment)
    if available >= bounds.least:
        return Sum(TRUE, "Available", "")
    if snapshot.deleting:
        return Sum(FALSE, "NotAvailable", "Deletion in progress")
    message = f"{available} available replicas, at least {bounds.least} required"
    if bounds.rolling:
        unavailable = max_unavailable_of(snapshot.deployment)
        message += f" (spec.strategy.rollout.maxUnavailable is {unavailable}, spec.replicas is {bounds.replicas})"
    return Sum(FALSE, "NotAvailable", message)


def _rolling_out(machines: Sequence[Obj]) -> Sum:
    outdated = [condition for machine in machines if (condition := get(machine, "UpToDate")) and condition["status"] == FALSE]
    if not outdated:
        return Sum(FALSE, "NotRollingOut", "")
    why = {line for condition in outdated if condition.get("message") for line in condition["message"].split("\n")}
    # Users look for a change of version first.
    lines = sorted(why, key=lambda line: (not line.startswith("* Version"), line))
    return Sum(TRUE, "RollingOut", "\n".join([f"Rolling out {len(outdated)} not up-to-date replicas", *lines]))


def _scaling_up(snapshot: MachineDeploymentSnapshot) -> Sum:
    if snapshot.machine_sets is None:
        return _INTERNAL_ERROR
    if (wanted := snapshot.wanted) is None:
        return _NO_REPLICAS
    missing = _missing_references(snapshot)
    if snapshot.present >= wanted:
        message = f"Scaling up would be blocked {missing}" if missing and not snapshot.deleting else ""
        return Sum(FALSE, "NotScalingUp", message)
    message = f"Scaling up from {snapshot.present} to {wanted} replicas"
    return Sum(TRUE, "ScalingUp", f"{message} is blocked {missing}" if missing else message)


def _missing_references(snapshot: MachineDeploymentSnapshot) -> str:
    template = dig(snapshot.deployment, "spec", "template", "spec") or {}
    kinds = []
    if snapshot.bootstrap_missing:
        kinds.append(dig(template, "bootstrap", "configRef", "kind") or "")
    if snapshot.infrastructure_missing:
        kinds.append(dig(template, "infrastructureRef", "kind") or "")
    if not kinds:
        return ""
    return f"because {' and '.join(kinds)} {'does' if len(kinds) == 1 else 'do'} not exist"


def _scaling_down(snapshot: MachineDeploymentSnapshot) -> Sum:
    if snapshot.machine_sets is None:
        return _INTERNAL_ERROR
    if (wanted := snapshot.wanted) is None:
        return _NO_REPLICAS
    if snapshot.present <= wanted:
        return Sum(FALSE, "NotScalingDown", "")
    message = f"Scaling down from {snapshot.present} to {wanted} replicas"
    return Sum(TRUE, "ScalingDown", message + _slow(snapshot))


def _slow(snapshot: MachineDeploymentSnapshot) -> str:
    found = in_deletion_for_long(snapshot.machines, snapshot.now)
    return f"\n* {found}" if found else ""


def _machines_ready(machines: Sequence[Obj]) -> Sum:
    if not machines:
        return Sum(TRUE, "NoReplicas", "")
    return aggregate(machines, "Ready", reasons=Reasons("NotReady", "ReadyUnknown", "Ready"))


def _machines_up_to_date(machines: Sequence[Obj], now: float) -> Sum:
    heard = [machine for machine in machines if get(machine, "UpToDate") or not _is_young(machine, now)]
    if not heard:
        return Sum(TRUE, "NoReplicas", "")
    return aggregate(heard, "UpToDate", reasons=Reasons("NotUpToDate", "UpToDateUnknown", "UpToDate"))


def _is_young(machine: Obj, now: float) -> bool:
    made = time_of(created(machine))
    return made is not None and now - made <= UP_TO_DATE_GRACE


def next_report_at(machines: Iterable[Obj], now: float) -> float | None:
    """The time at which the next machine's missing UpToDate condition will be reported."""
    silent = (time_of(created(each)) for each in machines if get(each, "UpToDate") is None and _is_young(each, now))
    return min((made + UP_TO_DATE_GRACE for made in silent if made is not None), default=None)


def _remediating(machines: Sequence[Obj]) -> Sum:
    unhealthy = [machine for machine in machines if is_false(machine, "HealthCheckSucceeded")]
    ours = [machine for machine in unhealthy if is_false(machine, "OwnerRemediated")]
    if not ours:
        return Sum(FALSE, "NotRemediating", not_to_be_remediated(unhealthy, "MachineDeployment/MachineSet"))
    return Sum(TRUE, "Remediating", aggregate(ours, "OwnerRemediated").message)


def _deleting(snapshot: MachineDeploymentSnapshot) -> Sum:
    if snapshot.machine_sets is None:
        return _INTERNAL_ERROR
    if not snapshot.deleting:
        return Sum(FALSE, "NotDeleting", "")
    machines = len(snapshot.machines)
    if machines:
        message = f"Deleting {machines} Machine{'s' if machines > 1 else ''}" + _slow(snapshot)
    elif snapshot.machine_sets:
        message = f"Deleting {len(snapshot.machine_sets)} MachineSets"
    else:
        message = "Deletion completed"
    return Sum(TRUE, "Deleting", message)
