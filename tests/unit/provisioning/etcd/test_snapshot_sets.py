"""One backup, taken by several members and copied to a bucket, is one set with its copies."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from remuda.kube.clock import rfc3339
from remuda.provisioning.etcd.snapshot_sets import SnapshotSet, grouped

Obj = dict[str, Any]
AT = 1_795_089_600


def local(node: str, at: int = AT, *, prefix: str = "on-demand", cluster: str = "demo", **more: Any) -> Obj:
    name = more.pop("file", f"{prefix}-{node}-{at}")
    snapshot: Obj = {
        "metadata": {
            "name": f"{cluster}-local-{name.lower()}-abcdef",
            "namespace": "fleet-default",
            "annotations": {"etcdsnapshot.rke.io/storage": "local"},
            "ownerReferences": [{"kind": "Machine", "name": f"machine-of-{node}"}],
        },
        "spec": {"clusterName": cluster},
        "snapshotFile": {"name": name, "nodeName": node, "createdAt": rfc3339(at), "size": 10, "status": "successful"},
    }
    snapshot["status"] = more.pop("status", {})
    snapshot["snapshotFile"] |= more
    return snapshot


def copied(node: str, at: int = AT, *, told: bool = True, **more: Any) -> Obj:
    found = local(node, at, **more)
    found["metadata"] |= {"name": found["metadata"]["name"].replace("-local-", "-s3-"), "ownerReferences": []}
    found["metadata"]["annotations"] = {"etcdsnapshot.rke.io/storage": "s3"}
    found["snapshotFile"] |= {"nodeName": node if told else "s3", "s3": {"bucket": "b"}}
    return found


def shape(found: list[SnapshotSet]) -> list[tuple[str, list[tuple[str, str]]]]:
    return [(each.name, [(copy.storage, copy.node) for copy in each.copies]) for each in found]


def test_the_files_of_all_members_and_their_copies_are_one_set() -> None:
    files = [local("n1"), local("n2", AT + 2), local("n3", AT + 41), copied("n1"), copied("n2", AT + 2)]
    whole = [(f"on-demand-{AT}", [("local", "n1"), ("local", "n2"), ("local", "n3"), ("s3", "n1"), ("s3", "n2")])]
    assert shape(grouped(files)) == whole
    assert shape(grouped(reversed(files))) == whole


def test_a_member_takes_part_in_a_backup_once() -> None:
    """Two on-demand snapshots within a minute are two."""
    files = [local(node, AT + wave) for wave in (0, 20) for node in ("n1", "n2")]
    assert [name for name, _ in shape(grouped(files))] == [f"on-demand-{AT + 20}", f"on-demand-{AT}"]


def test_backups_of_other_times_kinds_and_clusters_are_others() -> None:
    files = [
        local("n1"),
        local("n2", AT + 3600),
        local("n2", prefix="etcd-snapshot"),
        local("n2", cluster="other"),
    ]
    assert [(each.cluster, each.name) for each in grouped(files)] == [
        ("demo", f"on-demand-{AT + 3600}"),
        ("demo", f"etcd-snapshot-{AT}"),
        ("demo", f"on-demand-{AT}"),
        ("other", f"on-demand-{AT}"),
    ]


def test_a_copy_that_does_not_tell_its_node_is_of_the_node_in_its_name() -> None:
    assert len(grouped([local("n1"), copied("n2", AT + 1, told=False)])) == 1
    # Also where no machine is left that could tell.
    assert len(grouped([copied("n1", told=False), copied("n2", AT + 1, told=False)])) == 1


def test_nodes_whose_names_end_alike_are_told_apart() -> None:
    files = [local("1"), local("n-1"), copied("n-1", told=False)]
    assert shape(grouped(files)) == [(f"on-demand-{AT}", [("local", "1"), ("local", "n-1"), ("s3", "")])]


def test_a_file_with_a_name_of_its_own_is_a_set_of_its_own() -> None:
    files = [local("n1", file="before-the-storm"), local("n2", file="before-the-storm.zip")]
    assert [each.name for each in grouped(files)] == ["before-the-storm", "before-the-storm"]


@pytest.mark.parametrize(
    ("copies", "state"),
    [
        ([local("n1", status={"missing": True}), local("n2", AT + 1)], "available"),
        ([local("n1", status={"missing": True}), local("n2", AT + 1, status={"missing": True})], "missing"),
        ([local("n1") | {"snapshotFile": {"name": f"on-demand-n1-{AT}", "nodeName": "n1", "status": "failed"}}], "failed"),
    ],
)
def test_a_set_is_available_while_one_copy_is(copies: list[Obj], state: str) -> None:
    (found,) = grouped(copies)
    assert found.state == state


def test_it_tells_the_version_and_why_taking_it_failed() -> None:
    spec = base64.b64encode(gzip.compress(json.dumps({"kubernetesVersion": "v1.34.1+k3s1"}).encode())).decode()
    metadata = base64.b64encode(json.dumps({"provisioning-cluster-spec": spec}).encode()).decode()
    message = base64.b64encode(b"no space left").decode()
    (found,) = grouped([local("n1", metadata=metadata), local("n2") | {"snapshotFile": failed_file(message)}])
    assert found.version == "v1.34.1+k3s1"
    assert [copy.message for copy in found.copies] == ["", "no space left"]
    assert found.data()["created"] == rfc3339(AT)


def failed_file(message: str) -> Obj:
    return {"name": f"on-demand-n2-{AT + 1}", "nodeName": "n2", "status": "failed", "message": message}
