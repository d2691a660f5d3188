"""The older half of a set's status, `status.deprecated.v1beta1`: counters by nodes, and conditions with a severity. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remuda.kube.clock import time_of
from remuda.kube.condition_summaries import LegacySum, legacy_aggregate, legacy_summary
from remuda.kube.conditions import ERROR, FALSE, TRUE, WARNING, with_legacy
from remuda.kube.objects import dig, labels_of, with_path

from .status import Snapshot

Obj = dict[str, Any]

CREATED, RESIZED, READY = "MachinesCreated", "Resized", "MachinesReady"


def with_legacy_status(machine_set: Obj, snapshot: Snapshot) -> Obj:
    """`machine_set` (with its v1beta2 status) with the older half, too."""
    found = machine_set
    if (failure := snapshot.failure) is not None:
        found = with_legacy(found, CREATED, FALSE, failure.reason, failure.message, ERROR, now=snapshot.now)
    if snapshot.machines is not None and snapshot.replicas is not None:
        found = _with_counters(found, snapshot, snapshot.machines)
        found = _with_resized(found, snapshot, len(snapshot.machines), snapshot.replicas)
        found = _with_sum(found, READY, legacy_aggregate(snapshot.machines, source=True), snapshot.now)
        if not snapshot.machines:
            found = with_legacy(found, READY, TRUE, now=snapshot.now)
    return _with_sum(found, "Ready", legacy_summary(found, (CREATED, RESIZED, READY)), snapshot.now)


def _with_sum(machine_set: Obj, kind: str, summed: LegacySum | None, now: float) -> Obj:
    if summed is None:
        return machine_set
    return with_legacy(machine_set, kind, summed.status, summed.reason, summed.message, summed.severity, now=now)


def _with_counters(machine_set: Obj, snapshot: Snapshot, machines: Sequence[Obj]) -> Obj:
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


def _with_resized(machine_set: Obj, snapshot: Snapshot, present: int, wanted: int) -> Obj:
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
