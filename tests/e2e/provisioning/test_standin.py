"""Clusters of k3s and RKE2 from the first host on, with a stand-in for their programs (`tests/real/standin`): the plans are the
real ones, and so are their agents, etcd and the tunnel."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from remuda.kube.objects import dig
from remuda.provisioning.releases.distributions import K3S, RKE2, Runtime
from tests.real import standin

from .conftest import PATIENCE, Ranch, eventually

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(2400)]


@pytest.mark.parametrize(("runtime", "version"), [(K3S, "v1.34.1+k3s1"), (RKE2, "v1.34.1+rke2r1")], ids=["k3s", "rke2"])
def test_a_cluster_is_installed_and_saved(own_ranch: Ranch, tmp_path: Path, runtime: Runtime, version: str) -> None:
    ranch = own_ranch
    standin.install(tmp_path / "images", runtime, version)
    registry = urlsplit(ranch.gateway.url).netloc
    ranch.want(
        version,
        machineGlobalConfig={"system-default-registry": registry, **({"cni": "none"} if runtime is RKE2 else {})},
        registries={"configs": {registry: {"insecureSkipVerify": True}}},
    )
    ranch.host("h0")
    ranch.host("w0", "worker")
    ranch.until_ready()
    eventually(lambda: ranch.nodes() == {"h0": version, "w0": version}, PATIENCE, f"{ranch.nodes()}")
    data = ranch.on("h0").place.root / runtime.data_directory.lstrip("/")
    assert (data / "server/db/etcd/member").is_dir()

    config = ranch.get("/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters/demo")["spec"]["rkeConfig"]
    ranch.change(rkeConfig={**config, "etcdSnapshotCreate": {"generation": 1}})
    eventually(lambda: dig(ranch.plane(), "status", "etcdSnapshotCreatePhase") == "Finished", PATIENCE, ranch.says())
    (saved,) = (data / "server/db/snapshots").iterdir()
    assert saved.name.startswith("on-demand-h0-")
    files = "/apis/k3s.cattle.io/v1/etcdsnapshotfiles"
    eventually(lambda: bool(ranch.through(files).json["items"]), PATIENCE)
    (told,) = ranch.through(files).json["items"]
    assert told["spec"]["snapshotName"] == saved.name and "provisioning-cluster-spec" in told["spec"]["metadata"]
