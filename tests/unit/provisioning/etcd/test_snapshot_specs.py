"""What a snapshot remembers of its cluster."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from remuda.provisioning.etcd.snapshot_specs import SPEC_KEY, SnapshotSpecError, cluster_spec

Obj = dict[str, Any]


def packed(spec: object) -> str:
    return base64.b64encode(gzip.compress(json.dumps(spec).encode(), mtime=0)).decode()


def remembering(**metadata: object) -> Obj:
    return {"snapshotFile": {"metadata": base64.b64encode(json.dumps(metadata).encode()).decode()}}


def test_a_snapshot_remembers_the_spec_of_its_cluster() -> None:
    spec = {"kubernetesVersion": "v1.33.4+rke2r1", "rkeConfig": {}}
    assert cluster_spec(remembering(**{SPEC_KEY: packed(spec)})) == spec


@pytest.mark.parametrize("snapshot", [{}, {"snapshotFile": None}, {"snapshotFile": {"metadata": ""}}, remembering(other="x")])
def test_some_remember_nothing(snapshot: Obj) -> None:
    assert cluster_spec(snapshot) is None


@pytest.mark.parametrize(
    ("snapshot", "why"),
    [
        ({"snapshotFile": {"metadata": "%"}}, "its metadata is not base64"),
        ({"snapshotFile": {"metadata": "bm8="}}, "its metadata is not JSON"),
        ({"snapshotFile": {"metadata": "W10="}}, "its metadata is not a JSON object"),
        (remembering(**{SPEC_KEY: 5}), "provisioning-cluster-spec is not base64"),
        (remembering(**{SPEC_KEY: "bm8="}), "provisioning-cluster-spec is not gzip"),
        (remembering(**{SPEC_KEY: packed([])}), "provisioning-cluster-spec is not a JSON object"),
        (remembering(**{SPEC_KEY: packed("x" * 3_000_000)}), "cut off, or larger than"),
        (remembering(**{SPEC_KEY: packed({"a": "b"})[:20]}), "cut off, or larger than"),
    ],
)
def test_what_can_not_be_read_says_what_is_wrong(snapshot: Obj, why: str) -> None:
    with pytest.raises(SnapshotSpecError, match=why):
        cluster_spec(snapshot)
