"""Limits of a Machine's deletion: pure decisions on its steps and their timeouts, carried out by :mod:`.deletion`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.kube.clock import parse_rfc3339, rfc3339
from remuda.kube.objects import annotations_of, dig, is_being_deleted, labels_of, metadata, with_path

from .. import contracts
from ..well_known import CONTROL_PLANE, EXCLUDE_NODE_DRAINING, EXCLUDE_VOLUME_DETACH

Obj = dict[str, Any]

PRE_DRAIN_TIME = "waitForPreDrainHookStartTime"
DRAIN_TIME = "nodeDrainStartTime"
DETACH_TIME = "waitForNodeVolumeDetachStartTime"
PRE_TERMINATE_TIME = "waitForPreTerminateHookStartTime"

DRAIN_TIMEOUT = "nodeDrainTimeoutSeconds"
DETACH_TIMEOUT = "nodeVolumeDetachTimeoutSeconds"
NODE_TIMEOUT = "nodeDeletionTimeoutSeconds"

# A stage that takes longer than this is reported.
SLOW_SECONDS = 60.0
_LONGEST_PAUSE = 20.0


def why_node_stays(cluster: Obj | None, machine: Obj, control_plane: Obj | None, machines: Iterable[Obj]) -> str:
    """The reason why the node is neither drained nor deleted; "" when it is.

    `control_plane` is the object that the Cluster refers to, if it is there; `machines` are the Cluster's.
    """
    if cluster is None or is_being_deleted(cluster):
        return "cluster is being deleted"
    if not node_name(machine):
        return "noderef is nil"
    if control_plane is not None:
        if is_being_deleted(control_plane):
            return "control plane is being deleted"
        if contracts.externally_managed(control_plane):
            return ""
    if not any(map(_is_active_control_plane, machines)):
        return "no control plane members"
    return ""


def _is_active_control_plane(machine: Obj) -> bool:
    return CONTROL_PLANE in labels_of(machine) and not is_being_deleted(machine)


def node_name(machine: Obj) -> str:
    return dig(machine, "status", "nodeRef", "name") or ""


def hooks(machine: Obj, prefix: str) -> list[str]:
    """The annotations by which others delay the deletion."""
    return sorted(name for name in annotations_of(machine) if name.startswith(prefix))


def may_drain(machine: Obj, infra: Obj | None, now: float) -> bool:
    return _may(machine, infra, now, EXCLUDE_NODE_DRAINING, DRAIN_TIME, DRAIN_TIMEOUT)


def may_wait_for_volumes(machine: Obj, infra: Obj | None, now: float) -> bool:
    return _may(machine, infra, now, EXCLUDE_VOLUME_DETACH, DETACH_TIME, DETACH_TIMEOUT)


def _may(machine: Obj, infra: Obj | None, now: float, exclude: str, start: str, limit: str) -> bool:
    if exclude in annotations_of(machine):
        return False
    # A pre-terminate hook that removed a control plane's etcd member may have taken the node's API with it.
    if started(machine, PRE_TERMINATE_TIME):
        return False
    if infra is None or is_being_deleted(infra):
        return False
    left = seconds_left(machine, start, limit, now)
    return left is None or left > 0


def started(machine: Obj, field: str) -> str:
    return dig(machine, "status", "deletion", field) or ""


def with_started(machine: Obj, field: str, now: float) -> Obj:
    """The machine with the start of a stage, recorded only once."""
    return machine if started(machine, field) else with_path(machine, ("status", "deletion", field), rfc3339(now))


def timeout(machine: Obj, field: str) -> int | None:
    """A timeout of `spec.deletion`; None when there is none, or 0."""
    found = dig(machine, "spec", "deletion", field)
    return found if isinstance(found, int) and found > 0 else None


def since(machine: Obj, field: str, now: float) -> float:
    """Seconds since a stage began."""
    begun = started(machine, field)
    return now - parse_rfc3339(begun) if begun else 0.0


def seconds_left(machine: Obj, field: str, limit: str, now: float) -> float | None:
    """Seconds until a stage is given up; None without a timeout."""
    seconds = timeout(machine, limit)
    return None if seconds is None else seconds - since(machine, field, now)


def node_deletion_expired(machine: Obj, now: float) -> bool:
    seconds = timeout(machine, NODE_TIMEOUT)
    return seconds is not None and now >= parse_rfc3339(metadata(machine)["deletionTimestamp"]) + seconds


def pause(machine: Obj, field: str, limit: str, now: float) -> float:
    """Seconds until the next look at a stage: few at first, since most end soon, then more; never past its timeout."""
    seconds = min(max(1.0, since(machine, field, now) / 3), _LONGEST_PAUSE)
    left = seconds_left(machine, field, limit, now)
    return seconds if left is None else max(min(seconds, left), 0.1)


def expected_end(machine: Obj, field: str, limit: str, exclude: str, now: float) -> str:
    """The expected end of a stage that takes long, for users; "" while it does not take long."""
    if since(machine, field, now) < SLOW_SECONDS:
        return ""
    seconds = timeout(machine, limit)
    if seconds is None:
        return f"There is no timeout: this goes on until spec.deletion.{limit} or the annotation {exclude} is set"
    until = rfc3339(parse_rfc3339(started(machine, field)) + seconds)
    return f"This is given up at {until} (spec.deletion.{limit}: {seconds})"
