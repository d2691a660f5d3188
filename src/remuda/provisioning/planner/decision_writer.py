"""Applies a decision to its objects: a plan secret, a Machine, the control plane's status. Pure.

The controller reads each object anew, passes it to these functions, and writes it if it differs. :mod:`.snapshot_reader` is
the opposite direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.kube import conditions
from remuda.kube.clock import rfc3339
from remuda.kube.objects import annotations_of, dig, labels_of, with_metadata, with_path, without_path

from ..plans.machine_plan_secret import with_plan, with_question, with_retry
from ..plans.plan import encode
from ..well_known import PAUSED_FOR
from .decision import Decision, MachineChange, SecretChange
from .snapshot import Condition, merged

Obj = dict[str, Any]


def plan_secret(secret: Obj, change: SecretChange, now: float) -> Obj:
    if change.plan is not None:
        most, threshold = change.max_failures, change.failure_threshold
        secret = with_plan(secret, encode(change.plan), now=now, max_failures=most, failure_threshold=threshold)
    elif change.retry:
        secret = with_retry(secret)
    elif change.ask:
        secret = with_question(secret)
    if change.annotations:
        secret = with_metadata(secret, annotations=dict(merged(annotations_of(secret), change.annotations)))
    if change.labels:
        secret = with_metadata(secret, labels=dict(merged(labels_of(secret), change.labels)))
    return secret


def machine(obj: Obj, change: MachineChange, now: float) -> Obj:
    """The Machine with its annotations and its condition; the latter is in its status, in both sets."""
    if change.annotations:
        obj = with_metadata(obj, annotations={**annotations_of(obj), **change.annotations})
    return _with_capi_condition(obj, change.reconciled, now) if change.reconciled else obj


def cluster(obj: Obj, decision: Decision, now: float) -> Obj:
    """The Cluster API Cluster: paused or not, or with the condition that its control plane is no longer initialized."""
    if decision.pause_for is not None:
        marks = {key: value for key, value in annotations_of(obj).items() if key != PAUSED_FOR}
        marks |= {PAUSED_FOR: decision.pause_for} if decision.pause_for else {}
        obj = with_path(with_metadata(obj, annotations=marks), ("spec", "paused"), bool(decision.pause_for))
    if decision.unpause_cluster:
        obj = with_path(obj, ("spec", "paused"), False)
    return _with_capi_condition(obj, decision.cluster_condition, now) if decision.cluster_condition else obj


def control_plane(obj: Obj, decision: Decision, now: float) -> Obj:
    """The RKEControlPlane with its new status."""
    found = list(dig(obj, "status", "conditions") or ())
    for condition in decision.conditions:
        found = _with_condition(found, condition, now)
    if decision.conditions:
        obj = with_path(obj, ("status", "conditions"), found)
    for name, value in decision.status.items():
        obj = with_path(obj, ("status", name), value) if value is not None else without_path(obj, ("status", name))
    if decision.initialized is not None:
        obj = with_path(obj, ("status", "initialization", "controlPlaneInitialized"), decision.initialized)
    if decision.applied and dig(obj, "status", "appliedSpec") != obj.get("spec"):
        obj = with_path(obj, ("status", "appliedSpec"), obj.get("spec") or {})
    return obj


def _with_condition(found: list[Obj], condition: Condition, now: float) -> list[Obj]:
    """Rancher's format: any change sets `lastUpdateTime`, only a change of status the transition."""
    at = rfc3339(now)
    old: Mapping[str, Any] = next((each for each in found if each.get("type") == condition.type), {})
    moved = at if old.get("status") != condition.status else str(old.get("lastTransitionTime") or at)
    new = {"type": condition.type, "status": condition.status, "lastUpdateTime": at, "lastTransitionTime": moved}
    new |= {key: text for key, text in (("reason", condition.reason), ("message", condition.message)) if text}
    if not old:
        return [*found, new]
    return [new if each.get("type") == condition.type else each for each in found]


def _with_capi_condition(obj: Obj, condition: Condition, now: float) -> Obj:
    said = (condition.type, condition.status, condition.reason, condition.message)
    return conditions.with_legacy(conditions.with_condition(obj, *said, now=now), *said, now=now)
