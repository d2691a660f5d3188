"""Garbage collection on the real API."""

from __future__ import annotations

import asyncio
from typing import Any

from remuda.apiserver.server import Server
from remuda.kube.objects import GroupVersionResource
from tests.waiting import until

from .conftest import CONFIG_MAPS, NAMESPACES, Cluster, owner, running

Obj = dict[str, Any]
EVENTS = GroupVersionResource("", "v1", "events")
CLUSTER_ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")
ABSENT = "00000000-0000-4000-8000-000000000000"


async def test_dependents_follow_their_owner_in_the_background(cluster: Cluster) -> None:
    a = await cluster.config_map("a")
    b = await cluster.config_map("b", owner(a))
    await cluster.config_map("c", owner(b))
    await cluster.client.delete(CONFIG_MAPS, "a", "default", propagation="Background")
    assert await cluster.find(CONFIG_MAPS, "a", "default") is None
    await cluster.until_gone(CONFIG_MAPS, "c", "default")
    await cluster.until_gone(CONFIG_MAPS, "b", "default")


async def test_in_the_foreground_the_owner_goes_last(cluster: Cluster) -> None:
    a = await cluster.config_map("a")
    await cluster.config_map("b", owner(a, blockOwnerDeletion=True), finalizers=["example.com/hold"])
    await cluster.config_map("free", owner(a), finalizers=["example.com/hold"])
    await cluster.client.delete(CONFIG_MAPS, "a", "default", propagation="Foreground")

    async def going() -> bool:
        dependents = [await cluster.client.get(CONFIG_MAPS, name, "default") for name in ("b", "free")]
        return all("deletionTimestamp" in dependent["metadata"] for dependent in dependents)

    await until(going)
    await asyncio.sleep(0.3)
    held = await cluster.find(CONFIG_MAPS, "a", "default")
    assert held is not None
    assert held["metadata"]["finalizers"] == ["foregroundDeletion"]
    await cluster.client.patch(CONFIG_MAPS, "b", {"metadata": {"finalizers": None}}, "default")
    await cluster.until_gone(CONFIG_MAPS, "a", "default")
    assert await cluster.find(CONFIG_MAPS, "free", "default") is not None


async def test_orphans_lose_their_reference_and_stay(cluster: Cluster) -> None:
    a = await cluster.config_map("a")
    other = await cluster.config_map("other")
    await cluster.config_map("b", owner(a))
    await cluster.config_map("c", owner(a), owner(other))
    await cluster.client.delete(CONFIG_MAPS, "a", "default", propagation="Orphan")
    await cluster.until_gone(CONFIG_MAPS, "a", "default")
    b, c = await cluster.find(CONFIG_MAPS, "b", "default"), await cluster.find(CONFIG_MAPS, "c", "default")
    assert b is not None
    assert c is not None
    assert "ownerReferences" not in b["metadata"]
    assert [reference["name"] for reference in c["metadata"]["ownerReferences"]] == ["other"]


async def test_one_living_owner_keeps_an_object_and_dead_references_go(cluster: Cluster) -> None:
    a, b = await cluster.config_map("a"), await cluster.config_map("b")
    await cluster.config_map("c", owner(a), owner(b))
    await cluster.client.delete(CONFIG_MAPS, "a", "default")

    async def only_b() -> bool:
        c = await cluster.find(CONFIG_MAPS, "c", "default")
        assert c is not None
        return [reference["name"] for reference in c["metadata"]["ownerReferences"]] == ["b"]

    await until(only_b)


async def test_an_owner_that_never_was_takes_its_dependents(cluster: Cluster) -> None:
    a = await cluster.config_map("a")
    await cluster.config_map("b", {**owner(a), "name": "ghost", "uid": ABSENT})
    await cluster.config_map("c", {**owner(a), "uid": ABSENT})
    await cluster.until_gone(CONFIG_MAPS, "b", "default")
    await cluster.until_gone(CONFIG_MAPS, "c", "default")
    assert await cluster.find(CONFIG_MAPS, "a", "default") is not None


async def test_an_owner_in_another_namespace_is_no_owner(cluster: Cluster) -> None:
    await cluster.namespace("far")
    a = await cluster.config_map("a", namespace="far")
    b = await cluster.config_map("b", owner(a))
    await cluster.until_gone(CONFIG_MAPS, "b", "default")

    async def told() -> Obj | None:
        events = (await cluster.client.list(EVENTS, "default"))["items"]
        return next((event for event in events if event["reason"] == "OwnerRefInvalidNamespace"), None)

    event = await until(told)
    uid = a["metadata"]["uid"]
    assert event["message"] == (
        f'ownerRef [v1/ConfigMap, namespace: default, name: a, uid: {uid}] does not exist in namespace "default"'
    )
    assert event["involvedObject"]["uid"] == b["metadata"]["uid"]
    assert event["type"] == "Warning"


async def test_a_cluster_scoped_object_with_a_namespaced_owner_is_left_alone(cluster: Cluster) -> None:
    a = await cluster.config_map("a")
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "odd", "ownerReferences": [owner(a), {**owner(a), "name": "x", "uid": ABSENT}]},
        "rules": [],
    }
    await cluster.make(CLUSTER_ROLES, role)
    await cluster.client.delete(CONFIG_MAPS, "a", "default")
    await asyncio.sleep(0.3)
    assert await cluster.find(CLUSTER_ROLES, "odd") is not None


async def test_a_namespaced_object_may_have_a_cluster_scoped_owner(cluster: Cluster) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "boss"}, "rules": []}
    boss = await cluster.make(CLUSTER_ROLES, role)
    await cluster.config_map("b", owner(boss))
    await asyncio.sleep(0.2)
    assert await cluster.find(CONFIG_MAPS, "b", "default") is not None
    await cluster.client.delete(CLUSTER_ROLES, "boss")
    await cluster.until_gone(CONFIG_MAPS, "b", "default")


async def test_two_that_block_each_other_both_go(cluster: Cluster) -> None:
    a = await cluster.config_map("a")
    b = await cluster.config_map("b", owner(a, blockOwnerDeletion=True))
    back = {"metadata": {"ownerReferences": [owner(b, blockOwnerDeletion=True)]}}
    await cluster.client.patch(CONFIG_MAPS, "a", back, "default")
    await cluster.client.delete(CONFIG_MAPS, "a", "default", propagation="Foreground")
    await cluster.until_gone(CONFIG_MAPS, "a", "default")
    await cluster.until_gone(CONFIG_MAPS, "b", "default")


async def test_changes_while_no_controller_ran_are_processed(server: Server) -> None:
    async with running(server) as first:
        a = await first.config_map("a")
        held = await first.config_map("held")
        await first.config_map("b", owner(a))
        await first.config_map("c", owner(held))
    client = first.client
    await client.delete(CONFIG_MAPS, "a", "default")
    await client.delete(CONFIG_MAPS, "held", "default", propagation="Orphan")
    async with running(server) as second:
        await second.until_gone(CONFIG_MAPS, "b", "default")
        await second.until_gone(CONFIG_MAPS, "held", "default")
        c = await second.find(CONFIG_MAPS, "c", "default")
        assert c is not None
        assert "ownerReferences" not in c["metadata"]


async def test_a_namespace_owns_across_scopes_too(cluster: Cluster) -> None:
    namespace = await cluster.namespace("owning")
    await cluster.config_map("b", owner(namespace))
    await cluster.client.delete(NAMESPACES, "owning")
    await cluster.until_gone(CONFIG_MAPS, "b", "default")
