"""PodDisruptionBudget arithmetic, pure: the numbers of expected pods, of healthy ones, and of allowed disruptions.

Eviction in the API server decrements `disruptionsAllowed` and records the pod in `disruptedPods`; :mod:`.disruption`
recomputes both whenever pods or their owners change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from remuda.kube.clock import parse_rfc3339
from remuda.kube.objects import dig, is_being_deleted, metadata, name_of

Obj = dict[str, Any]

# A pod that was evicted and is still there after this long counts as healthy again.
DELETION_SECONDS = 120.0


class DisruptionBudgetError(Exception):
    """The budget can't be computed; the text goes into its condition."""


@dataclass(slots=True)
class Counts:
    current_healthy: int
    desired_healthy: int
    expected: int
    disrupted: dict[str, str] = field(default_factory=dict)
    # The time at which a recorded disruption expires (seconds since the epoch).
    recheck_at: float | None = None
    not_deleted: list[str] = field(default_factory=list)

    @property
    def allowed(self) -> int:
        return max(self.current_healthy - self.desired_healthy, 0) if self.expected > 0 else 0


def scaled(value: Any, total: int, *, up: bool = True) -> int:
    """An IntOrString as a number, a percentage of `total` rounded up (or down)."""
    if isinstance(value, int):
        return value
    text = str(value)
    if not text.endswith("%"):
        raise DisruptionBudgetError(f"invalid value for IntOrString: invalid type: string is not a percentage: {text}")
    try:
        percent = int(text[:-1])
    except ValueError:
        raise DisruptionBudgetError(f'invalid value for IntOrString: invalid value "{text}"') from None
    return math.ceil(percent * total / 100) if up else percent * total // 100


def needs_scale(budget: Obj) -> bool:
    """True if the number of expected pods comes from their controllers and not from counting pods."""
    spec = budget.get("spec") or {}
    if spec.get("maxUnavailable") is not None:
        return True
    return isinstance(spec.get("minAvailable"), str)


def expected_and_desired(budget: Obj, pods: int, scale: int) -> tuple[int, int]:
    """The number of expected pods, and of those that must stay healthy; `scale` is the sum of their controllers' replicas."""
    spec = budget.get("spec") or {}
    if spec.get("maxUnavailable") is not None:
        return scale, max(scale - scaled(spec["maxUnavailable"], scale), 0)
    least = spec.get("minAvailable")
    if isinstance(least, int):
        return pods, least
    if least is not None:
        return scale, scaled(least, scale)
    return 0, 0


def count(budget: Obj, pods: Iterable[Obj], scale: int, now: float) -> Counts:
    listed = list(pods)
    disrupted, recheck_at, not_deleted = _disrupted(budget, listed, now)
    expected, desired = expected_and_desired(budget, len(listed), scale)
    healthy = sum(1 for pod in listed if _is_healthy(pod, disrupted, now))
    return Counts(healthy, desired, expected, disrupted, recheck_at, not_deleted)


def _is_healthy(pod: Obj, disrupted: dict[str, str], now: float) -> bool:
    if is_being_deleted(pod):
        return False
    since = disrupted.get(name_of(pod))
    if since is not None and parse_rfc3339(since) + DELETION_SECONDS > now:
        return False
    return is_ready(pod)


def is_ready(pod: Obj) -> bool:
    conditions = dig(pod, "status", "conditions") or []
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def _disrupted(budget: Obj, pods: list[Obj], now: float) -> tuple[dict[str, str], float | None, list[str]]:
    noted = dig(budget, "status", "disruptedPods") or {}
    kept: dict[str, str] = {}
    recheck_at: float | None = None
    overdue: list[str] = []
    for pod in pods if noted else ():
        name = name_of(pod)
        if is_being_deleted(pod) or name not in noted:
            continue
        runs_out = parse_rfc3339(noted[name]) + DELETION_SECONDS
        if runs_out < now:
            overdue.append(name)
            continue
        kept[name] = noted[name]
        recheck_at = runs_out if recheck_at is None else min(recheck_at, runs_out)
    return kept, recheck_at, overdue


def status_of(budget: Obj, counts: Counts, now: str) -> Obj:
    """The budget's new status; equal to the old one when nothing has changed."""
    generation = int(metadata(budget).get("generation") or 0)
    status: Obj = {}
    if generation:
        status["observedGeneration"] = generation
    if counts.disrupted:
        status["disruptedPods"] = counts.disrupted
    status["disruptionsAllowed"] = counts.allowed
    status["currentHealthy"] = counts.current_healthy
    status["desiredHealthy"] = counts.desired_healthy
    status["expectedPods"] = counts.expected
    truth, reason = ("True", "SufficientPods") if counts.allowed > 0 else ("False", "InsufficientPods")
    before = dig(budget, "status", "conditions") or []
    status["conditions"] = with_condition(before, truth, reason, "", generation, now)
    return status


def failed_status(budget: Obj, message: str, now: str) -> Obj:
    """The status after a failed sync: no disruptions are allowed while the pods are unknown."""
    status = dict(budget.get("status") or {})
    observed = int(status.get("observedGeneration") or 0)
    status["disruptionsAllowed"] = 0
    for name in ("currentHealthy", "desiredHealthy", "expectedPods"):
        status.setdefault(name, 0)
    status["conditions"] = with_condition(status.get("conditions") or [], "False", "SyncFailed", message, observed, now)
    return status


def with_condition(before: list[Obj], status: str, reason: str, message: str, generation: int, now: str) -> list[Obj]:
    old = next((condition for condition in before if condition.get("type") == "DisruptionAllowed"), None)
    same = old is not None and old.get("status") == status
    fresh: Obj = {
        "type": "DisruptionAllowed",
        "status": status,
        "lastTransitionTime": old.get("lastTransitionTime") if old is not None and same else now,
        "reason": reason,
        "message": message,
    }
    if generation:
        fresh["observedGeneration"] = generation
    if old is None:
        return [*before, fresh]
    return [fresh if condition is old else condition for condition in before]
