"""A recovery requests its restore once, when machines have taken the places of the lost ones."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kube.objects import annotations_of
from remuda.provisioning.etcd.recovery_request import RecoveryRequest
from remuda.provisioning.graph.restored_spec import with_restore
from remuda.provisioning.well_known import RECOVER, RECOVERED

Obj = dict[str, Any]
SNAP = RecoveryRequest(3, snapshot="snap")


def cluster(request: RecoveryRequest | None = SNAP, restore: Obj | None = None, **annotations: str) -> Obj:
    said = {RECOVER: request.text()} if request else {}
    config = {"etcdSnapshotRestore": restore} if restore else {}
    return {"metadata": {"name": "demo", "annotations": {**said, **annotations}}, "spec": {"rkeConfig": config}}


def plane(request: RecoveryRequest = SNAP, phase: str = "Restoring", **status: Any) -> Obj:
    return {"status": {"recover": {**request.data(), "lost": []}, "recoverPhase": phase, **status}}


def test_the_restore_has_a_generation_that_none_had() -> None:
    before = {"name": "old", "generation": 4}
    found = with_restore(cluster(restore=before), plane(etcdSnapshotRestore={"generation": 6}))
    assert found["spec"]["rkeConfig"]["etcdSnapshotRestore"] == {"name": "snap", "generation": 7, "restoreRKEConfig": "none"}
    assert annotations_of(found)[RECOVERED] == SNAP.text()
    assert with_restore(found, plane()) is found, "once; what a user changes from now on stays"


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (cluster(), None),
        (cluster(), plane(phase="Hosts")),
        (cluster(), plane(phase="Finished")),
        (cluster(None), plane()),
        (cluster(RecoveryRequest(4, snapshot="snap")), plane()),
    ],
)
def test_it_is_not_requested_before_or_for_another_request(wanted: Obj, found: Obj | None) -> None:
    assert with_restore(wanted, found) is wanted
