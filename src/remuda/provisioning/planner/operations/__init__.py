"""Operations that a user requests of a whole cluster: phases, plans and waits of each, decided from the snapshot.

Each module is named as the field of the spec that requests it. An operation runs before the tiers and may block them. One
runs at a time, in the order of `_ALL`; a second one waits for the first. Its phase is in the control plane's status, so that
every pass continues from there. Pure, as the whole planner.
Not here: the commands that hosts run (`..render.tasks`), members that leave (`provisioning.etcd`).
Read :mod:`.steps`, then :mod:`.etcd_snapshot_create`, then :mod:`.etcd_snapshot_restore`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from remuda.kube.waits import Actor, Code

from .. import waits
from ..snapshot import ControlPlane
from ..tiers import Pass
from . import etcd_snapshot_create, etcd_snapshot_restore, rotate_certificates, rotate_encryption_keys
from .steps import Progress


class _Operation(NamedTuple):
    """`run` makes the next step, also if nothing is requested: the state of an operation leaves the status with its request."""

    is_wanted: Callable[[ControlPlane], bool]
    is_running: Callable[[ControlPlane], bool]
    run: Callable[[Pass, bool], Progress]


# By the field of the spec, in the order in which they run.
_ALL = {
    "etcdSnapshotCreate": _Operation(etcd_snapshot_create.is_wanted, etcd_snapshot_create.is_running, etcd_snapshot_create.run),
    "etcdSnapshotRestore": _Operation(
        etcd_snapshot_restore.is_wanted, etcd_snapshot_restore.is_running, etcd_snapshot_restore.run
    ),
    "rotateCertificates": _Operation(rotate_certificates.is_wanted, rotate_certificates.is_running, rotate_certificates.run),
    "rotateEncryptionKeys": _Operation(
        rotate_encryption_keys.is_wanted, rotate_encryption_keys.is_running, rotate_encryption_keys.run
    ),
}


def is_running(control_plane: ControlPlane) -> bool:
    """True while an operation has begun and not ended. A pause holds it between two machines, but leaves it running."""
    return any(operation.is_running(control_plane) for operation in _ALL.values())


def run_all(run: Pass, paused: bool) -> Progress:
    """The next step of the operation that runs, else of the first that is requested."""
    control_plane = run.snapshot.control_plane
    begun = [name for name, operation in _ALL.items() if operation.is_running(control_plane)]
    asked = [name for name, operation in _ALL.items() if operation.is_wanted(control_plane) and name not in begun]
    order = [*begun, *asked]
    queued = order[1:]
    progress = Progress()
    for name, operation in _ALL.items():
        if name not in queued:
            progress = progress.also(operation.run(run, paused))
    texts = [f"{name}: waiting for {order[0]} to end" for name in queued]
    notes = [waits.of_control_plane(run.snapshot, Code.TURN, Actor.REMUDA, text) for text in texts]
    return replace(progress, notes=(*progress.notes, *notes))
