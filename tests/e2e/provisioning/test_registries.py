"""Hosts without a way to the registry that images are named after: a mirror of the user's, with another name and a password."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.agent.errors import ImageError
from remuda.agent.images.pull import Puller
from remuda.agent.images.registries import Registries, parse
from remuda.images import installer
from tests.real import need
from tests.real.registry import PASSWORD, USER, DockerRegistry

from .conftest import PATIENCE, WORKSPACE, Ranch, eventually
from .test_whole_way import FROM

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(1200)]

Obj = dict[str, Any]
# Nobody answers to that name.
FAR = "registry.example.com"
MIRRORED = "mirrored/system-agent-installer-remuda"
REWRITE = {"^rancher/(.*)$": "mirrored/$1"}


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[DockerRegistry]:
    """With the installer of one version in it."""
    images = tmp_path / "images"
    installer.ensure(images, {installer.VARIABLE: str(need.programs("etcd")["etcd"])})
    with DockerRegistry(tmp_path) as registry:
        tag = installer.tag_of(FROM)
        registry.push(images / installer.REPOSITORY, tag, f"{MIRRORED}:{tag}")
        yield registry


def test_an_image_is_fetched_from_a_real_registry(mirror: DockerRegistry, tmp_path: Path) -> None:
    wanted = parse(f"{FAR}/{installer.REPOSITORY}:{installer.tag_of(FROM)}")

    def pull(password: str, **tls: Any) -> list[str]:
        config = {"auth": {"username": USER, "password": password}, "tls": tls}
        registries = Registries({FAR: {"endpoint": [mirror.url], "rewrite": REWRITE}}, {mirror.address: config})
        return [str(layer) for layer in Puller(registries, str(tmp_path / "blobs")).pull(wanted)]

    with pytest.raises(ImageError, match="401"):
        pull("something else", ca_file=str(mirror.ca))
    with pytest.raises(ImageError, match="not trusted"):
        pull(PASSWORD)
    assert len(pull(PASSWORD, ca_file=str(mirror.ca))) >= 2


def test_a_cluster_is_installed_through_a_mirror_once_its_password_is_right(either_ranch: Ranch, mirror: DockerRegistry) -> None:
    """Its plan fails three times before, and says why."""
    ranch = either_ranch
    bundle = base64.b64encode(mirror.ca.read_bytes()).decode()
    eventually(lambda: ranch.ask("GET", f"/api/v1/namespaces/{WORKSPACE}").status == 200, PATIENCE)
    assert ranch.ask("POST", f"/api/v1/namespaces/{WORKSPACE}/secrets", _secret("something else")).status == 201
    registries = {
        "mirrors": {FAR: {"endpoint": [mirror.url], "rewrite": REWRITE}},
        "configs": {mirror.address: {"authConfigSecretName": "for-the-mirror", "caBundle": bundle}},
    }
    ranch.want(FROM, registries=registries, machineGlobalConfig={"system-default-registry": FAR})
    ranch.host("h0")
    failed = "failure while applying plan (3 times"
    eventually(lambda: failed in ranch.says() and "401" in ranch.says(), PATIENCE, f"it does not fail: {ranch.says()}")
    secret = f"/api/v1/namespaces/{WORKSPACE}/secrets/for-the-mirror"
    assert ranch.ask("PATCH", secret, _secret(PASSWORD), "application/merge-patch+json").status == 200
    ranch.until_ready()
    eventually(lambda: ranch.nodes() == {"h0": FROM}, PATIENCE)
    assert f"/v2/{MIRRORED}/manifests/{installer.tag_of(FROM)}" in mirror.asked()


def _secret(password: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/basic-auth",
        "metadata": {"name": "for-the-mirror", "namespace": WORKSPACE},
        "stringData": {"username": USER, "password": password},
    }
