"""The part of a recovery that concerns the cluster's own spec: the request of the restore that it ends with
(docs/reference/operations.md#recovery). Pure; :mod:`.provisioningcluster` reads and writes.

The planner asks for it when machines have taken the places of the lost ones. It is written once per request, in one write with
the note that it was: a user may replace it afterwards.
"""

from __future__ import annotations

from typing import Any

from remuda.kube.objects import annotations_of, dig, with_path

from ..etcd.recovery_request import noted, requested
from ..well_known import RECOVER, RECOVERED

Obj = dict[str, Any]

_RESTORE = ("spec", "rkeConfig", "etcdSnapshotRestore")


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
