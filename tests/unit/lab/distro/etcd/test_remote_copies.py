"""Copies of snapshots in a bucket: what the settings mean, which copies are surplus, and how the cluster is told."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from remuda.kube.objects import dig, name_of
from remuda.lab.distro.config import settings
from remuda.lab.distro.config.arguments import ConfigError, parse
from remuda.lab.distro.etcd import remote_copies, snapshots
from remuda.lab.distro.etcd.snapshot_files import failed_object, remote_object
from remuda.lab.distro.etcd.snapshots import Failure, SnapshotError
from remuda.provisioning.etcd.s3.copies import Copy
from remuda.provisioning.etcd.s3.place import Place

PEM = b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"


def load(root: Path, *arguments: str, **environment: str) -> settings.Settings:
    return settings.load(parse(["etcd-snapshot", "save", "--root", str(root), "--node-ip=127.9.9.9", *arguments]), environment)


def test_the_settings_have_k3s_names_and_defaults(tmp_path: Path) -> None:
    found = load(tmp_path, "--etcd-s3", "--etcd-s3-bucket=b-1", "--s3-folder", "a/b", "--s3-retention", "3")
    assert found.snapshots.s3
    assert remote_copies.place_of(found) == Place("b-1", "a/b", "s3.amazonaws.com", "us-east-1")
    assert remote_copies.retention(found) == 3
    assert remote_copies.retention(load(tmp_path, "--etcd-snapshot-retention=7")) == 7


def test_the_credential_comes_from_the_environment_unless_it_is_set(tmp_path: Path) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c"}
    found = remote_copies._keys(load(tmp_path, **keys))
    assert (found.access_key, found.secret_key, found.session_token) == ("a", "b", "c")
    assert remote_copies._keys(load(tmp_path, "--etcd-s3-access-key=d", **keys)).access_key == "d"
    with pytest.raises(SnapshotError, match="AWS_SECRET_ACCESS_KEY"):
        remote_copies._keys(load(tmp_path, AWS_ACCESS_KEY_ID="a"))


def test_authorities_are_files_or_base64(tmp_path: Path) -> None:
    (tmp_path / "own.crt").write_bytes(PEM)
    said = f"{tmp_path / 'own.crt'} {base64.b64encode(PEM).decode()}"
    assert remote_copies.place_of(load(tmp_path, "--s3-bucket=b-1", f"--s3-endpoint-ca={said}")).authorities == PEM * 2
    with pytest.raises(SnapshotError, match=r"can't be read from /none\.crt: No such file"):
        remote_copies.place_of(load(tmp_path, "--s3-bucket=b-1", "--s3-endpoint-ca=/none.crt"))
    skipped = load(tmp_path, "--s3-bucket=b-1", "--s3-endpoint-ca=/none.crt", "--s3-skip-ssl-verify")
    assert remote_copies.place_of(skipped).skip_verify


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "bucket is empty"),
        (["--s3-bucket=b-1", "--s3-endpoint=https://x"], "endpoint 'https://x' must be a host"),
        (["--s3-bucket=b-1", "--s3-config-secret=x"], "etcd-s3-config-secret is not supported"),
    ],
)
def test_settings_that_can_not_be_used_are_told(tmp_path: Path, arguments: list[str], words: str) -> None:
    # A server with them starts all the same: only its copies fail.
    found = load(tmp_path, "--etcd-s3", *arguments)
    with pytest.raises(SnapshotError, match=words):
        remote_copies.place_of(found)


def test_unknown_settings_of_the_bucket_are_refused() -> None:
    with pytest.raises(ConfigError, match="no option --etcd-s3-buckets"):
        parse(["server", "--etcd-s3-buckets=x"])


def copy(name: str, created: float, cluster: str = "ours") -> Copy:
    return Copy(name, 7, created, f"s3://b-1/f/{name}", "e", node="n1", cluster_id=cluster)


def test_the_newest_copies_of_a_kind_stay_and_all_of_other_clusters() -> None:
    found = [copy(f"etcd-snapshot-n{number % 2}-{number}", number) for number in range(6)]
    others = [copy("etcd-snapshot-n1-0", 0, "theirs"), copy("etcd-snapshot-n1-9", 0, ""), copy("on-demand-n1-1", 1)]

    def surplus(keep: int, cluster: str = "ours") -> list[str]:
        return [each.name for each in remote_copies.surplus([*others, *found], "etcd-snapshot", keep, cluster)]

    assert surplus(4) == ["etcd-snapshot-n0-0", "etcd-snapshot-n1-1"]
    assert surplus(6) == [] and surplus(0) == []
    assert surplus(1, "") == [], "the cluster is not known"


def test_copies_and_their_failures_are_objects() -> None:
    place = Place("b-1", "f", "minio.example", skip_verify=True)
    made = remote_object(copy("on-demand-n1-1700000000", 1_700_000_000), place)
    assert name_of(made).startswith("s3-on-demand-n1-1700000000-")
    assert made["spec"] == {
        "snapshotName": "on-demand-n1-1700000000",
        "nodeName": "n1",
        "location": "s3://b-1/f/on-demand-n1-1700000000",
        "s3": {"endpoint": "minio.example", "bucket": "b-1", "region": "us-east-1", "prefix": "f", "skipSSLVerify": True},
    }
    assert made["status"] == {"size": "7", "creationTime": "2023-11-14T22:13:20Z", "readyToUse": True}
    failed = failed_object(Failure("on-demand-n1-1700000000", "s3", 1_700_000_000, "the bucket is full"), "n1", place)
    assert name_of(failed) != name_of(made)
    assert failed["spec"]["location"] == "" and failed["spec"]["s3"]["bucket"] == "b-1"
    assert failed["status"]["readyToUse"] is False
    assert failed["status"]["error"] == {"time": "2023-11-14T22:13:20Z", "message": "the bucket is full"}
    assert "s3" not in failed_object(Failure("a", "local", 1, "x"), "n1")["spec"]
    assert dig(failed, "metadata", "labels") == {"etcd.remuda.cattle.io/snapshot-storage": "s3"}


def test_failures_are_kept_for_a_day(tmp_path: Path) -> None:
    paths = settings.Paths(tmp_path)
    assert snapshots.failures(paths, 0) == []
    first, second = Failure("a", "local", 1000, "x"), Failure("a", "s3", 50_000, "y")
    snapshots.note_failure(paths, first)
    snapshots.note_failure(paths, second)
    assert snapshots.failures(paths, 60_000) == [first, second]
    assert snapshots.failures(paths, 1000 + 86_401) == [second]
    assert [path.name for path in paths.failed_snapshots.iterdir()] == ["s3-a"]
