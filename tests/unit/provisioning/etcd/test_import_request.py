"""The request to import a snapshot from a bucket, and the ETCDSnapshot that it leads to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from remuda.provisioning.etcd.import_request import (
    ImportRequestError,
    imported,
    parse,
    refusal,
    request_for,
    requested,
)
from remuda.provisioning.etcd.inventory import changes, is_managed
from remuda.provisioning.etcd.s3.copies import Copy
from remuda.provisioning.etcd.snapshot_reports import Report
from remuda.provisioning.etcd.snapshot_sets import copy_of, grouped
from remuda.provisioning.well_known import CLUSTER_NAME, OTHER_CLUSTER, RESTORE_MODES

from .snapshot_world import HASH, NOW, REMEMBERED, bucket, known

LOCATION = "s3://old/archive/2026/on-demand-n1-1700000000.zip"
REQUEST = request_for(LOCATION, "now")
COPY = Copy("on-demand-n1-1700000000.zip", 10, 1.7e9, LOCATION, "tag", "n1", "its-own", sha256=HASH, metadata=REMEMBERED)
WANTED = {"metadata": {"name": "demo", "namespace": "fleet", "uid": "uid-demo"}}
S3 = {"bucket": "old", "folder": "archive/2026", "endpoint": "s3.example.com"}


@pytest.mark.parametrize("other", [False, True])
def test_a_request_is_read_as_it_was_written(other: bool) -> None:
    request = request_for(LOCATION, "now", other_cluster=other)
    assert parse(request.text()) == request and request.location == LOCATION
    assert (request.bucket, request.folder, request.file) == ("old", "archive/2026", "on-demand-n1-1700000000.zip")


def test_a_file_of_no_folder_does_not_mean_the_folder_of_the_settings() -> None:
    request = request_for("s3://old/snap", "now")
    assert request.s3 == {"bucket": "old", "folder": "."} and request.location == "s3://old/snap"


@pytest.mark.parametrize(
    "location",
    [
        "",
        "/tmp/snap",
        "https://old/snap",
        "s3://",
        "s3://old",
        "s3://old/",
        "s3://old/a/",
        "s3:///snap",
        "s3://old//snap",
        "s3://old/a/../snap",
        "s3://old/./snap",
        "s3://old/-snap",
        "s3://old/.metadata",
        "s3://old/a\nb",
        f"s3://old/{'a' * 2000}",
    ],
)
def test_other_places_are_refused(location: str) -> None:
    with pytest.raises(ImportRequestError, match="location: must"):
        request_for(location, "now")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("now", "it is not JSON"),
        ([], "it is not an object"),
        ({"location": LOCATION, "at": "1", "endpoint": "evil"}, "endpoint: unknown field"),
        ({"location": LOCATION}, "at: must be the time"),
        ({"location": LOCATION, "at": "1" * 65}, "at: must be the time"),
        ({"location": 1, "at": "1"}, "location: must be"),
        ({"location": LOCATION, "at": "1", "otherCluster": "yes"}, "otherCluster: must be true or false"),
    ],
)
def test_a_malformed_request_names_the_field(said: Any, why: str) -> None:
    text = said if isinstance(said, str) else json.dumps(said)
    with pytest.raises(ImportRequestError, match=why):
        parse(text)
    assert requested(text) is None


@pytest.mark.parametrize(
    ("found", "own", "other", "is_refused"),
    [
        ("its-own", "its-own", False, False),
        ("another", "its-own", False, True),
        ("another", "its-own", True, False),
        ("", "its-own", False, False),
        ("another", "", False, False),
    ],
)
def test_only_a_known_other_cluster_needs_the_users_word(found: str, own: str, other: bool, is_refused: bool) -> None:
    assert bool(refusal(found, own, other_cluster=other)) is is_refused


def test_the_object_has_all_that_a_restore_needs() -> None:
    made = imported(WANTED, REQUEST, COPY, "its-own", S3)
    assert made["snapshotFile"]["s3"] == S3 and made["spec"] == {"clusterName": "demo"}
    assert made["metadata"]["labels"] == {CLUSTER_NAME: "demo"}
    assert made["metadata"]["annotations"][RESTORE_MODES] == "none,kubernetesVersion,all"
    assert OTHER_CLUSTER not in made["metadata"]["annotations"]
    assert [(owner["kind"], owner["uid"]) for owner in made["metadata"]["ownerReferences"]] == [("Cluster", "uid-demo")]
    copy = copy_of(made)
    assert (copy.storage, copy.location, copy.size, copy.sha256, copy.version) == ("s3", LOCATION, 10, HASH, "v1.34.1+k3s1")
    assert [each.name for each in grouped([made])] == ["on-demand-1700000000"]


def test_it_is_noted_only_of_another_cluster_that_it_is_of_one() -> None:
    request = replace(REQUEST, other_cluster=True)
    marks = [imported(WANTED, request, COPY, own, S3)["metadata"]["annotations"].get(OTHER_CLUSTER) for own in ("its-own", "x")]
    assert marks == [None, "true"]


def test_the_inventory_leaves_it_alone() -> None:
    made = imported(WANTED, REQUEST, COPY, "its-own", S3)
    assert not is_managed(made)
    found = changes(known(bucket=bucket(Report(True, NOW, ()))), [made], NOW)
    assert not (found.create or found.update or found.delete or found.release)
