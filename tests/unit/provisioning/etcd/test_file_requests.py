"""Requests about files of snapshots, and the answers of hosts."""

from __future__ import annotations

from typing import Any

from remuda.provisioning.etcd.file_requests import MOST, FileAnswer, answers, of_machines, request_of, verification

Obj = dict[str, Any]

ASKED = {"remuda.dev/verify": "2027-01-15T08:00:00Z"}


def snapshot(name: str = "demo-1", *, deleted: bool = False, **more: Any) -> Obj:
    owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m1", "uid": "u"}
    held: Obj = {"deletionTimestamp": "2027-01-15T08:00:00Z", "finalizers": ["remuda.dev/snapshot-file"]} if deleted else {}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "ownerReferences": [owner],
            "annotations": more.get("annotations", {}),
            **held,
        },
        "snapshotFile": {"name": more.get("file", "on-demand-n1-1"), "size": 100, **more.get("of_file", {})},
        "status": {"missing": False, "sha256": "a" * 64},
    }


def test_a_check_is_requested_by_an_annotation_and_each_has_an_id_of_its_own() -> None:
    assert request_of(snapshot()) is None
    first, again = request_of(snapshot(annotations=ASKED)), request_of(snapshot(annotations=ASKED))
    later = request_of(snapshot(annotations={"remuda.dev/verify": "2027-01-15T08:00:01Z"}))
    assert first is not None and later is not None and first == again and first.id != later.id
    assert (first.action, first.machine, first.size, first.sha256) == ("verify", "m1", 100, "a" * 64)


def test_a_deletion_is_one_with_our_finalizer() -> None:
    found = request_of(snapshot(deleted=True, annotations=ASKED))
    assert found is not None and found.action == "delete", "a check of it is not wanted any more"
    other = snapshot(deleted=True)
    other["metadata"]["finalizers"] = ["another.example/one"]
    assert request_of(other) is None


def test_a_name_that_can_not_be_a_file_and_a_failed_snapshot_are_no_request() -> None:
    for name in ("../../etc/passwd", "--all", ".hidden", "a\nb", ""):
        assert request_of(snapshot(annotations=ASKED, file=name)) is None, name
    assert request_of(snapshot(annotations=ASKED, of_file={"status": "failed"})) is None


def test_a_plan_has_so_many_requests_and_copies_in_buckets_are_not_of_hosts() -> None:
    many = [snapshot(f"demo-{number:03}", annotations=ASKED) for number in range(MOST + 10)]
    in_bucket = snapshot("s3", annotations=ASKED, of_file={"s3": {"bucket": "b"}, "location": "s3://b/x"})
    found = of_machines([*many, in_bucket])
    assert list(found) == ["m1"] and len(found["m1"]) == MOST


def test_answers_are_read_line_by_line_and_nothing_else_is_believed() -> None:
    one, two, three = ("1" * 16, "2" * 16, "3" * 16)
    lines = (f"{one} deleted - - -", "noise", f"{two} valid 12 3 {'b' * 64}", f"{three} trouble - - - no\x07 server")
    text = "\n".join([*lines, f"{one}x deleted - - -", "f lost - - -", ""])
    assert answers(text) == {
        one: FileAnswer("deleted"),
        two: FileAnswer("valid", revision=12, keys=3, sha256="b" * 64),
        three: FileAnswer("trouble", "no  server"),
    }
    assert answers(f"{one} valid {'9' * 19} 3 -\n") == {} and answers(f"{one} valid 1 2 {'b' * 64}junk") == {}


def test_the_result_of_a_check_replaces_all_fields_of_the_last_one() -> None:
    found = verification(FileAnswer("valid", revision=12, keys=3, sha256="b" * 64), "2027-01-15T08:00:00Z")
    assert found["result"] == "valid" and found["message"] is None
    assert verification(FileAnswer("trouble", "off"), "t")["result"] == "unknown", "it says nothing about the file"
