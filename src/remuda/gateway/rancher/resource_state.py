"""The state of an object in one word, with a message: what lists of Rancher's clients show, colour and sort by. Pure.

Objects report their state in many ways. They are asked in a fixed order: a summary of their own, errors in conditions, conditions
in transition, `spec.active`, `status.phase`, their deletion, whether their controller has seen the last change, and what some
kinds need besides. The first that has a word decides the word; messages of all are joined. Cluster API's kinds have their own
rules (:mod:`.capi_states`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from remuda.kube.clock import parse_rfc3339
from remuda.kube.objects import GroupVersionKind

from . import capi_states

Obj = dict[str, Any]


class State(NamedTuple):
    name: str = "active"
    error: bool = False
    transitioning: bool = False
    message: str = ""

    def shown(self) -> Obj:
        return {"name": self.name, "error": self.error, "transitioning": self.transitioning, "message": self.message}


@dataclass(slots=True)
class _Finding:
    """The state found so far: the first word stays."""

    name: str = ""
    error: bool = False
    transitioning: bool = False
    messages: list[str] = field(default_factory=list)

    def say(self, name: str, message: str = "", *, error: bool = False, transitioning: bool = False) -> None:
        self.name = self.name or name
        self.error = self.error or error
        self.transitioning = self.transitioning or transitioning
        if message and message not in self.messages:
            self.messages.append(message)


# Unknown is a transition to the state, False is an error in it. Without a word the condition's reason is the state.
UNKNOWN_IS_TRANSITION: Final[Mapping[str, str]] = {
    "Active": "activating",
    "AddonDeploy": "provisioning",
    "AgentDeployed": "provisioning",
    "BackingNamespaceCreated": "configuring",
    "Built": "building",
    "CertsGenerated": "provisioning",
    "ConfigOK": "configuring",
    "Created": "creating",
    "CreatorMadeOwner": "configuring",
    "DefaultNamespaceAssigned": "configuring",
    "DefaultNetworkPolicyCreated": "configuring",
    "DefaultProjectCreated": "configuring",
    "Drained": "draining",
    "Downloaded": "downloading",
    "InitialRolesPopulated": "activating",
    "Installed": "installing",
    "NodeHealthy": "",
    "NodeReady": "",
    "Pending": "pending",
    "Provisioned": "provisioning",
    "Reconciled": "reconciling",
    "Registered": "registering",
    "Removed": "removing",
    "Saved": "saving",
    "SystemProjectCreated": "configuring",
    "Updated": "updating",
    "Updating": "updating",
    "Upgraded": "upgrading",
    "Waiting": "waiting",
}
# True is a transition; the reason is the state where there is no word.
TRUE_IS_TRANSITION: Final[Mapping[str, str]] = {
    "Deleting": "",
    "Paused": "",
    "Reconciling": "reconciling",
    "ScalingDown": "",
    "ScalingUp": "",
}
# False is a transition, Unknown is an error.
FALSE_IS_TRANSITION: Final[Mapping[str, str]] = {
    "Available": "updating",
    "BootstrapConfigReady": "",
    "BootstrapReady": "",
    "Completed": "activating",
    "ContainersReady": "containers not ready",
    "InfrastructureReady": "",
    "Initialized": "initializing",
    "MachinesReady": "updating",
    "PodScheduled": "scheduling",
    "Progressing": "inactive",
    "Ready": "unavailable",
}
# Cluster API has a condition of the same name for an activity: without it there is nothing wrong.
_AT_REST: Final[Mapping[str, str]] = {"Updating": "NotUpdating"}
# Conditions whose given status is an error, by group and kind.
ERRORS: Final[Mapping[tuple[str, str], Mapping[str, str]]] = {
    ("", "Node"): {
        "MemoryPressure": "True",
        "DiskPressure": "True",
        "PIDPressure": "True",
        "NetworkUnavailable": "True",
    },
    ("apps", "Deployment"): {"ReplicaFailure": "True", "Progressing": "False"},
    ("apps", "ReplicaSet"): {"ReplicaFailure": "True"},
    ("batch", "Job"): {"Failed": "True"},
}
_FALLBACK_ERRORS: Final[Mapping[str, str]] = {"Stalled": "True", "Failed": "True"}
_OPERATION_GROUP: Final = "operation.cattle.io"
_OPERATION_STATES: Final = ("Failed", "Canceled", "Succeeded", "Paused", "InProgress", "Pending")
_CALM_PHASES: Final = frozenset(("Failed", "Error"))
_MOVING_PHASES: Final = frozenset(("Pending", "Terminating", "Provisioning", "Creating"))
_REMOVAL_SECONDS: Final = 300.0


def state_of(obj: Obj, now: float = 0.0) -> State:
    """`now` tells whether a removal takes too long."""
    kind = GroupVersionKind.of(obj)
    if kind.group == capi_states.GROUP and (own := capi_states.state_of(kind.kind, obj)) is not None:
        return State(*own)
    found = _Finding()
    status = obj.get("status")
    status = status if isinstance(status, dict) else {}
    conditions = conditions_of(status)
    _own_summary(found, status)
    if kind.group == _OPERATION_GROUP:
        _operation(found, conditions)
    else:
        _errors(found, kind, conditions)
        _transitions(found, conditions)
    _spec_active(found, obj.get("spec"))
    _phase(found, status)
    _removed(found, obj, now)
    _freshness(found, kind, obj, status, conditions)
    _load_balancer(found, kind, obj, status)
    return State((found.name or "active").lower(), found.error, found.transitioning, ":".join(found.messages))


def conditions_of(status: Mapping[str, Any]) -> list[Obj]:
    found = status.get("conditions")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _own_summary(found: _Finding, status: Mapping[str, Any]) -> None:
    for name in ("display", "summary"):
        own = status.get(name)
        if isinstance(own, dict) and _text(own.get("state")):
            error, moving = own.get("error") is True, own.get("transitioning") is True
            found.say(_text(own["state"]), _text(own.get("message")), error=error, transitioning=moving)
            return


def _errors(found: _Finding, kind: GroupVersionKind, conditions: Iterable[Obj]) -> None:
    bad = ERRORS.get((kind.group, kind.kind), _FALLBACK_ERRORS)
    for condition in conditions:
        type_, reason = condition.get("type"), condition.get("reason")
        if reason == "Error" or (type(type_) is str and bad.get(type_) == condition.get("status")):
            found.say("error", _text(condition.get("message")), error=True)


class Judged(NamedTuple):
    """One condition: its word, "" for none."""

    word: str = ""
    error: bool = False
    transitioning: bool = False


_CALM: Final = Judged()


def judged(condition: Mapping[str, Any]) -> Judged:
    """The meaning of one condition by the three tables."""
    type_, status = condition.get("type"), condition.get("status")
    if type(type_) is not str:
        return _CALM
    if status == "False" and type_ in _AT_REST and condition.get("reason") == _AT_REST[type_]:
        return _CALM
    word = UNKNOWN_IS_TRANSITION.get(type_)
    if word is not None:
        if status == "Unknown":
            return Judged(word or _reason(condition), False, True)
        return Judged(word or _reason(condition), True, False) if status == "False" else _CALM
    word = TRUE_IS_TRANSITION.get(type_)
    if word is not None:
        return Judged(word or _reason(condition), False, True) if status == "True" else _CALM
    word = FALSE_IS_TRANSITION.get(type_)
    if word is not None:
        if status == "False":
            return Judged(word or _reason(condition), False, True)
        return Judged(word or _reason(condition), True, False) if status == "Unknown" else _CALM
    return _CALM


def _reason(condition: Mapping[str, Any]) -> str:
    return _text(condition.get("reason")).lower() or _text(condition.get("type")).lower()


def _transitions(found: _Finding, conditions: Iterable[Obj]) -> None:
    later: list[tuple[Judged, Obj]] = []
    for condition in conditions:
        meaning = judged(condition)
        if meaning is _CALM:
            continue
        if condition["type"] in UNKNOWN_IS_TRANSITION:
            _say(found, meaning, condition)
        else:
            later.append((meaning, condition))
    # Conditions that count when False come last: Ready only repeats what another one explains.
    for meaning, condition in sorted(later, key=lambda each: each[1]["type"] in FALSE_IS_TRANSITION):
        _say(found, meaning, condition)


def _say(found: _Finding, meaning: Judged, condition: Mapping[str, Any]) -> None:
    found.say(meaning.word, _text(condition.get("message")), error=meaning.error, transitioning=meaning.transitioning)


def _operation(found: _Finding, conditions: Iterable[Obj]) -> None:
    true = {condition.get("type"): condition for condition in conditions if condition.get("status") == "True"}
    for name in _OPERATION_STATES:
        if (condition := true.get(name)) is not None:
            moving = name in ("Paused", "InProgress", "Pending")
            found.say(name.lower(), _text(condition.get("message")), error=name == "Failed", transitioning=moving)
            return


def _spec_active(found: _Finding, spec: Any) -> None:
    active = spec.get("active") if isinstance(spec, dict) else None
    if isinstance(active, bool) and not found.name:
        found.say("active" if active else "inactive")


def _phase(found: _Finding, status: Mapping[str, Any]) -> None:
    phase = status.get("phase")
    if type(phase) is str and phase and not found.name:
        found.say(phase, error=phase in _CALM_PHASES, transitioning=phase in _MOVING_PHASES)


def _removed(found: _Finding, obj: Obj, now: float) -> None:
    metadata = obj.get("metadata") or {}
    removed = metadata.get("removed")
    if isinstance(removed, str) and removed:
        finalizer = next(iter(metadata.get("finalizers") or ()), "")
        message = f"waiting on {str(finalizer).removeprefix('controller.cattle.io/')}" if finalizer else ""
        try:
            late = now - parse_rfc3339(removed) > _REMOVAL_SECONDS
        except ValueError:
            late = False
        found.say("removing", message, error=late, transitioning=True)


def _freshness(found: _Finding, kind: GroupVersionKind, obj: Obj, status: Mapping[str, Any], conditions: Iterable[Obj]) -> None:
    """The deletion of the object; else whether its controller has seen its last change; else that all is well."""
    metadata = obj.get("metadata") or {}
    if metadata.get("deletionTimestamp"):
        if not found.name:
            found.say("removing", "Resource scheduled for deletion", transitioning=True)
        return
    if found.name or found.transitioning or found.error:
        return
    seen, generation = status.get("observedGeneration"), metadata.get("generation")
    if isinstance(seen, int) and isinstance(generation, int) and seen != generation:
        message = f"{kind.kind} generation is {generation}, but latest observed generation is {seen}"
        found.say("in-progress", message, transitioning=True)
        return
    if problem := _replicas_problem(kind, obj, status):
        found.say("in-progress", problem, transitioning=True)
        return
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    found.say("", "Resource is Ready" if ready else "Resource is current")


def _replicas_problem(kind: GroupVersionKind, obj: Obj, status: Mapping[str, Any]) -> str:
    if kind.group != "apps":
        return ""
    if kind.kind == "DaemonSet":
        wanted = status.get("desiredNumberScheduled") or 0
        counts = [("Updated", "updatedNumberScheduled"), ("Available", "numberAvailable"), ("Ready", "numberReady")]
    elif kind.kind in ("Deployment", "StatefulSet", "ReplicaSet"):
        replicas = (obj.get("spec") or {}).get("replicas")
        wanted = 1 if replicas is None else replicas
        counts = [("Updated", "updatedReplicas"), ("Available", "availableReplicas"), ("Ready", "readyReplicas")]
        counts = counts[1:] if kind.kind == "ReplicaSet" else counts
    else:
        return ""
    for word, name in counts:
        if (status.get(name) or 0) < wanted:
            return f"{word}: {status.get(name) or 0}/{wanted}"
    return ""


def _load_balancer(found: _Finding, kind: GroupVersionKind, obj: Obj, status: Mapping[str, Any]) -> None:
    if (kind.group, kind.kind) != ("", "Service") or (obj.get("spec") or {}).get("type") != "LoadBalancer":
        return
    if not found.name and not (status.get("loadBalancer") or {}).get("ingress"):
        found.messages.clear()
        found.say("pending", "Load balancer is being provisioned", transitioning=True)


# --- conditions as they are shown -----------------------------------------------------------------------------------------


def shown_conditions(conditions: Iterable[Obj]) -> list[Obj]:
    """Each condition with its meaning, and with the time of its last change under the name that clients read."""
    return [_shown(each) for each in conditions]


def _shown(condition: Obj) -> Obj:
    meaning = judged(condition)
    shown = {**condition, "error": meaning.error or condition.get("reason") == "Error", "transitioning": meaning.transitioning}
    if not shown.get("lastUpdateTime") and shown.get("lastTransitionTime"):
        shown["lastUpdateTime"] = shown["lastTransitionTime"]
    return shown
