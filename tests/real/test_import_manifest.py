"""The manifest that imports a cluster, put to a real kube-apiserver: it takes all of it, twice, and knows every field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from remuda.access.settings.settings import Settings
from remuda.gateway.registration.agent_manifest import ManifestInputs, render
from tests.real import need
from tests.real.cluster import RealCluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

CUSTOM: dict[str, Any] = {
    "agentEnvVars": [{"name": "NO_PROXY", "value": "127.0.0.0/8"}],
    "desiredAssetsImage": "rancher/rancher-assets:head",
    "clusterAgentDeploymentCustomization": {
        "appendTolerations": [{"key": "mine", "operator": "Exists"}],
        "overrideResourceRequirements": {"limits": {"memory": "256Mi"}},
        "schedulingCustomization": {
            "priorityClass": {"value": 1000, "preemptionPolicy": "Never"},
            "podDisruptionBudget": {"minAvailable": "50%"},
        },
    },
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    need.programs("kubernetes", "etcd")
    with RealCluster(controllers=True, fsync=False) as started:
        yield started


@pytest.mark.parametrize("spec", [{}, CUSTOM], ids=["plain", "custom"])
def test_a_real_server_takes_the_manifest(cluster: RealCluster, spec: dict[str, Any]) -> None:
    config = "eyJhdXRocyI6e319"
    wanted = ManifestInputs(
        {"metadata": {"name": "c-m-abcdefgh"}, "spec": spec},
        Settings(),
        "https://remuda.example.com",
        "b" * 54,
        pull_secrets=(("registry", config),),
    )
    for _ in range(2):
        cluster.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=render(wanted))
    found = json.loads(cluster.kubectl("-n", "cattle-system", "get", "deployment", "cattle-cluster-agent", "-o", "json").stdout)
    assert found["spec"]["template"]["spec"]["serviceAccountName"] == "cattle"
