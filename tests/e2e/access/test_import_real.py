"""A real kube-apiserver is imported, as people do it: real kubectl applies the manifest, and takes nothing amiss."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import MANAGED, Agent, Gateway, Real, kubectl, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def real(place: Path) -> Iterator[Real]:
    with Real(place / "real") as started:
        yield started


def test_a_real_cluster_is_imported_and_left_clean(gateway: Gateway, real: Real) -> None:
    cluster = gateway.cluster("real")
    manifest = cluster.manifest().raw.decode()
    kubectl(real.kubeconfig, "apply", "--validate=strict", "-f", "-", input=manifest)
    with Agent(cluster, real):
        cluster.until("Ready", "True")
        status = cluster.managed()["status"]
        told = kubectl(real.kubeconfig, "version", "-o", "json")
        assert status["version"]["gitVersion"] in told
        before = kubectl(real.kubeconfig, "-n", "cattle-system", "get", "deployment", "cattle-cluster-agent", "-o", "name")
        assert before.strip() == "deployment.apps/cattle-cluster-agent"
        assert gateway.endpoint.request("DELETE", f"{MANAGED}/{cluster.id}").status == 200
        until(lambda: gateway.endpoint.request("GET", f"{MANAGED}/{cluster.id}").status == 404)
    left = ("namespace/cattle-system", "clusterrole/cattle-admin", "clusterrolebinding/cattle-admin-binding")
    until(lambda: kubectl(real.kubeconfig, "get", "--ignore-not-found", *left, "-o", "name", check=False).strip() == "")
