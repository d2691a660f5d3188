"""The Beacon of a cluster: the lock for writing its plans, which Rancher's controllers honour, too
(docs/reference/planner.md#beacon). Pure."""

from __future__ import annotations

from typing import Any, Final

from remuda.kube.objects import dig, resource_version_of

Obj = dict[str, Any]

PLANNER: Final = "planner"


def holder_of(beacon: Obj) -> str:
    """The current holder; empty if there is none."""
    delegates = dig(beacon, "status", "delegates") or []
    return str(delegates[-1] if delegates else dig(beacon, "status", "owner") or "")


def is_ours_to_take(beacon: Obj) -> bool:
    return holder_of(beacon) in ("", PLANNER)


def taken(beacon: Obj) -> Obj | None:
    """The patch by which the planner takes it, bound to the version read; None if the planner has it."""
    return None if _said(beacon) == (True, PLANNER) else _patch(beacon, True, PLANNER)


def released(beacon: Obj) -> Obj | None:
    """The patch by which the planner releases it; None if the planner does not hold it."""
    return _patch(beacon, False, None) if dig(beacon, "status", "owner") == PLANNER else None


def _said(beacon: Obj) -> tuple[bool, str]:
    return bool(dig(beacon, "status", "active")), str(dig(beacon, "status", "owner") or "")


def _patch(beacon: Obj, active: bool, owner: str | None) -> Obj:
    return {
        "metadata": {"resourceVersion": resource_version_of(beacon)},
        "status": {"active": active, "owner": owner},
    }
