"""Clusters of k3s and RKE2 from the first host on, with a stand-in for their programs (`tests/real/standin`): the plans are the
real ones, and so are their agents, etcd, the tunnel and the bucket."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.kube.objects import dig
from remuda.provisioning.etcd.s3 import copies, place
from remuda.provisioning.etcd.s3.bucket import Bucket
from remuda.provisioning.releases.distributions import K3S, RKE2, Runtime
from tests.e2e.buckets.services import versity
from tests.real import standin

from .buckets import CREDENTIAL, in_bucket
from .conftest import PATIENCE, WORKSPACE, Ranch, eventually

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(2400)]

_CLUSTER = f"/apis/provisioning.cattle.io/v1/namespaces/{WORKSPACE}/clusters/demo"
_FILES = "/apis/k3s.cattle.io/v1/etcdsnapshotfiles"
_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(("runtime", "version"), [(K3S, "v1.34.1+k3s1"), (RKE2, "v1.34.1+rke2r1")], ids=["k3s", "rke2"])
async def test_a_cluster_is_installed_saved_and_restored(
    own_ranch: Ranch, tmp_path: Path, runtime: Runtime, version: str
) -> None:
    ranch = own_ranch
    (tmp_path / "bucket").mkdir()
    with versity(tmp_path / "bucket") as service:
        s3 = in_bucket(ranch, service)
        _installed(ranch, tmp_path / "images", runtime, version, s3)
        assert ranch.through(_MAPS, "POST", {"metadata": {"name": "before"}}).status == 201
        name = _saved(ranch, runtime)
        # The server sees the copy by itself, with what the spec and the credential say.
        credential = place.credential_fields({f"s3credentialConfig-{key}": value for key, value in CREDENTIAL.items()})
        async with Bucket(*place.of_cluster(s3, credential), SYSTEM_CLOCK, Rng()) as bucket:
            (copy,) = await copies.listed(bucket)
        assert (copy.name, copy.node) == (name, "h0") and "provisioning-cluster-spec" in copy.metadata
        assert copy.cluster_id == ranch.through("/api/v1/namespaces/kube-system").json["metadata"]["uid"]
        assert ranch.through(_MAPS, "POST", {"metadata": {"name": "after"}}).status == 201
        _restored(ranch, runtime, name)
        eventually(lambda: ranch.through(f"{_MAPS}/before").status == 200, PATIENCE)
        assert ranch.through(f"{_MAPS}/after").status == 404


def _installed(ranch: Ranch, images: Path, runtime: Runtime, version: str, s3: dict[str, Any]) -> None:
    standin.install(images, runtime, version)
    registry = urlsplit(ranch.gateway.url).netloc
    ranch.want(
        version,
        machineGlobalConfig={"system-default-registry": registry, **({"cni": "none"} if runtime is RKE2 else {})},
        registries={"configs": {registry: {"insecureSkipVerify": True}}},
        etcd={"disableSnapshots": True, "s3": s3},
    )
    ranch.host("h0")
    ranch.host("w0", "worker")
    ranch.until_ready()
    eventually(lambda: ranch.nodes() == {"h0": version, "w0": version}, PATIENCE, f"{ranch.nodes()}")
    assert (_data(ranch, runtime) / "server/db/etcd/member").is_dir()


def _data(ranch: Ranch, runtime: Runtime) -> Path:
    return ranch.on("h0").place.root / runtime.data_directory.lstrip("/")


def _saved(ranch: Ranch, runtime: Runtime) -> str:
    """By the planner, as a user asks for it."""
    config = ranch.get(_CLUSTER)["spec"]["rkeConfig"]
    ranch.change(rkeConfig={**config, "etcdSnapshotCreate": {"generation": 1}})
    eventually(lambda: dig(ranch.plane(), "status", "etcdSnapshotCreatePhase") == "Finished", PATIENCE, ranch.says())
    (saved,) = (_data(ranch, runtime) / "server/db/snapshots").iterdir()
    assert saved.name.startswith("on-demand-h0-")

    def storages() -> list[str]:
        told = [each for each in ranch.through(_FILES).json["items"] if dig(each, "status", "readyToUse")]
        assert all(each["spec"]["snapshotName"] == saved.name for each in told)
        return sorted(each["metadata"]["name"].partition("-")[0] for each in told)

    eventually(lambda: storages() == ["local", "s3"], PATIENCE, "the copies are not told")
    return saved.name


def _restored(ranch: Ranch, runtime: Runtime, name: str) -> None:
    """By the commands of a restore's plans, in their order; the snapshot comes from the bucket."""
    reset = [
        *(runtime.name, "server", "--cluster-reset", f"--etcd-arg=advertise-client-urls=https://{runtime.name}:2379"),
        *("--etcd-disable-snapshots=false", f"--cluster-reset-restore-path={name}", "--etcd-s3"),
    ]
    data = _data(ranch, runtime)
    for command in (
        [runtime.name, "secrets-encrypt", "status"],
        [runtime.name, "etcd-snapshot", "ls"],
        [f"{runtime.name}-killall.sh"],
        ["rm", "-rf", str(data / "server/db/etcd"), str(data / "server/db/snapshots"), str(data / "server/tls")],
        reset,
        [runtime.name, "certificate", "rotate"],
        ["systemctl", "start", runtime.server_unit],
    ):
        _run(ranch, *command)


def _run(ranch: Ranch, *command: str) -> str:
    environment = ranch.on("h0").environment()
    done = subprocess.run(
        ["/usr/bin/env", *command], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout
