"""`remuda support-bundle` of a server that is full of secrets: it holds none of them, and what is needed it holds."""

from __future__ import annotations

import base64
import json
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.access.harness import MANAGEMENT, PASSWORD, Gateway
from tests.e2e.serving import eventually

pytestmark = [pytest.mark.story, pytest.mark.timeout(600)]

Obj = dict[str, Any]
CHOSEN = "Tr0ub4dor&3 of somebody"
CLOUD = "dop_v1_0f1e2d3c4b5a69788796a5b4c3d2e1f0"
APPLIED = "only-in-what-was-applied-last"
REGISTRY = "registry-user-password"
DEEP = "k10deepinsideaplan99::server:xyzzy"
KEY_LINE = "MHcCAQEEIJ8xAnotherSecretLineOfAKey0123456789abcdef"
KEY = f"-----BEGIN EC PRIVATE KEY-----\n{KEY_LINE}\n-----END EC PRIVATE KEY-----\n"
SPEC, DATA, ANNOTATED = "in-the-spec-of-a-cluster", "in-a-config-map-9x", "in-an-annotation-7y"
FORMED = "token-abcde:fghjklmnpqrstvwxz2456789bcdfghjklmnpqrstvwxz2456789"
EVERYWHERE = (CHOSEN, CLOUD, APPLIED, REGISTRY, DEEP, KEY_LINE)
OTHERS = (SPEC, DATA, ANNOTATED, FORMED.partition(":")[2], "hunter-of-the-proxy")


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def secret(name: str, kind: str = "Opaque", annotations: Obj | None = None, **data: str) -> Obj:
    return {"kind": "Secret", "type": kind, "metadata": {"name": name, "annotations": annotations or {}}, "stringData": data}


def careless(gateway: Gateway) -> Path:
    """What others log; the server's own log has no secrets."""
    return gateway.directory.with_name("careless.txt")


def fill(gateway: Gateway) -> set[str]:
    """Secrets wherever somebody might put one; those that the server made itself are given back."""
    path = "/api/v1/namespaces/fleet-default/secrets"
    gateway.there("/api/v1/namespaces/fleet-default")
    gateway.there("/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters")
    plan = {"files": [{"path": "/x", "content": b64(f"server: https://x\ntoken: {DEEP}\n")}], "instructions": []}
    last = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"stringData": {"password": APPLIED}})}
    docker = {"auths": {"registry.example.com": {"username": "me", "password": REGISTRY}}}
    for made in (
        secret("chosen", anything=CHOSEN),
        secret("cc-abcde", "provisioning.cattle.io/cloud-credential", **{"digitaloceancredentialConfig-accessToken": CLOUD}),
        secret("applied", annotations=last, some="thing-that-is-else"),
        secret("registry", "kubernetes.io/dockerconfigjson", **{".dockerconfigjson": json.dumps(docker)}),
        secret("a-machine-plan", "rke.cattle.io/machine-plan", plan=json.dumps(plan)),
        secret("keys", **{"some.key": KEY}),
    ):
        gateway.made(path, made)
    told = f"{' '.join((CHOSEN, CLOUD, APPLIED, REGISTRY, DEEP, KEY_LINE))} and {FORMED} at https://me:hunter-of-the-proxy@proxy:3128"
    gateway.made(
        "/api/v1/namespaces/fleet-default/configmaps", {"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": DATA}}
    )
    involved = {"kind": "Cluster", "namespace": "fleet-default", "name": "demo"}
    event = {"kind": "Event", "metadata": {"name": "e.1"}, "involvedObject": involved, "type": "Warning", "reason": "Odd"}
    gateway.made("/api/v1/namespaces/fleet-default/events", {**event, "message": f"the event says {told}"})
    clusters = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters"
    metadata = {"name": "demo", "namespace": "fleet-default", "annotations": {"example.com/note": ANNOTATED}}
    gateway.made(clusters, {"kind": "Cluster", "metadata": metadata, "spec": {"agentEnvVars": [{"name": "X", "value": SPEC}]}})
    condition = {"type": "Odd", "status": "False", "reason": "Odd", "message": f"the condition says {told}"}
    patch = json.dumps([{"op": "add", "path": "/status/conditions/-", "value": condition}]).encode()
    kind = {"Content-Type": "application/json-patch+json"}
    eventually(lambda: gateway.endpoint.request("PATCH", f"{clusters}/demo/status", patch, kind).status == 200)
    gateway.setting("server-url", gateway.url)
    gateway.made(f"{MANAGEMENT}/settings", {"kind": "Setting", "metadata": {"name": "of-somebody"}, "value": f"x {CHOSEN}"})
    person = gateway.user("somebody", "admin")
    careless(gateway).write_text(f"a careless line: {told}\n{KEY}after the key\n")
    secrets = gateway.endpoint.request("GET", "/api/v1/secrets").json["items"]
    own = {base64.b64decode(value).decode(errors="replace") for each in secrets for value in (each.get("data") or {}).values()}
    namespaces = gateway.endpoint.request("GET", "/api/v1/namespaces").json["items"]
    # Where things are is no secret, though Secrets say it, too.
    public = {gateway.url, *(each["metadata"]["name"] for each in namespaces)}
    return {
        person.token.partition(":")[2],
        *(text for text in own if len(text) > 12 and "CERTIFICATE" not in text and text not in public),
    }


def bundle(gateway: Gateway, path: Path) -> tuple[str, dict[str, str]]:
    command = [sys.executable, "-m", "remuda", "support-bundle", str(path), "--data-dir", str(gateway.directory)]
    told = ["--log-file", str(gateway.log), "--log-file", str(careless(gateway)), "--listen", f"127.0.0.1:{gateway.port}"]
    done = subprocess.run([*command, *told], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as tar:
        parts = {each.name.partition("/")[2]: (tar.extractfile(each) or sys.stdin.buffer).read().decode() for each in tar}
    return done.stderr, parts


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "server") as made:
        yield made


def leaked(parts: dict[str, str], secrets: set[str]) -> list[tuple[str, str]]:
    forms = {form for each in secrets for form in (each, b64(each), b64(each).rstrip("="), json.dumps(each)[1:-1])}
    return [(name, form) for name, text in parts.items() for form in forms if form in text]


def test_a_bundle_tells_how_it_is_and_no_secret_with_the_server_up_or_down(gateway: Gateway, tmp_path: Path) -> None:
    own = fill(gateway)
    pki = {
        line
        for path in (gateway.directory / "pki").rglob("*.key")
        for line in path.read_text().splitlines()
        if "-----" not in line
    }
    secrets = {*EVERYWHERE, *OTHERS, *own, *pki, PASSWORD}
    told, parts = bundle(gateway, tmp_path / "up.tar.gz")
    assert leaked(parts, secrets) == []
    assert "systemd has no service" in told and "does not answer" not in told

    counts = json.loads(parts["objects.json"])
    assert counts["secrets"] >= 6 and counts["clusters.provisioning.cattle.io"] >= 1
    found = [json.loads(line) for line in parts["conditions/clusters.provisioning.cattle.io.jsonl"].splitlines()]
    (demo,) = [each for each in found if each["name"] == "demo"]
    assert any(each["type"] == "Odd" and "the condition says" in each["message"] for each in demo["conditions"])
    assert "the event says" in parts["events.jsonl"] and '"name":"demo"' in parts["events.jsonl"]
    assert {"name": "server-url", "source": "db", "value": gateway.url, "default": ""} in json.loads(parts["settings.json"])
    assert "apiserver_request_total" in parts["metrics.txt"] or "workqueue" in parts["metrics.txt"]
    assert {each["name"] for each in json.loads(parts["doctor.json"])} >= {"disk space", "clock", "permissions"}
    assert any(each["file"] == "pki/ca.crt" and each["until"] for each in json.loads(parts["certificates.json"]))
    assert any(each["name"] == "state.db" and each["bytes"] for each in json.loads(parts["store.json"])["files"])
    assert any(f"--data-dir {gateway.directory}" in each["arguments"] for each in json.loads(parts["programs.json"]))
    log = "".join(text for name, text in parts.items() if name.startswith("logs/"))
    assert "Remuda" in log and "a careless line" in log and "after the key" in log
    assert json.loads(parts["versions.json"])["remuda"] in parts["server.json"] or "gitVersion" in parts["server.json"]

    # What exists is not overwritten, and what is left when the server is down is told.
    gateway.kill()
    again = subprocess.run(
        [sys.executable, "-m", "remuda", "support-bundle", str(tmp_path / "up.tar.gz")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 4 and "exists" in again.stderr
    careless(gateway).write_text(f"a line with {FORMED} and password={CLOUD}\n{KEY}after the key\n")
    told, parts = bundle(gateway, tmp_path / "down.tar.gz")
    assert "does not answer" in told and "does not answer" in parts["bundle.json"]
    assert leaked(parts, {*secrets}) == []
    assert {"versions.json", "store.json", "certificates.json", "doctor.json", "bundle.json"} <= {*parts}
    assert MANAGEMENT not in parts["bundle.json"]
