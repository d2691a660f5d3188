"""Whether a Machine is ready: one condition out of its others and of its readiness gates.

Sets, deployments and clusters add up these messages, so there must be few different ones: while a Machine is going, what is
known in detail is left to its Deleting condition.
"""

from __future__ import annotations

from typing import Any

from remuda.kube.condition_summaries import Reasons, Sum, summary
from remuda.kube.conditions import TRUE, UNKNOWN, get
from remuda.kube.objects import dig, is_being_deleted

from ..machine_messages import LONG_DELETION, delays, deleting_for, is_drained_for_long

Obj = dict[str, Any]

_GATES = ("Deleting", "Updating", "BootstrapConfigReady", "InfrastructureReady", "NodeHealthy", "HealthCheckSucceeded")
_NEGATIVE = ("Deleting", "Updating")
_OPTIONAL = ("HealthCheckSucceeded",)
_REASONS = Reasons(issue="NotReady", unknown="ReadyUnknown", info="Ready")
# What is bound to go with the Machine.
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
        # Nothing can depend on itself.
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
    """How far the deletion is, in words that many Machines share."""
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
    """Control plane components that all say the same, in one line."""
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
