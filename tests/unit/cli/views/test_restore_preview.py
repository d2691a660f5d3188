"""What a user reads before a restore: the copy that is taken, and what the cluster loses and keeps."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.cli.views.restore_preview import CreatedSince, NoCopy, Preview, changed_fields, copy_to_restore, no_way_back
from remuda.provisioning.etcd.snapshot_sets import AVAILABLE, FAILED, LOCAL, MISSING, S3, SnapshotCopy, SnapshotSet

from .shown_clusters import NOW, VERSION, machine, wanted

Obj = dict[str, Any]
OLD = "v1.33.5+remuda1"


def copy(node: str, state: str = AVAILABLE, **fields: Any) -> SnapshotCopy:
    """That of a machine that is named as its node, or with `s3` that in the bucket."""
    storage = LOCAL if node else S3
    own = {"node": node, "machine": node, "size": 10 << 20, "version": OLD, **fields}
    return SnapshotCopy(f"demo-{node or 's3'}", f"on-demand-{node or 'n1'}-100", storage, state, NOW - 7200, **own)


def backup(*copies: SnapshotCopy) -> SnapshotSet:
    return SnapshotSet("on-demand-100", "fleet-default", "demo", NOW - 7200, copies)


MACHINES = (machine("n1"), machine("n2"), machine("n3", deleting=True))


@pytest.mark.parametrize(
    ("copies", "name", "first", "chosen"),
    [
        ([copy("n1"), copy("n2")], "on-demand-100", "n2", "demo-n2"),
        ([copy("n1"), copy("n2")], "on-demand-100", "", "demo-n1"),
        ([copy("n1", MISSING), copy("n2")], "on-demand-100", "n1", "demo-n2"),
        ([copy("n3"), copy("")], "on-demand-100", "n3", "demo-s3"),
        ([copy("n9"), copy("n2")], "on-demand-100", "n9", "demo-n2"),
        ([copy("n1"), copy("n2")], "on-demand-n2-100", "n1", "demo-n2"),
        ([copy("n1"), copy("n2", MISSING)], "demo-n2", "n1", "demo-n2"),
    ],
    ids=["init node", "any", "available", "bucket", "machine gone", "by file", "by object"],
)
def test_the_best_copy_is_restored(copies: list[SnapshotCopy], name: str, first: str, chosen: str) -> None:
    assert copy_to_restore(backup(*copies), name, MACHINES, first, "none").name == chosen


def test_only_a_copy_with_the_spec_of_its_time_brings_it_back() -> None:
    copies = [copy("n1", version=""), copy("n2")]
    assert copy_to_restore(backup(*copies), "on-demand-100", MACHINES, "n1", "all").name == "demo-n2"
    with pytest.raises(NoCopy, match="on n1: it does not have the cluster's spec of that time"):
        copy_to_restore(backup(copies[0]), "on-demand-100", MACHINES, "n1", "kubernetesVersion")


def test_what_has_no_copy_says_of_each_why() -> None:
    copies = [copy("n1", MISSING, message="its host is off"), copy("n3"), copy("", FAILED, message="denied")]
    with pytest.raises(NoCopy) as told:
        copy_to_restore(backup(*copies), "on-demand-100", MACHINES, "", "none")
    assert str(told.value) == (
        "no copy of snapshot on-demand-100 can be restored: on n1: missing (its host is off); on n3: its machine is gone; "
        "in the bucket: failed (denied)"
    )
    with pytest.raises(NoCopy, match="is of a snapshot that failed: denied"):
        copy_to_restore(backup(*copies), "demo-s3", MACHINES, "", "none")


def test_the_fields_of_the_spec_are_told_that_change() -> None:
    now = {"kubernetesVersion": VERSION, "rkeConfig": {"machineGlobalConfig": {"cni": "calico", "agent-token": "Kbcd3fghjklm1"}}}
    then = {"kubernetesVersion": OLD, "rkeConfig": {"machineGlobalConfig": {"cni": "canal"}, "machinePools": [{"name": "a"}]}}
    assert changed_fields(now, then, "none") == []
    assert changed_fields(now, then, "kubernetesVersion") == [f"kubernetesVersion: {VERSION} → {OLD}"]
    assert changed_fields(now, then, "all") == [
        f"kubernetesVersion: {VERSION} → {OLD}",
        "rkeConfig.machineGlobalConfig.agent-token: [hidden] → (unset)",
        "rkeConfig.machineGlobalConfig.cni: calico → canal",
    ]


def test_what_was_created_since_is_counted_by_kind() -> None:
    assert CreatedSince({"pods": 3, "configmaps": 12}).sentence() == "12 configmaps, 3 pods"
    assert CreatedSince({}).sentence() == "none" and CreatedSince({}, "it does not answer").sentence() == "not known"
    many = CreatedSince({f"kind{number:02}": 100 - number for number in range(20)}).sentence()
    assert many.endswith(", 89 kind11, 676 objects of 8 other kinds")


def preview(mode: str, *fields: str, since: CreatedSince = CreatedSince({"pods": 3})) -> list[str]:  # noqa: B008 - a constant
    found = backup(copy("n1"))
    return Preview(wanted(), found, found.copies[0], mode, fields, since, NOW).lines()


def test_the_preview_says_what_is_lost_and_kept() -> None:
    assert preview("none") == [
        "Cluster demo goes back to snapshot on-demand-100, taken 120m ago, 2025-12-31T23:00:00Z.",
        "  from      node n1, on-demand-n1-100, 10.0Mi",
        f"  version   {OLD} then, {VERSION} now; it stays",
        "  spec      stays as it is (--config none)",
        "Lost: every change of the cluster's objects since then, also deletions, which are undone.",
        "  created since then: 3 pods",
        "Kept: its machines, CA, tokens, kubeconfigs and snapshots, and what pods wrote to volumes and to disks of hosts.",
        "All machines stop, and start again one after another. Pods restart, and the cluster can't be reached meanwhile.",
    ]


def test_the_preview_says_what_comes_back_of_the_spec() -> None:
    lines = preview("all", *[f"field{number}: a → b" for number in range(25)], since=CreatedSince({}, "it does not answer"))
    assert lines[2].endswith("; that of the snapshot comes back") and lines[3] == "  spec      field0: a → b"
    assert "  spec      and 5 more fields" in lines and "  not counted: it does not answer" in lines
    assert "  spec      nothing of it changes" in preview("kubernetesVersion")


@pytest.mark.parametrize(
    ("version", "upgrade", "why"),
    [
        (VERSION, {"from": OLD, "phase": "Finished"}, ""),
        (OLD, {"from": OLD, "phase": "Finished"}, f"it has {OLD}, as before the upgrade from {OLD}"),
        (VERSION, {}, "no snapshot was taken before an upgrade"),
        (VERSION, {"from": OLD, "phase": "Failed", "message": "m1: disk full"}, "is not taken: m1: disk full"),
    ],
)
def test_the_way_back_from_an_upgrade_is_its_snapshot(version: str, upgrade: Obj, why: str) -> None:
    found = no_way_back(version, upgrade)
    assert why in found and bool(why) == bool(found)


def test_a_snapshot_of_another_cluster_keeps_nothing_and_needs_its_token() -> None:
    other = copy("", is_of_another=True)
    lines = Preview(wanted(), backup(other), other, "none", (), CreatedSince({}), NOW).lines()
    assert not [line for line in lines if line.startswith("Kept:")]
    (told,) = [line for line in lines if line.startswith("The snapshot is of another cluster")]
    assert "serverToken in the Secret demo-rke-state must be it before" in told
