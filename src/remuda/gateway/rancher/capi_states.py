"""The states of Cluster API's kinds, by their conditions and replicas. Pure; :mod:`.resource_state` has all other kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from remuda.api.cluster_x_k8s_io import GROUP
from remuda.kube.conditions import conditions_of

__all__ = ["GROUP", "state_of"]

Obj = dict[str, Any]
# The name of the state, whether it is an error, whether it is a transition, and the message.
Found = tuple[str, bool, bool, str]

_DRAINING: Final = "Drain not completed"
_WAITS: Final = {"BootstrapConfigReady": "waitingforinfrastructure", "InfrastructureReady": "waitingfornoderef"}


def state_of(kind: str, obj: Obj) -> Found | None:
    """None for kinds without rules of their own."""
    conditions = {str(each.get("type")): each for each in conditions_of(obj)}
    match kind:
        case "Machine":
            return _machine(obj, conditions)
        case "MachineDeployment" | "MachineSet":
            return _scaled(obj, conditions)
        case "Cluster":
            return _cluster(obj, conditions)
    return None


def _is(conditions: Mapping[str, Obj], name: str, status: str = "True") -> bool:
    return (conditions.get(name) or {}).get("status") == status


def _said(conditions: Mapping[str, Obj], name: str) -> str:
    return str((conditions.get(name) or {}).get("message") or "")


def _ending(obj: Obj, conditions: Mapping[str, Obj]) -> Found | None:
    if _is(conditions, "Deleting") or (obj.get("metadata") or {}).get("deletionTimestamp"):
        message = _said(conditions, "Deleting")
        return "deleting", False, True, "Draining node" if _DRAINING in message else message
    if _is(conditions, "Paused"):
        return "paused", False, True, _said(conditions, "Paused")
    return None


def _machine(obj: Obj, conditions: Mapping[str, Obj]) -> Found:
    if (ending := _ending(obj, conditions)) is not None:
        return ending
    reconciled = conditions.get("Reconciled")
    if reconciled is not None and reconciled.get("status") != "True":
        return "reconciling", reconciled.get("status") == "False", True, _plain(_said(conditions, "Reconciled"))
    message = _said(conditions, "Ready")
    if _is(conditions, "Ready", "False"):
        first = _first_bullet(message)
        for name, word in _WAITS.items():
            if first.startswith(name):
                return word, False, True, _plain(first.removeprefix(name).lstrip(": "))
        return "notready", False, True, _plain(message)
    if _is(conditions, "Ready", "Unknown"):
        return "reconciling", False, True, _plain(message)
    phase = str((obj.get("status") or {}).get("phase") or "")
    if phase == "Failed":
        return "failed", True, False, message
    if "Ready" not in conditions and phase and phase != "Running":
        return phase.lower(), False, True, ""
    return (phase.lower() or "active"), False, False, ""


def _first_bullet(message: str) -> str:
    return next((line.strip().removeprefix("* ") for line in message.splitlines() if line.strip()), "")


def _plain(message: str) -> str:
    """Without the count of completed conditions, which says nothing."""
    lines = (line.strip().removeprefix("* ") for line in message.splitlines())
    return "; ".join(line for line in lines if line and not (" of " in line and line.endswith(" completed")))


def _scaled(obj: Obj, conditions: Mapping[str, Obj]) -> Found:
    if (ending := _ending(obj, conditions)) is not None:
        return ending
    spec: Obj = obj.get("spec") or {}
    status: Obj = obj.get("status") or {}
    if _is(conditions, "RollingOut"):
        return "rollingout", False, True, _said(conditions, "RollingOut")
    wanted, present, ready = _number(spec, "replicas"), _number(status, "replicas"), _number(status, "readyReplicas")
    if present > wanted:
        return "scalingdown", False, True, f"Scaling down from {present} to {wanted} machines"
    if wanted > ready:
        return "scalingup", False, True, f"Scaling up from {ready} to {wanted} machines"
    return "running", False, False, ""


def _number(holder: Obj, field: str) -> int:
    value = holder.get(field)
    return value if isinstance(value, int) else 0


def _cluster(obj: Obj, conditions: Mapping[str, Obj]) -> Found:
    if (ending := _ending(obj, conditions)) is not None:
        return ending
    for name, word in (("RollingOut", "rollingout"), ("ScalingUp", "scalingup"), ("ScalingDown", "scalingdown")):
        if _is(conditions, name):
            return word, False, True, _said(conditions, name)
    if _is(conditions, "Available", "False"):
        return "updating", False, True, _plain(_said(conditions, "Available"))
    phase = str((obj.get("status") or {}).get("phase") or "")
    return (phase.lower() or "active"), phase == "Failed", phase in ("Pending", "Provisioning"), ""
