"""The part of a restore and of a recovery that concerns the cluster's own spec (docs/reference/operations.md#restore,
docs/reference/operations.md#recovery). Pure; :mod:`.provisioningcluster` reads and writes.

A restore brings fields of the snapshot's time back. The planner has the snapshot checked first. Until then, the control plane
keeps the fields in question, so that a restore that is refused has changed nothing. A recovery ends with a restore, which is
requested in the spec when machines have taken the places of the lost ones.

Both are written once per request, noted by an annotation of the cluster: what a user changes afterwards stays.
"""

from __future__ import annotations

from typing import Any

from remuda.kube.objects import annotations_of, dig, with_path

from ..etcd.recovery_request import noted, requested
from ..etcd.snapshot_specs import NONE, SnapshotSpecError, cluster_spec, is_pending, packed_cluster_spec, request_of, restored
from ..well_known import CLUSTER_SPEC, RECOVER, RECOVERED, RESTORED_SPEC

Obj = dict[str, Any]
_RESTORE = ("spec", "rkeConfig", "etcdSnapshotRestore")


def held(wanted: Obj, plane: Obj | None) -> Obj:
    """The cluster whose objects are to be made: with the control plane's fields while the snapshot is not verified."""
    asked, status = _asked(wanted), (plane or {}).get("status") or {}
    was_up = dig(status, "initialization", "controlPlaneInitialized") is not None or "appliedSpec" in status
    if plane is None or not was_up or not is_pending(asked, status) or _is_verified(asked, status):
        return wanted
    packed = annotations_of(plane).get(CLUSTER_SPEC)
    if not packed:
        return wanted
    try:
        before = packed_cluster_spec(packed)
    except SnapshotSpecError:
        return wanted
    return {**wanted, "spec": restored(wanted["spec"], before, str(asked.get("restoreRKEConfig") or ""))}


def snapshot_to_read(wanted: Obj, plane: Obj | None) -> str:
    """The ETCDSnapshot whose spec is to be brought back now; "" if none is."""
    asked, status = _asked(wanted), (plane or {}).get("status") or {}
    if str(asked.get("restoreRKEConfig") or "") in NONE or not is_pending(asked, status) or not _is_verified(asked, status):
        return ""
    return "" if annotations_of(wanted).get(RESTORED_SPEC) == request_of(asked) else str(asked["name"])


def with_restored(wanted: Obj, snapshot: Obj) -> Obj:
    """The cluster with the fields of the snapshot's spec, and the note that it has them. Raises SnapshotSpecError."""
    asked, remembered = _asked(wanted), cluster_spec(snapshot)
    if remembered is None or dig(snapshot, "spec", "clusterName") != wanted["metadata"]["name"]:
        raise SnapshotSpecError("it does not have the spec of this cluster")
    meta = {**wanted["metadata"], "annotations": {**annotations_of(wanted), RESTORED_SPEC: request_of(asked)}}
    return {**wanted, "metadata": meta, "spec": restored(wanted["spec"], remembered, str(asked.get("restoreRKEConfig") or ""))}


def _asked(wanted: Obj) -> Obj:
    asked = dig(wanted, "spec", "rkeConfig", "etcdSnapshotRestore")
    return asked if isinstance(asked, dict) else {}


def _is_verified(asked: Obj, status: Obj) -> bool:
    return status.get("etcdSnapshotRestore") == asked and status.get("etcdSnapshotRestorePhase") not in (None, "", "Started")


def with_restore(wanted: Obj, plane: Obj | None) -> Obj:
    """The cluster with the restore that its recovery has come to; the same one if there is none to request."""
    said, status = annotations_of(wanted), (plane or {}).get("status") or {}
    asked = requested(said.get(RECOVER))
    if asked is None or status.get("recoverPhase") != "Restoring" or noted(status.get("recover")) != asked:
        return wanted
    if said.get(RECOVERED) == asked.text():
        return wanted
    known = (dig(wanted, *_RESTORE, "generation"), dig(status, "etcdSnapshotRestore", "generation"))
    generation = max(int(number or 0) for number in known) + 1
    meta = {**wanted["metadata"], "annotations": {**said, RECOVERED: asked.text()}}
    return with_path({**wanted, "metadata": meta}, _RESTORE, asked.restore(generation))
