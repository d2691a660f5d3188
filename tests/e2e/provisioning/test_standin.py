"""Clusters of k3s and RKE2 from the first host to deletion, with a stand-in for their programs (`tests/real/standin`): the plans
of every operation are the real ones, and so are their agents, etcd, the tunnel and the bucket."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography import x509

from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.kube.objects import annotations_of, dig, name_of
from remuda.provisioning.etcd.s3 import copies, place
from remuda.provisioning.etcd.s3.bucket import Bucket
from remuda.provisioning.releases.distributions import K3S, RKE2, Runtime, of_version
from tests.e2e.buckets.services import versity
from tests.real import standin

from .buckets import CREDENTIAL, in_bucket
from .conftest import DEMO, PATIENCE, WORKSPACE, Ranch, eventually

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(3600)]

Obj = dict[str, Any]

_CLUSTER = f"/apis/provisioning.cattle.io/v1/namespaces/{WORKSPACE}/clusters/{DEMO}"
_SNAPSHOTS = f"/apis/rke.cattle.io/v1/namespaces/{WORKSPACE}/etcdsnapshots"
_FILES = "/apis/k3s.cattle.io/v1/etcdsnapshotfiles"
_MAPS = "/api/v1/namespaces/default/configmaps"
_LONG = 4 * PATIENCE

VERSION = {K3S: "v1.34.1+k3s1", RKE2: "v1.34.1+rke2r1"}
BEFORE = {K3S: "v1.33.5+k3s1", RKE2: "v1.33.5+rke2r1"}
each_runtime = pytest.mark.parametrize("runtime", [K3S, RKE2], ids=lambda runtime: runtime.name)


@each_runtime
async def test_a_cluster_is_installed_saved_restored_rotated_and_deleted(
    own_ranch: Ranch, tmp_path: Path, runtime: Runtime
) -> None:
    ranch = own_ranch
    with versity(_made(tmp_path / "bucket")) as service:
        s3 = in_bucket(ranch, service)
        _installed(ranch, runtime, VERSION[runtime], {"h0": (), "w0": ("worker",)}, s3=s3)
        _add(ranch, "before")
        name = _saved(ranch, runtime)
        # The server sees the copy by itself, with what the spec and the credential say.
        credential = place.credential_fields({f"s3credentialConfig-{key}": value for key, value in CREDENTIAL.items()})
        async with Bucket(*place.of_cluster(s3, credential), SYSTEM_CLOCK, Rng()) as bucket:
            (copy,) = await copies.listed(bucket)
        assert (copy.name, copy.node) == (name, "h0") and "provisioning-cluster-spec" in copy.metadata
        assert copy.cluster_id == ranch.through("/api/v1/namespaces/kube-system").json["metadata"]["uid"]
        _add(ranch, "after")
        _restored(ranch, name)
        _rotated_certificates(ranch, runtime)
        _rotated_keys(ranch, ["h0"], 1)
        ranch.delete(uninstall=True)
        left = [_data(ranch, runtime, host) for host in ("h0", "w0")]
        eventually(lambda: not any(each.exists() for each in left), PATIENCE, f"there is still something in {left}")


@pytest.mark.variant
@each_runtime
def test_a_snapshot_is_taken_before_an_upgrade_and_brings_the_version_back(
    own_ranch: Ranch, tmp_path: Path, runtime: Runtime
) -> None:
    ranch, old, new = own_ranch, BEFORE[runtime], VERSION[runtime]
    _installed(ranch, runtime, old, {"h0": (), "w0": ("worker",)}, later=[new])
    _add(ranch, "before")
    ranch.change(kubernetesVersion=new)
    ranch.until_ready()
    eventually(lambda: ranch.nodes() == {"h0": new, "w0": new}, PATIENCE, f"{ranch.nodes()}")
    taken = dig(ranch.plane(), "status", "upgradeSnapshot")
    assert (taken["phase"], taken["from"], taken["to"]) == ("Finished", old, new), taken
    (file,) = [each.name for each in _snapshots(ranch, runtime) if each.name.startswith("pre-upgrade-")]
    assert old.replace("+", "-") in file
    _add(ranch, "after")
    _restored(ranch, file, storage="local", config="all")
    assert ranch.get(_CLUSTER)["spec"]["kubernetesVersion"] == old
    eventually(lambda: ranch.nodes() == {"h0": old, "w0": old}, PATIENCE, f"{ranch.nodes()}")


@pytest.mark.variant
@each_runtime
def test_a_cluster_without_servers_comes_back_from_its_bucket(own_ranch: Ranch, tmp_path: Path, runtime: Runtime) -> None:
    ranch, version = own_ranch, VERSION[runtime]
    with versity(_made(tmp_path / "bucket")) as service:
        _installed(ranch, runtime, version, {"h0": (), "w0": ("worker",)}, s3=in_bucket(ranch, service))
        _add(ranch, "before")
        name = _stored(ranch, _saved(ranch, runtime), "s3")
        _add(ranch, "after")
        ranch.cut_power("h0")
        words = ("--snapshot", name, "--yes", "--no-wait", "--kubeconfig", str(ranch.kubeconfig()))
        ranch.command("cluster", "recover", DEMO, *words)
        eventually(lambda: dig(ranch.plane(), "status", "recoverPhase") == "Hosts", _LONG, ranch.says())
        assert "h0" not in ranch.machines()
        ranch.host("h1", "etcd", "controlplane")
        eventually(lambda: dig(ranch.plane(), "status", "recoverPhase") == "Finished", _LONG, _told(ranch, "ClusterRecovered"))
        ranch.until_ready()
        eventually(lambda: ranch.nodes() == {"h1": version, "w0": version}, PATIENCE, f"{ranch.nodes()}")
        _has_only_what_was_saved(ranch)


# --- a cluster ----------------------------------------------------------------------------------------------------------------


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _installed(
    ranch: Ranch,
    runtime: Runtime,
    version: str,
    hosts: dict[str, tuple[str, ...]],
    *,
    s3: Obj | None = None,
    later: Sequence[str] = (),
) -> None:
    standin.install(ranch.directory / "images", runtime, version, *later)
    registry = urlsplit(ranch.gateway.url).netloc
    own: Obj = {"cni": "none"} if runtime is RKE2 else {"secrets-encryption": True}
    ranch.want(
        version,
        machineGlobalConfig={"system-default-registry": registry, **own},
        registries={"configs": {registry: {"insecureSkipVerify": True}}},
        etcd={"disableSnapshots": True, **({"s3": s3} if s3 else {})},
    )
    for name, roles in hosts.items():
        ranch.host(name, *roles)
    ranch.until_ready()
    eventually(lambda: ranch.nodes() == dict.fromkeys(hosts, version), PATIENCE, f"{ranch.nodes()}")
    assert (_data(ranch, runtime) / "server/db/etcd/member").is_dir()


def _data(ranch: Ranch, runtime: Runtime, host: str = "h0") -> Path:
    return ranch.on(host).place.root / runtime.data_directory.lstrip("/")


def _snapshots(ranch: Ranch, runtime: Runtime) -> list[Path]:
    return list((_data(ranch, runtime) / "server/db/snapshots").iterdir())


def _add(ranch: Ranch, name: str) -> None:
    assert ranch.through(_MAPS, "POST", {"metadata": {"name": name}}).status == 201


def _has_only_what_was_saved(ranch: Ranch) -> None:
    eventually(lambda: ranch.through(f"{_MAPS}/before").status == 200, PATIENCE)
    assert ranch.through(f"{_MAPS}/after").status == 404


def _told(ranch: Ranch, condition: str) -> str:
    said = dig(ranch.plane(), "status", "conditions") or []
    return next((f"{each['status']} {each.get('message', '')}" for each in said if each["type"] == condition), "")


# --- operations, as a user asks for them ---------------------------------------------------------------------------------------


def _saved(ranch: Ranch, runtime: Runtime) -> str:
    """The name of the file, which is on the host and in the bucket."""
    ranch.change(rkeConfig={"etcdSnapshotCreate": {"generation": 1}})
    eventually(lambda: dig(ranch.plane(), "status", "etcdSnapshotCreatePhase") == "Finished", PATIENCE, ranch.says())
    (saved,) = _snapshots(ranch, runtime)
    assert saved.name.startswith("on-demand-h0-")

    def storages() -> list[str]:
        told = [each for each in ranch.through(_FILES).json["items"] if dig(each, "status", "readyToUse")]
        assert all(each["spec"]["snapshotName"] == saved.name for each in told)
        return sorted(each["metadata"]["name"].partition("-")[0] for each in told)

    eventually(lambda: storages() == ["local", "s3"], PATIENCE, "the copies are not told")
    return saved.name


def _stored(ranch: Ranch, file: str, storage: str) -> str:
    """The name of the ETCDSnapshot of that copy."""
    found: list[str] = []

    def is_listed() -> bool:
        listed = ranch.get(_SNAPSHOTS)["items"]
        kinds = {name_of(each): annotations_of(each).get("etcdsnapshot.rke.io/storage") for each in listed}
        found[:] = [
            name_of(each) for each in listed if dig(each, "snapshotFile", "name") == file and kinds[name_of(each)] == storage
        ]
        return len(found) == 1

    eventually(is_listed, PATIENCE, f"no ETCDSnapshot stands for {file} in {storage}")
    return found[0]


def _restored(ranch: Ranch, file: str, *, storage: str = "s3", config: str = "none") -> None:
    asked = {"name": _stored(ranch, file, storage), "generation": 1, "restoreRKEConfig": config}
    ranch.until_ready()
    ranch.change(rkeConfig={"etcdSnapshotRestore": asked})

    def phase() -> str:
        status = ranch.plane().get("status") or {}
        return str(status.get("etcdSnapshotRestorePhase")) if status.get("etcdSnapshotRestore") == asked else ""

    eventually(lambda: phase() in ("Finished", "Failed"), _LONG, f"the restore does not end: {ranch.says()}")
    assert phase() == "Finished", _told(ranch, "EtcdSnapshotRestored")
    ranch.until_ready()
    _has_only_what_was_saved(ranch)


def _serials(ranch: Ranch, runtime: Runtime) -> dict[str, int]:
    """Of each certificate of the server that no authority is."""
    tls = _data(ranch, runtime) / "server/tls"
    found = [path for path in tls.rglob("*.crt") if not path.name.endswith("-ca.crt")]
    return {str(path.relative_to(tls)): x509.load_pem_x509_certificates(path.read_bytes())[0].serial_number for path in found}


def _rotated_certificates(ranch: Ranch, runtime: Runtime) -> None:
    before, authority = _serials(ranch, runtime), (_data(ranch, runtime) / "server/tls/server-ca.crt").read_bytes()
    ranch.change(rkeConfig={"rotateCertificates": {"generation": 1}})
    eventually(lambda: dig(ranch.plane(), "status", "certificateRotationGeneration") == 1, _LONG, ranch.says())
    ranch.until_ready()
    after = _serials(ranch, runtime)
    assert before and before.keys() <= after.keys()
    assert all(after[name] != serial for name, serial in before.items()), "every certificate is another one"
    assert (_data(ranch, runtime) / "server/tls/server-ca.crt").read_bytes() == authority
    assert _told(ranch, "CertificatesRotated") == "True generation 1: 2 machines"


def _rotated_keys(ranch: Ranch, servers: list[str], generation: int) -> str:
    """What all servers say of their keys then."""
    ranch.change(rkeConfig={"rotateEncryptionKeys": {"generation": generation}})

    def done() -> bool:
        status = ranch.plane().get("status") or {}
        assert status.get("rotateEncryptionKeysPhase") != "Failed", _told(ranch, "EncryptionKeysRotated")
        return (
            status.get("rotateEncryptionKeysPhase") == "Done" and dig(status, "rotateEncryptionKeys", "generation") == generation
        )

    eventually(done, _LONG, f"the rotation does not end: {ranch.says()}")
    ranch.until_ready()
    name = of_version(ranch.get(_CLUSTER)["spec"]["kubernetesVersion"]).name
    (status,) = {_run(ranch, host, name, "secrets-encrypt", "status") for host in servers}
    assert "Current Rotation Stage: reencrypt_finished" in status and "All hashes match" in status
    return status


def _run(ranch: Ranch, host: str, *command: str) -> str:
    environment = ranch.on(host).environment()
    done = subprocess.run(
        ["/usr/bin/env", *command], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout
