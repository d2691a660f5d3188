"""Deleting either of the two Clusters removes both, and all that was made for them, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.access.rancher_conditions import condition_of, is_true
from remuda.api import crds
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api.cluster_x_k8s_io import API_VERSION as CAPI_VERSION
from remuda.api.cluster_x_k8s_io import CLUSTERS as CAPI_CLUSTERS
from remuda.api.cluster_x_k8s_io import GROUP as CAPI_GROUP
from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.kube.builtin_resources import CRDS, NAMESPACES
from remuda.kube.wrangler import marks
from tests.unit.access.management_api import SECRETS, Obj, World, world

from .mirrored_clusters import FLEET, connect, demo, everything, others

RKE: Obj = {"kubernetesVersion": "v1.34.1+rke2r1", "rkeConfig": {}}


async def connected(made: World, **spec: Any) -> str:
    await made.wanted("demo", **spec)
    await made.settle(3)
    name: str = (await demo(made))["status"]["clusterName"]
    await connect(made, name)
    await made.settle(3)
    assert (await demo(made))["status"]["clientSecretName"] == "demo-kubeconfig"
    return name


async def nothing_left(made: World, name: str) -> None:
    assert await made.find(provisioning.CLUSTERS, "demo", FLEET) is None
    assert await others(made) == []
    assert await made.find(NAMESPACES, name) is None
    assert await made.find(SECRETS, "demo-kubeconfig", FLEET) is None
    assert await made.list(management.USERS) == await made.list(management.TOKENS) == []


@pytest.mark.parametrize("side", ["wanted", "managed"])
@pytest.mark.parametrize("spec", [{}, RKE], ids=["import", "administrated"])
async def test_deletion_from_either_side_removes_both(side: str, spec: Obj) -> None:
    async with world(everything) as made:
        name = await connected(made, **spec)
        if side == "wanted":
            await made.delete(provisioning.CLUSTERS, "demo", FLEET)
        else:
            await made.delete(management.CLUSTERS, name)
        await made.settle(60)
        await nothing_left(made, name)


@pytest.mark.parametrize("side", ["wanted", "managed"])
async def test_also_where_the_management_cluster_was_first(side: str) -> None:
    async with world(everything) as made:
        await made.cluster("c-abcde", displayName="prod")
        await made.settle(3)
        if side == "wanted":
            await made.delete(provisioning.CLUSTERS, "c-abcde", FLEET)
        else:
            await made.delete(management.CLUSTERS, "c-abcde")
        await made.settle(60)
        assert await made.find(provisioning.CLUSTERS, "c-abcde", FLEET) is None
        assert await others(made) == []
        assert await made.find(NAMESPACES, "c-abcde") is None


async def test_a_cluster_that_went_at_once_leaves_nothing() -> None:
    async with world(everything) as made:
        await made.wanted("demo")
        await made.delete(provisioning.CLUSTERS, "demo", FLEET)
        await made.settle(60)
        assert await made.find(provisioning.CLUSTERS, "demo", FLEET) is None and await others(made) == []


async def test_the_same_name_again_is_another_cluster() -> None:
    async with world(everything) as made:
        first = await connected(made)
        await made.delete(provisioning.CLUSTERS, "demo", FLEET)
        await made.settle(60)
        second = await connected(made)
        assert second != first


async def test_a_foreign_finalizer_is_waited_for() -> None:
    async with world(everything) as made:
        name = await connected(made)
        there = await made.get(management.CLUSTERS, name)
        finalizers = [*there["metadata"]["finalizers"], "example.com/clean-up"]
        await made.patch(management.CLUSTERS, name, {"metadata": {"finalizers": finalizers}})
        await made.delete(provisioning.CLUSTERS, "demo", FLEET)
        await made.settle(60)
        assert await made.find(provisioning.CLUSTERS, "demo", FLEET) is None
        left = await made.get(management.CLUSTERS, name)
        assert left["metadata"]["finalizers"] == ["example.com/clean-up"]
        assert await made.find(NAMESPACES, name) is not None, "who cleans up may need what is in it"
        await made.patch(management.CLUSTERS, name, {"metadata": {"finalizers": None}})
        await made.settle(60)
        await nothing_left(made, name)


async def test_the_feature_is_free_again_with_the_last_one() -> None:
    async with world(everything) as made:
        await made.create(
            management.FEATURES,
            {"apiVersion": management.API_VERSION, "kind": "Feature", "metadata": {"name": "rke2"}, "spec": {}},
        )
        for name in ("one", "two"):
            await made.wanted(name, **RKE)
        await made.settle(3)
        await made.delete(provisioning.CLUSTERS, "one", FLEET)
        await made.settle(10)
        assert (await made.get(management.FEATURES, "rke2"))["status"] == {"lockedValue": True}
        await made.delete(provisioning.CLUSTERS, "two", FLEET)
        await made.settle(10)
        assert (await made.get(management.FEATURES, "rke2")).get("status") == {}


def capi(kind: str, name: str, spec: Obj, **metadata: object) -> Obj:
    meta = {"name": name, "namespace": FLEET, **metadata}
    return {"apiVersion": CAPI_VERSION, "kind": kind, "metadata": meta, "spec": spec}


def reference(kind: str) -> Obj:
    return {"apiGroup": "rke.cattle.io", "kind": kind, "name": "demo"}


async def with_machines(made: World) -> None:
    """What the rooms next door would make, with somebody's finalizers."""
    for crd in crds([CAPI_GROUP]):
        await made.create(CRDS, crd)
    await made.settle(3)
    labels, annotations = marks("rke-cluster", await demo(made))
    cluster = capi("Cluster", "demo", {"infrastructureRef": reference("RKECluster")}, labels=labels, annotations=annotations)
    cluster["metadata"]["finalizers"] = ["example.com/capi"]
    await made.create(CAPI_CLUSTERS, cluster)
    for name in ("m-2", "m-1"):
        spec = {
            "clusterName": "demo",
            "bootstrap": {"dataSecretName": "x"},
            "infrastructureRef": {"apiGroup": "rke.cattle.io", "kind": "CustomMachine", "name": name},
        }
        await made.create(MACHINES, capi("Machine", name, spec, labels={"cluster.x-k8s.io/cluster-name": "demo"}))


async def test_machines_go_before_the_cluster_does_and_are_named_while_they_are_waited_for() -> None:
    async with world(everything) as made:
        await connected(made, **RKE)
        await with_machines(made)
        await made.delete(provisioning.CLUSTERS, "demo", FLEET)
        await made.settle(20)
        found = await demo(made)
        removed = condition_of(found, "Removed")
        assert removed is not None and (removed["status"], removed["reason"]) == ("Unknown", "Waiting")
        assert removed["message"] == "waiting for machine [m-1] to delete"
        assert all(is_true(found, kind) for kind in ("Provisioned", "Waiting", "Pending", "Updated"))
        assert (await made.get(CAPI_CLUSTERS, "demo", FLEET))["metadata"]["deletionTimestamp"]
        for name in ("m-1", "m-2"):
            await made.delete(MACHINES, name, FLEET)
        await made.settle(20)
        removed = condition_of(await demo(made), "Removed")
        assert removed is not None and removed["message"] == "waiting for cluster-api cluster [demo] to delete"
        await made.patch(CAPI_CLUSTERS, "demo", {"metadata": {"finalizers": None}}, FLEET)
        await made.settle(60)
        assert await made.find(provisioning.CLUSTERS, "demo", FLEET) is None and await others(made) == []


async def test_a_foreign_cluster_api_cluster_stays() -> None:
    async with world(everything) as made:
        await connected(made, **RKE)
        for crd in crds([CAPI_GROUP]):
            await made.create(CRDS, crd)
        await made.settle(3)
        await made.create(CAPI_CLUSTERS, capi("Cluster", "demo", {"infrastructureRef": reference("TheirCluster")}))
        await made.delete(provisioning.CLUSTERS, "demo", FLEET)
        await made.settle(30)
        assert await made.find(provisioning.CLUSTERS, "demo", FLEET) is None
        assert "deletionTimestamp" not in (await made.get(CAPI_CLUSTERS, "demo", FLEET))["metadata"]
