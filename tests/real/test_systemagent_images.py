"""Images for hosts, pulled by Rancher's own system agent and by ours from the same registry, by the same registries.yaml."""

from __future__ import annotations

import base64
import gzip
import json
import ssl
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from remuda.agent.images.pull import host_architecture
from remuda.provisioning.plans.plan import Instruction, Plan
from tests.integration.agent.builders import server
from tests.integration.agent.images.test_images import Entry, FakeRegistry, digest, host_of, layer
from tests.real.systemagents import Api
from tests.real.test_systemagent import Pair, api, in_state
from tests.unit.certificates import certificate

__all__ = ["api"]

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]

Obj = dict[str, Any]
LIST = '#!/bin/sh\necho "run $1"; find . -printf "%M %P %l\\n" | sort -k2; cat data d/y\n'
FIRST: tuple[Entry, ...] = (
    ("f", "run.sh", (LIST, 0o4777)),
    ("f", "data", ("1", 0o600)),
    ("f", "gone", "1"),
    ("d", "d", 0o700),
    ("f", "d/x", "1"),
    ("f", "d/y", "1"),
    ("f", "old/a", "1"),
)
SECOND: tuple[Entry, ...] = (
    ("f", "data", "2"),
    ("f", ".wh.gone", ""),
    ("f", "d/.wh.x", ""),
    ("s", "link", "data"),
    ("h", "hard", "data"),
    ("f", "e/f/g", ("x", 0o755)),
)


class Registry(FakeRegistry):
    """One that Go's library accepts: with configurations and kinds, and the question whether it is one."""

    def __init__(self) -> None:
        super().__init__()
        self.blobs.clear()
        self.manifests.clear()
        layers = [layer(*FIRST), layer(*SECOND)]
        kind = "application/vnd.oci.image.layer.v1.tar+gzip"
        packed = [gzip.compress(each, mtime=0) for each in layers]
        rootfs = {"type": "layers", "diff_ids": [digest(each) for each in layers]}
        platform = {"os": "linux", "architecture": host_architecture()}
        config = json.dumps({**platform, "config": {}, "rootfs": rootfs}).encode()
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": self._about("application/vnd.oci.image.config.v1+json", config),
                "layers": [self._about(kind, each) for each in packed],
            }
        ).encode()
        self.manifests[digest(manifest)] = ("application/vnd.oci.image.manifest.v1+json", manifest)
        wanted = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(manifest), "size": len(manifest)}
        other = {**wanted, "digest": "sha256:" + "0" * 64, "platform": {"os": "linux", "architecture": "riscv"}}
        index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json"}
        listed = json.dumps({**index, "manifests": [other, {**wanted, "platform": platform}]}).encode()
        self.manifests["v1"] = ("application/vnd.oci.image.index.v1+json", listed)
        self.damaged = False

    def _about(self, kind: str, data: bytes) -> Obj:
        return {"mediaType": kind, "digest": self.blob(data), "size": len(data)}

    def __call__(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes] | None:
        path = request.path.partition("?")[0]
        if path == "/v2/" and (not self.token or request.headers.get("Authorization") == f"Bearer {self.token}"):
            return 200, {}, b"{}"
        answer = super().__call__(request, body)
        if self.damaged and answer is not None and "/blobs/" in path and answer[0] == 200:
            return answer[0], answer[1], b"\0" * len(answer[2])
        return answer


@pytest.fixture
def registry() -> Registry:
    return Registry()


def pulled(api: Api, directory: Path, name: str, image: str, registries: Obj, *, fails: bool = False) -> str:
    """What the image's script says on both hosts."""
    with Pair(api, name, directory) as pair:
        for agent in pair.agents.values():
            (agent.root / "agent/registries.yaml").write_text(json.dumps(registries))
        pair.give(Plan(instructions=(Instruction(name="it", image=image, args=("x",), saveOutput=True),)))
        pair.until(in_state("failed" if fails else "succeeded"))
        if fails:
            return ""
        return str(pair.said()["applied-output"]["it"])


def test_an_image_is_unpacked_in_the_same_way(api: Api, registry: Registry, tmp_path: Path) -> None:
    with server(registry) as url:
        told = pulled(api, tmp_path, "unpacked", f"{host_of(url)}/a/b:v1", {}).splitlines()
    assert told[0] == "run x" and told[-1] == "21"
    assert "-rwxr-xr-x run.sh " in told and "lrwxrwxrwx link data" in told and "drwxr-xr-x d " in told
    assert not any("gone" in line or " d/x" in line or ".wh" in line for line in told)


@pytest.mark.parametrize(
    "rewrite", [{"^rancher/(.*)$": "a/$1"}, {"(.*)/": "a/"}, {".*": "a/b"}, {"rancher/(?P<last>.*)": "a/${last}"}]
)
def test_a_mirror_with_another_name(
    api: Api, registry: Registry, tmp_path: Path, rewrite: dict[str, str], request: pytest.FixtureRequest
) -> None:
    with server(registry) as url:
        mirrors = {"docker.io": {"endpoint": [url], "rewrite": rewrite}}
        assert pulled(
            api, tmp_path, f"mirrored-{request.node.callspec.indices['rewrite']}", "rancher/b:v1", {"mirrors": mirrors}
        ).startswith("run x")
    asked = {(path, tuple(query.get("ns", ()))) for _, path, query, _ in registry.asked if path == "/v2/a/b/manifests/v1"}
    assert asked == {("/v2/a/b/manifests/v1", ("docker.io",))}, "both ask for the same, and say for whom"


@pytest.mark.parametrize("auth", [{"username": "u", "password": "p"}, {"auth": base64.b64encode(b"u:p").decode()}])
def test_a_registry_with_authentication(api: Api, registry: Registry, tmp_path: Path, auth: dict[str, str]) -> None:
    registry.token, registry.basic = "t0ken", "Basic " + base64.b64encode(b"u:p").decode()
    with server(registry) as url:
        registry.url = url
        image, name = f"{host_of(url)}/a/b:v1", f"auth-{len(auth)}"
        assert pulled(api, tmp_path / "right", name, image, {"configs": {host_of(url): {"auth": auth}}})
        wrong = {"configs": {host_of(url): {"auth": {"username": "u", "password": "x"}}}}
        pulled(api, tmp_path / "wrong", f"{name}-wrong", image, wrong, fails=True)


def _tls(directory: Path) -> tuple[ssl.SSLContext, Path]:
    cert, key = certificate(directory, "registry")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert


@pytest.mark.parametrize("trust", [lambda cert: {"ca_file": str(cert)}, lambda cert: {"insecure_skip_verify": True}, None])
def test_a_registry_with_a_certificate_of_its_own(
    api: Api, registry: Registry, tmp_path: Path, trust: Callable[[Path], Obj] | None, request: pytest.FixtureRequest
) -> None:
    context, cert = _tls(tmp_path)
    with server(registry, context) as url:
        mirrors = {"docker.io": {"endpoint": [url.replace("http://", "https://")], "rewrite": {"^rancher/(.*)$": "a/$1"}}}
        configs = {host_of(url): {"tls": trust(cert)}} if trust is not None else {}
        name = f"tls-{request.node.callspec.indices['trust']}"
        pulled(api, tmp_path, name, "rancher/b:v1", {"mirrors": mirrors, "configs": configs}, fails=trust is None)


def test_what_was_damaged_on_the_way_is_not_run(api: Api, registry: Registry, tmp_path: Path) -> None:
    registry.damaged = True
    with server(registry) as url:
        pulled(api, tmp_path, "damaged", f"{host_of(url)}/a/b:v1", {}, fails=True)
