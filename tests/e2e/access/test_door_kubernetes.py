"""`remuda gateway` before a real kube-apiserver: our tokens are users there, others pass with what they have, nobody forges."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real import need
from tests.real.cluster import RealCluster
from tests.real.ports import free_ports

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

PASSWORD = "first password of all"
NEW_PASSWORD = "a password that is long enough"


class Place:
    """The gateway's process before a real control plane."""

    def __init__(self, real: RealCluster, directory: Path) -> None:
        self.real = real
        self.port, self.webhooks, self.health = free_ports(3)
        self.url = f"https://127.0.0.1:{self.port}"
        self.directory = directory
        self.log = directory / "gateway.log"
        self.context = ssl.create_default_context()
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "remuda", "gateway", "--kubeconfig", str(real.kubeconfig)),
                    *("--listen", f"127.0.0.1:{self.port}", "--data-dir", str(directory / "data")),
                    *("--webhook-host", "127.0.0.1", "--webhook-port", str(self.webhooks)),
                    *("--webhook-url", f"https://127.0.0.1:{self.webhooks}"),
                    *("--health-probe-bind-address", f"127.0.0.1:{self.health}"),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "REMUDA_BOOTSTRAP_PASSWORD": PASSWORD, "PYTHONUNBUFFERED": "1"},
            )

    def ask(self, path: str, token: str = "", method: str = "GET", body: Any = None, **headers: str) -> tuple[int, Any]:
        said = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            said["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            said.setdefault("Content-Type", "application/json")
        request = urllib.request.Request(self.url + path, data, said, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60, context=self.context) as answer:
                return answer.status, _body(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _body(error.read())

    def until(self, check: Any, seconds: float = 240) -> Any:
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError):
                if found := check():
                    return found
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()[-4000:]
            time.sleep(0.2)

    def login(self, password: str) -> str:
        path = "/v3-public/localProviders/local?action=login"
        code, answer = self.ask(path, "", "POST", {"username": "admin", "password": password, "responseType": "json"})
        return str(answer["token"]) if code in (200, 201) else ""


def _body(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    need.programs("kubernetes", "etcd")
    with RealCluster(controllers=True, fsync=False) as real:
        found = Place(real, tmp_path_factory.mktemp("gateway"))
        try:
            found.until(lambda: found.ask("/ping") == (200, "pong"))
            yield found
        finally:
            found.process.send_signal(signal.SIGTERM)
            code = found.process.wait(120)
        assert code == 0, found.log.read_text()
        assert "Traceback" not in found.log.read_text(), found.log.read_text()


@pytest.fixture(scope="module")
def admin(place: Place) -> str:
    token: str = place.until(lambda: place.login(PASSWORD))
    assert place.ask("/api/v1/namespaces", token)[0] == 403, "the password has to be changed first"
    change = {"currentPassword": PASSWORD, "newPassword": NEW_PASSWORD}
    assert place.ask("/v3/users?action=changepassword", token, "POST", change)[0] == 200
    found: str = place.until(lambda: place.login(NEW_PASSWORD))
    # Its role has to be there, too.
    place.until(lambda: place.ask("/api/v1/namespaces", found)[0] == 200)
    return found


def test_our_tokens_are_users_there(place: Place, admin: str) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    code, answer = place.ask("/apis/authentication.k8s.io/v1/selfsubjectreviews", admin, "POST", review)
    assert code == 201
    info = answer["status"]["userInfo"]
    assert info["username"].startswith("user-")
    assert info["uid"] == info["username"]
    assert info["groups"] == ["system:authenticated", "system:cattle:authenticated"]
    assert info["extra"]["username"] == ["admin"]
    assert info["extra"]["requesttokenid"] == [admin.partition(":")[0]]


def test_foreign_credentials_are_passed_on_without_impersonation(place: Place, admin: str) -> None:
    account_path = "/api/v1/namespaces/default/serviceaccounts/default"
    place.until(lambda: place.ask(account_path, admin)[0] == 200)
    path = f"{account_path}/token"
    code, answer = place.ask(path, admin, "POST", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    assert code == 201
    account = answer["status"]["token"]
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    code, answer = place.ask("/apis/authentication.k8s.io/v1/selfsubjectreviews", account, "POST", review)
    # Not the gateway, whose certificate that API server would believe.
    assert (code, answer["status"]["userInfo"]["username"]) == (201, "system:serviceaccount:default:default")
    assert place.ask("/api/v1/secrets", account)[0] == 403
    assert place.ask("/api/v1/secrets", account, Impersonate_User="kubernetes-admin")[0] == 403
    assert place.ask("/api/v1/secrets", "eyJhbGciOiJub25lIn0.e30.")[0] == 401
    assert place.ask("/api/v1/secrets")[0] in (401, 403)


def test_identity_headers_of_clients_are_ignored(place: Place, admin: str) -> None:
    forged = {"X_Remote_User": "kubernetes-admin", "X_Remote_Group": "system:masters"}
    assert place.ask("/api/v1/secrets", **forged)[0] in (401, 403)
    manifest = {
        "apiVersion": "management.cattle.io/v3",
        "kind": "User",
        "metadata": {"name": "u-plain"},
        "username": "plain",
        "enabled": True,
    }
    assert place.ask("/apis/management.cattle.io/v3/users", admin, "POST", manifest)[0] == 201
    # Who may be somebody else is, as the API there says.
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    code, answer = place.ask(path, admin, "POST", review, Impersonate_User="u-plain", Impersonate_Group="some")
    assert (code, answer["status"]["userInfo"]["username"]) == (201, "u-plain")
    assert place.ask("/api/v1/secrets", admin, Impersonate_User="u-plain")[0] == 403
    assert place.ask("/api//v1/../secrets", admin)[0] == 400

    def lines() -> list[dict[str, Any]]:
        text = (place.directory / "data" / "audit" / "audit.log").read_text()
        return [json.loads(line) for line in text.split("\n")[:-1]]

    # A line is written after its answer.
    place.until(lambda: {line["result"] for line in lines() if line.get("impersonated") == "u-plain"} == {"allowed", "refused"})
    assert any("x-remote-user" in line.get("forged", ()) for line in lines())
    assert admin.partition(":")[2] not in json.dumps(lines())


def test_the_rules_of_our_kinds_hold_there(place: Place, admin: str) -> None:
    path = "/apis/management.cattle.io/v3/settings/agent-tls-mode"
    place.until(lambda: place.ask(path, admin)[0] == 200)
    merge = {"Content_Type": "application/merge-patch+json"}
    code, answer = place.ask(path, admin, "PATCH", {"value": "loose"}, **merge)
    assert code == 422, answer
    assert "agent-tls-mode must be one of strict, system-store" in answer["message"]
    assert place.ask(path, admin, "PATCH", {"value": "system-store"}, **merge)[0] == 200
    place.until(lambda: place.ask("/v3/settings/agent-tls-mode", admin)[1]["value"] == "system-store")


def test_kubectl_works_through_it(place: Place, admin: str, tmp_path: Path) -> None:
    def kubectl(*arguments: str) -> str:
        command = [
            str(place.real.kubectl_path),
            "--server",
            place.url,
            "--token",
            admin,
            "--insecure-skip-tls-verify",
            *arguments,
        ]
        environment = {**os.environ, "KUBECONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "created" in kubectl("create", "configmap", "kept", "--from-literal=a=b")
    assert "kept" in kubectl("get", "configmaps")
    assert "strict" in kubectl("get", "settings", "agent-tls-mode", "-o", "yaml")
    assert "deleted" in kubectl("delete", "configmap", "kept")
    watching = subprocess.Popen(
        [
            *(str(place.real.kubectl_path), "--server", place.url, "--token", admin, "--insecure-skip-tls-verify"),
            *("get", "configmaps", "--watch", "-o", "name"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "KUBECONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)},
    )
    try:
        kubectl("create", "configmap", "seen", "--from-literal=a=b")
        assert watching.stdout is not None
        lines = (watching.stdout.readline().strip() for _ in range(5))
        assert any(line == "configmap/seen" for line in lines)
    finally:
        watching.kill()
        watching.wait()
