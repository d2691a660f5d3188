"""A cluster with an authorised endpoint lets Remuda's users in by itself: real kubectl, straight to a real kube-apiserver."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.real.ports import free_ports

from .harness import MANAGED, Agent, Cluster, Gateway, Person, Program, Real, kubectl, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


class Reviews(Program):
    """`remuda kube-api-auth` beside a real API server."""

    def __init__(self, real: Real, port: int) -> None:
        super().__init__("kube-api-auth", real.directory)
        self._real = real
        self._port = port

    def command(self) -> list[str]:
        listen = ["--listen", f"127.0.0.1:{self._port}"]
        return [sys.executable, "-m", "remuda", "kube-api-auth", "--kubeconfig", str(self._real.kubeconfig), *listen]


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def real(place: Path, port: int) -> Iterator[Real]:
    asked = ["--token-webhook", f"http://127.0.0.1:{port}/v1/authenticate"]
    with Real(place / "real", options=asked) as started, Reviews(started, port):
        yield started


@pytest.fixture(scope="module")
def cluster(gateway: Gateway, real: Real) -> Iterator[Cluster]:
    found = gateway.cluster("direct")
    with Agent(found, real):
        found.until("Ready", "True")
        yield found


def switch(cluster: Cluster, real: Real, on: bool) -> None:
    """On the management Cluster, as of an imported cluster in Rancher: the provisioning Cluster has nothing to say about it."""
    config = yaml.safe_load(real.kubeconfig.read_text())
    server = config["clusters"][0]["cluster"]["server"]
    ca = (real.kubeconfig.parent / "ca.crt").read_text()
    endpoint = {"enabled": on, "fqdn": server.removeprefix("https://"), "caCerts": ca}
    body = json.dumps({"spec": {"localClusterAuthEndpoint": endpoint}}).encode()
    path, kind = f"{MANAGED}/{cluster.id}", {"Content-Type": "application/merge-patch+json"}
    answer = cluster.gateway.endpoint.request("PATCH", path, body, kind)
    assert answer.status == 200, answer.body


def configured(person: Person, cluster: Cluster, path: Path) -> tuple[Path, str]:
    """A kubeconfig as somebody gets it, and the name of the token in it."""
    found: list[str] = []

    def has_the_endpoint() -> bool:
        """What it was switched on by reaches the gateway's caches in its own time."""
        answer = person.request("POST", f"/v3/clusters/{cluster.id}?action=generateKubeconfig")
        assert answer.status == 200, answer.body
        found.append(answer.json["config"])
        return any(each["name"] == "direct-fqdn" for each in yaml.safe_load(found[-1])["contexts"])

    until(has_the_endpoint)
    path.write_text(found[-1])
    token = yaml.safe_load(found[-1])["users"][0]["user"]["token"]
    return path, token.partition(":")[0]


def directly(config: Path, *arguments: str) -> str:
    return kubectl(config, "--context=direct-fqdn", *arguments, check=False)


def test_people_are_let_in_by_the_cluster_itself_until_their_token_goes(
    gateway: Gateway, cluster: Cluster, real: Real, place: Path
) -> None:
    owner, reader, stranger = (gateway.user(name) for name in ("direct-owner", "direct-reader", "direct-stranger"))
    gateway.bind(cluster.id, owner)
    gateway.bind(cluster.id, reader, "cluster-readonly")
    switch(cluster, real, on=True)
    until(lambda: owner.request("GET", cluster.path("/api/v1/namespaces")).status == 200)
    until(lambda: reader.request("GET", cluster.path("/api/v1/namespaces")).status == 200)
    mine, token = configured(owner, cluster, place / "owner.kubeconfig")
    theirs, _ = configured(reader, cluster, place / "reader.kubeconfig")

    until(lambda: "kube-system" in directly(mine, "get", "namespaces"))
    user = gateway.user_id(owner)
    until(lambda: user in directly(mine, "auth", "whoami"))
    assert "created" in directly(mine, "create", "configmap", "by-hand", "-n", "default")
    until(lambda: "kube-system" in directly(theirs, "get", "namespaces"))
    assert "forbidden" in directly(theirs, "create", "configmap", "not-this", "-n", "default")
    assert stranger.request("POST", f"/v3/clusters/{cluster.id}?action=generateKubeconfig").status == 404
    # A token that opens more than this cluster is nothing that the cluster knows.
    shown = yaml.safe_load(mine.read_text())
    shown["users"][0]["user"]["token"] = owner.token
    wide = place / "wide.kubeconfig"
    wide.write_text(yaml.safe_dump(shown))
    assert "Unauthorized" in directly(wide, "get", "namespaces") or "logged in" in directly(wide, "get", "namespaces")
    assert owner.token.partition(":")[0] not in kubectl(real.kubeconfig, "get", "clusterauthtokens", "-A")

    assert gateway.endpoint.request("DELETE", f"/apis/management.cattle.io/v3/tokens/{token}").status == 200
    until(lambda: "kube-system" not in directly(mine, "get", "namespaces"))
    assert "kube-system" in directly(theirs, "get", "namespaces")


def test_an_endpoint_that_is_switched_off_leaves_nothing(gateway: Gateway, cluster: Cluster, real: Real, place: Path) -> None:
    somebody = gateway.user("direct-late")
    gateway.bind(cluster.id, somebody)
    switch(cluster, real, on=True)
    until(lambda: somebody.request("GET", cluster.path("/api/v1/namespaces")).status == 200)
    mine, _ = configured(somebody, cluster, place / "late.kubeconfig")
    until(lambda: "kube-system" in directly(mine, "get", "namespaces"))
    switch(cluster, real, on=False)
    until(lambda: "kube-system" not in directly(mine, "get", "namespaces"))
    until(lambda: "cluster.cattle.io" not in kubectl(real.kubeconfig, "get", "crds", "-o", "name"))
    until(lambda: "remuda.dev/authorized-endpoint" not in cluster.managed()["metadata"].get("annotations", {}))
