"""From one YAML and a registration command to a cluster that is managed, with nothing simulated but the nodes' pods."""

from __future__ import annotations

import pytest

from .conftest import DEMO, PATIENCE, WORKSPACE, Ranch, eventually

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(2400)]

FROM, TO = "v1.34.1+remuda1", "v1.35.0+remuda1"
_LEFT = (
    f"/api/v1/namespaces/{WORKSPACE}/secrets",
    f"/apis/rke.cattle.io/v1/namespaces/{WORKSPACE}/rkecontrolplanes",
    f"/apis/rke.cattle.io/v1/namespaces/{WORKSPACE}/rkeclusters",
    f"/apis/rke.cattle.io/v1/namespaces/{WORKSPACE}/rkebootstraps",
    f"/apis/rke.cattle.io/v1/namespaces/{WORKSPACE}/custommachines",
    f"/apis/plan.cattle.io/v1alpha1/namespaces/{WORKSPACE}/beacons",
    f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{WORKSPACE}/clusters",
    f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{WORKSPACE}/machines",
    f"/apis/rbac.authorization.k8s.io/v1/namespaces/{WORKSPACE}/rolebindings",
)


def left(ranch: Ranch) -> list[str]:
    return [f"{path}: {each['metadata']['name']}" for path in _LEFT for each in ranch.get(path)["items"]]


def test_a_host_becomes_a_cluster_that_is_upgraded_and_goes(ranch: Ranch) -> None:
    ranch.want(FROM)
    eventually(lambda: "to be registered" in ranch.says(), PATIENCE)
    before = left(ranch)
    ranch.host("h0")
    ranch.until_ready()
    eventually(lambda: ranch.nodes() == {"h0": FROM}, PATIENCE)
    ranch.change(kubernetesVersion=TO)
    # Whoever manages it may die meanwhile.
    assert not ranch.is_ready()
    ranch.gateway.kill()
    ranch.gateway.start()
    ranch.until_ready()
    eventually(lambda: ranch.nodes() == {"h0": TO}, PATIENCE)
    ranch.delete()
    eventually(lambda: not [each for each in left(ranch) if each not in before or DEMO in each], PATIENCE)


# Servers also come and go in test_lives.
@pytest.mark.variant
def test_members_of_etcd_come_and_go(own_ranch: Ranch) -> None:
    """Three servers and a worker; the first server goes, then another one comes."""
    ranch = own_ranch
    ranch.want(FROM)
    for name in ("h0", "h1", "h2"):
        ranch.host(name, "etcd", "controlplane")
    ranch.host("w0", "worker")
    ranch.until_ready()
    eventually(lambda: set(ranch.nodes()) == {"h0", "h1", "h2", "w0"}, PATIENCE)
    (first,) = ranch.init_node()
    ranch.remove_machine(first)
    ranch.until_ready()
    eventually(lambda: set(ranch.nodes()) == {"h0", "h1", "h2", "w0"} - {first}, PATIENCE)
    eventually(lambda: len(ranch.init_node()) == 1 and ranch.init_node() != [first], PATIENCE)
    (second,) = ranch.init_node()
    ranch.host("h3", "etcd", "controlplane")
    eventually(lambda: "h3" in ranch.nodes(), PATIENCE, f"h3 does not come: {ranch.says()}")
    ranch.until_ready()
    assert ranch.init_node() == [second]
    ranch.delete()
    eventually(lambda: not [each for each in left(ranch) if DEMO in each or "custom-" in each], PATIENCE)
