"""What a host keeps on disk: its member of etcd, its snapshots, its manifests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuda.kube.clock import Entropy, VirtualClock
from remuda.kube.objects import name_of
from remuda.lab.distro.cluster.addons import Manifest, is_newer, manifests_in, objects_in
from remuda.lab.distro.cluster.encryption_keys import RotationStatus, prepared, rotated
from remuda.lab.distro.cluster.etcd_member_removal import MEMBER_NAME, REMOVE, REMOVED, has_come_back, wants_out
from remuda.lab.distro.config import settings
from remuda.lab.distro.etcd import local_member, process, snapshots
from remuda.lab.distro.etcd.local_member import Removed
from remuda.lab.distro.etcd.process import NEW, EtcdFailed
from remuda.lab.distro.etcd.snapshot_files import local_object
from remuda.lab.distro.etcd.snapshots import Snapshot

CLOCK, ENTROPY = VirtualClock(), Entropy(3)


def told(root: Path, **values: object) -> settings.Settings:
    return settings.of({"node-name": "n", "node-ip": "127.5.5.5", **values}, root)


async def joined(name: str, url: str) -> dict[str, str]:
    return {"other": "https://127.5.5.6:2380", name: url}


async def test_a_member_is_new_or_joins_or_goes_on(tmp_path: Path) -> None:
    own = told(tmp_path)
    plan = await local_member.planned(own, None, CLOCK, ENTROPY)
    assert plan.state == NEW and plan.name.startswith("n-") and plan.cluster == {plan.name: "https://127.5.5.5:2380"}
    # Who asks again to join is the same.
    again = await local_member.planned(own, joined, CLOCK, ENTROPY)
    assert again.name == plan.name and set(again.cluster) == {"other", plan.name}
    (own.paths.etcd / "member/wal").mkdir(parents=True)

    async def never(name: str, url: str) -> dict[str, str]:
        raise AssertionError("it has data, so it is a member")

    assert (await local_member.planned(own, never, CLOCK, ENTROPY)).name == plan.name


async def test_who_was_removed_stays_out_until_told_something_else(tmp_path: Path) -> None:
    own = told(tmp_path)
    plan = await local_member.planned(own, None, CLOCK, ENTROPY)
    (own.paths.etcd / "member/wal").mkdir(parents=True)
    local_member.note_removal(own)
    with pytest.raises(Removed):
        await local_member.planned(own, joined, CLOCK, ENTROPY)
    again = await local_member.planned(told(tmp_path, **{"node-label": ["x=y"]}), joined, CLOCK, ENTROPY)
    assert again.name != plan.name and "other" in again.cluster
    assert len(list(own.paths.db.glob("etcd-old-*"))) == 1


async def test_a_tombstone_that_a_user_touched_means_begin_anew(tmp_path: Path) -> None:
    own = told(tmp_path)
    first = await local_member.planned(own, None, CLOCK, ENTROPY)
    (own.paths.etcd / "member/wal").mkdir(parents=True)
    own.paths.tombstone.touch()
    assert (await local_member.planned(own, joined, CLOCK, ENTROPY)).name != first.name


async def test_etcd_is_started_with_what_the_user_says_last(tmp_path: Path) -> None:
    own = told(tmp_path, **{"etcd-arg": ["--quota-backend-bytes=1", "log-level=info"], "etcd-binary": "/no/such"})
    plan = await local_member.planned(own, None, CLOCK, ENTROPY)
    arguments = process.arguments(own, plan)
    assert arguments[-2:] == ["--quota-backend-bytes=1", "--log-level=info"]
    assert "--client-cert-auth" in arguments and "--peer-client-cert-auth" in arguments
    with pytest.raises(EtcdFailed, match="/no/such"):
        process.program(own)


def test_an_etcd_that_loses_data_is_taken_only_for_a_look() -> None:
    assert process.version_problem("etcd Version: 3.6.16\nGit SHA: x\n", demo=False) == ""
    assert "3.5.1: 3.6.0 or newer" in process.version_problem("etcd Version: 3.5.1\n", demo=False)
    assert process.version_problem("etcd Version: 3.5.1\n", demo=True) == ""
    assert "is it etcd" in process.version_problem("hello", demo=True)


def snapshot(name: str, created: float) -> Snapshot:
    return Snapshot(name, Path("/s") / name, 1, created)


def test_the_newest_snapshots_of_a_kind_stay() -> None:
    found = [snapshot(f"a-n-{number}", number) for number in range(5)] + [snapshot("b-n-0", 0)]
    assert [each.name for each in snapshots.surplus(found, "a-n-", 2)] == ["a-n-0", "a-n-1", "a-n-2"]
    assert snapshots.surplus(found, "a-n-", 0) == []
    assert snapshots.surplus(found, "b-n-", 1) == []


def test_only_snapshots_are_deleted(tmp_path: Path) -> None:
    directory = tmp_path / "snapshots"
    directory.mkdir()
    for name in ("one", "two", "three.part", ".hidden"):
        (directory / name).touch()
    (tmp_path / "outside").touch()
    assert [each.name for each in snapshots.listed(directory)] == ["one", "two"]
    assert snapshots.delete(directory, ["one", "../outside", "four"]) == ["one"]
    assert (tmp_path / "outside").exists()


def test_objects_of_snapshots_have_names_that_objects_may_have() -> None:
    def named(name: str, created: float) -> str:
        return name_of(local_object(snapshot(name, created), "n", {}))

    assert named("on-demand-n-1", 1) == named("on-demand-n-1", 2)
    assert named("On-Demand", 1).startswith("local-on-demand-")
    assert named("what a name_", 7).startswith("local-etcd-snapshot-7-")


def test_manifests_are_yaml_and_json_that_are_not_skipped(tmp_path: Path) -> None:
    for name in ("b.yaml", "a/a.yml", "c.json", "d.txt", "e.yaml", "e.yaml.skip"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path in manifests_in(tmp_path)] == ["a.yml", "b.yaml", "c.json"]


def manifest(text: str, modified: float = 10.0) -> Manifest:
    return Manifest("m", Path("/m.yaml"), modified, text.encode())


def test_a_manifest_counts_when_it_is_newer_than_what_was_applied() -> None:
    addon = {"spec": {"checksum": manifest("a").checksum}, "status": {"modified": 10.0}}
    assert is_newer(manifest("a"), None)
    assert not is_newer(manifest("a", 99.0), addon)
    assert is_newer(manifest("b", 10.5), addon)
    # Another server has a newer one already.
    assert not is_newer(manifest("b", 9.0), addon)


def test_documents_and_lists_of_objects_are_read() -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n---\n"
    text += "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: b}}\n"
    assert [each["metadata"]["name"] for each in objects_in(manifest(text))] == ["a", "b"]
    assert objects_in(manifest("")) == []
    for wrong in ("kind: ConfigMap\n", "- a\n", "a: [\n"):
        with pytest.raises(ValueError):
            objects_in(manifest(wrong))


def node(**marks: str) -> dict[str, object]:
    return {"metadata": {"name": "n", "annotations": marks}}


def test_a_member_goes_once_for_each_time_it_is_asked_for() -> None:
    assert wants_out(node(**{MEMBER_NAME: "n-1"})) == ""
    assert wants_out(node(**{MEMBER_NAME: "n-1", REMOVE: "true"})) == "n-1"
    assert wants_out(node(**{MEMBER_NAME: "n-1", REMOVE: "true", REMOVED: "n-1"})) == ""
    assert wants_out(node(**{MEMBER_NAME: "n-2", REMOVE: "true", REMOVED: "n-1"})) == "n-2"
    assert wants_out(node(**{REMOVE: "true"})) == ""
    assert has_come_back(node(**{MEMBER_NAME: "n-2", REMOVED: "n-1"}))
    assert not has_come_back(node(**{MEMBER_NAME: "n-1", REMOVED: "n-1", REMOVE: "true"}))


def test_a_new_key_is_first_read_with_and_then_written_with() -> None:
    keys = prepared([("a", b"1")], ("a", b"2"))
    assert keys == [("a", b"1"), ("a-1", b"2")]
    assert rotated(keys) == [("a-1", b"2"), ("a", b"1")]
    text = RotationStatus("prepare", keys, ("other",)).text()
    assert "Current Rotation Stage: prepare\n" in text and "other" in text and " *      AES-GCM   a\n" in text


def test_modes_of_what_is_secret(tmp_path: Path) -> None:
    own = told(tmp_path)
    local_member.note_removal(own)
    assert os.stat(own.paths.tombstone).st_mode & 0o077 == 0
