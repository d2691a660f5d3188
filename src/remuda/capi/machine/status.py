"""A Machine's status, computed from one reconcile's snapshot: both sets of conditions, the phase, and the next look.

Pure. The values from providers and the Node are put on the Machine before (:mod:`.provider_contract`, :mod:`.noderef`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from remuda.kube.clock import rfc3339, time_of
from remuda.kube.condition_summaries import Reasons, Sum, legacy_summary, summary
from remuda.kube.conditions import FALSE, TRUE, UNKNOWN, get, is_true, with_condition, with_legacy
from remuda.kube.objects import dig, is_being_deleted, metadata, with_path

from ..machine_messages import LONG_DELETION, delays, deleting_for, is_drained_for_long
from ..provider_conditions import InvalidCondition, mirrored
from ..workload_clusters import Health
from .node_sync import node_health, node_ready

Obj = dict[str, Any]

# Failed probes after which a cluster that was never reached counts as unreachable.
_FIRST_FAILURES = 5
_NEVER_PROBED = Health()
_CHECK_LOGS = "Please check controller logs for errors"
_LEGACY_READY = ("InfrastructureReady", "BootstrapReady", "HealthCheckSucceeded", "OwnerRemediated", "DrainingSucceeded")
_LEGACY_STEPS = ("BootstrapReady", "InfrastructureReady")


@dataclass(frozen=True, slots=True)
class MachineSnapshot:
    """The objects seen. `infra` and `bootstrap` are None when missing or unreadable, `node` when there is none."""

    machine: Obj
    cluster: Obj | None
    now: float
    machine_set: Obj | None = None
    machine_deployment: Obj | None = None
    infra: Obj | None = None
    infra_missing: bool = False
    bootstrap: Obj | None = None
    bootstrap_missing: bool = False
    node: Obj | None = None
    disconnected: bool = False  # the cluster could not be reached to look for the node
    node_unreadable: bool = False  # it could, and the node could not be told all the same
    health: Health = _NEVER_PROBED
    grace: float = 300.0  # how long a lost connection leaves what is known about the node as it is
    deleting_reason: str = ""
    deleting_message: str = ""


class Computed(NamedTuple):
    machine: Obj
    after: float | None  # when time alone changes it


def computed(seen: MachineSnapshot) -> Computed:
    now = seen.now
    machine = _with(seen.machine, "BootstrapConfigReady", bootstrap_ready(seen), now)
    machine = _with(machine, "InfrastructureReady", infrastructure_ready(seen), now)
    node = node_conditions(seen)
    if node is not None:
        machine = _with(machine, "NodeReady", node.ready, now)
        machine = _with(machine, "NodeHealthy", node.healthy, now)
    machine = _with(machine, "Deleting", deleting(seen), now)
    machine = with_condition(machine, "Updating", FALSE, "NotUpdating", now=now)
    if seen.machine_set is not None and seen.machine_deployment is not None:
        machine = _with(machine, "UpToDate", up_to_date(machine, seen.machine_set, seen.machine_deployment, now), now)
    machine = _with(machine, "Ready", ready_summary(machine, now), now)
    machine = with_phase(machine, now)
    available, after = availability(machine, now)
    machine = with_legacy_ready(_with(machine, "Available", available, now), now)
    return Computed(machine, _sooner(after, _until_given_up(seen)))


def _with(machine: Obj, kind: str, said: Sum, now: float) -> Obj:
    return with_condition(machine, kind, said.status, said.reason, said.message, now=now, since=said.since)


def _sooner(left: float | None, right: float | None) -> float | None:
    return min((each for each in (left, right) if each is not None), default=None)


# --- what providers say ----------------------------------------------------------------------------------------------------


def bootstrap_ready(seen: MachineSnapshot) -> Sum:
    machine = seen.machine
    kind = dig(machine, "spec", "bootstrap", "configRef", "kind")
    if not kind:
        return Sum(TRUE, "DataSecretProvided", "")
    created = dig(machine, "status", "initialization", "bootstrapDataSecretCreated") is True
    if seen.bootstrap is not None:
        return _provider_ready(seen.bootstrap, created, f"{kind} status.initialization.dataSecretCreated is false")
    if not seen.bootstrap_missing:
        return Sum(UNKNOWN, "InternalError", _CHECK_LOGS)
    if is_being_deleted(machine) and created:
        return Sum(FALSE, "ObjectDeleted", f"{kind} has been deleted")
    return Sum(FALSE, "ObjectDoesNotExist", f"{kind} does not exist")


def infrastructure_ready(seen: MachineSnapshot) -> Sum:
    machine = seen.machine
    kind = dig(machine, "spec", "infrastructureRef", "kind") or ""
    there = infrastructure_provisioned(machine)
    if seen.infra is not None:
        return _provider_ready(seen.infra, there, f"{kind} status.initialization.provisioned is false")
    if not seen.infra_missing:
        return Sum(UNKNOWN, "InternalError", _CHECK_LOGS)
    if not there:
        return Sum(FALSE, "ObjectDoesNotExist", f"{kind} does not exist")
    while_there = "" if is_being_deleted(machine) else " while the Machine still exists"
    return Sum(FALSE, "ObjectDeleted", f"{kind} has been deleted{while_there}")


def _provider_ready(obj: Obj, done: bool, not_yet: str) -> Sum:
    fallback = Sum(TRUE, "Ready", "") if done else Sum(FALSE, "NotReady", not_yet)
    try:
        return mirrored(obj, "Ready", fallback, "Ready")
    except InvalidCondition as error:
        return Sum(UNKNOWN, "InvalidConditionReported", str(error))


def infrastructure_provisioned(machine: Obj) -> bool:
    return dig(machine, "status", "initialization", "infrastructureProvisioned") is True


# --- the node --------------------------------------------------------------------------------------------------------------


class NodeConditions(NamedTuple):
    ready: Sum
    healthy: Sum


def node_conditions(seen: MachineSnapshot) -> NodeConditions | None:
    """NodeReady and NodeHealthy; None to leave them unchanged, since a short loss of the connection proves nothing."""
    if dig(seen.cluster, "status", "initialization", "infrastructureProvisioned") is not True:
        return _both(
            UNKNOWN, "InspectionFailed", "Waiting for Cluster status.initialization.infrastructureProvisioned to be true"
        )
    if not control_plane_initialized(seen.cluster):
        return _both(UNKNOWN, "InspectionFailed", "Waiting for Cluster control plane to be initialized")
    known = get(seen.machine, "NodeReady") is not None and get(seen.machine, "NodeHealthy") is not None
    if seen.health.last_success is None and seen.health.failures < _FIRST_FAILURES:
        return None if known else _both(UNKNOWN, "ConnectionDown", "Remote connection not established yet")
    given_up = _given_up_at(seen)
    if given_up is not None and seen.now > given_up:
        return _both(UNKNOWN, "ConnectionDown", _last_success(seen.health))
    if seen.disconnected:
        return None if known else _both(UNKNOWN, "ConnectionDown", _last_success(seen.health))
    if seen.node_unreadable:
        return _both(UNKNOWN, "InternalError", _CHECK_LOGS)
    if seen.node is not None:
        return NodeConditions(node_ready(seen.node), node_health(seen.node))
    return _no_node(seen.machine)


def _no_node(machine: Obj) -> NodeConditions:
    name = dig(machine, "status", "nodeRef", "name")
    if is_being_deleted(machine):
        if name:
            return _both(FALSE, "NodeDeleted", f"Node {name} has been deleted")
        return _both(UNKNOWN, "NodeDoesNotExist", "Node does not exist")
    if name:
        return _both(FALSE, "NodeDeleted", f"Node {name} has been deleted while the Machine still exists")
    if provider_id := dig(machine, "spec", "providerID"):
        return _both(UNKNOWN, "InspectionFailed", f"Waiting for a Node with spec.providerID {provider_id} to exist")
    kind = dig(machine, "spec", "infrastructureRef", "kind") or ""
    return _both(UNKNOWN, "InspectionFailed", f"Waiting for {kind} to report spec.providerID")


def _both(status: str, reason: str, message: str) -> NodeConditions:
    said = Sum(status, reason, message)
    return NodeConditions(said, said)


def control_plane_initialized(cluster: Obj | None) -> bool:
    return cluster is not None and is_true(cluster, "ControlPlaneInitialized")


def _last_success(health: Health) -> str:
    return "" if health.last_success is None else f"Last successful probe at {rfc3339(health.last_success)}"


def _given_up_at(seen: MachineSnapshot) -> float | None:
    """The time at which the node's last known state is too old, unless a probe succeeds before."""
    initialized = get(seen.cluster, "ControlPlaneInitialized") if seen.cluster is not None else None
    if initialized is None or initialized.get("status") != TRUE:
        return None
    since = max(seen.health.last_success or 0.0, time_of(initialized.get("lastTransitionTime")) or 0.0)
    return since + seen.grace


def _until_given_up(seen: MachineSnapshot) -> float | None:
    if not seen.disconnected and not seen.health.failures:
        return None
    given_up = _given_up_at(seen)
    # A moment later, since the limit must be exceeded.
    return None if given_up is None or given_up < seen.now else given_up - seen.now + 1.0


# --- its own ---------------------------------------------------------------------------------------------------------------


def deleting(seen: MachineSnapshot) -> Sum:
    if not is_being_deleted(seen.machine):
        return Sum(FALSE, "NotDeleting", "")
    return Sum(TRUE, seen.deleting_reason or "Deleting", seen.deleting_message)


def availability(machine: Obj, now: float) -> tuple[Sum, float | None]:
    """Available once Ready for `minReadySeconds`; and the seconds until then."""
    ready = get(machine, "Ready")
    if ready is None or ready.get("status") != TRUE:
        return Sum(FALSE, "NotReady", ""), None
    missing = (time_of(ready.get("lastTransitionTime")) or now) + (dig(machine, "spec", "minReadySeconds") or 0) - now
    if missing <= 0:
        return Sum(TRUE, "Available", ""), None
    return Sum(FALSE, "WaitingForMinReadySeconds", ""), missing


def phase(machine: Obj) -> str:
    """The last phase that it has reached."""
    if is_being_deleted(machine):
        return "Deleting"
    there = infrastructure_provisioned(machine)
    if dig(machine, "status", "nodeRef", "name") and there:
        return "Running"
    if dig(machine, "spec", "providerID"):
        return "Provisioned"
    if dig(machine, "status", "initialization", "bootstrapDataSecretCreated") is True and not there:
        return "Provisioning"
    return dig(machine, "status", "phase") or "Pending"


def with_phase(machine: Obj, now: float) -> Obj:
    found = phase(machine)
    if found == dig(machine, "status", "phase"):
        return machine
    return with_path(with_path(machine, ("status", "phase"), found), ("status", "lastUpdated"), rfc3339(now))


def with_legacy_ready(machine: Obj, now: float) -> Obj:
    """Ready of the older kind; during provisioning it counts the steps."""
    being_made = not metadata(machine).get("deletionTimestamp") and not dig(machine, "spec", "providerID")
    found = legacy_summary(machine, _LEGACY_READY, steps=being_made, steps_if_only=_LEGACY_STEPS)
    return machine if found is None else with_legacy(machine, "Ready", *found, now=now)


# --- readiness ------------------------------------------------------------------------------------------------------------
#
# Whether a Machine is ready: one condition out of its others and of its readiness gates.
#
# Sets, deployments and clusters sum up these messages, so there must be few different ones: during a deletion, the details are
# only in the Machine's Deleting condition.

_GATES = ("Deleting", "Updating", "BootstrapConfigReady", "InfrastructureReady", "NodeHealthy", "HealthCheckSucceeded")
_NEGATIVE = ("Deleting", "Updating")
_OPTIONAL = ("HealthCheckSucceeded",)
_REASONS = Reasons(issue="NotReady", unknown="ReadyUnknown", info="Ready")
# Conditions that are expected to fail during a Machine's deletion.
_EXPECTED_WHILE_DELETING = {
    "BootstrapConfigReady": ("ObjectDeleted", "ObjectDoesNotExist"),
    "InfrastructureReady": ("ObjectDeleted", "ObjectDoesNotExist"),
    "NodeHealthy": ("NodeDeleted", "NodeDoesNotExist"),
}
_CONTROL_PLANE = ("* APIServer", "* ControllerManager", "* Scheduler")


def ready_summary(machine: Obj, now: float) -> Sum:
    """The condition Ready; `machine` has the others already."""
    gates = [gate for gate in dig(machine, "spec", "readinessGates") or () if gate.get("conditionType")]
    kinds = [*_GATES, *(gate["conditionType"] for gate in gates)]
    if "Ready" in kinds:
        # A condition can't depend on itself.
        return Sum(UNKNOWN, "InternalError", "Please check controller logs for errors")
    negative = {*_NEGATIVE, *(gate["conditionType"] for gate in gates if gate.get("polarity") == "Negative")}
    going = is_being_deleted(machine)
    return summary(
        machine,
        kinds,
        negative=negative,
        optional=_OPTIONAL,
        reasons=_REASONS,
        override=(_deleting_in_short(machine, now),) if going else (),
        calm=_expected if going else None,
        arrange=grouped_control_plane,
    )


def _expected(condition: Obj) -> bool:
    return condition.get("reason") in _EXPECTED_WHILE_DELETING.get(condition.get("type") or "", ())


def _deleting_in_short(machine: Obj, now: float) -> Obj:
    return {"type": "Deleting", "status": TRUE, "reason": "Deleting", "message": deletion_stage(machine, now)}


def deletion_stage(machine: Obj, now: float) -> str:
    """The stage of the deletion, in words that many Machines share."""
    condition = get(machine, "Deleting")
    if condition is None:
        return "Machine deletion in progress"
    stage = condition.get("reason") or ""
    if (deleting_for(machine, now) or 0.0) <= LONG_DELETION:
        return f"Machine deletion in progress, stage: {stage}"
    drains = stage == "DrainingNode" and is_drained_for_long(machine, now)
    why = delays([condition.get("message") or ""]) if drains else ""
    return f"Machine deletion in progress since more than 15m, stage: {stage}{why}"


def grouped_control_plane(lines: list[str]) -> list[str]:
    """Control plane components with the same message, in one line."""
    kept: list[str] = []
    said = ""
    components = 0
    for line in lines:
        kind, colon, message = line.partition(":")
        if not colon or not (kind.startswith(_CONTROL_PLANE) or kind == "* EtcdPodHealthy"):
            kept.append(line)
            continue
        if components and message != said:
            return lines
        if not components:
            said = message
            kept.append(f"* Control plane components:{message}")
        components += 1
    return lines if components == 1 else kept


# --- the condition UpToDate ---------------------------------------------------------------------------------------------
#
# The template of the Machine's set is compared with the deployment's template, as for rollouts, so that both always agree. Fields
# that are updated in place never count. Other programs parse the texts.


def template_differences(current: Obj, desired: Obj) -> list[str]:
    """The differences in a machine template (`spec.template`) that require new machines, in words; empty without any."""
    have, want = current.get("spec") or {}, desired.get("spec") or {}
    found: list[str] = []
    if (have.get("version") or "") != (want.get("version") or ""):
        found.append(f"Version {have.get('version') or ''}, {want.get('version') or ''} required")
    if _bootstrap(have) != _bootstrap(want):
        found.append(_bootstrap_difference(have, want))
    if (have.get("infrastructureRef") or {}) != (want.get("infrastructureRef") or {}):
        found.append(f"{_kind(dig(have, 'infrastructureRef', 'kind'))} is not up-to-date")
    if (have.get("failureDomain") or "") != (want.get("failureDomain") or ""):
        found.append(f"Failure domain {have.get('failureDomain') or ''}, {want.get('failureDomain') or ''} required")
    return found


def _bootstrap(spec: Obj) -> tuple[Obj, str | None]:
    return dig(spec, "bootstrap", "configRef") or {}, dig(spec, "bootstrap", "dataSecretName")


def _bootstrap_difference(have: Obj, want: Obj) -> str:
    ref, secret = _bootstrap(have)
    if ref:
        return f"{_kind(ref.get('kind'))} is not up-to-date"
    wanted = _bootstrap(want)[1]
    return "spec.bootstrap.dataSecretName {}, {} required".format(*("nil" if name is None else name for name in (secret, wanted)))


def _kind(template: str | None) -> str:
    """The kind of the object that is made from a template."""
    return (template or "").removesuffix("Template")


def rollout_expired(machine_set: Obj, machine_deployment: Obj, now: float) -> bool:
    """True if everything older than `spec.rollout.after` must go, and the set is older."""
    after = time_of(dig(machine_deployment, "spec", "rollout", "after"))
    made = time_of(metadata(machine_set).get("creationTimestamp"))
    return after is not None and after < now and made is not None and made < after


def up_to_date(machine: Obj, machine_set: Obj, machine_deployment: Obj, now: float) -> Sum:
    """The condition UpToDate; `machine` has its nodeInfo already."""
    why = template_differences(dig(machine_set, "spec", "template") or {}, dig(machine_deployment, "spec", "template") or {})
    if rollout_expired(machine_set, machine_deployment, now):
        why.append("MachineDeployment spec.rolloutAfter expired")
    if why:
        return Sum(FALSE, "NotUpToDate", "\n".join(f"* {line}" for line in why))
    kubelet, wanted = dig(machine, "status", "nodeInfo", "kubeletVersion"), dig(machine, "spec", "version") or ""
    if kubelet and kubelet != wanted:
        return Sum(FALSE, "Updating", f"* Node.status.nodeInfo.kubeletVersion {kubelet}, {wanted} required")
    return Sum(TRUE, "UpToDate", "")
