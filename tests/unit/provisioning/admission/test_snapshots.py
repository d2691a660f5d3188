"""What the owners of a cluster may change of its ETCDSnapshots."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.provisioning.admission.snapshots import change_errors

Obj = dict[str, Any]


def snapshot(**marks: Any) -> Obj:
    metadata = {"name": "s", "labels": {"a": "b"}, "annotations": {"etcdsnapshot.rke.io/storage": "s3"}, **marks}
    return {"metadata": metadata, "spec": {"clusterName": "demo"}, "snapshotFile": {"name": "f"}, "status": {"missing": False}}


STORAGE = {"etcdsnapshot.rke.io/storage": "s3"}


@pytest.mark.parametrize(
    "change",
    [
        {"annotations": {**STORAGE, "remuda.dev/verify": "2027-01-15T08:00:00Z"}},
        {"finalizers": ["remuda.dev/snapshot-file"]},
        {"managedFields": [{}], "resourceVersion": "2"},
        {},
    ],
)
def test_a_check_and_the_deletion_of_the_file_may_be_requested(change: Obj) -> None:
    assert change_errors(snapshot(), snapshot(**change)) == []


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (snapshot(), {**snapshot(), "snapshotFile": {"name": "of another"}}, "snapshotFile"),
        (snapshot(), {**snapshot(), "spec": {"clusterName": "other"}}, "spec"),
        (snapshot(), {**snapshot(), "status": {}}, "status"),
        (snapshot(), snapshot(labels={}), "metadata.labels"),
        (snapshot(), snapshot(ownerReferences=[{"name": "x"}]), "metadata.ownerReferences"),
        (snapshot(), snapshot(annotations={}), "metadata.annotations[etcdsnapshot.rke.io/storage]"),
        (
            snapshot(),
            snapshot(annotations={**STORAGE, "remuda.dev/file-deleted": "1.000"}),
            "metadata.annotations[remuda.dev/file-deleted]",
        ),
        (snapshot(), snapshot(annotations={**STORAGE, "remuda.dev/verify": "x" * 65}), "metadata.annotations[remuda.dev/verify]"),
        (snapshot(), snapshot(finalizers=["mine.example/x"]), "metadata.finalizers"),
        (snapshot(finalizers=["remuda.dev/snapshot-file"]), snapshot(), "metadata.finalizers"),
    ],
)
def test_all_else_is_refused_by_field(old: Obj, new: Obj, field: str) -> None:
    assert [error.field for error in change_errors(old, new)] == [field]
