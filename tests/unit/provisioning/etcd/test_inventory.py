"""ETCDSnapshots follow what storage has: hosts, the bucket, and what the cluster itself adds."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import replace
from typing import Any

import pytest

from remuda.provisioning.etcd.inventory import LATE, Changes, Known, Place, changes, slim
from remuda.provisioning.etcd.s3.copies import Copy
from remuda.provisioning.etcd.snapshot_reports import Report, Seen, of_bucket
from remuda.provisioning.etcd.snapshot_sets import grouped

from .snapshot_world import HASH, NOW, REMEMBERED, Stored, bucket, host, known, printed

Obj = dict[str, Any]

FILE = "on-demand-n-a-1799990000"
YOUNG = f"on-demand-n-a-{int(NOW) - 5}"
S3 = {"bucket": "backups", "folder": "demo", "cloudCredentialName": "fleet:keys"}
METADATA = base64.b64encode(json.dumps(REMEMBERED).encode()).decode()


def copies(*names: str, at: float = NOW, **fields: Any) -> Report:
    found = [Copy(name, 100, NOW, f"s3://backups/demo/{name}", "e", cluster_id="id", **fields) for name in names]
    return of_bucket(at, found, S3, "id", ())


def own(*seen: Seen, complete: bool = True) -> Report:
    return Report(complete, NOW, seen)


def local(file: str, **more: Any) -> Seen:
    said = {"storage": "local", "file": file, "node": "n-a", "machine": "a", "location": f"file:///snapshots/{file}", **more}
    return Seen(**{"size": 100, "created": NOW, "reference": f"local-{file}-abc", **said})


def in_bucket(file: str, **more: Any) -> Seen:
    return Seen("s3", file, "s3", location=f"s3://backups/demo/{file}", size=100, created=NOW, s3=S3, **more)


FAILURE = local("on-demand-n-a-1799999999", location="", failed=True, message="disk full", size=0)


def test_a_file_of_a_host_becomes_an_object_as_rancher_makes_it() -> None:
    stored = Stored()
    stored.pass_(known(host("a", printed(FILE))))
    (made,) = stored.objects.values()
    name = made["metadata"]["name"]
    assert name.startswith(f"demo-local-{FILE}-") and len(name.removeprefix(f"demo-local-{FILE}-")) == 6
    assert made["metadata"]["labels"] == {"rke.cattle.io/cluster-name": "demo", "rke.cattle.io/node-name": "n-a"}
    assert made["metadata"]["annotations"] == {
        "etcdsnapshot.rke.io/storage": "local",
        "etcdsnapshot.rke.io/snapshot-file-name": FILE,
        "etcdsnapshot.rke.io/snapshot-name": name.removeprefix("demo-"),
        "etcdsnapshot.rke.io/restore-mode-options": "none",
    }
    owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "a", "uid": "uid-a"}
    assert made["metadata"]["ownerReferences"] == [owner]
    assert made["spec"] == {"clusterName": "demo"}
    assert made["status"] == {"missing": False, "sha256": HASH}
    assert made["snapshotFile"] == {
        "name": FILE,
        "nodeName": "n-a",
        "location": f"file:///snapshots/{FILE}",
        "size": 100,
        "createdAt": "2027-01-15T05:13:20Z",
        "status": "successful",
    }


def test_a_copy_in_the_bucket_belongs_to_the_cluster_and_says_how_a_host_finds_it() -> None:
    stored = Stored()
    stored.pass_(known(bucket=bucket(copies(FILE, sha256=HASH, metadata=REMEMBERED))))
    (made,) = stored.objects.values()
    owner = {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "name": "demo", "uid": "uid-demo"}
    assert made["metadata"]["ownerReferences"] == [owner]
    assert made["snapshotFile"]["s3"] == S3 and made["snapshotFile"]["nodeName"] == "s3"
    assert made["metadata"]["annotations"]["etcdsnapshot.rke.io/restore-mode-options"] == "none,kubernetesVersion,all"
    assert "rke.cattle.io/node-name" not in made["metadata"]["labels"]


def test_a_backup_of_three_members_and_a_bucket_is_one_set() -> None:
    files = {name: f"on-demand-n-{name}-{int(NOW) + number}" for number, name in enumerate("abc")}
    hosts = [host(name, printed(file)) for name, file in files.items()]
    stored = Stored()
    stored.pass_(known(*hosts, bucket=bucket(copies(*files.values()))))
    (backup,) = grouped(stored.objects.values())
    assert len(backup.copies) == 6 and backup.state == "available"


def test_nothing_is_written_while_nothing_changes() -> None:
    metadata = local(FILE, metadata=METADATA)
    seen = known(host("a", printed(FILE)), bucket=bucket(copies(FILE, metadata=REMEMBERED)), own=own(metadata, FAILURE))
    stored = Stored()
    stored.pass_(seen)
    assert stored.writes == 3
    for later in (0.0, 60.0, LATE - 1):
        stored.pass_(seen, NOW + later)
    assert stored.writes == 3
    assert changes(seen, [slim(each) for each in stored.objects.values()], NOW).update == [], "nor with what a cache keeps of it"


def test_a_file_that_the_host_no_longer_has_is_gone_whatever_the_cluster_says() -> None:
    stored = Stored()
    stored.pass_(known(host("a", printed(FILE, "other-1799990001")), own=own(local(FILE))))
    stored.pass_(known(host("a", printed("other-1799990001", at=NOW + 900)), own=own(local(FILE))), NOW + 900)
    assert stored.files() == {"other-1799990001@a": "available"}


def test_a_copy_that_the_bucket_no_longer_has_is_gone() -> None:
    stored = Stored()
    stored.pass_(known(bucket=bucket(copies(FILE))))
    stored.pass_(known(bucket=bucket(copies(at=NOW + 900))), NOW + 900)
    assert stored.files() == {}


@pytest.mark.parametrize("text", [None, printed(end=False, at=NOW + 900), "sh: broken\n"], ids=["none", "cut off", "nonsense"])
def test_nothing_disappears_by_a_report_that_is_not_complete(text: str | None) -> None:
    stored = Stored()
    stored.pass_(known(host("a", printed(FILE))))
    stored.pass_(known(host("a", text, heard=NOW + 900)), NOW + 900)
    assert stored.files() == {f"{FILE}@a": "available"}


def test_a_snapshot_that_the_cluster_knows_earlier_than_the_host_s_next_list_stays() -> None:
    """The host has listed its files before this one was complete."""
    stored = Stored()
    early = host("a", printed(at=NOW - 40), heard=NOW - 40)
    stored.pass_(known(early, own=own(local(YOUNG, metadata=METADATA))))
    assert stored.files() == {f"{YOUNG}@a": "available"}
    stored.pass_(known(early))
    assert stored.files() == {f"{YOUNG}@a": "available"}, "the host's list is too old to judge it"
    stored.pass_(known(host("a", printed(YOUNG, at=NOW + 900), heard=NOW + 900)), NOW + 900)
    (found,) = stored.objects.values()
    assert found["status"]["sha256"] == HASH and found["snapshotFile"]["metadata"], "what each knows is kept"


def test_deleted_snapshots_do_not_come_back_because_the_cluster_still_lists_them() -> None:
    stored = Stored()
    stored.pass_(known(host("a", printed()), bucket=bucket(copies()), own=own(local(FILE, created=NOW - 9000), in_bucket_old())))
    assert stored.files() == {}


def in_bucket_old() -> Seen:
    return replace(in_bucket(FILE), created=NOW - 9000)


def test_what_can_not_be_seen_is_missing_with_the_reason_and_comes_back() -> None:
    stored = Stored()
    stored.pass_(known(host("a", printed(FILE)), bucket=bucket(copies(FILE))))
    late = NOW + LATE + 1
    away = known(host("a", printed(FILE), why="its agent is silent"), bucket=bucket(copies(FILE), why="the bucket is away"))
    stored.pass_(away, late)
    assert stored.files() == {f"{FILE}@a": "missing", f"{FILE}@s3": "missing"}
    told = sorted((each["status"]["message"], each["status"]["seenAt"]) for each in stored.objects.values())
    assert told == [("its agent is silent", "2027-01-15T08:00:00Z"), ("the bucket is away", "2027-01-15T08:00:00Z")]
    before = stored.writes
    stored.pass_(
        known(*(replace(each, place=replace(each.place, heard=NOW + 1)) for each in away.hosts), bucket=away.bucket), late + 900
    )
    assert stored.writes == before, "the time when it was last seen is written once"
    stored.pass_(known(host("a", printed(FILE), heard=late), bucket=bucket(copies(FILE), heard=late)), late)
    assert stored.files() == {f"{FILE}@a": "available", f"{FILE}@s3": "available"}
    assert all(
        each["status"] == {"missing": False, **({"sha256": HASH} if "sha256" in each["status"] else {})}
        for each in stored.objects.values()
    )


def test_a_host_that_is_off_has_its_files_missing_although_the_cluster_lists_them() -> None:
    stored, late = Stored(), NOW + LATE + 1
    stored.pass_(known(host("a", printed(FILE))))
    stored.pass_(replace(known(host("a", printed(FILE))), own=Place(late, own(local(FILE)))), late)
    assert stored.files() == {f"{FILE}@a": "missing"}


def test_copies_that_only_hosts_can_reach_follow_the_cluster_s_list() -> None:
    stored = Stored()
    unreachable = bucket(None, heard=NOW - LATE - 1, why="cloudCredentialName names no Secret")
    stored.pass_(known(bucket=unreachable, own=own(in_bucket(FILE), in_bucket("b-1799990001"))))
    assert stored.files() == {"b-1799990001@s3": "available", f"{FILE}@s3": "available"}
    stored.pass_(known(bucket=unreachable, own=own(in_bucket(FILE))))
    assert stored.files() == {f"{FILE}@s3": "available"}, "the retention has deleted the other one"
    stored.pass_(known(bucket=unreachable, own=own()))
    assert stored.files() == {f"{FILE}@s3": "missing"}, "perhaps the cluster can't see the bucket either"


def test_copies_in_a_bucket_that_the_settings_no_longer_name_are_missing() -> None:
    stored = Stored()
    stored.pass_(known(bucket=bucket(copies(FILE))))
    stored.pass_(known())
    (found,) = stored.objects.values()
    assert found["status"]["message"] == "the cluster's settings don't name s3://backups/demo/"


def test_a_failed_snapshot_is_listed_until_the_cluster_forgets_it() -> None:
    stored = Stored()
    stored.pass_(known(host("a", printed()), own=own(FAILURE)))
    (found,) = stored.objects.values()
    assert stored.files() == {f"{FAILURE.file}@a": "failed"}
    assert base64.b64decode(found["snapshotFile"]["message"]) == b"disk full", "as in Rancher"
    stored.pass_(known(host("a", printed())))
    stored.pass_(known(host("a", printed()), own=own(complete=False)))
    assert stored.files() == {f"{FAILURE.file}@a": "failed"}
    stored.pass_(known(host("a", printed()), own=own()))
    assert stored.files() == {}


def test_a_failure_that_came_true_after_all_is_one_no_longer() -> None:
    stored = Stored()
    stored.pass_(known(host("a", printed()), own=own(FAILURE)))
    stored.pass_(known(host("a", printed(FAILURE.file, at=NOW + 900)), own=own(FAILURE)))
    (found,) = stored.objects.values()
    assert found["snapshotFile"]["status"] == "successful" and "message" not in found["snapshotFile"]


def test_objects_that_others_made_stay_and_are_not_doubled() -> None:
    stored = Stored()
    owner = {"kind": "Machine", "name": "a"}
    theirs = {"metadata": {"name": "mine", "ownerReferences": [owner]}, "snapshotFile": {"name": FILE, "status": "successful"}}
    stored.objects["mine"] = theirs
    stored.pass_(known(host("a", printed(FILE))))
    stored.pass_(known(host("a", printed(at=NOW + 900))), NOW + 900)
    assert stored.objects == {"mine": theirs}


def test_an_object_with_a_finalizer_is_left_to_its_owner() -> None:
    stored = Stored()
    stored.pass_(known(host("a", printed(FILE))))
    (found,) = stored.objects.values()
    found["metadata"]["finalizers"] = ["remuda.dev/snapshot-file"]
    stored.pass_(known(host("a", printed(at=NOW + 900))), NOW + 900)
    assert len(stored.objects) == 1
    found["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    assert stored.pass_(known(host("a", printed(FILE, at=NOW + 900))), NOW + 900).create == [], "it is being deleted, not lost"


def test_a_copy_that_was_deleted_from_the_bucket_goes_with_the_next_list_of_it() -> None:
    stored = Stored()
    seen = copies(FILE)
    stored.pass_(known(bucket=bucket(seen)))
    (found,) = stored.objects.values()
    found["metadata"] |= {"finalizers": ["remuda.dev/snapshot-file"], "deletionTimestamp": "2027-01-15T08:00:00Z"}
    found["metadata"]["annotations"]["remuda.dev/file-deleted"] = f"{NOW + 5:.3f}"
    assert stored.pass_(known(bucket=bucket(seen))).release == [], "the last list is older"
    assert stored.pass_(known(bucket=bucket(copies(at=NOW + 4))), NOW + 6).release == []
    later = copies(at=NOW + 5)
    assert stored.pass_(known(bucket=bucket(later)), NOW + 6).release == [found]
    assert stored.pass_(known(), NOW + 6).release == [found], "the settings name the bucket no more"
    found["metadata"]["annotations"]["remuda.dev/file-deleted"] = "soon"
    assert stored.pass_(known(bucket=bucket(later)), NOW + 6).release == []


def test_what_was_deleted_since_the_clusters_own_list_does_not_come_back_by_it() -> None:
    stored = Stored()
    own = Report(True, NOW, (Seen("local", YOUNG, "n-a", "a", f"file:///snapshots/{YOUNG}", created=NOW - 60),))
    found = stored.pass_(known(host("a", printed(), heard=NOW + 10), own=own), NOW + 11)
    assert (found.create, found.own_counts_at) == ([], NOW + 40), "it is new, or deleted: a later list tells"
    later = replace(own, at=NOW + 40)
    assert stored.pass_(known(host("a", printed(), heard=NOW + 10), own=later), NOW + 41).own_counts_at == 0.0
    assert len(stored.objects) == 1, "it is new"


def test_files_of_a_machine_that_is_gone_are_left_out_although_the_clusters_own_list_has_them() -> None:
    stored = Stored()
    gone = local("on-demand-n-b-1799990000", node="n-b", machine="b")
    stored.pass_(known(host("a", printed(FILE)), own=own(local(FILE), gone, replace(FAILURE, machine="b"))))
    (made,) = stored.objects.values()
    assert made["snapshotFile"]["name"] == FILE


def test_of_two_objects_for_one_file_one_remains() -> None:
    stored = Stored()
    stored.pass_(known(host("a", printed(FILE))))
    ((name, found),) = stored.objects.items()
    stored.objects[f"{name}-again"] = {**found, "metadata": {**found["metadata"], "name": f"{name}-again"}}
    stored.pass_(known(host("a", printed(FILE))))
    assert list(stored.objects) == [name]


def test_results_of_checks_are_not_touched() -> None:
    stored = Stored()
    stored.pass_(known(host("a", printed(FILE))))
    (name,) = stored.objects
    stored.objects[name]["status"]["verification"] = {"result": "valid"}
    stored.pass_(known(host("a", printed(FILE), why="off")), NOW + LATE + 1)
    assert stored.objects[name]["status"]["verification"] == {"result": "valid"}


@pytest.mark.parametrize(
    "file", ["Before the Move", "über-1799990000", "a_b-1799990000", "x" * 200 + "-1799990000", "-".join("ab" * 40)]
)
def test_any_file_name_gives_an_object_a_valid_name_of_its_own(file: str) -> None:
    stored = Stored()
    stored.pass_(known(host("a", printed(file, f"{file}2"))))
    assert len(stored.objects) == 2
    for name in stored.objects:
        assert len(name) <= 63 and name.replace("-", "").replace(".", "").isalnum() and name == name.lower() and name.isascii()


# --- laws -----------------------------------------------------------------------------------------------------------------------


class Storage:
    """What really is there, and what is said about it in any order."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.now = NOW
        self.disks: dict[str, set[str]] = {name: set() for name in "abc"}
        self.copies: set[str] = set()
        self.heard = dict.fromkeys("abcs", NOW)
        self.said: dict[str, Any] = {name: printed(at=NOW) for name in "abc"} | {"s": copies(at=NOW)}
        self.own: Report | None = None

    def happens(self) -> None:
        self.now += self._dice.choice([10, 700, 1000])
        name = self._dice.choice("abc")
        match self._dice.randrange(6):
            case 0 | 1:
                file = f"on-demand-n-{name}-{int(self.now)}"
                self.disks[name].add(file)
                self.copies.add(file)
            case 2 if self.disks[name]:
                self.disks[name].remove(self._dice.choice(sorted(self.disks[name])))
            case 3 if self.copies:
                self.copies.remove(self._dice.choice(sorted(self.copies)))
            case 4:
                stale = [local(file, node=f"n-{name}", machine=name, created=float(file[-10:])) for file in self.disks[name]]
                self.own = Report(self._dice.random() < 0.5, self.now, tuple(stale))
            case _:
                self.own = None
        for source in self._dice.sample("abcs", 2):
            self.tells(source)

    def names(self) -> set[str]:
        return {f"{file}@{name}" for name, files in self.disks.items() for file in files} | {f"{file}@s3" for file in self.copies}

    def tells(self, source: str) -> None:
        self.heard[source] = self.now
        if source == "s":
            self.said["s"] = copies(*sorted(self.copies), at=self.now)
        else:
            self.said[source] = printed(*sorted(self.disks[source]), at=self.now, end=self._dice.random() < 0.8)

    def known(self) -> Known:
        hosts = [host(name, self.said[name], heard=self.heard[name], why="off") for name in self._dice.sample("abc", 3)]
        return known(*hosts, bucket=bucket(self.said["s"], heard=self.heard["s"], why="away"), own=self.own)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_said_in_whatever_order_the_list_ends_up_as_storage_is(seed: int) -> None:
    storage, stored = Storage(random.Random(seed)), Stored()
    for _ in range(40):
        storage.happens()
        before = set(stored.files())
        stored.pass_(storage.known(), storage.now)
        assert before & storage.names() <= set(stored.files()), "what is there never leaves the list"
        assert stored.pass_(storage.known(), storage.now) == Changes(), "and a second look changes nothing"
    storage.own = None
    storage.now += 1000
    for source in "abcs":
        storage.tells(source)
    storage.said |= {name: printed(*sorted(storage.disks[name]), at=storage.now) for name in "abc"}
    stored.pass_(storage.known(), storage.now)
    assert stored.files() == dict.fromkeys(sorted(storage.names(), key=list(stored.files()).index), "available")
