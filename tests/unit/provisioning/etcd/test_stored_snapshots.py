"""An ETCDSnapshot as a restore reads it, and what a look into its bucket says about it."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from remuda.provisioning import well_known as keys
from remuda.provisioning.etcd.s3.answers import S3Error, Why
from remuda.provisioning.etcd.s3.copies import Copy
from remuda.provisioning.etcd.s3.place import PlaceError, of_cluster
from remuda.provisioning.etcd.stored_snapshots import BucketCopy, Look, bucket_copy, stored_snapshot

Obj = dict[str, Any]
KEYS = {"accessKey": "a", "secretKey": "b"}


def stored(**file: Any) -> Obj:
    owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m1"}
    meta = {"name": "snap", "annotations": {keys.SNAPSHOT_FILE_NAME: "noted"}, "ownerReferences": [owner]}
    return {"metadata": meta, "spec": {"clusterName": "demo"}, "status": {"sha256": "ab"}, "snapshotFile": file}


def test_a_snapshot_is_read_with_the_machine_that_has_it_and_the_spec_of_its_time() -> None:
    spec = base64.b64encode(gzip.compress(json.dumps({"kubernetesVersion": "v1.30.0+k3s1"}).encode())).decode()
    metadata = base64.b64encode(json.dumps({"provisioning-cluster-spec": spec}).encode()).decode()
    found = stored_snapshot(
        stored(name="file", size=5, location="file:///x/file", metadata=metadata, status="successful"),
        lambda version: f"nothing is known about {version}",
    )
    assert (found.file, found.cluster, found.machine, found.location) == ("file", "demo", "m1", "file:///x/file")
    assert (found.size, found.sha256, found.s3, found.problem) == (5, "ab", None, "")
    assert found.version == "v1.30.0+k3s1" and found.release_error == "nothing is known about v1.30.0+k3s1"
    assert stored_snapshot(stored(s3={"bucket": "b"}), str).s3 == {"bucket": "b"}


def test_a_snapshot_that_failed_or_is_garbled_says_so() -> None:
    message = base64.b64encode(b"no space left").decode()
    failed = stored_snapshot(stored(status="failed", message=message), str)
    assert failed.problem == "taking it failed: no space left" and failed.file == "noted"
    plain = stored_snapshot(stored(status="failed", message="no space left"), str)
    assert plain.problem == failed.problem
    garbled = stored_snapshot(stored(metadata="%"), str)
    assert garbled.problem == "the cluster's spec of that time can't be read: its metadata is not base64" and garbled.spec is None


# --- looks into a bucket --------------------------------------------------------------------------------------------------


def test_a_copy_that_is_found_tells_whose_it_is() -> None:
    found = Copy("snap", 5, 1.0, "s3://b/snap", "tag", cluster_id="the-uid", sha256="ab")
    assert bucket_copy(found) == BucketCopy(Look.FOUND, "", "the-uid", "ab")
    assert bucket_copy(None) == BucketCopy(Look.LOOKING)


@pytest.mark.parametrize("why", Why)
def test_only_what_may_pass_is_looked_at_again(why: Why) -> None:
    may_pass = {Why.BUSY: Look.BUSY, Why.CUT: Look.BUSY, Why.UNREACHABLE: Look.AWAY, Why.REFUSED: Look.AWAY}
    assert bucket_copy(S3Error(why, "the reason")) == BucketCopy(may_pass.get(why, Look.REFUSED), "the reason")


@pytest.mark.parametrize(
    ("s3", "credential", "look", "words"),
    [
        ({"bucket": "backups"}, {}, Look.HOSTS_ONLY, "names no Secret"),
        ({"bucket": "backups"}, {"accessKey": "a"}, Look.REFUSED, "names no Secret"),
        (
            {"bucket": "backups", "endpointCA": "/etc/ca.crt"},
            KEYS,
            Look.HOSTS_ONLY,
            "is the file",
        ),
        (
            {"bucket": "backups", "endpointCA": "rubbish"},
            KEYS,
            Look.REFUSED,
            "must be certificates",
        ),
        ({"bucket": "", "folder": "f"}, KEYS, Look.REFUSED, "the bucket's bucket is empty"),
    ],
)
def test_settings_that_only_hosts_can_use_are_told_from_wrong_ones(s3: Obj, credential: Obj, look: Look, words: str) -> None:
    with pytest.raises(PlaceError) as raised:
        of_cluster(s3, credential)
    found = bucket_copy(raised.value)
    assert found.look is look and words in found.text
