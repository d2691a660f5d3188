"""The status of a set, computed from one reconcile's snapshot; both sets of conditions. Pure.

The older half is below (:func:`with_legacy_status`). A set whose machines could not be listed reports that, and keeps its
counters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from remuda.kube.clock import time_of
from remuda.kube.condition_summaries import LegacySum, Reasons, Sum, aggregate, legacy_aggregate, legacy_summary
from remuda.kube.conditions import ERROR, FALSE, TRUE, UNKNOWN, WARNING, get, is_true, with_condition, with_legacy
from remuda.kube.objects import dig, is_being_deleted, labels_of, metadata, with_path, without_path

from ..kubernetes_versions import of_machines
from ..machine_messages import LONG_DELETION, deleting_for, in_deletion_for_long, not_to_be_remediated
from .remediation import REMEDIATED, is_to_be_remediated, is_unhealthy
from .scope import CreationFailure

Obj = dict[str, Any]

OWNED = (
    "Paused",
    "ScalingUp",
    "ScalingDown",
    "MachinesReady",
    "MachinesUpToDate",
    "Remediating",
    "Deleting",
    # of the older conditions
    "Ready",
    "MachinesCreated",
    "Resized",
)
_CHECK_LOGS = "Please check controller logs for errors"
# Seconds that a new machine may take to report whether it is up to date.
_YOUNG_SECONDS = 10.0
_NOT_READY_AGAIN = 15.0
_COUNTERS = {"readyReplicas": "Ready", "availableReplicas": "Available", "upToDateReplicas": "UpToDate"}


@dataclass(frozen=True, slots=True)
class MachineSetSnapshot:
    """`machines` is None when they could not be listed, for the reason `why`; `node` finds a node by name."""

    machine_set: Obj
    machines: Sequence[Obj] | None
    now: float
    selector: str = ""
    why: str = ""
    bootstrap_missing: bool = False
    infrastructure_missing: bool = False
    preflight: Sequence[str] = ()
    failure: CreationFailure | None = None
    node: Callable[[str], Obj | None] = lambda name: None

    @property
    def replicas(self) -> int | None:
        """The wanted number of machines: 0 for a set that is being deleted."""
        found = dig(self.machine_set, "spec", "replicas")
        if not isinstance(found, int):
            return None
        return 0 if is_being_deleted(self.machine_set) else found


def with_status(snapshot: MachineSetSnapshot) -> Obj:
    """The set with its v1beta2 status (not the older half)."""
    found = snapshot.machine_set
    if snapshot.selector:
        found = with_path(found, ("status", "selector"), snapshot.selector)
    if snapshot.machines is None:
        sums = {kind: Sum(UNKNOWN, "InternalError", snapshot.why or _CHECK_LOGS) for kind in _SUMS}
    else:
        found = _with_counters(found, snapshot.machines)
        sums = {kind: make(snapshot, snapshot.machines) for kind, make in _SUMS.items()}
    for kind, summed in sums.items():
        found = with_condition(found, kind, summed.status, summed.reason, summed.message, now=snapshot.now)
    return found


def _with_counters(machine_set: Obj, machines: Sequence[Obj]) -> Obj:
    status = {**(machine_set.get("status") or {}), "replicas": len(machines)}
    for field, kind in _COUNTERS.items():
        status[field] = sum(1 for machine in machines if is_true(machine, kind))
    versions = of_machines(machines)
    found = {**machine_set, "status": status}
    path = ("status", "versions")
    return with_path(found, path, versions) if versions else without_path(found, path)


# --- conditions ------------------------------------------------------------------------------------------------------------


def _replicas_not_set() -> Sum:
    return Sum(UNKNOWN, "WaitingForReplicasSet", "Waiting for spec.replicas set")


def _scaling_up(snapshot: MachineSetSnapshot, machines: Sequence[Obj]) -> Sum:
    wanted = snapshot.replicas
    if wanted is None:
        return _replicas_not_set()
    missing = missing_references(snapshot)
    if len(machines) >= wanted:
        blocked = missing and not is_being_deleted(snapshot.machine_set)
        return Sum(FALSE, "NotScalingUp", f"Scaling up would be blocked because {missing}" if blocked else "")
    why = [*snapshot.preflight, *([missing] if missing else [])]
    if not why and snapshot.failure is not None:
        why = [snapshot.failure.message]
    message = f"Scaling up from {len(machines)} to {wanted} replicas"
    if why:
        message += " is blocked because:\n" + "\n".join(f"* {each}" for each in why)
    return Sum(TRUE, "ScalingUp", message)


def missing_references(snapshot: MachineSetSnapshot) -> str:
    """The message about templates that don't exist."""
    spec = dig(snapshot.machine_set, "spec", "template", "spec") or {}
    kinds = [dig(spec, "bootstrap", "configRef", "kind", default="")] if snapshot.bootstrap_missing else []
    kinds += [dig(spec, "infrastructureRef", "kind", default="")] if snapshot.infrastructure_missing else []
    if not kinds:
        return ""
    return f"{' and '.join(kinds)} {'does' if len(kinds) == 1 else 'do'} not exist"


def _scaling_down(snapshot: MachineSetSnapshot, machines: Sequence[Obj]) -> Sum:
    wanted = snapshot.replicas
    if wanted is None:
        return _replicas_not_set()
    if len(machines) <= wanted:
        return Sum(FALSE, "NotScalingDown", "")
    message = f"Scaling down from {len(machines)} to {wanted} replicas"
    return Sum(TRUE, "ScalingDown", _with_stale(message, snapshot, machines))


def _with_stale(message: str, snapshot: MachineSetSnapshot, machines: Sequence[Obj]) -> str:
    stale = in_deletion_for_long(machines, snapshot.now)
    return f"{message}\n* {stale}" if stale else message


def _machines_ready(snapshot: MachineSetSnapshot, machines: Sequence[Obj]) -> Sum:
    if not machines:
        return Sum(TRUE, "NoReplicas", "")
    return aggregate(machines, "Ready", reasons=Reasons("NotReady", "ReadyUnknown", "Ready"))


def _machines_up_to_date(snapshot: MachineSetSnapshot, machines: Sequence[Obj]) -> Sum:
    grown = [machine for machine in machines if not _is_young(machine, snapshot.now)]
    if not grown:
        return Sum(TRUE, "NoReplicas", "")
    return aggregate(grown, "UpToDate", reasons=Reasons("NotUpToDate", "UpToDateUnknown", "UpToDate"))


def _is_young(machine: Obj, now: float) -> bool:
    """True if it has not reported UpToDate yet, and still may take its time."""
    return get(machine, "UpToDate") is None and now - _created(machine) <= _YOUNG_SECONDS


def _created(machine: Obj) -> float:
    return time_of(metadata(machine).get("creationTimestamp")) or 0.0


def _remediating(snapshot: MachineSetSnapshot, machines: Sequence[Obj]) -> Sum:
    chosen = [machine for machine in machines if is_to_be_remediated(machine)]
    if chosen:
        return Sum(TRUE, "Remediating", aggregate(chosen, REMEDIATED).message)
    unhealthy = [machine for machine in machines if is_unhealthy(machine)]
    return Sum(FALSE, "NotRemediating", not_to_be_remediated(unhealthy, "MachineSet"))


def _deleting(snapshot: MachineSetSnapshot, machines: Sequence[Obj]) -> Sum:
    if not is_being_deleted(snapshot.machine_set):
        return Sum(FALSE, "NotDeleting", "")
    if not machines:
        return Sum(TRUE, "Deleting", "Deletion completed")
    message = f"Deleting {len(machines)} Machine{'s' if len(machines) > 1 else ''}"
    return Sum(TRUE, "Deleting", _with_stale(message, snapshot, machines))


_SUMS: dict[str, Callable[[MachineSetSnapshot, Sequence[Obj]], Sum]] = {
    "ScalingUp": _scaling_up,
    "ScalingDown": _scaling_down,
    "MachinesReady": _machines_ready,
    "MachinesUpToDate": _machines_up_to_date,
    "Remediating": _remediating,
    "Deleting": _deleting,
}


# --- time ------------------------------------------------------------------------------------------------------------------


def seconds_until_change(machine_set: Obj, snapshot: MachineSetSnapshot) -> float | None:
    """Seconds until the status (of `machine_set`, as computed) may change by time alone."""
    machines = snapshot.machines
    if machines is None:
        return None
    ages = [age for machine in machines if (age := deleting_for(machine, snapshot.now)) is not None]
    times = [LONG_DELETION + 1 - age for age in ages if age <= LONG_DELETION]
    times += [_YOUNG_SECONDS + 1 - (snapshot.now - _created(machine)) for machine in machines if _is_young(machine, snapshot.now)]
    if not is_being_deleted(machine_set):
        times += _until_ready(machine_set)
    return max(min(times), 0.0) if times else None


def _until_ready(machine_set: Obj) -> list[float]:
    """Nodes are not watched here; so a set that is not ready checks them periodically."""
    status = machine_set.get("status") or {}
    wanted = dig(machine_set, "spec", "replicas")
    settling = dig(machine_set, "spec", "template", "spec", "minReadySeconds") or 0
    if status.get("readyReplicas") != wanted:
        return [_NOT_READY_AGAIN]
    return [float(settling)] if settling and status.get("availableReplicas") != wanted else []


# --- v1beta1 --------------------------------------------------------------------------------------------------------------
#
# `status.deprecated.v1beta1`: counters by nodes, and conditions with a severity.

CREATED, RESIZED, READY = "MachinesCreated", "Resized", "MachinesReady"


def with_legacy_status(machine_set: Obj, snapshot: MachineSetSnapshot) -> Obj:
    """`machine_set` (with its v1beta2 status) with the older half, too."""
    found = machine_set
    if (failure := snapshot.failure) is not None:
        found = with_legacy(found, CREATED, FALSE, failure.reason, failure.message, ERROR, now=snapshot.now)
    if snapshot.machines is not None and snapshot.replicas is not None:
        found = _with_legacy_counters(found, snapshot, snapshot.machines)
        found = _with_resized(found, snapshot, len(snapshot.machines), snapshot.replicas)
        found = _with_sum(found, READY, legacy_aggregate(snapshot.machines, source=True), snapshot.now)
        if not snapshot.machines:
            found = with_legacy(found, READY, TRUE, now=snapshot.now)
    return _with_sum(found, "Ready", legacy_summary(found, (CREATED, RESIZED, READY)), snapshot.now)


def _with_sum(machine_set: Obj, kind: str, summed: LegacySum | None, now: float) -> Obj:
    if summed is None:
        return machine_set
    return with_legacy(machine_set, kind, summed.status, summed.reason, summed.message, summed.severity, now=now)


def _with_legacy_counters(machine_set: Obj, snapshot: MachineSetSnapshot, machines: Sequence[Obj]) -> Obj:
    wanted = (dig(machine_set, "spec", "template", "metadata", "labels") or {}).items()
    settling = dig(machine_set, "spec", "template", "spec", "minReadySeconds") or 0
    names = (dig(machine, "status", "nodeRef", "name") for machine in machines)
    ready = [node for name in names if name and (node := snapshot.node(name)) is not None and _is_ready(node)]
    counters = {
        "fullyLabeledReplicas": sum(1 for machine in machines if wanted <= labels_of(machine).items()),
        "readyReplicas": len(ready),
        "availableReplicas": sum(1 for node in ready if _is_available(node, settling, snapshot.now)),
    }
    path = ("status", "deprecated", "v1beta1")
    return with_path(machine_set, path, {**(dig(machine_set, *path) or {}), **counters})


def _ready_condition(node: Obj) -> Obj:
    return next((each for each in dig(node, "status", "conditions") or () if each.get("type") == "Ready"), {})


def _is_ready(node: Obj) -> bool:
    return _ready_condition(node).get("status") == TRUE


def _is_available(node: Obj, settling: float, now: float) -> bool:
    if not settling:
        return True
    since = time_of(_ready_condition(node).get("lastTransitionTime"))
    return since is not None and since + settling < now


def _with_resized(machine_set: Obj, snapshot: MachineSetSnapshot, present: int, wanted: int) -> Obj:
    now = snapshot.now
    if present < wanted:
        message = f"Scaling up MachineSet to {wanted} replicas (actual {present})"
        return with_legacy(machine_set, RESIZED, FALSE, "ScalingUp", message, WARNING, now=now)
    # The wanted number of machines exists: so their creation did not fail.
    machine_set = with_legacy(machine_set, CREATED, TRUE, now=now)
    if present > wanted:
        message = f"Scaling down MachineSet to {wanted} replicas (actual {present})"
        return with_legacy(machine_set, RESIZED, FALSE, "ScalingDown", message, WARNING, now=now)
    if dig(machine_set, "status", "deprecated", "v1beta1", "readyReplicas") != present:
        return machine_set  # not done until all of them are ready
    return with_legacy(machine_set, RESIZED, TRUE, now=now)
