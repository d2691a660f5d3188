"""The rules where users meet them: at the API, beside those of provisioning, with what is really stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda import api
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.api.crd_installation import established, install
from remuda.apiserver.admission.chain import install as install_admission
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.app.embedded import running
from remuda.kube.clock import SYSTEM_CLOCK
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource
from remuda.provisioning.admission.clusters import admitted as of_provisioning
from remuda.provisioning.admission.provider_objects import admitted

Obj = dict[str, Any]
FLEET = "fleet-default"
GROUPS = (capi.GROUP, provisioning.GROUP, rke.GROUP)
DEMO: Obj = {
    "apiVersion": provisioning.API_VERSION,
    "kind": "Cluster",
    "metadata": {"name": "demo", "namespace": FLEET},
    "spec": {"kubernetesVersion": "v1.33.4+rke2r1", "rkeConfig": {"dataDirectories": {"systemAgent": "/srv/agent"}}},
}
PLANE: Obj = {
    "apiVersion": rke.API_VERSION,
    "kind": "RKEControlPlane",
    "metadata": {"name": "demo", "namespace": FLEET},
    "spec": {"clusterName": "demo", "managementClusterName": "c-m-bcdfg245"},
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(Config(tmp_path / "data", port=0)) as made:
        install_admission((*of_provisioning(made.source), *admitted(made.source)), made.hooks, made.converters)
        client = InProcessClient(made)
        await established(client, SYSTEM_CLOCK, await install(client, SYSTEM_CLOCK, api.crds(GROUPS), in_process=True))
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": FLEET}}
        await client.create(GroupVersionResource("", "v1", "namespaces"), namespace)
        yield made


async def test_a_running_cluster_is_protected_from_versions_and_directories_that_would_break_it(server: Server) -> None:
    client = InProcessClient(server)
    await client.create(provisioning.CLUSTERS, DEMO)
    plane = await client.create(rke.RKE_CONTROL_PLANES, PLANE)
    status = {"observedGeneration": 1, "initialization": {"controlPlaneInitialized": True}}
    await client.update(rke.RKE_CONTROL_PLANES, {**plane, "status": status}, subresource="status")

    async def refused(**spec: Any) -> set[str]:
        with pytest.raises(ApiError) as refusal:
            await client.patch(provisioning.CLUSTERS, "demo", {"spec": spec}, FLEET)
        assert refusal.value.code == 422
        return {cause["field"] for cause in (refusal.value.details or {})["causes"]}

    assert await refused(kubernetesVersion="v1.32.1+rke2r1") == {"spec.kubernetesVersion"}
    assert await refused(kubernetesVersion="v1.35.0+rke2r1") == {"spec.kubernetesVersion"}
    assert await refused(rkeConfig={"dataDirectories": {"systemAgent": "/other"}}) == {
        "spec.rkeConfig.dataDirectories.systemAgent"
    }
    after = await client.patch(provisioning.CLUSTERS, "demo", {"spec": {"kubernetesVersion": "v1.34.0+rke2r1"}}, FLEET)
    assert after["spec"]["kubernetesVersion"] == "v1.34.0+rke2r1"
