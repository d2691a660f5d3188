"""Where a cluster's API is found: by default on each node itself, or where somebody says."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.access.rancher_conditions import condition_of
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.provisioning.cluster.rkecluster import ApiEndpoint, Malformed, endpoint_of, owner_of
from tests.unit.access.management_api import World
from tests.unit.provisioning.graph.graph_controllers import VERSION, cluster_world

from .mirrored_clusters import FLEET

Obj = dict[str, Any]
LOCAL = {"host": "localhost", "port": 6443}
BALANCER = {"host": "lb.test", "port": 443}


def holding(endpoint: Obj | None) -> Obj:
    return {"spec": {"controlPlaneEndpoint": endpoint}} if endpoint is not None else {"spec": {}}


@pytest.mark.parametrize(
    ("infra", "cluster", "found"),
    [
        (None, None, ("localhost", 6443)),
        ({"host": "", "port": 0}, None, ("localhost", 6443)),
        (BALANCER, None, ("lb.test", 443)),
        (BALANCER, LOCAL, ("lb.test", 443)),
        (None, BALANCER, ("lb.test", 443)),
        (None, {"host": "https://lb", "port": 1}, ("localhost", 6443)),
        ({"host": "lb.test"}, None, ("lb.test", 6443)),
        ({"host": "10.0.0.1", "port": 6443}, None, ("10.0.0.1", 6443)),
        ({"host": "2001:db8::1", "port": 6443}, None, ("2001:db8::1", 6443)),
        ({"host": "LB.Test", "port": 6443}, None, ("LB.Test", 6443)),
    ],
)
def test_a_given_endpoint_is_kept(infra: Obj | None, cluster: Obj | None, found: tuple[str, int]) -> None:
    assert endpoint_of(holding(infra), holding(cluster)) == ApiEndpoint(*found)


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ({"port": 443}, "host must be set"),
        ({"host": "lb.test", "port": 70000}, "port 70000"),
        ({"host": "lb.test", "port": -1}, "port -1"),
        ({"host": "https://lb.test", "port": 443}, "without scheme"),
        ({"host": "[2001:db8::1]", "port": 443}, "without scheme, brackets"),
        ({"host": "lb.test:443", "port": 443}, "brackets or port"),
    ],
)
def test_what_can_not_be_an_endpoint_is_told_why(endpoint: Obj, why: str) -> None:
    with pytest.raises(Malformed, match=r"spec\.controlPlaneEndpoint: ") as raised:
        endpoint_of(holding(endpoint), holding(None))
    assert why in str(raised.value)


def test_the_owner_is_found_also_when_it_is_not_said_to_be_the_controller() -> None:
    reference = {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "name": "demo", "uid": "u-1"}
    infra = {"metadata": {"ownerReferences": [reference]}}
    cluster = {"metadata": {"name": "demo", "uid": "u-1"}}
    assert owner_of(infra, [{"metadata": {"name": "demo", "uid": "u-0"}}, cluster]) is cluster
    other = {"metadata": {"ownerReferences": [{**reference, "apiVersion": "provisioning.cattle.io/v1"}]}}
    assert owner_of(other, [cluster]) is None


async def custom(made: World) -> None:
    await made.wanted("demo", kubernetesVersion=VERSION, rkeConfig={})
    await made.settle(5)


async def infra_of(made: World) -> Obj:
    return await made.get(rke.RKE_CLUSTERS, "demo", FLEET)


async def endpoint_in(made: World) -> Obj | None:
    found: Obj | None = (await made.get(capi.CLUSTERS, "demo", FLEET))["spec"].get("controlPlaneEndpoint")
    return found


async def test_the_default_endpoint_is_on_each_node() -> None:
    async with cluster_world() as made:
        await custom(made)
        found = await infra_of(made)
        assert found["spec"]["controlPlaneEndpoint"] == await endpoint_in(made) == LOCAL
        assert found["status"] == {"initialization": {"provisioned": True}}


async def test_a_load_balancer_can_be_named_before_the_cluster_is() -> None:
    async with cluster_world() as made:
        metadata = {"name": "demo", "namespace": FLEET}
        spec = {"controlPlaneEndpoint": BALANCER}
        infra = {"apiVersion": rke.API_VERSION, "kind": "RKECluster", "metadata": metadata, "spec": spec}
        await made.create(rke.RKE_CLUSTERS, infra)
        await custom(made)
        assert (await infra_of(made))["spec"]["controlPlaneEndpoint"] == await endpoint_in(made) == BALANCER


async def test_a_load_balancer_can_be_named_later() -> None:
    async with cluster_world() as made:
        await custom(made)
        await made.patch(rke.RKE_CLUSTERS, "demo", {"spec": {"controlPlaneEndpoint": BALANCER}}, FLEET)
        await made.settle(5)
        assert (await infra_of(made))["spec"]["controlPlaneEndpoint"] == await endpoint_in(made) == BALANCER


async def test_nonsense_is_neither_passed_on_nor_overwritten() -> None:
    async with cluster_world() as made:
        await custom(made)
        nonsense = {"host": "https://lb.test", "port": 443}
        await made.patch(rke.RKE_CLUSTERS, "demo", {"spec": {"controlPlaneEndpoint": nonsense}}, FLEET)
        await made.settle(5)
        found = await infra_of(made)
        said = condition_of(found, "Ready") or {}
        assert said["status"] == "False" and "https://lb.test" in said["message"]
        assert found["spec"]["controlPlaneEndpoint"] == nonsense and await endpoint_in(made) == LOCAL
        assert found["status"]["initialization"]["provisioned"] is True, "which never changes back"
        await made.patch(rke.RKE_CLUSTERS, "demo", {"spec": {"controlPlaneEndpoint": BALANCER}}, FLEET)
        await made.settle(5)
        assert condition_of(await infra_of(made), "Ready") is None and await endpoint_in(made) == BALANCER


async def test_nothing_is_done_while_it_is_paused() -> None:
    async with cluster_world() as made:
        await custom(made)
        await made.patch(capi.CLUSTERS, "demo", {"spec": {"paused": True}}, FLEET)
        await made.settle(3)
        await made.patch(rke.RKE_CLUSTERS, "demo", {"spec": {"controlPlaneEndpoint": BALANCER}}, FLEET)
        await made.settle(5)
        assert await endpoint_in(made) == LOCAL
        await made.patch(capi.CLUSTERS, "demo", {"spec": {"paused": None}}, FLEET)
        await made.settle(5)
        assert await endpoint_in(made) == BALANCER


async def test_an_rkecluster_without_an_owner_waits() -> None:
    async with cluster_world() as made:
        metadata = {"name": "lonely", "namespace": FLEET}
        infra = {"apiVersion": rke.API_VERSION, "kind": "RKECluster", "metadata": metadata, "spec": {}}
        await made.create(rke.RKE_CLUSTERS, infra)
        await made.settle(30)
        assert "status" not in await made.get(rke.RKE_CLUSTERS, "lonely", FLEET)
