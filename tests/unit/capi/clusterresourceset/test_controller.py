"""The ClusterResourceSet controller on a management cluster in memory, with workload clusters that are."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

import pytest

from remuda.api import crds
from remuda.api.addons_cluster_x_k8s_io import API_VERSION, BINDINGS, GROUP, RESOURCE_SETS
from remuda.api.cluster_x_k8s_io import CLUSTERS
from remuda.capi.clusterresourceset import ClusterResourceSets
from remuda.capi.clusterresourceset.resources import SECRET_TYPE
from remuda.kube.builtin_resources import CONFIG_MAPS, CRDS, SECRETS
from remuda.kube.conditions import get
from remuda.kube.objects import dig, owner_references_of
from tests.unit.capi.memory_clusters import NAMESPACE, World, world

Obj = dict[str, Any]

NETWORK = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: network}
data: {mtu: "1450"}
---
apiVersion: v1
kind: Namespace
metadata: {name: network}
"""


def resource_set(*resources: tuple[str, str], **spec: Any) -> Obj:
    named = [{"kind": kind, "name": name} for kind, name in resources]
    wanted = {"clusterSelector": {"matchLabels": {"network": "flat"}}, "resources": named, **spec}
    metadata = {"name": "network", "namespace": NAMESPACE}
    return {"apiVersion": API_VERSION, "kind": "ClusterResourceSet", "metadata": metadata, "spec": wanted}


def config_map(text: str = NETWORK, name: str = "network") -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": {"a.yaml": text},
    }


def secret(kind: str = SECRET_TYPE) -> Obj:
    metadata = {"name": "network", "namespace": NAMESPACE}
    data = {"a.yaml": base64.b64encode(NETWORK.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": metadata, "data": data}


async def begun(made: World, *, connected: bool = True, labels: Obj | None = None) -> None:
    for definition in crds([GROUP]):
        await made.create(CRDS, definition)
    await made.settle(30)
    await made.cluster("c1")
    await made.patch(CLUSTERS, "c1", {"metadata": {"labels": {"network": "flat"} if labels is None else labels}})
    await made.initialize_control_plane("c1")
    await made.patch(CLUSTERS, "c1", {"status": {"initialization": {"controlPlaneInitialized": True}}}, "status")
    if connected:
        await made.workloads.connect("c1")
    await made.settle(5)


async def applied(made: World) -> tuple[str, str, str]:
    found = get(await made.get(RESOURCE_SETS, "network"), "ResourcesApplied") or {}
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


async def settings(made: World) -> Obj | None:
    """What is in the workload cluster."""
    workload = await made.workloads.connect("c1")
    listed: Iterable[Obj] = (await workload.client.list(CONFIG_MAPS, "network"))["items"]
    return next((each["data"] for each in listed if each["metadata"]["name"] == "settings"), None)


async def record(made: World) -> list[Obj]:
    binding = await made.get(BINDINGS, "c1")
    return list(dig(binding, "spec", "bindings"))


@pytest.mark.parametrize(("resource", "source"), [(CONFIG_MAPS, config_map()), (SECRETS, secret())], ids=["ConfigMap", "Secret"])
async def test_objects_are_put_into_the_selected_cluster_and_recorded(resource: Any, source: Obj) -> None:
    async with world(ClusterResourceSets) as made:
        await begun(made)
        await made.create(resource, source)
        await made.create(RESOURCE_SETS, resource_set((source["kind"], "network")))
        await made.settle(5)
        assert await settings(made) == {"mtu": "1450"}, "the namespace comes first"
        assert (await applied(made))[:2] == ("True", "Applied")
        (recorded,) = await record(made)
        assert recorded["clusterResourceSetName"] == "network"
        (entry,) = recorded["resources"]
        assert (entry["kind"], entry["name"], entry["applied"]) == (source["kind"], "network", True)
        assert entry["hash"].startswith("sha256:")
        owners = [each["kind"] for each in owner_references_of(await made.get(BINDINGS, "c1"))]
        assert owners == ["Cluster", "ClusterResourceSet"]
        assert [each["kind"] for each in owner_references_of(await made.get(resource, "network"))] == ["ClusterResourceSet"]


@pytest.mark.parametrize(("strategy", "after"), [("ApplyOnce", "1450"), ("Reconcile", "9000")])
async def test_a_change_follows_only_with_reconcile(strategy: str, after: str) -> None:
    async with world(ClusterResourceSets) as made:
        await begun(made)
        await made.create(CONFIG_MAPS, config_map())
        await made.create(RESOURCE_SETS, resource_set(("ConfigMap", "network"), strategy=strategy))
        await made.settle(5)
        await made.patch(CONFIG_MAPS, "network", {"data": {"a.yaml": NETWORK.replace("1450", "9000")}})
        await made.settle(5)
        assert await settings(made) == {"mtu": after}


async def test_another_cluster_and_one_that_is_not_ready_get_nothing() -> None:
    async with world(ClusterResourceSets) as made:
        await begun(made, labels={"network": "deep"})
        await made.create(CONFIG_MAPS, config_map())
        await made.create(RESOURCE_SETS, resource_set(("ConfigMap", "network")))
        await made.settle(5)
        assert await settings(made) is None
        assert await made.find(BINDINGS, "c1") is None
        await made.patch(CLUSTERS, "c1", {"metadata": {"labels": {"network": "flat"}}})
        await made.settle(5)
        assert await settings(made) == {"mtu": "1450"}


@pytest.mark.parametrize(
    ("source", "reason", "message"),
    [
        (None, "RetrievingResourceFailed", "ConfigMap network does not exist"),
        (config_map("a: [1"), "ApplyFailed", "ConfigMap network: "),
        (config_map("a: 1"), "ApplyFailed", "ConfigMap network has an object without apiVersion, kind or name"),
        (
            config_map("{apiVersion: v1, kind: Horse, metadata: {name: a}}"),
            "ApplyFailed",
            "ConfigMap network in cluster c1: v1 has no kind Horse in the cluster",
        ),
    ],
)
async def test_what_can_not_be_applied_is_told(source: Obj | None, reason: str, message: str) -> None:
    async with world(ClusterResourceSets) as made:
        await begun(made)
        if source is not None:
            await made.create(CONFIG_MAPS, source)
        await made.create(RESOURCE_SETS, resource_set(("ConfigMap", "network")))
        await made.settle(5)
        said = await applied(made)
        assert said[:2] == ("False", reason)
        assert said[2].startswith(message)
        assert (await record(made))[0]["resources"][0]["applied"] is False
        # Once it is right, it is applied.
        if source is None:
            await made.create(CONFIG_MAPS, config_map())
        else:
            await made.patch(CONFIG_MAPS, "network", {"data": {"a.yaml": NETWORK}})
        await made.settle(30)
        assert (await applied(made))[:2] == ("True", "Applied")


async def test_a_secret_of_another_type_is_not_copied() -> None:
    async with world(ClusterResourceSets) as made:
        await begun(made)
        await made.create(SECRETS, secret("Opaque"))
        await made.create(RESOURCE_SETS, resource_set(("Secret", "network")))
        await made.settle(5)
        assert (await applied(made))[:2] == ("False", "WrongSecretType")
        assert await settings(made) is None


async def test_it_waits_for_the_connection() -> None:
    async with world(ClusterResourceSets) as made:
        await begun(made, connected=False)
        await made.create(CONFIG_MAPS, config_map())
        await made.create(RESOURCE_SETS, resource_set(("ConfigMap", "network")))
        await made.settle(5)
        assert (await applied(made))[:2] == ("False", "RemoteClusterClientFailed")
        await made.workloads.connect("c1")
        await made.settle(5)
        assert await settings(made) == {"mtu": "1450"}


async def test_a_deleted_set_leaves_its_objects_and_no_record() -> None:
    async with world(ClusterResourceSets) as made:
        await begun(made)
        await made.create(CONFIG_MAPS, config_map())
        await made.create(RESOURCE_SETS, resource_set(("ConfigMap", "network")))
        await made.settle(5)
        await made.delete(RESOURCE_SETS, "network")
        await made.settle(30)
        assert await made.find(RESOURCE_SETS, "network") is None
        assert await settings(made) == {"mtu": "1450"}
        assert await record(made) == []
