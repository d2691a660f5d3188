"""The real control plane that other suites compare with: it starts, does what a cluster does, and leaves nothing."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.real import build, need
from tests.real.cluster import RealCluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    need.programs("kubernetes", "etcd")
    with RealCluster(controllers=True, fsync=False, encrypt=True) as started:
        yield started


def eventually(true: Callable[[], bool], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.1)


def test_server_and_kubectl_say_the_pinned_version(cluster: RealCluster) -> None:
    version = build.peers()["KUBERNETES_VERSION"]
    said = cluster.kubectl("version").stdout
    assert f"Client Version: {version}" in said
    assert f"Server Version: {version}" in said


def test_tokens_are_made_and_accepted(cluster: RealCluster) -> None:
    token = cluster.kubectl("create", "token", "default").stdout.strip()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    status, answer = cluster.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    assert status == 201
    assert answer["status"]["user"]["username"] == "system:serviceaccount:default:default"


def test_owned_objects_are_collected(cluster: RealCluster) -> None:
    def config(name: str, **metadata: object) -> dict[str, object]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}

    path = "/api/v1/namespaces/default/configmaps"
    _, owner = cluster.request("POST", path, config("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    assert cluster.request("POST", path, config("owned", ownerReferences=[reference]))[0] == 201
    assert cluster.request("DELETE", f"{path}/owner")[0] == 200
    eventually(lambda: cluster.request("GET", f"{path}/owned")[0] == 404)


def test_a_user_without_roles_is_refused(cluster: RealCluster) -> None:
    status, answer = cluster.request(
        "GET", "/api/v1/secrets", headers={"Impersonate-User": "somebody", "Impersonate-Group": "system:authenticated"}
    )
    assert (status, answer["reason"]) == (403, "Forbidden")


def test_secrets_are_encrypted_in_etcd(cluster: RealCluster) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hidden"}, "stringData": {"a": "plain text"}}
    assert cluster.request("POST", "/api/v1/namespaces/default/secrets", secret)[0] == 201
    key = base64.b64encode(b"/registry/secrets/default/hidden").decode()
    asked = urllib.request.Request(f"{cluster.etcd_url}/v3/kv/range", json.dumps({"key": key}).encode())
    with urllib.request.urlopen(asked) as response:
        stored = base64.b64decode(json.load(response)["kvs"][0]["value"])
    assert stored.startswith(b"k8s:enc:aesgcm:v1:key1:")
    assert b"plain text" not in stored


def test_stop_ends_every_process_and_removes_the_directory() -> None:
    need.programs("kubernetes", "etcd")
    with RealCluster(fsync=False) as cluster:
        pids = cluster.pids
        assert set(pids) == {"etcd", "kube-apiserver"}
        assert cluster.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert not cluster.data_dir.exists()
    for pid in pids.values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_build_says_so_when_go_is_missing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(build.HERE / "build.py"), "etcd"],
        env={"PATH": str(tmp_path), "REMUDA_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == build.EXIT_NO_GO
    assert "no `go` is on PATH" in done.stderr
