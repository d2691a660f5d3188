"""What hosts, buckets and clusters say about snapshots is read with care."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest

from remuda.provisioning.etcd.s3.copies import Copy
from remuda.provisioning.etcd.snapshot_reports import of_bucket, of_cluster, of_config_map, of_host

from .snapshot_world import HASH, NOW, REMEMBERED, printed

Obj = dict[str, Any]


def metadata_line(said: object) -> tuple[str, str]:
    content = json.dumps(said).encode()
    digest = hashlib.sha256(content).hexdigest()
    return digest, f"metadata {digest} {base64.b64encode(content).decode()}"


def decoded(text: str) -> Any:
    return json.loads(base64.b64decode(text))


def test_a_host_tells_its_files_with_size_hash_and_what_the_cluster_was() -> None:
    digest, line = metadata_line(REMEMBERED)
    text = (
        f"at 1800000000\ndirectory /var/snapshots\n{line}\nfile 4096 1800000005 {HASH} {digest} on-demand-n-1799999990\nend 1\n"
    )
    report = of_host("m", "n", text)
    assert report is not None and report.complete and report.at == 1800000000.0
    (seen,) = report.seen
    assert (seen.storage, seen.machine, seen.node, seen.size, seen.sha256) == ("local", "m", "n", 4096, HASH)
    assert seen.created == 1799999990.0, "as its name says, which is the same everywhere"
    assert seen.location == "file:///var/snapshots/on-demand-n-1799999990"
    assert decoded(seen.metadata) == REMEMBERED


def test_a_name_may_have_blanks_and_a_file_without_a_time_in_its_name_has_that_of_its_last_change() -> None:
    report = of_host("m", "n", printed("before the move"))
    assert report is not None
    assert [(each.file, each.created) for each in report.seen] == [("before the move", NOW)]


@pytest.mark.parametrize(
    "line",
    [
        "file",
        "file 1 2 3",
        f"file -1 {int(NOW)} {HASH} - a",
        f"file 1e9 {int(NOW)} {HASH} - a",
        f"file {10**30} {int(NOW)} {HASH} - a",
        f"file 1 {10**17} {HASH} - a",
        f"file 1 {int(NOW)} {HASH} - ../../etc/shadow",
        f"file 1 {int(NOW)} {HASH} - .hidden",
        f"file 1 {int(NOW)} {HASH} - --flag",
        f"file 1 {int(NOW)} {HASH} - \x1b[31mred",
        f"file 1 {int(NOW)} {HASH} - {'a' * 256}",
        f"file 1 {int(NOW)} {HASH} - ",
    ],
)
def test_a_line_that_can_not_be_a_file_is_left_out(line: str) -> None:
    report = of_host("m", "n", f"at {int(NOW)}\n{line}\nend 1\n")
    assert report is not None and report.seen == ()


@pytest.mark.parametrize("text", ["", "end 1\n", "at soon\nend 1\n", "sh: not found\n", "at 0\nend 1\n", "\x00\x01"])
def test_what_is_no_report_counts_as_none(text: str) -> None:
    assert of_host("m", "n", text) is None


def test_a_report_that_was_cut_off_is_incomplete() -> None:
    report = of_host("m", "n", printed("a-1800000000", end=False))
    assert report is not None and not report.complete and len(report.seen) == 1


def test_a_report_that_the_agent_has_shortened_is_incomplete() -> None:
    text = printed(*(f"a{number}-1800000000" for number in range(9)))
    for cut in range(len(text) - 40):
        report = of_host("m", "n", f"{text[:cut]}\n[... left out: too long ...]\n{text[cut + 30 :]}")
        assert report is None or not report.complete


def test_a_hash_that_is_none_is_left_out_and_metadata_that_is_no_map_too() -> None:
    digest, line = metadata_line(["no", "map"])
    text = f"at 1\n{line}\nfile 1 2 - {digest} a\nfile 1 2 {'A' * 64} {'b' * 64} b\nend 2\n"
    report = of_host("m", "n", text)
    assert report is not None
    assert [(each.sha256, each.metadata) for each in report.seen] == [("", ""), ("", "")]


def test_a_host_can_not_fill_the_server() -> None:
    digest, line = metadata_line({"provisioning-cluster-spec": "x" * 1_000_000})
    files = [f"file 1 2 {HASH} {digest} a{number}" for number in range(3000)]
    report = of_host("m", "n", "\n".join(["at 1", line, *files, "end 3000"]))
    assert report is not None and len(report.seen) == 1000
    assert sum(len(each.metadata) for each in report.seen) < 16 << 20
    assert report.seen[0].metadata, "the first ones, which are the newest, have theirs"


def copy(name: str, **fields: Any) -> Copy:
    return Copy(name, 5, NOW, f"s3://backups/demo/{name}", "etag", **fields)


def test_clusters_that_share_a_folder_see_their_own_copies_only() -> None:
    copies = [
        copy("on-demand-n1-1800000000", node="n1", cluster_id="ours", sha256=HASH, metadata=REMEMBERED),
        copy("on-demand-n1-1800000001", node="n1", cluster_id="theirs"),
        copy("on-demand-n1-1800000002", node="n1"),
        copy("on-demand-n9-1800000003", node="n9"),
        copy("on-demand-n1-1800000004"),
        copy("on-demand-n9-1800000005"),
    ]
    report = of_bucket(NOW, copies, {"bucket": "backups"}, "ours", ["n1", "n2"])
    assert [each.file[-1] for each in report.seen] == ["0", "2", "4"]
    assert report.seen[0].sha256 == HASH and decoded(report.seen[0].metadata) == REMEMBERED
    assert report.seen[0].s3 == {"bucket": "backups"} and report.complete


def test_without_an_id_of_the_cluster_no_copy_of_another_one_is_taken() -> None:
    copies = [copy("on-demand-n1-1800000001", node="n1", cluster_id="theirs")]
    assert of_bucket(NOW, copies, {}, "", ["n1"]).seen == ()


def own(name: str, node: str = "n1", **more: Any) -> Obj:
    status = {"size": "100", "creationTime": "2027-01-15T08:00:00Z", "readyToUse": True, **more.pop("status", {})}
    spec = {"snapshotName": name, "nodeName": node, "location": f"file:///snapshots/{name}", **more}
    return {"metadata": {"name": f"local-{name}"}, "spec": spec, "status": status}


def test_the_cluster_s_own_objects_tell_metadata_and_failures() -> None:
    failed = own("on-demand-n1-1800000001", location="", status={"readyToUse": False, "error": {"message": "disk full"}})
    report = of_cluster(NOW, [own("on-demand-n1-1800000000", metadata=REMEMBERED), failed], {"n1": "m1"})
    good, bad = report.seen
    assert (good.machine, good.size, good.created, good.reference) == ("m1", 100, NOW, "local-on-demand-n1-1800000000")
    assert decoded(good.metadata) == REMEMBERED and not good.failed
    assert bad.failed and bad.message == "disk full"


def test_a_copy_in_the_cluster_s_list_says_where_its_bucket_is() -> None:
    s3 = {"bucket": "backups", "prefix": "demo", "endpoint": "minio:9000", "skipSSLVerify": True, "insecure": True}
    report = of_cluster(NOW, [own("a-1800000000", node="s3", location="s3://backups/demo/a-1800000000", s3=s3)], {})
    assert report.seen[0].s3 == {"bucket": "backups", "folder": "demo", "endpoint": "minio:9000", "skipSSLVerify": True}
    assert report.seen[0].key == ("s3", "s3://backups/demo/a-1800000000")


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"spec": {}, "status": {}},
        own("x", node="unknown"),
        own("../x"),
        {**own("x"), "status": None},
        own("x", s3={"bucket": "b"}, location=""),
        {"spec": [], "status": []},
    ],
)
def test_objects_of_the_cluster_that_say_nothing_are_left_out(bad: Obj) -> None:
    assert of_cluster(NOW, [bad], {"n1": "m1"}).seen == ()


def test_the_list_of_older_versions_is_read_and_nothing_is_concluded_from_what_it_lacks() -> None:
    message = base64.b64encode(b"no space").decode()
    metadata = base64.b64encode(json.dumps(REMEMBERED).encode()).decode()
    good = {
        "name": "a-1800000000",
        "nodeName": "n1",
        "location": "file:///snapshots/a-1800000000",
        "size": 7,
        "status": "successful",
    }
    data = {
        "local-a": json.dumps({**good, "metadata": metadata, "createdAt": "2027-01-15T08:00:00Z"}),
        "local-b": json.dumps({**good, "name": "b-1800000001", "status": "failed", "message": message}),
        "local-c": "{",
        "local-d": "[]",
    }
    report = of_config_map(NOW, data, {"n1": "m1"})
    assert [(each.file, each.failed, each.message) for each in report.seen] == [
        ("a-1800000000", False, ""),
        ("b-1800000001", True, "no space"),
    ]
    assert decoded(report.seen[0].metadata) == REMEMBERED and not report.complete
