"""Which machine the others join: the init node, marked by a label on its plan secret.

The mark is moved only to a machine that can carry on the same cluster. Once a cluster has begun, that is one with a join URL,
for a machine only gets one when it is a node of it; a second machine that starts a cluster of its own is what must never
happen. So an init node that goes away, or whose infrastructure flickers, stays the one to join until there is a successor.
(The original takes any machine then, and may begin a second cluster.) Join URLs themselves are in :mod:`.joining`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .. import names
from . import keys
from .snapshot import ControlPlane, Machine, Snapshot


@dataclass(frozen=True, slots=True)
class Election:
    """`marks` are the labels to write, in this order; as long as there are any, nobody is told a plan."""

    init: Machine | None = None
    marks: tuple[tuple[Machine, str | None], ...] = ()
    # Why nobody can be it: a machine's name and what it lacks.
    unfit: tuple[tuple[str, str], ...] = field(default=())


def elect(snapshot: Snapshot, machines: Sequence[Machine]) -> Election:
    """`machines` by name."""
    chosen = _chosen(snapshot.control_plane, machines)
    if chosen is None:
        return Election(unfit=tuple((machine.name, disqualifier(machine)) for machine in machines if machine.is_etcd))
    cleared = [(machine, None) for machine in machines if names.INIT_NODE in machine.plan_labels and machine is not chosen]
    marked = [] if chosen.is_init else [(chosen, "true")]
    return Election(chosen, (*cleared, *marked))


def has_begun(control_plane: ControlPlane, machines: Sequence[Machine]) -> bool:
    """Whether there is, or was, a cluster that must not be begun a second time."""
    if control_plane.initialized or control_plane.is_true("Bootstrapped"):
        return True
    return any(machine.join_url or machine.joined_to for machine in machines)


def disqualifier(machine: Machine) -> str:
    """Why a machine can't become the init node; empty if it can."""
    if not machine.is_etcd:
        return "no etcd role"
    if machine.deleting:
        return "being deleted"
    if machine.phase == "Failed":
        return "failed"
    return "" if machine.infrastructure_ready else "infrastructure not ready"


def _chosen(control_plane: ControlPlane, machines: Sequence[Machine]) -> Machine | None:
    pinned = control_plane.labels.get(keys.INIT_NODE_MACHINE_ID)
    if pinned:
        fit = (machine for machine in machines if machine.is_etcd and not machine.deleting and _has_id(machine, pinned))
        return next(fit, None)
    candidates = [machine for machine in machines if not disqualifier(machine)]
    joined = [machine for machine in candidates if machine.join_url and machine.node is not None]
    marked = [machine for machine in machines if machine.is_init and machine.is_etcd]
    kept = next((machine for machine in marked if machine.join_url and _stays(machine)), None)
    if kept is not None:
        return kept
    if joined:
        return joined[0]
    if has_begun(control_plane, machines):
        # Nobody could carry on but the one that began, in whatever state it is.
        return next((machine for machine in marked if machine.node is not None), None) or _beginner(machines)
    return (
        _beginner(machines)
        or next((machine for machine in marked if machine in candidates), None)
        or next(iter(candidates), None)
    )


def _beginner(machines: Sequence[Machine]) -> Machine | None:
    """A machine that was told to begin the cluster, and stays. Found again also if its mark was lost between two writes."""
    for machine in machines:
        if machine.is_etcd and machine.joined_to == "" and _stays(machine):
            return machine
    return None


def _stays(machine: Machine) -> bool:
    """It has a plan and was not given up. Infrastructure that flickers is no reason to move a cluster's head."""
    return machine.node is not None and not machine.deleting and machine.phase != "Failed"


def _has_id(machine: Machine, machine_id: str) -> bool:
    return machine_id in (machine.labels.get(names.MACHINE_ID), machine.plan_labels.get(names.MACHINE_ID))
