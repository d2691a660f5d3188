"""Sentences about machines of a MachineDeployment that take long, or that are ill. Others parse them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from remuda.kube.clock import time_of
from remuda.kube.conditions import TRUE, get
from remuda.kube.objects import dig, metadata, name_of

Obj = dict[str, Any]

_LONG, _LONG_DRAIN = 15 * 60.0, 5 * 60.0
_SHOWN = 3
# What the message of a machine that is being drained says, and what it likely means.
_DELAYS = (
    ("cannot evict pod as it would violate the pod's disruption budget.", "PodDisruptionBudgets"),
    ("deletionTimestamp set, but still not removed from the Node", "Pods not terminating"),
    ("failed to evict Pod", "Pod eviction errors"),
    ("waiting for completion", "Pods not completed yet"),
)


def in_deletion_for_long(machines: Iterable[Obj], now: float) -> str:
    """Machines that are being deleted since more than a quarter of an hour, and why that is; "" when there are none."""
    slow = [machine for machine in machines if _since(metadata(machine).get("deletionTimestamp"), now) > _LONG]
    if not slow:
        return ""
    message = f"{_named(slow)} in deletion since more than 15m"
    drained = [_draining(machine, now) for machine in slow]
    reasons = [reason for sign, reason in _DELAYS if any(sign in text for text in drained)]
    return f"{message}, delay likely due to {', '.join(reasons)}" if reasons else message


def not_to_be_remediated(machines: Sequence[Obj]) -> str:
    """Machines that are ill, and that nobody here replaces."""
    return f"{_named(machines)} not healthy (not to be remediated by MachineDeployment/MachineSet)" if machines else ""


def _since(text: Any, now: float) -> float:
    when = time_of(text)
    return 0.0 if when is None else now - when


def _draining(machine: Obj, now: float) -> str:
    deleting = get(machine, "Deleting") or {}
    if deleting.get("status") != TRUE or deleting.get("reason") != "DrainingNode":
        return ""
    if _since(dig(machine, "status", "deletion", "nodeDrainStartTime"), now) <= _LONG_DRAIN:
        return ""
    return deleting.get("message") or ""


def _named(machines: Sequence[Obj]) -> str:
    names = sorted(name_of(machine) for machine in machines)
    shown = names[:_SHOWN] + ([f"... ({len(names) - _SHOWN} more)"] if len(names) > _SHOWN else [])
    return f"Machine {names[0]} is" if len(names) == 1 else f"Machines {', '.join(shown)} are"
