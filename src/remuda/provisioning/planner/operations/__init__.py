"""Operations that a user requests of a whole cluster: phases, plans and waits of each, decided from the snapshot.

Each module is named as the field of the spec that requests it. An operation runs before the tiers and may block them. Its phase
is in the control plane's status, so that every pass continues from there. One runs at a time, in the order of `_ALL`; a second
one waits for the first, but a restore does not wait for one that can't end. Pure, as the whole planner.
Not here: the commands that hosts run (`..render`), members that leave (`provisioning.etcd`).
Read :mod:`.steps`, then :mod:`.etcd_snapshot_create`, then :mod:`.etcd_snapshot_restore`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from remuda.kube.waits import Actor, Code

from .. import machine_health, waits
from ..snapshot import ControlPlane, Machine
from ..tiers import Pass
from . import etcd_snapshot_create, etcd_snapshot_restore, recover, rotate_certificates, rotate_encryption_keys, upgrade_snapshot
from .steps import OperationProgress, was_written


class _Operation(NamedTuple):
    """`run` makes the next step, also if nothing is requested: the state of an operation leaves the status with its request.
    `end` gives it up, for a reason."""

    is_wanted: Callable[[ControlPlane], bool]
    is_running: Callable[[ControlPlane], bool]
    run: Callable[[Pass, bool], OperationProgress]
    end: Callable[[Pass, bool, str], OperationProgress] | None = None


# By the field of the spec (of the status, for what nobody requests by itself), in the order in which they run.
_ALL = {
    "upgradeSnapshot": _Operation(
        upgrade_snapshot.is_wanted, upgrade_snapshot.is_running, upgrade_snapshot.run, upgrade_snapshot.end
    ),
    "etcdSnapshotCreate": _Operation(
        etcd_snapshot_create.is_wanted, etcd_snapshot_create.is_running, etcd_snapshot_create.run, etcd_snapshot_create.end
    ),
    "etcdSnapshotRestore": _Operation(
        etcd_snapshot_restore.is_wanted, etcd_snapshot_restore.is_running, etcd_snapshot_restore.run
    ),
    "rotateCertificates": _Operation(
        rotate_certificates.is_wanted, rotate_certificates.is_running, rotate_certificates.run, rotate_certificates.end
    ),
    "rotateEncryptionKeys": _Operation(
        rotate_encryption_keys.is_wanted,
        rotate_encryption_keys.is_running,
        rotate_encryption_keys.run,
        rotate_encryption_keys.end,
    ),
}
# Waits that end when a host has done what its plan says.
_OF_A_HOST = frozenset({Code.PLAN, Code.CHECK_IN, Code.PROBES})


def is_running(control_plane: ControlPlane) -> bool:
    """True while an operation has begun and not ended. A pause holds it between two machines, but leaves it running."""
    return recover.is_running(control_plane) or any(operation.is_running(control_plane) for operation in _ALL.values())


def run_all(run: Pass, paused: bool) -> OperationProgress:
    """The next step of the operation that runs, else of the first that is requested."""
    control_plane = run.snapshot.control_plane
    begun = [name for name, operation in _ALL.items() if operation.is_running(control_plane)]
    asked = [name for name, operation in _ALL.items() if operation.is_wanted(control_plane) and name not in begun]
    order = [*begun, *asked]
    progress = recover.run(run)
    if recover.is_running(control_plane):
        # It ends with a restore, which must not wait for anything.
        restore = etcd_snapshot_restore.FIELD
        order = [restore, *(name for name in order if name != restore)]
    queued = order[1:]
    for name, operation in _ALL.items():
        if name not in queued:
            progress = progress.also(operation.run(run, paused))
    texts = [f"{name}: waiting for {order[0]} to end" for name in queued]
    if etcd_snapshot_restore.FIELD in queued and begun:
        progress = _giving_way(run, paused, begun[0], progress)
    notes = [waits.of_control_plane(run.snapshot, Code.TURN, Actor.REMUDA, text) for text in texts]
    return replace(progress, notes=(*progress.notes, *notes))


def _giving_way(run: Pass, paused: bool, name: str, progress: OperationProgress) -> OperationProgress:
    """An operation that can't end by itself is given up for a restore, which may be the remedy."""
    end = _ALL[name].end
    if paused or end is None or not is_stuck(run, progress):
        return progress
    text = f"{name} is given up for {etcd_snapshot_restore.FIELD}"
    wait = waits.of_control_plane(run.snapshot, Code.STEP, Actor.REMUDA, text)
    return end(run, paused, f"given up for {etcd_snapshot_restore.FIELD}").also(OperationProgress(blocking=(wait,)))


def is_stuck(run: Pass, progress: OperationProgress) -> bool:
    """True if an operation waits for a host that has not answered for very long, or for an etcd that has lost its majority."""
    named = {machine.ref(): machine for machine in run.machines}
    late = [named[wait.subject] for wait in progress.blocking if wait.code in _OF_A_HOST and wait.subject in named]
    if any(_is_silent(run, machine) for machine in late):
        return True
    members = [machine for machine in run.machines if machine.is_etcd and machine.node is not None]
    down = [machine for machine in members if not machine_health.is_member_up(machine) and _is_silent(run, machine)]
    return bool(progress.blocking) and len(members) - len(down) <= len(members) // 2


def _is_silent(run: Pass, machine: Machine) -> bool:
    return machine_health.is_hung(run.snapshot, machine) and not was_written(run, machine)
