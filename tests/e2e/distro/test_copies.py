"""Snapshots in a bucket, from the first upload to a restore on a host that has nothing else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ..buckets.services import KEYS, Service, versity
from .machines import TOKEN, Machine, Machines, eventually

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(900)]

FILES = "/apis/k3s.cattle.io/v1/etcdsnapshotfiles"
SECRETS = "/api/v1/namespaces/default/secrets"
EXTRA = {"metadata": {"name": "remuda-etcd-snapshot-extra-metadata"}, "data": {"provisioning-cluster-spec": "some"}}


def settings(service: Service, authority: Path, folder: str = "one/two") -> dict[str, Any]:
    authority.write_bytes(service.place.authorities)
    return {
        "etcd-s3": True,
        "etcd-s3-endpoint": service.place.endpoint,
        "etcd-s3-endpoint-ca": str(authority),
        "etcd-s3-bucket": service.place.bucket,
        "etcd-s3-folder": folder,
        "etcd-s3-access-key": KEYS.access_key,
        "etcd-s3-secret-key": KEYS.secret_key,
        "etcd-s3-retention": 2,
        "etcd-disable-snapshots": True,
    }


def _files(machine: Machine, storage: str) -> list[dict[str, Any]]:
    found = machine.get(f"{FILES}?labelSelector=etcd.remuda.cattle.io/snapshot-storage={storage}")["items"]
    return [each for each in found if each.get("status")]


def _saved(machine: Machine) -> str:
    done = machine.run("etcd-snapshot", "save")
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[1]


def test_a_copy_brings_a_cluster_back_on_an_empty_host(machines: Machines, tmp_path: Path) -> None:
    (tmp_path / "service").mkdir()
    with versity(tmp_path / "service") as service:
        said = settings(service, tmp_path / "own.crt")
        folder = service.bucket / "one/two"
        first = machines.add("first").server(**{"cluster-init": True, **said}).ready()
        assert first.ask("POST", "/api/v1/namespaces/kube-system/configmaps", EXTRA).status == 201
        assert first.ask("POST", SECRETS, {"metadata": {"name": "before"}, "stringData": {"a": "b"}}).status == 201

        # An upload, with the metadata beside it, and an object for it.
        name = _saved(first)
        local = first.data / "server/db/snapshots" / name
        assert (folder / name).read_bytes() == local.read_bytes()
        assert b"provisioning-cluster-spec" in (folder / ".metadata" / name).read_bytes()
        (told,) = eventually(lambda: _files(first, "s3"))
        assert told["spec"]["location"] == f"s3://snapshots/one/two/{name}" and told["spec"]["nodeName"] == "first"
        assert told["spec"]["metadata"] == EXTRA["data"] and told["spec"]["s3"]["prefix"] == "one/two"
        assert told["status"]["readyToUse"] is True and told["status"]["size"] == str(local.stat().st_size)
        assert first.run("etcd-snapshot", "ls").stdout.count(name) == 4, "name and location, here and there"

        _another_clusters_copies_stay(first, folder, name)
        _failures_are_told(first, service)
        assert first.ask("POST", SECRETS, {"metadata": {"name": "after"}}).status == 201
        first.kill()
        shutil.rmtree(first.root)

        # Nothing but the bucket and the token. The secret key is in the environment, as plans give it.
        second = machines.add("second").configure(token=TOKEN, **{**said, "etcd-s3-secret-key": None})
        reset = ("server", "--cluster-reset", f"--cluster-reset-restore-path={name}")
        refused = second.run(*reset)
        assert refused.returncode == 1 and "etcd-s3-secret-key" in refused.stderr
        os.environ["AWS_SECRET_ACCESS_KEY"] = KEYS.secret_key
        try:
            missing = second.run("server", "--cluster-reset", "--cluster-reset-restore-path=none")
            assert missing.returncode == 1 and "there is no such object" in missing.stderr
            assert not (second.data / "server/db/etcd").exists()
            done = second.run(*reset)
        finally:
            del os.environ["AWS_SECRET_ACCESS_KEY"]
        assert done.returncode == 0, done.stderr
        second.configure(token=TOKEN, **said).start().ready()
        assert second.get(f"{SECRETS}/before")["data"] == {"a": "Yg=="}
        assert second.ask("GET", f"{SECRETS}/after").status == 404

        # What is gone from the bucket is gone from the cluster.
        deleted = second.run("etcd-snapshot", "delete", name)
        assert deleted.returncode == 0 and not (folder / name).exists() and not (folder / ".metadata" / name).exists()
        eventually(lambda: name not in {each["spec"]["snapshotName"] for each in second.get(FILES)["items"]})
        for machine in (first, second):
            assert KEYS.secret_key not in machine.told()


def _another_clusters_copies_stay(machine: Machine, folder: Path, kept: str) -> None:
    """Two copies are kept, and this is the third: the oldest goes, but not one that nobody knows."""
    (folder / "on-demand-other-1").write_bytes(b"of another cluster")
    shutil.copy(folder / kept, folder / "aside")
    names = [kept]
    while len(names) < 3:
        # Two of one second are one file.
        names.append(eventually(lambda: new if (new := _saved(machine)) not in names else ""))
    assert not (folder / kept).exists() and all((folder / name).exists() for name in names[1:])
    assert (folder / "on-demand-other-1").exists()
    listed = eventually(lambda: kept not in (told := _names(machine)) and told)
    assert {"on-demand-other-1", *names[1:]} <= listed
    (folder / "aside").rename(folder / kept)
    pruned = machine.run("etcd-snapshot", "prune", "--etcd-s3-retention=1", "--snapshot-retention=10")
    assert pruned.returncode == 0, pruned.stderr
    assert f"Snapshot {names[1]} deleted from the bucket." in pruned.stdout
    assert (folder / names[2]).exists() and (folder / kept).exists(), "its own metadata is lost: nobody knows it"


def _names(machine: Machine) -> set[str]:
    return {each["spec"]["snapshotName"] for each in _files(machine, "s3")}


def _failures_are_told(machine: Machine, service: Service) -> None:
    """A file that can't be uploaded is a snapshot all the same, and the cluster learns why there is no copy."""
    done = machine.run("etcd-snapshot", "save", "--etcd-s3-secret-key=another-secret")
    assert done.returncode == 0 and "saved" in done.stdout and "uploaded" not in done.stdout
    assert "is on this host only" in done.stderr and "another-secret" not in done.stderr
    name = done.stdout.split()[1]

    def failed() -> list[dict[str, Any]]:
        return [each for each in _files(machine, "s3") if each["spec"]["snapshotName"] == name]

    (told,) = eventually(failed)
    assert told["status"]["readyToUse"] is False and told["spec"]["location"] == ""
    assert "check secretKey of the credential" in told["status"]["error"]["message"]
    assert told["spec"]["s3"]["endpoint"] == service.place.endpoint
    assert [each for each in _files(machine, "local") if each["spec"]["snapshotName"] == name]
