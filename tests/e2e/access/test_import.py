"""A cluster that is there already is imported: one manifest, an agent, and it is Ready; it is cut, heals, and is left clean.

Nothing runs pods in the cluster of this test, so its agent is a process beside it, as the Deployment's pod would be.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .harness import MANAGED, Agent, Cluster, Embedded, Gateway, until
from .test_agent import ended

pytestmark = pytest.mark.story

Obj = dict[str, Any]


@pytest.fixture(scope="module")
def cluster(gateway: Gateway) -> Cluster:
    return gateway.cluster("theirs")


@pytest.fixture(scope="module")
def applied(gateway: Gateway, downstream: Embedded, cluster: Cluster) -> list[Obj]:
    """The manifest's objects, applied."""
    answer = cluster.manifest()
    assert answer.headers["content-type"].startswith("text/plain")
    head = gateway.nobody().request("HEAD", f"/v3/import/{cluster.token()}_{cluster.id}.yaml")
    assert (head.status, head.raw) == (200, b"")
    found = [dict(each) for each in yaml.safe_load_all(answer.raw)]
    for obj in found:
        path = _path(obj)
        sent = json.dumps(obj).encode()
        done = downstream.endpoint().request(
            "PATCH", f"{path}?fieldManager=kubectl", sent, {"Content-Type": "application/apply-patch+yaml"}
        )
        assert done.status in (200, 201), (path, done.body)
    return found


def _path(obj: Obj) -> str:
    version, kind, metadata = obj["apiVersion"], obj["kind"].lower(), obj["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    inside = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{root}{inside}/{kind}s/{metadata['name']}"


@pytest.fixture(scope="module")
def agent(cluster: Cluster, downstream: Embedded, applied: list[Obj]) -> Iterator[Agent]:
    running = Agent(cluster, downstream)
    running.start()
    yield running
    running.kill()


def test_a_cluster_waits_to_be_connected(cluster: Cluster) -> None:
    found = cluster.until("Connected", "False")
    assert (found["reason"], found["message"]) == ("Disconnected", "Cluster agent is not connected")
    until(lambda: cluster.condition("Provisioned").get("message") == "waiting for full cluster configuration")


def test_the_cluster_that_the_server_runs_on_needs_no_agent(gateway: Gateway) -> None:
    local = Cluster(gateway, "local", "local")
    local.until("Ready", "True")
    assert local.managed()["status"]["version"]["gitVersion"].startswith("v1.")
    assert gateway.nobody().request("GET", f"/v3/import/{'b' * 54}_local.yaml").status == 400


def test_an_import_with_another_token_is_refused(gateway: Gateway, cluster: Cluster) -> None:
    answers = []
    for token in (cluster.token("node-token"), "b" * 54):
        answers.append(gateway.nobody().request("GET", f"/v3/import/{token}_{cluster.id}.yaml"))
    answers.append(gateway.nobody().request("GET", f"/v3/import/{cluster.token()}_c-m-another.yaml"))
    assert {(answer.status, answer.raw) for answer in answers} == {(400, b"invalid import address")}


def test_an_imported_cluster_becomes_ready(cluster: Cluster, agent: Agent, downstream: Embedded) -> None:
    cluster.until("Ready", "True")
    for kind in ("Connected", "Provisioned", "Waiting", "AgentDeployed"):
        cluster.until(kind, "True")
    status = cluster.managed()["status"]
    assert status["apiEndpoint"] == f"https://127.0.0.1:{downstream.port}"
    assert status["version"]["gitVersion"].startswith("v1.")
    assert status["driver"] == "imported"


def test_its_nodes_are_known(gateway: Gateway, cluster: Cluster, agent: Agent, downstream: Embedded) -> None:
    cluster.until("Ready", "True")
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one", "labels": labels}}
    has = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    downstream.endpoint().request("POST", "/api/v1/nodes", json.dumps(node).encode(), {"Content-Type": "application/json"})
    downstream.endpoint().request(
        "PATCH",
        "/api/v1/nodes/one/status",
        json.dumps({"status": {"capacity": has, "allocatable": has}}).encode(),
        {"Content-Type": "application/merge-patch+json"},
    )
    path = f"/apis/management.cattle.io/v3/namespaces/{cluster.id}/nodes"

    def known() -> list[str]:
        found = gateway.endpoint.request("GET", path).json["items"]
        return [each.get("status", {}).get("nodeName", "") for each in found]

    until(lambda: known() == ["one"])
    until(lambda: cluster.status().get("capacity") == has)
    until(lambda: cluster.status().get("nodeCount") == 1)


def test_a_cut_is_noticed_and_heals(cluster: Cluster, agent: Agent) -> None:
    cluster.until("Ready", "True")
    agent.kill()
    cluster.until("Connected", "False")
    found = cluster.until("Ready", "False")
    assert (found["reason"], found["message"]) == ("Disconnected", "Cluster agent is not connected")
    agent.start()
    cluster.until("Ready", "True")


def test_a_new_token_reaches_the_agent_and_the_old_one_is_good_for_a_while(
    gateway: Gateway, cluster: Cluster, agent: Agent, downstream: Embedded
) -> None:
    cluster.until("Ready", "True")
    old = cluster.token()
    before = ended(gateway, cluster.id)
    crt = f"/apis/management.cattle.io/v3/namespaces/{cluster.id}/clusterregistrationtokens/default-token"
    asked = json.dumps({"metadata": {"annotations": {"remuda.dev/rotate-token": "please"}}}).encode()
    assert gateway.endpoint.request("PATCH", crt, asked, {"Content-Type": "application/merge-patch+json"}).status == 200
    until(lambda: cluster.token() not in ("", old))
    # An agent that has other things to do may be late with one answer.
    cluster.until("Connected", "True")
    assert ended(gateway, cluster.id) == before, "the agent with the old token stays"
    secrets = "/api/v1/namespaces/cattle-system/secrets"
    encoded = base64.b64encode(cluster.token().encode()).decode()

    def arrived() -> bool:
        items = downstream.endpoint().request("GET", secrets).json["items"]
        return any(each.get("data", {}).get("token") == encoded for each in items)

    until(arrived, log=gateway)


def test_no_token_is_in_any_log(gateway: Gateway, cluster: Cluster, agent: Agent, place: Path) -> None:
    token = cluster.token()
    assert token not in gateway.told() and token not in agent.told()
    assert token not in json.dumps(gateway.audit()) and gateway.audit()
    assert token not in json.dumps(cluster.managed())


def test_a_cluster_that_goes_is_left_clean(gateway: Gateway, cluster: Cluster, agent: Agent, downstream: Embedded) -> None:
    cluster.until("Ready", "True")
    names = ("/apis/apps/v1/namespaces/cattle-system/deployments/cattle-cluster-agent", "/api/v1/namespaces/cattle-system")
    assert [downstream.endpoint().request("GET", name).status for name in names] == [200, 200]
    assert gateway.endpoint.request("DELETE", f"{MANAGED}/{cluster.id}").status == 200
    until(lambda: gateway.endpoint.request("GET", f"{MANAGED}/{cluster.id}").status == 404)
    # The pod would be gone with its Deployment.
    agent.kill()
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    gone = [
        *names,
        f"{rbac}/clusterrolebindings/cattle-admin-binding",
        f"{rbac}/clusterroles/cattle-admin",
        f"{rbac}/clusterroles/proxy-clusterrole-kubeapiserver",
        "/api/v1/namespaces/cattle-impersonation-system",
    ]
    until(lambda: [downstream.endpoint().request("GET", name).status for name in gone] == [404] * len(gone))
