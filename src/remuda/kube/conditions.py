"""Conditions of an object, set and merged as Cluster API does it: both sets, side by side.

- `status.conditions`: metav1.Condition, v1beta2's own. The transition time moves with the status only; each has the object's
generation; the list is kept in a fixed order, the most important first.
- `status.deprecated.v1beta1.conditions`: the older kind, with a severity. The transition time moves with any change; `Ready`
  is first, the rest by name.

Setting returns a new object and never changes the given one. :func:`merged` carries one writer's changes over to a newer state of
the object. Sums of many conditions are in :mod:`.condition_summaries`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from .clock import rfc3339
from .objects import dig, metadata, with_path, without_path

Obj = dict[str, Any]

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
ERROR, WARNING, INFO = "Error", "Warning", "Info"

CONDITIONS = ("status", "conditions")
LEGACY_CONDITIONS = ("status", "deprecated", "v1beta1", "conditions")

_ORDER = (
    "Available",
    "Ready",
    "UpToDate",
    "RemoteConnectionProbe",
    "BootstrapConfigReady",
    "InfrastructureReady",
    "ControlPlaneInitialized",
    "ControlPlaneAvailable",
    "WorkersAvailable",
    "CertificatesAvailable",
    "Initialized",
    "EtcdClusterHealthy",
    "ControlPlaneComponentsHealthy",
    "NodeHealthy",
    "NodeReady",
    "NodeKubeadmLabelsAndTaintsSet",
    "EtcdPodHealthy",
    "EtcdMemberHealthy",
    "APIServerPodHealthy",
    "ControllerManagerPodHealthy",
    "SchedulerPodHealthy",
    "HealthCheckSucceeded",
    "OwnerRemediated",
    "TopologyReconciled",
    "Updating",
    "RollingOut",
    "Remediating",
    "ScalingDown",
    "ScalingUp",
    "MachinesReady",
    "ControlPlaneMachinesReady",
    "WorkerMachinesReady",
    "MachinesUpToDate",
    "ControlPlaneMachinesUpToDate",
    "WorkerMachinesUpToDate",
    "",  # everything else
    "Paused",
    "Deleting",
)
_RANK = {kind: rank for rank, kind in enumerate(_ORDER) if kind}
_ELSE = _ORDER.index("")
# Sums over many objects may be longer than any server accepts.
_LONGEST_MESSAGE = 32768


class ConditionSet(NamedTuple):
    """The path of a kind of conditions, the fields that make up their state, and the order of the list."""

    path: tuple[str, ...]
    state: tuple[str, ...]
    order: Callable[[Obj], Any]
    # Whether any change of state moves the transition time, or only one of the status.
    moves_with_all: bool


def _rank(condition: Obj) -> tuple[int, str]:
    kind = condition.get("type") or ""
    return _RANK.get(kind, _ELSE), kind


def _ready_first(condition: Obj) -> tuple[bool, str]:
    kind = condition.get("type") or ""
    return kind != "Ready", kind


CURRENT = ConditionSet(CONDITIONS, ("status", "reason", "message", "observedGeneration"), _rank, False)
LEGACY = ConditionSet(LEGACY_CONDITIONS, ("status", "severity", "reason", "message"), _ready_first, True)
BOTH = (CURRENT, LEGACY)


def conditions_of(obj: Obj, of: ConditionSet = CURRENT) -> list[Obj]:
    return dig(obj, *of.path) or []


def get(obj: Obj, kind: str, of: ConditionSet = CURRENT) -> Obj | None:
    return _find(conditions_of(obj, of), kind)


def is_true(obj: Obj, kind: str, of: ConditionSet = CURRENT) -> bool:
    return _status(obj, kind, of) == TRUE


def is_false(obj: Obj, kind: str, of: ConditionSet = CURRENT) -> bool:
    return _status(obj, kind, of) == FALSE


def _status(obj: Obj, kind: str, of: ConditionSet) -> str | None:
    found = get(obj, kind, of)
    return None if found is None else found.get("status")


def same_state(left: Obj, right: Obj, of: ConditionSet = CURRENT) -> bool:
    """The same except for the transition time; absent and empty are equal."""
    return all((left.get(field) or None) == (right.get(field) or None) for field in of.state)


def with_condition(obj: Obj, kind: str, status: str, reason: str, message: str = "", *, now: float, since: str = "") -> Obj:
    """`obj` with this condition; `since` is the time of transition if it is already known (a mirrored one)."""
    condition: Obj = {"type": kind, "status": status, "reason": reason, "message": message[:_LONGEST_MESSAGE]}
    generation = int(metadata(obj).get("generation") or 0)
    if generation:
        condition["observedGeneration"] = generation
    return _with(obj, CURRENT, condition, since or rfc3339(now), bool(since))


def with_legacy(obj: Obj, kind: str, status: str, reason: str = "", message: str = "", severity: str = "", *, now: float) -> Obj:
    """`obj` with this condition of the older kind."""
    condition = {"type": kind, "status": status, "severity": severity, "reason": reason, "message": message}
    return _with(obj, LEGACY, {field: value for field, value in condition.items() if value}, rfc3339(now), False)


def without(obj: Obj, kind: str, of: ConditionSet = CURRENT) -> Obj:
    found = conditions_of(obj, of)
    kept = [condition for condition in found if condition.get("type") != kind]
    if len(kept) == len(found):
        return obj
    return with_path(obj, of.path, kept) if kept else without_path(obj, of.path)


def _with(obj: Obj, of: ConditionSet, condition: Obj, now: str, given: bool) -> Obj:
    before = conditions_of(obj, of)
    after = _put(before, condition, of, now, given)
    return obj if after is before else with_path(obj, of.path, after)


def _put(before: Sequence[Obj], condition: Obj, of: ConditionSet, now: str, given: bool = False) -> list[Obj]:
    """The list with this condition; the same list when nothing changes."""
    old = _find(before, condition["type"])
    if old is not None and same_state(old, condition, of) and not (given and old.get("lastTransitionTime") != now):
        return before if isinstance(before, list) else list(before)
    if old is not None and old.get("status") == condition.get("status") and not of.moves_with_all:
        # metav1's rule holds even for a given time: it moves with the status.
        now = old.get("lastTransitionTime") or now
    fresh = {**condition, "lastTransitionTime": now}
    if old is not None and fresh == old:
        return before if isinstance(before, list) else list(before)
    return sorted([*(each for each in before if each is not old), fresh], key=of.order)


def _find(conditions: Sequence[Obj], kind: str) -> Obj | None:
    # A loop: a generator takes twice as long, and this runs more often than anything else.
    for condition in conditions:
        if condition.get("type") == kind:
            return condition
    return None


class ConditionConflict(Exception):
    """Another writer changed a condition that this writer changed, too, to a different state."""


def merged(
    before: Sequence[Obj], after: Sequence[Obj], latest: Sequence[Obj], of: ConditionSet = CURRENT, owned: Collection[str] = ()
) -> list[Obj]:
    """`latest` with the changes from `before` to `after`. Types in `owned` are this writer's: it wins; else it's a conflict."""
    found = list(latest)
    for condition in after:
        old = _find(before, condition["type"])
        if old == condition:
            continue
        now = _find(found, condition["type"])
        if condition["type"] not in owned:
            if old is not None and now is None:
                raise ConditionConflict(f"the condition {condition['type']} was deleted by another client")
            if now is not None and now != old:
                if not same_state(now, condition, of):
                    raise ConditionConflict(f"the condition {condition['type']} was changed by another client")
                continue
        if now is not None and now.get("status") == condition.get("status") and not of.moves_with_all:
            condition = {**condition, "lastTransitionTime": now.get("lastTransitionTime")}
        found = [*(each for each in found if each is not now), condition]
    kinds = {condition["type"] for condition in after}
    for old in before:
        kind = old["type"]
        now = _find(found, kind)
        if kind in kinds or now is None:
            continue
        if kind not in owned and not same_state(now, old, of):
            raise ConditionConflict(f"the condition {kind} was changed by another client")
        found = [each for each in found if each is not now]
    return sorted(found, key=of.order)
