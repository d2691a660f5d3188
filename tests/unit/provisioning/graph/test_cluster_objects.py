"""The objects that a cluster without pools, of machines that register themselves, is made of."""

from __future__ import annotations

import base64
import gzip
import json
from typing import get_type_hints

import pytest

from remuda.api.provisioning_cattle_io.cluster_configuration import ClusterConfiguration
from remuda.kube.wrangler import marks
from remuda.provisioning.graph import Unrenderable, graph_of
from remuda.provisioning.graph.cluster_objects import CONFIGURATION, OPERATIONS

from .wanted_clusters import MANAGED, Obj, of_kind, one, pool, wish

CONFIGURED: Obj = {
    "machineGlobalConfig": {"cni": "canal", "profile": None},
    "chartValues": {},
    "registries": {"mirrors": {"docker.io": {"endpoint": ["https://m.test"]}}},
    "etcd": {"snapshotRetention": 5},
    "provisionGeneration": 2,
    "rotateCertificates": {"generation": 1},
    "etcdSnapshotCreate": {"generation": 3},
    "networking": None,
}


def test_custom_machines_need_four_objects_of_the_same_name() -> None:
    graph = graph_of(wish(), MANAGED)
    assert [(each.obj["apiVersion"], each.obj["kind"], each.resource.resource) for each in graph] == [
        ("rke.cattle.io/v1", "RKECluster", "rkeclusters"),
        ("rke.cattle.io/v1", "RKEControlPlane", "rkecontrolplanes"),
        ("cluster.x-k8s.io/v1beta2", "Cluster", "clusters"),
        ("plan.cattle.io/v1alpha1", "Beacon", "beacons"),
    ]
    assert {each.key for each in graph} == {("fleet-default", "demo")}


def test_every_object_says_where_it_comes_from() -> None:
    wanted = wish(pool(machineConfigRef={"apiVersion": "infra.test/v1", "kind": "TestMachineTemplate", "name": "x"}))
    labels, annotations = marks("rke-cluster", wanted)
    assert annotations["objectset.rio.cattle.io/owner-gvk"] == "provisioning.cattle.io/v1, Kind=Cluster"
    for each in graph_of(wanted, MANAGED):
        assert labels.items() <= each.obj["metadata"]["labels"].items()
        assert annotations.items() <= each.obj["metadata"]["annotations"].items()


def test_cluster_api_gets_the_references_of_providers() -> None:
    cluster = one(graph_of(wish(), MANAGED), "Cluster")
    assert cluster["spec"] == {
        "controlPlaneRef": {"apiGroup": "rke.cattle.io", "kind": "RKEControlPlane", "name": "demo"},
        "infrastructureRef": {"apiGroup": "rke.cattle.io", "kind": "RKECluster", "name": "demo"},
    }


def test_only_the_cluster_and_the_beacon_have_an_owner_and_cluster_api_adopts_the_rest() -> None:
    graph = graph_of(wish(), MANAGED)
    owner = {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "name": "demo", "uid": "u-1"}
    owners = {each.obj["kind"]: each.obj["metadata"].get("ownerReferences") for each in graph}
    assert owners == {
        "RKECluster": None,
        "RKEControlPlane": None,
        "Cluster": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        "Beacon": [owner],
    }


def test_the_control_plane_is_told_how_machines_are_configured_and_what_to_do() -> None:
    variables, endpoint = [{"name": "A", "value": "b"}], {"enabled": True, "fqdn": "x.test"}
    spec = {"agentEnvVars": variables, "localClusterAuthEndpoint": endpoint, "enableNetworkPolicy": True}
    wanted = wish(spec=spec, **CONFIGURED)
    found = one(graph_of(wanted, MANAGED), "RKEControlPlane")
    assert found["spec"] == {
        "machineGlobalConfig": {"cni": "canal", "profile": None},
        "chartValues": {},
        "registries": {"mirrors": {"docker.io": {"endpoint": ["https://m.test"]}}},
        "etcd": {"snapshotRetention": 5},
        "provisionGeneration": 2,
        "rotateCertificates": {"generation": 1},
        "etcdSnapshotCreate": {"generation": 3},
        "agentEnvVars": variables,
        "localClusterAuthEndpoint": endpoint,
        "kubernetesVersion": "v1.34.1+rke2r1",
        "clusterName": "demo",
        "managementClusterName": MANAGED,
    }


def test_all_there_is_of_a_configuration_is_copied() -> None:
    assert set(CONFIGURATION) == get_type_hints(ClusterConfiguration).keys()


def test_the_spec_travels_with_the_control_plane_but_for_operations() -> None:
    wanted = wish(pool(), infrastructureRef=None, **CONFIGURED)
    graph = graph_of(wanted, MANAGED, {"cp": {"metadata": {}}})
    packed = one(graph, "RKEControlPlane")["metadata"]["annotations"]["rke.cattle.io/cluster-spec"]
    unpacked = json.loads(gzip.decompress(base64.b64decode(packed)))
    kept = {field: value for field, value in wanted["spec"]["rkeConfig"].items() if field not in OPERATIONS}
    assert unpacked == {"kubernetesVersion": "v1.34.1+rke2r1", "rkeConfig": kept}


def test_the_same_wish_gives_the_same_bytes_whatever_its_order() -> None:
    wanted = wish(**CONFIGURED)
    shuffled = {**wanted, "spec": {**wanted["spec"], "rkeConfig": dict(reversed(list(CONFIGURED.items())))}}
    assert graph_of(wanted, MANAGED) == graph_of(shuffled, MANAGED)


def test_who_is_to_be_first_is_said_also_when_it_is_nobody() -> None:
    def label(wanted: Obj) -> str:
        found: str = one(graph_of(wanted, MANAGED), "RKEControlPlane")["metadata"]["labels"]["rke.cattle.io/init-node-machine-id"]
        return found

    assert label(wish()) == ""
    assert label(wish(labels={"rke.cattle.io/init-node-machine-id": "abc", "team": "a"})) == "abc"


def test_annotations_go_where_they_are_read() -> None:
    graph = graph_of(
        wish(
            annotations={
                "rke.cattle.io/delete-missing-custom-machines-after": "5m",
                "provisioning.cattle.io/rke2-prime-enabled": "true",
                "mine": "1",
            }
        ),
        MANAGED,
    )
    infra = one(graph, "RKECluster")["metadata"]["annotations"]
    plane = one(graph, "RKEControlPlane")["metadata"]["annotations"]
    assert infra["rke.cattle.io/delete-missing-custom-machines-after"] == "5m"
    assert plane["provisioning.cattle.io/rke2-prime-enabled"] == "true"
    assert "mine" not in infra and "mine" not in plane


def test_the_endpoint_is_not_generated_so_that_users_can_give_one() -> None:
    assert one(graph_of(wish(), MANAGED), "RKECluster")["spec"] == {}


def test_a_cluster_may_have_foreign_infrastructure() -> None:
    graph = graph_of(wish(infrastructureRef={"apiVersion": "infra.test/v1", "kind": "TestCluster", "name": "x"}), MANAGED)
    assert of_kind(graph, "RKECluster") == []
    assert one(graph, "Cluster")["spec"]["infrastructureRef"] == {"apiGroup": "infra.test", "kind": "TestCluster", "name": "x"}


@pytest.mark.parametrize("paused", [None, "true"])
def test_the_autoscaler_finds_clusters_with_pools_that_may_grow(paused: str | None) -> None:
    named = {"apiVersion": "infra.test/v1", "kind": "TestMachineTemplate", "name": "x"}
    annotations = {"provisioning.cattle.io/cluster-autoscaler-paused": paused} if paused else {}
    wanted = wish(pool(autoscalingMinSize=1, autoscalingMaxSize=3, machineConfigRef=named), annotations=annotations)
    said = one(graph_of(wanted, MANAGED), "Cluster")["metadata"]["annotations"]
    enabled, stopped = (said.get(f"provisioning.cattle.io/cluster-autoscaler-{each}") for each in ("enabled", "paused"))
    assert (enabled, stopped) == ((None, "true") if paused else ("true", None))


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (wish(spec={"kubernetesVersion": ""}), "spec.kubernetesVersion"),
        (wish(infrastructureRef={"kind": "TestCluster", "name": "x"}), "spec.rkeConfig.infrastructureRef"),
        (wish(infrastructureRef={"apiVersion": "infra.test/v1", "kind": "TestCluster"}), "spec.rkeConfig.infrastructureRef"),
    ],
)
def test_what_can_not_be_made_names_the_field(wanted: Obj, field: str) -> None:
    with pytest.raises(Unrenderable, match=field):
        graph_of(wanted, MANAGED)
