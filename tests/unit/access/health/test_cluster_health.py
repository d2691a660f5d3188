"""A cluster is looked after: by its agent's sessions, by what its API says, by its nodes and pods."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from remuda.access.health import cluster_health, nodesync
from remuda.access.health.downstream_caches import NODES, PODS, machine_name
from remuda.api.management_cattle_io import CLUSTERS
from remuda.api.management_cattle_io import NODES as MANAGEMENT_NODES
from remuda.kube.builtin_resources import NAMESPACES
from tests.unit.access.management_api import SECRETS

from .downstream_clusters import DEPLOYED, ID, Place, place
from .test_cluster_resources import node

Obj = dict[str, Any]


async def add_node(found: Place, name: str) -> None:
    made = node(name)
    created = await found.below.create(NODES, {"apiVersion": "v1", "kind": "Node", **made})
    await found.below.patch(NODES, name, {"status": {**made["status"], **ready("True")}}, subresource="status")
    assert created["metadata"]["name"] == name


def ready(status: str) -> Obj:
    return {"conditions": [{"type": "Ready", "status": status, "reason": "KubeletReady", "message": "well"}]}


async def add_pod(found: Place, name: str, on: str, cpu: str) -> None:
    asked = {"name": "x", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"nodeName": on, "containers": [asked]}}
    await found.below.create(PODS, pod, "default")


async def test_an_import_becomes_ready_when_it_is_connected() -> None:
    async with place() as found:
        assert await found.condition("Connected") == ("False", "Disconnected", "Cluster agent is not connected")
        assert (await found.condition("Provisioned"))[:2] == ("Unknown", "Pending")
        await found.up.patch(CLUSTERS, ID, {"status": DEPLOYED})
        await add_node(found, "one")
        await found.connect()
        for kind in ("Connected", "Ready", "Provisioned", "Waiting", "AgentDeployed"):
            assert (await found.condition(kind))[0] == "True"
        status = (await found.cluster())["status"]
        assert status["version"]["gitVersion"].startswith("v1.")
        assert (status["nodeCount"], status["capacity"]["cpu"], status["linuxWorkerCount"]) == (1, "2", 1)
        assert status["info"]["kubernetesVersion"] == status["version"]["gitVersion"]


async def test_a_cut_is_told_at_once_and_heals_by_itself() -> None:
    async with place() as found:
        await found.up.patch(CLUSTERS, ID, {"status": DEPLOYED})
        await found.connect()
        found.clusters.cut(ID)
        await found.up.settle(1)
        assert await found.condition("Connected") == ("False", "Disconnected", "Cluster agent is not connected")
        assert await found.condition("Ready") == ("False", "Disconnected", "Cluster agent is not connected")
        await found.connect()
        assert (await found.condition("Ready"))[0] == "True"


async def test_an_agent_that_does_not_answer_any_more_is_noticed_within_thirty_seconds() -> None:
    async with place() as found:
        await found.up.patch(CLUSTERS, ID, {"status": DEPLOYED})
        await found.connect()
        found.clusters.silent = "no answer to /ping within 5 s"
        await found.up.settle(18)
        assert await found.condition("Connected") == ("False", "Disconnected", "no answer to /ping within 5 s")
        found.clusters.silent = ""
        await found.up.settle(18)
        assert (await found.condition("Ready"))[0] == "True"


async def test_an_api_is_ill_when_it_fails_three_times() -> None:
    async with place() as found:
        await found.up.patch(CLUSTERS, ID, {"status": DEPLOYED})
        await found.connect()
        found.sick.ill = "etcd is away"
        await found.up.settle(28)
        assert (await found.condition("Ready"))[0] == "True"
        await found.up.settle(32)
        assert (await found.condition("Ready"))[:2] == ("False", "ComponentStatusFetchingFailure")
        assert "etcd is away" in (await found.condition("Ready"))[2]
        found.sick.ill = ""
        await found.up.settle(18)
        assert (await found.condition("Ready"))[0] == "True"


async def test_nothing_is_written_while_nothing_changes() -> None:
    async with place() as found:
        await found.up.patch(CLUSTERS, ID, {"status": DEPLOYED})
        await add_node(found, "one")
        await found.connect()
        await found.up.settle(60)
        before = await found.cluster()
        nodes = await found.up.list(MANAGEMENT_NODES, ID)
        await found.up.settle(300)
        assert await found.cluster() == before
        assert await found.up.list(MANAGEMENT_NODES, ID) == nodes


async def test_the_cluster_publishes_its_keys_and_they_are_kept() -> None:
    async with place() as found:
        await found.up.client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cattle-global-data"}}
        )
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"credential": "eA=="}}
        await found.up.client.create(SECRETS, secret, "cattle-global-data")
        await found.up.patch(CLUSTERS, ID, {"status": DEPLOYED})
        await found.connect()
        kept = await found.up.get(SECRETS, "s", "cattle-global-data")
        assert b'"kid"' in base64.b64decode(kept["data"]["jwks"]) and kept["data"]["credential"] == "eA=="


async def test_keys_are_kept_as_soon_as_there_is_a_place_for_them() -> None:
    async with place() as found:
        await found.up.client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cattle-global-data"}}
        )
        await found.up.patch(CLUSTERS, ID, {"status": {**DEPLOYED, "serviceAccountTokenSecret": ""}})
        await found.connect()
        assert (await found.condition("Ready"))[0] == "True"
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"credential": "eA=="}}
        await found.up.client.create(SECRETS, secret, "cattle-global-data")
        await found.up.patch(CLUSTERS, ID, {"status": DEPLOYED})
        await found.up.settle(2)
        assert b'"kid"' in base64.b64decode((await found.up.get(SECRETS, "s", "cattle-global-data"))["data"]["jwks"])


async def test_every_node_has_a_management_node() -> None:
    async with place() as found:
        await found.up.patch(CLUSTERS, ID, {"status": DEPLOYED})
        await add_node(found, "one")
        await found.connect()
        await add_node(found, "two")
        await found.up.settle(1)
        assert (await found.cluster())["status"]["nodeCount"] == 2, "that is told at once"
        await add_pod(found, "a", "one", "100m")
        await found.up.settle(15)
        nodes = {each["status"]["nodeName"]: each for each in await found.up.list(MANAGEMENT_NODES, ID)}
        assert {name: each["metadata"]["name"] for name, each in nodes.items()} == {
            "one": machine_name("one"),
            "two": machine_name("two"),
        }
        assert nodes["one"]["metadata"]["labels"] == {"management.cattle.io/nodename": "one"}
        assert nodes["one"]["status"]["requested"] == {"cpu": "100m", "pods": "1"}
        assert nodes["one"]["spec"]["worker"] is True
        told = {each["type"]: each["status"] for each in nodes["one"]["status"]["conditions"]}
        assert told == {"Registered": "True", "Provisioned": "True", "Ready": "True"}
        await found.up.settle(15)
        assert (await found.cluster())["status"]["requested"] == {"cpu": "100m", "pods": "1"}
        assert (await found.cluster())["status"]["nodeCount"] == 2


async def test_no_more_nodes_are_kept_than_a_cluster_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodesync, "MOST_NODES", 2)
    async with place() as found:
        await found.up.patch(CLUSTERS, ID, {"status": DEPLOYED})
        await found.connect()
        for name in ("one", "two", "three", "four"):
            await add_node(found, name)
            await found.up.settle(15)
        kept = {each["metadata"]["name"] for each in await found.up.list(MANAGEMENT_NODES, ID)}
        assert kept == {machine_name("one"), machine_name("two")}


async def test_a_management_node_follows_its_node_and_keeps_what_people_asked_for() -> None:
    async with place() as found:
        await found.up.patch(CLUSTERS, ID, {"status": DEPLOYED})
        await add_node(found, "one")
        await found.connect()
        await found.up.patch(MANAGEMENT_NODES, machine_name("one"), {"spec": {"desiredNodeUnschedulable": "drain"}}, ID)
        await found.below.patch(NODES, "one", {"status": ready("False")}, subresource="status")
        await found.up.settle(15)
        kept = await found.up.get(MANAGEMENT_NODES, machine_name("one"), ID)
        assert kept["spec"]["desiredNodeUnschedulable"] == "drain"
        assert {each["type"]: each["status"] for each in kept["status"]["conditions"]}["Ready"] == "False"
        await found.up.delete(MANAGEMENT_NODES, machine_name("one"), ID)
        await found.up.settle(15)
        assert await found.up.find(MANAGEMENT_NODES, machine_name("one"), ID) is not None, "it comes back"
        await found.below.delete(NODES, "one")
        await found.up.settle(15)
        assert await found.up.list(MANAGEMENT_NODES, ID) == []


async def test_nodes_that_went_while_the_cluster_was_away() -> None:
    async with place() as found:
        await found.up.patch(CLUSTERS, ID, {"status": DEPLOYED})
        await add_node(found, "one")
        await found.connect()
        found.clusters.cut(ID)
        await found.up.settle(15)
        await found.below.delete(NODES, "one")
        assert len(await found.up.list(MANAGEMENT_NODES, ID)) == 1, "as it was last seen"
        found.clusters.connect(ID, type(found.sick)(found.below))
        await found.up.settle(15)
        assert await found.up.list(MANAGEMENT_NODES, ID) == []
        assert (await found.cluster())["status"]["nodeCount"] == 0


async def test_a_cluster_behind_a_connection_is_looked_at_now_and_then() -> None:
    async with place() as found:
        found.sick.remote = True
        await found.up.patch(CLUSTERS, ID, {"status": DEPLOYED})
        await add_node(found, "one")
        await found.connect()
        assert (await found.cluster())["status"]["nodeCount"] == 1
        await found.up.settle(5)
        assert found.sick.watching == 0, "no connection waits there"
        await add_node(found, "two")
        await add_pod(found, "a", "one", "100m")
        await found.up.settle(75)
        status = (await found.cluster())["status"]
        assert (status["nodeCount"], status["requested"]) == (2, {"cpu": "100m", "pods": "1"})
        nodes = {each["status"]["nodeName"]: each for each in await found.up.list(MANAGEMENT_NODES, ID)}
        assert nodes["one"]["status"]["requested"] == {"cpu": "100m", "pods": "1"} and "two" in nodes


async def test_nodes_are_followed_also_between_health_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_health, "_API_EVERY", 1e9)
    async with place() as found:
        found.sick.remote = True
        await found.up.patch(CLUSTERS, ID, {"status": DEPLOYED})
        await found.connect()
        await add_node(found, "one")
        await found.up.settle(125)
        assert [each["status"]["nodeName"] for each in await found.up.list(MANAGEMENT_NODES, ID)] == ["one"]
