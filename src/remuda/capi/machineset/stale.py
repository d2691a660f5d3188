"""Machines that take long to go, in one line: which, and what most likely keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from remuda.kube.clock import parse_rfc3339
from remuda.kube.conditions import TRUE, get
from remuda.kube.objects import dig, metadata, name_of

Obj = dict[str, Any]

LONG_DELETION, LONG_DRAIN = 15 * 60.0, 5 * 60.0
_SHOWN = 3
# What the condition Deleting of a machine says, and what that means for its owner.
_CAUSES = (
    ("cannot evict pod as it would violate the pod's disruption budget.", "PodDisruptionBudgets"),
    ("deletionTimestamp set, but still not removed from the Node", "Pods not terminating"),
    ("failed to evict Pod", "Pod eviction errors"),
    ("waiting for completion", "Pods not completed yet"),
)


def stale_machines(machines: Iterable[Obj], now: float) -> str:
    """Empty when none is being deleted for more than a quarter of an hour."""
    stale = [machine for machine in machines if (since := deleting_for(machine, now)) is not None and since > LONG_DELETION]
    if not stale:
        return ""
    message = f"{subject([name_of(machine) for machine in stale])} in deletion since more than 15m"
    told = [_drain_message(machine, now) for machine in stale]
    causes = [cause for words, cause in _CAUSES if any(words in each for each in told)]
    return f"{message}, delay likely due to {', '.join(causes)}" if causes else message


def subject(names: Sequence[str]) -> str:
    """`Machine a is` or `Machines a, b, c, ... (2 more) are`."""
    ordered = sorted(names)
    shown = ordered[:_SHOWN] + ([f"... ({len(ordered) - _SHOWN} more)"] if len(ordered) > _SHOWN else [])
    return f"Machine{'s' if len(ordered) > 1 else ''} {', '.join(shown)} {'are' if len(ordered) > 1 else 'is'}"


def deleting_for(machine: Obj, now: float) -> float | None:
    """For how many seconds it has been on its way out."""
    return _seconds_since(metadata(machine).get("deletionTimestamp"), now)


def _drain_message(machine: Obj, now: float) -> str:
    """What a drain that takes long says."""
    condition = get(machine, "Deleting")
    if condition is None or condition.get("status") != TRUE or condition.get("reason") != "DrainingNode":
        return ""
    since = _seconds_since(dig(machine, "status", "deletion", "nodeDrainStartTime"), now)
    return (condition.get("message") or "") if since is not None and since > LONG_DRAIN else ""


def _seconds_since(time: Any, now: float) -> float | None:
    if not isinstance(time, str):
        return None
    try:
        return now - parse_rfc3339(time)
    except ValueError:
        return None
