"""Messages about machines that conditions of several kinds share. Other programs parse them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from remuda.kube.clock import time_of
from remuda.kube.conditions import TRUE, get
from remuda.kube.objects import dig, metadata, name_of

Obj = dict[str, Any]

LONG_DELETION, _LONG_DRAIN = 15 * 60.0, 5 * 60.0
_SHOWN = 3
# Texts in a drained machine's Deleting condition, and their likely cause.
_DELAYS = (
    ("cannot evict pod as it would violate the pod's disruption budget.", "PodDisruptionBudgets"),
    ("deletionTimestamp set, but still not removed from the Node", "Pods not terminating"),
    ("failed to evict Pod", "Pod eviction errors"),
    ("waiting for completion", "Pods not completed yet"),
)


def listed(names: Sequence[str], most: int) -> str:
    """The first few names, and the number of the others."""
    more = [f"... ({len(names) - most} more)"] if len(names) > most else []
    return ", ".join([*names[:most], *more])


def machines_are(machines: Sequence[Obj]) -> str:
    """`Machine a is` or `Machines a, b, c, ... (2 more) are`."""
    names = listed(sorted(name_of(machine) for machine in machines), _SHOWN)
    return f"Machines {names} are" if len(machines) > 1 else f"Machine {names} is"


def not_to_be_remediated(machines: Sequence[Obj], by: str = "") -> str:
    """The message about unhealthy machines that are not remediated here; "" when there are none."""
    return f"{machines_are(machines)} not healthy (not to be remediated{by and f' by {by}'})" if machines else ""


def in_deletion_for_long(machines: Iterable[Obj], now: float) -> str:
    """The message about machines that have been deleting for over a quarter of an hour, and the causes; "" without any."""
    slow = [machine for machine in machines if (deleting_for(machine, now) or 0.0) > LONG_DELETION]
    if not slow:
        return ""
    reasons = delays([_drain_message(machine, now) for machine in slow])
    return f"{machines_are(slow)} in deletion since more than 15m{reasons}"


def delays(drain_messages: Sequence[str]) -> str:
    """`, delay likely due to …`, from the machines' drain messages; "" when they name no cause."""
    reasons = [reason for sign, reason in _DELAYS if any(sign in message for message in drain_messages)]
    return f", delay likely due to {', '.join(reasons)}" if reasons else ""


def deleting_for(machine: Obj, now: float) -> float | None:
    """Seconds since the deletion began."""
    since = time_of(metadata(machine).get("deletionTimestamp"))
    return None if since is None else now - since


def is_drained_for_long(machine: Obj, now: float) -> bool:
    since = time_of(dig(machine, "status", "deletion", "nodeDrainStartTime"))
    return since is not None and now - since > _LONG_DRAIN


def _drain_message(machine: Obj, now: float) -> str:
    """The message of a drain that takes long."""
    deleting = get(machine, "Deleting") or {}
    if deleting.get("status") != TRUE or deleting.get("reason") != "DrainingNode":
        return ""
    return (deleting.get("message") or "") if is_drained_for_long(machine, now) else ""
