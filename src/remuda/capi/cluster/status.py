"""The status of a Cluster, computed from what one reconcile found: phase, counters, and both sets of conditions.

Pure: :func:`with_status` takes a :class:`.scope.ClusterScope` and gives the Cluster with its status, and the time of the next
look if time alone will change it. Texts are those of Cluster API, since people and programs know them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from remuda.kube.clock import rfc3339, time_of
from remuda.kube.condition_summaries import Reasons, Sum, aggregate, legacy_summary, summary
from remuda.kube.conditions import FALSE, LEGACY, TRUE, UNKNOWN, get, is_true, with_condition, with_legacy
from remuda.kube.objects import dig, metadata, with_path

from .. import contracts, kubernetes_versions
from ..machine_messages import not_to_be_remediated
from ..provider_conditions import InvalidCondition, as_ours, condition_of, mirrored
from .scope import UNREADABLE, ClusterScope, Descendants, Referred

Obj = dict[str, Any]

OWNED = frozenset(
    [
        *("Paused", "Available", "Deleting", "RemoteConnectionProbe", "InfrastructureReady", "ControlPlaneAvailable"),
        *("ControlPlaneInitialized", "WorkersAvailable", "ControlPlaneMachinesReady", "WorkerMachinesReady"),
        *("ControlPlaneMachinesUpToDate", "WorkerMachinesUpToDate", "RollingOut", "ScalingUp", "ScalingDown", "Remediating"),
        *("Ready", "ControlPlaneReady"),
    ]
)
# Failed probes after which a cluster that was never connected counts as unreachable.
_PATIENCE = 5
# Seconds that a machine may take to report whether it is up to date.
_FRESH_SECONDS = 10.0
_GONE = ("ObjectDeleted", "ObjectDoesNotExist")
_READY = Reasons("NotReady", "ReadyUnknown", "Ready")
_UP_TO_DATE = Reasons("NotUpToDate", "UpToDateUnknown", "UpToDate")


class StatusResult(NamedTuple):
    cluster: Obj
    phase_changed: bool
    revisit: float | None  # seconds


def with_status(scope: ClusterScope) -> StatusResult:
    cluster = scope.cluster
    before = dig(cluster, "status", "phase") or ""
    phase = phase_of(cluster, before, deleting=scope.deleting)
    cluster = with_path(cluster, ("status", "phase"), phase)
    counts = {
        "controlPlane": of_control_plane(dig(cluster, "status", "controlPlane") or {}, scope.control_plane, scope.descendants),
        "workers": of_workers(dig(cluster, "status", "workers") or {}, scope.descendants),
    }
    for field, found in counts.items():
        cluster = with_path(cluster, ("status", field), found)
    for kind, made in _CONDITIONS.items():
        result = made(scope)
        if result is not None:
            cluster = with_condition(
                cluster, kind, result.status, result.reason, result.message, now=scope.now, since=result.since
            )
    available = _available(cluster, deleting=scope.deleting)
    cluster = with_condition(cluster, "Available", *available[:3], now=scope.now)
    ready = legacy_summary(cluster, ("ControlPlaneReady", "InfrastructureReady"))
    if ready is not None:
        cluster = with_legacy(cluster, "Ready", ready.status, ready.reason, ready.message, ready.severity, now=scope.now)
    return StatusResult(cluster, phase != before, _revisit(scope))


def phase_of(cluster: Obj, before: str, *, deleting: bool) -> str:
    if deleting:
        return "Deleting"
    if dig(cluster, "status", "initialization", "infrastructureProvisioned") is True and contracts.endpoint(cluster).valid:
        return "Provisioned"
    if dig(cluster, "spec", "infrastructureRef") or dig(cluster, "spec", "controlPlaneRef"):
        return "Provisioning"
    return before or "Pending"


# --- the connection -----------------------------------------------------------------------------------------------------------


def _remote_connection_probe(scope: ClusterScope) -> Sum | None:
    health = scope.health
    if health.last_success is None and health.failures < _PATIENCE:
        # Too early to say, also after a restart of this process: the last value stays.
        if get(scope.cluster, "RemoteConnectionProbe") is not None:
            return None
        return Sum(FALSE, "ProbeFailed", "Remote connection not established yet")
    if health.last_success is None:
        return Sum(FALSE, "ProbeFailed", "Remote connection probe failed")
    if scope.now - health.last_success > scope.grace:
        since = rfc3339(health.last_success)
        return Sum(FALSE, "ProbeFailed", f"Remote connection probe failed, probe last succeeded at {since}")
    return Sum(TRUE, "ProbeSucceeded", "")


# --- infrastructure and control plane ---------------------------------------------------------------------------------------


def _infrastructure_ready(scope: ClusterScope) -> Sum:
    provisioned = scope.initialized("infrastructureProvisioned")
    message = f"{scope.infra.kind} status.initialization.provisioned is false"
    fallback = Sum(TRUE, "Ready", "") if provisioned else Sum(FALSE, "NotReady", message)
    return _of_referred(scope, scope.infra, "Ready", fallback, once=provisioned)


def _control_plane_available(scope: ClusterScope) -> Sum:
    initialized = scope.initialized("controlPlaneInitialized")
    message = f"{scope.control_plane.kind} status.initialization.controlPlaneInitialized is false"
    fallback = Sum(TRUE, "Available", "") if initialized else Sum(FALSE, "NotAvailable", message)
    return _of_referred(scope, scope.control_plane, "Available", fallback, once=initialized)


def _of_referred(scope: ClusterScope, referred: Referred, kind: str, fallback: Sum, *, once: bool) -> Sum:
    """`once`: it has existed before."""
    if referred.obj is not None:
        try:
            return mirrored(referred.obj, kind, fallback, kind)
        except InvalidCondition as error:
            return Sum(UNKNOWN, "InvalidConditionReported", str(error))
    if not referred.missing:
        return Sum(UNKNOWN, "InternalError", referred.unreadable)
    if not once:
        return Sum(FALSE, "ObjectDoesNotExist", f"{referred.kind} does not exist")
    still = "" if scope.deleting else " while the cluster still exists"
    return Sum(FALSE, "ObjectDeleted", f"{referred.kind} has been deleted{still}")


def _control_plane_initialized(scope: ClusterScope) -> Sum | None:
    if is_true(scope.cluster, "ControlPlaneInitialized"):
        return None
    referred = scope.control_plane
    if not referred.ref:
        if any(dig(machine, "status", "nodeRef", "name") for machine in scope.descendants.control_plane_machines):
            return Sum(TRUE, "Initialized", "")
        return Sum(FALSE, "NotInitialized", "Waiting for the first control plane machine to have status.nodeRef set")
    if referred.obj is None:
        if not referred.missing:
            return Sum(UNKNOWN, "InternalError", referred.unreadable)
        return Sum(UNKNOWN, "ObjectDoesNotExist", f"{referred.kind} does not exist")
    if contracts.control_plane_initialized(referred.obj, referred.contract):
        return Sum(TRUE, "Initialized", "")
    return Sum(FALSE, "NotInitialized", "Control plane not yet initialized")


# --- workers and machines -----------------------------------------------------------------------------------------------------


def _workers_available(scope: ClusterScope) -> Sum:
    deployments = scope.descendants.machine_deployments
    if not deployments:
        return Sum(TRUE, "NoWorkers", "")
    return aggregate(deployments, "Available", reasons=Reasons("NotAvailable", "AvailableUnknown", "Available"))


def _of_machines(machines: Sequence[Obj], kind: str, reasons: Reasons) -> Sum:
    return aggregate(machines, kind, reasons=reasons) if machines else Sum(TRUE, "NoReplicas", "")


def _ready(choose: Callable[[Descendants], list[Obj]]) -> Callable[[ClusterScope], Sum]:
    return lambda scope: _of_machines(choose(scope.descendants), "Ready", _READY)


def _up_to_date(choose: Callable[[Descendants], list[Obj]]) -> Callable[[ClusterScope], Sum]:
    def made(scope: ClusterScope) -> Sum:
        machines = [each for each in choose(scope.descendants) if _silence(each, scope.now) <= 0]
        return _of_machines(machines, "UpToDate", _UP_TO_DATE)

    return made


def _silence(machine: Obj, now: float) -> float:
    """Seconds that a machine may still take to report UpToDate; 0 when it has."""
    if get(machine, "UpToDate") is not None:
        return 0.0
    made = time_of(metadata(machine).get("creationTimestamp"))
    return 0.0 if made is None else max(made + _FRESH_SECONDS - now, 0.0)


def _remediating(scope: ClusterScope) -> Sum:
    found = scope.descendants
    if found.to_be_remediated:
        return Sum(TRUE, "Remediating", aggregate(found.to_be_remediated, "OwnerRemediated").message)
    return Sum(FALSE, "NotRemediating", not_to_be_remediated(found.unhealthy))


def _moving(kind: str, *, sets: bool) -> Callable[[ClusterScope], Sum]:
    """RollingOut, ScalingUp, ScalingDown: True when any of the control plane, MachineDeployments and, maybe, sets is."""
    reasons = Reasons(kind, f"{kind}Unknown", f"Not{kind}")

    def made(scope: ClusterScope) -> Sum:
        referred, found = scope.control_plane, scope.descendants
        if referred.ref and referred.obj is None and not referred.missing:
            return Sum(UNKNOWN, "InternalError", referred.unreadable)
        parts = [*found.machine_deployments, *(found.standalone_sets if sets else ())]
        # A control plane need not report this; only one that does counts.
        if referred.obj is not None and _tells(referred.obj, kind):
            parts.insert(0, as_ours(referred.obj))
        if not parts:
            return Sum(FALSE, reasons.info, "")
        return aggregate(parts, kind, negative=True, reasons=reasons)

    return made


def _tells(control_plane: Obj, kind: str) -> bool:
    try:
        return condition_of(control_plane, kind) is not None
    except InvalidCondition:
        return False


def _deleting(scope: ClusterScope) -> Sum:
    if not scope.deleting:
        return Sum(FALSE, "NotDeleting", "")
    return Sum(TRUE, scope.deleting_reason or "InternalError", scope.deleting_message or UNREADABLE)


_CONDITIONS: dict[str, Callable[[ClusterScope], Sum | None]] = {
    "RemoteConnectionProbe": _remote_connection_probe,
    "InfrastructureReady": _infrastructure_ready,
    "ControlPlaneAvailable": _control_plane_available,
    "ControlPlaneInitialized": _control_plane_initialized,
    "WorkersAvailable": _workers_available,
    "ControlPlaneMachinesReady": _ready(lambda found: found.control_plane_machines),
    "WorkerMachinesReady": _ready(lambda found: found.counted_workers),
    "ControlPlaneMachinesUpToDate": _up_to_date(lambda found: found.control_plane_machines),
    "WorkerMachinesUpToDate": _up_to_date(lambda found: found.counted_workers),
    "RollingOut": _moving("RollingOut", sets=False),
    "ScalingUp": _moving("ScalingUp", sets=True),
    "ScalingDown": _moving("ScalingDown", sets=True),
    "Remediating": _remediating,
    "Deleting": _deleting,
}


# --- all of it ----------------------------------------------------------------------------------------------------------------


def _available(cluster: Obj, *, deleting: bool) -> Sum:
    kinds = ["Deleting", "RemoteConnectionProbe", "InfrastructureReady", "ControlPlaneAvailable", "WorkersAvailable"]
    kinds.append("TopologyReconciled")
    negative = ["Deleting"]
    for gate in dig(cluster, "spec", "availabilityGates") or ():
        kinds.append(gate.get("conditionType") or "")
        if gate.get("polarity") == "Negative":
            negative.append(gate.get("conditionType") or "")
    return summary(
        cluster,
        kinds,
        negative=negative,
        optional=("TopologyReconciled",),
        reasons=Reasons("NotAvailable", "AvailableUnknown", "Available"),
        override=_excused(cluster, deleting=deleting),
    )


def _excused(cluster: Obj, *, deleting: bool) -> list[Obj]:
    """Conditions that are false for a harmless reason, as if they were true."""
    found = []
    if deleting:
        # Objects that have been deleted already are no issue then.
        found += [each for kind in ("InfrastructureReady", "ControlPlaneAvailable") if (each := get(cluster, kind))]
        found = [each for each in found if each.get("reason") in _GONE]
    topology = get(cluster, "TopologyReconciled") or {}
    if topology.get("status") == FALSE and topology.get("reason") not in ("ReconcileFailed", "ClusterClassNotReconciled"):
        found.append(topology)
    return [{**each, "status": TRUE} for each in found]


def _revisit(scope: ClusterScope) -> float | None:
    times = [left for machine in scope.descendants.machines if (left := _silence(machine, scope.now)) > 0]
    health = scope.health
    if health.last_success is not None and health.failures:
        until = health.last_success + scope.grace - scope.now
        if until >= 0:
            times.append(until + 0.1)
    return min(times, default=None)


def control_plane_of_machines(scope: ClusterScope) -> Obj:
    """The Cluster with the older conditions for a control plane of standalone machines."""
    cluster = scope.cluster
    if scope.control_plane.ref or is_true(cluster, "ControlPlaneInitialized", LEGACY):
        return cluster
    for machine in scope.descendants.control_plane_machines:
        if not metadata(machine).get("deletionTimestamp") and dig(machine, "status", "nodeRef", "name"):
            return with_legacy(cluster, "ControlPlaneInitialized", TRUE, now=scope.now)
    message = "Waiting for the first control plane machine to have its status.nodeRef set"
    return with_legacy(cluster, "ControlPlaneInitialized", FALSE, "MissingNodeRef", message, "Info", now=scope.now)


# --- counters -------------------------------------------------------------------------------------------------------------
#
# The counters of a Cluster: machines of its control plane and of its workers, and their versions.
#
# An unreported number is left out, so an absent counter is not a zero.

_COUNTERS = ("desiredReplicas", "replicas", "readyReplicas", "availableReplicas", "upToDateReplicas")
_MOST_VERSIONS = 32
_COUNTED = {"readyReplicas": "Ready", "availableReplicas": "Available", "upToDateReplicas": "UpToDate"}


def of_control_plane(before: Obj, control_plane: Referred, descendants: Descendants) -> Obj:
    """`status.controlPlane`: the control plane object's own counters or, without such an object, a count of machines."""
    rest = {key: value for key, value in before.items() if key not in (*_COUNTERS, "versions")}
    if not control_plane.ref:
        machines = descendants.control_plane_machines
        return _with_versions({**rest, **_counted(machines)}, kubernetes_versions.of_machines(machines))
    if control_plane.obj is None:
        return rest
    # Counters that are not reported any more keep their last value.
    kept = {key: before[key] for key in _COUNTERS if key in before}
    reported = _reported(control_plane.obj, control_plane.contract)
    found = _versions_of(control_plane.obj)
    return _with_versions({**rest, **kept, **reported}, before.get("versions") if found is None else found)


def _reported(control_plane: Obj, contract: str) -> Obj:
    found = {
        "desiredReplicas": contracts.spec_replicas(control_plane),
        "replicas": contracts.status_replicas(control_plane),
        "readyReplicas": contracts.ready_replicas(control_plane),
        "availableReplicas": contracts.available_replicas(control_plane, contract),
        "upToDateReplicas": contracts.up_to_date_replicas(control_plane, contract),
    }
    return {key: value for key, value in found.items() if value is not None}


def _versions_of(control_plane: Obj) -> list[Obj] | None:
    """`status.versions`; None when it is unusable."""
    listed = dig(control_plane, "status", "versions")
    if listed is None:
        return []
    if not isinstance(listed, list):
        return None
    found = [_version(each) for each in listed]
    read = [kubernetes_versions.parse_tolerant(each["version"]) for each in found if each is not None]
    if None in found or None in read:
        return None
    ordered = all(left and right and kubernetes_versions.compare(right, left) >= 0 for left, right in pairwise(read))
    return [each for each in found if each is not None] if ordered else None


def _version(listed: Any) -> Obj | None:
    if not isinstance(listed, dict) or not isinstance(listed.get("version"), str):
        return None
    replicas = listed.get("replicas") or 0
    if not isinstance(replicas, int) or replicas < 0:
        return None
    return {"version": listed["version"]} | ({"replicas": replicas} if replicas else {})


def of_workers(before: Obj, descendants: Descendants) -> Obj:
    """`status.workers`: the sum of MachineDeployments, and of MachineSets and Machines that stand by themselves."""
    groups = [*descendants.machine_deployments, *descendants.standalone_sets]
    machines = descendants.standalone_workers
    totals = _counted(machines)
    for counter in _COUNTERS:
        path = ("spec", "replicas") if counter == "desiredReplicas" else ("status", counter)
        for group in groups:
            if (value := dig(group, *path)) is not None:
                totals[counter] = totals.get(counter, 0) + value
    listed = [version for group in groups for version in dig(group, "status", "versions") or ()]
    rest = {key: value for key, value in before.items() if key not in (*_COUNTERS, "versions")}
    return _with_versions({**rest, **totals}, kubernetes_versions.summed([*listed, *kubernetes_versions.of_machines(machines)]))


def _counted(machines: list[Obj]) -> Obj:
    """The counters of standalone machines; each is desired, since a user made it."""
    found = {"desiredReplicas": len(machines), "replicas": len(machines)}
    found |= {counter: sum(is_true(machine, kind) for machine in machines) for counter, kind in _COUNTED.items()}
    return {counter: value for counter, value in found.items() if value}


def _with_versions(counters: Obj, found: Iterable[Obj] | None) -> Obj:
    listed = list(found or ())[:_MOST_VERSIONS]
    return {**counters, "versions": listed} if listed else counters
