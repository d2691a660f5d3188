"""The agent's image: built here, pulled from the server by somebody else's client, and run from what was pulled, as a pod would.

The pod's file system is a directory with the image's layers in it, entered by chroot; its ServiceAccount, its Secret and its
environment are what the import manifest and a kubelet would give it. Only the kubelet is missing.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from remuda.images.recipe import REPOSITORY
from tests.real import need

from .harness import Cluster, Embedded, Gateway, Program, until
from .test_agent import connected, lines, registered

# Whoever is first makes the images, and others wait for that.
pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

Obj = dict[str, Any]
ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture(scope="module")
def gateway(place: Path, images: Path) -> Iterator[Gateway]:
    with Gateway(place / "gateway", environ={"REMUDA_IMAGES": str(images)}) as started:
        started.announced()
        yield started
        assert started.tracebacks() == [], started.told()[-8000:]


@pytest.fixture(scope="module")
def pulled(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's layers, pulled over TLS and unpacked in order."""
    skopeo = shutil.which("skopeo") or need.absent("skopeo is not installed: make test-deps")
    directory = tmp_path_factory.mktemp("pulled")
    trusted = directory / "trusted"
    trusted.mkdir()
    shutil.copy(gateway.ca, trusted / "ca.crt")
    policy = directory / "policy.json"
    policy.write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
    source = f"docker://127.0.0.1:{gateway.port}/{REPOSITORY}:latest"
    command = [
        skopeo,
        "--policy",
        str(policy),
        "copy",
        "-q",
        "--src-cert-dir",
        str(trusted),
        source,
        f"dir:{directory / 'image'}",
    ]
    subprocess.run(command, check=True, timeout=180)
    root = directory / "root"
    root.mkdir()
    manifest = json.loads((directory / "image" / "manifest.json").read_text())
    for layer in manifest["layers"]:
        with tarfile.open(directory / "image" / layer["digest"].removeprefix("sha256:")) as archive:
            archive.extractall(root, filter="fully_trusted")
    return root


class Pod(Program):
    """The image's entry point, in the image's file system, with nothing else to go by than what a pod has."""

    def __init__(self, root: Path, directory: Path, environ: dict[str, str]) -> None:
        super().__init__("pod", directory)
        self.root = root
        self.pod_environ = {"PATH": "/usr/local/bin:/usr/bin", "HOME": "/tmp", **environ}

    def command(self) -> list[str]:
        said = [f"{name}={value}" for name, value in self.pod_environ.items()]
        return ["env", "-i", *said, "/usr/sbin/chroot", str(self.root), "/usr/local/bin/remuda", "cluster-agent"]


def applied(downstream: Embedded, manifest: str) -> dict[str, Obj]:
    """What `kubectl apply` does to a cluster that has none of it; objects by kind."""
    found = {}
    for obj in yaml.safe_load_all(manifest):
        group, kind = obj["apiVersion"], obj["kind"]
        root = f"/apis/{group}" if "/" in group else f"/api/{group}"
        namespace = obj["metadata"].get("namespace")
        plural = f"{kind.lower()}s" if not kind.lower().endswith("y") else f"{kind.lower()[:-1]}ies"
        path = f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"
        body = json.dumps(obj).encode()
        answer = downstream.endpoint().request("POST", path, body, {"Content-Type": "application/json"})
        # A kind that the embedded API does not have (Deployments) is only a description here.
        assert answer.status in (201, 404, 409), (path, answer.body)
        found[kind] = obj
    return found


def pod(cluster: Cluster, downstream: Embedded, root: Path, directory: Path) -> Pod:
    objects = applied(downstream, cluster.manifest().raw.decode())
    container = objects["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    environ = {each["name"]: str(each.get("value") or "") for each in container["env"]}
    credentials = root / "cattle-credentials"
    credentials.mkdir()
    secret = objects["Secret"].get("stringData") or {}
    for name, value in (objects["Secret"].get("data") or {}).items():
        secret[name] = base64.b64decode(value).decode()
    for name, value in secret.items():
        (credentials / name).write_text(value)
    where = root / ACCOUNT
    where.mkdir(parents=True)
    (where / "token").write_text(account_token(downstream))
    (where / "ca.crt").write_bytes((downstream.directory / "data" / "pki" / "ca.crt").read_bytes())
    (where / "namespace").write_text("cattle-system")
    environ |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(downstream.port)}
    return Pod(root, directory, environ)


def account_token(downstream: Embedded) -> str:
    path = "/api/v1/namespaces/cattle-system/serviceaccounts/cattle/token"
    body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}).encode()
    answer = downstream.endpoint().request("POST", path, body, {"Content-Type": "application/json"})
    assert answer.status == 201, answer.body
    return str(answer.json["status"]["token"])


def test_the_image_connects_its_cluster(gateway: Gateway, downstream: Embedded, pulled: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        need.absent("only root may chroot")
    cluster = registered(gateway, "c-image")
    with pod(cluster, downstream, pulled, tmp_path) as running:
        connected(running)
        until(lambda: lines(gateway, cluster.id, "connected"))
        until(lambda: "apiEndpoint" in cluster.status(), why="what the agent says of its cluster is not known")
        assert cluster.managed()["status"]["apiEndpoint"] == f"https://127.0.0.1:{downstream.port}"
        assert "uvloop" in Path(f"/proc/{running.pid}/maps").read_text()
        assert running.stop() == 0, running.told()
    assert cluster.token() not in running.told()


def test_nobody_pushes(gateway: Gateway) -> None:
    answer = gateway.nobody().request("POST", f"/v2/{REPOSITORY}/blobs/uploads/")
    assert answer.status == 405
