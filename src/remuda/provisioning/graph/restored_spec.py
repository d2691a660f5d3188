"""The part of a restore that concerns the cluster's own spec: fields of the snapshot's time come back
(docs/reference/operations.md#restore). Pure; :mod:`.provisioningcluster` reads and writes.

The planner has the snapshot checked first. Until then, the control plane keeps the fields in question, so that a restore that is
refused has changed nothing. They are written once per request, noted by an annotation of the cluster and of its control plane:
what a user changes afterwards stays.
"""

from __future__ import annotations

from typing import Any

from remuda.kube.objects import annotations_of, dig

from ..etcd.snapshot_specs import NONE, SnapshotSpecError, cluster_spec, is_pending, packed_cluster_spec, request_of, restored
from ..well_known import CLUSTER_SPEC, RESTORED_SPEC

Obj = dict[str, Any]


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
