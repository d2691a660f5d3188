"""Cluster API's core and provisioning in the same process as the API: definitions, rules, conversion, controllers, by choice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remuda.api import management_cattle_io as management
from remuda.api import plan_cattle_io as plan
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.api.cluster_x_k8s_io import API_VERSION, CLUSTERS, GROUP, MACHINE_HEALTH_CHECKS, OLD_API_VERSION
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.app.embedded import chosen, running
from remuda.kube.builtin_resources import CRDS
from remuda.kube.conditions import get
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource
from remuda.runtime.controller_table import UnknownController
from tests.waiting import until

Obj = dict[str, Any]
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
OLD_CLUSTERS = GroupVersionResource(GROUP, "v1beta1", "clusters")


def infra_ref(name: str, **more: str) -> Obj:
    return {"kind": "TestCluster", "name": name, **more}


def cluster(name: str, spec: Obj, api_version: str = API_VERSION) -> Obj:
    return {"apiVersion": api_version, "kind": "Cluster", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def provider_crd() -> Obj:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "testclusters.infra.test.io", "labels": {"cluster.x-k8s.io/v1beta2": "v7"}},
        "spec": {
            "group": "infra.test.io",
            "scope": "Namespaced",
            "names": {"plural": "testclusters", "singular": "testcluster", "kind": "TestCluster", "listKind": "TestClusterList"},
            "versions": [{"name": "v7", "served": True, "storage": True, "schema": schema}],
        },
    }


async def served(server: Server) -> InProcessClient:
    client = InProcessClient(server)
    for resource in (CLUSTERS, MACHINE_HEALTH_CHECKS):
        await until(lambda resource=resource: client.list(resource))  # type: ignore[misc]
    return client


async def test_the_core_is_there_with_its_controllers() -> None:
    async with running(Config(None), listen=False, choice=chosen("*")) as server:
        client = await served(server)
        await client.create(CRDS, provider_crd())
        await client.create(CLUSTERS, cluster("c1", {"infrastructureRef": infra_ref("c1", apiGroup="infra.test.io")}))

        async def reconciled() -> bool:
            found = await client.get(CLUSTERS, "c1", "default")
            return get(found, "InfrastructureReady") is not None and bool(found["metadata"].get("finalizers"))

        await until(reconciled)


async def test_old_clients_are_served_by_conversion_and_all_are_held_to_the_rules() -> None:
    async with running(Config(None), listen=False, choice=chosen("*")) as server:
        client = await served(server)
        await client.create(CRDS, provider_crd())
        old = cluster("c1", {"infrastructureRef": infra_ref("c1", apiVersion="infra.test.io/v7")}, OLD_API_VERSION)
        await client.create(OLD_CLUSTERS, old)
        found = await client.get(CLUSTERS, "c1", "default")
        assert found["spec"]["infrastructureRef"] == infra_ref("c1", apiGroup="infra.test.io")

        async def known() -> bool:
            shown = await client.get(OLD_CLUSTERS, "c1", "default")
            return bool(shown["spec"]["infrastructureRef"]["apiVersion"] == "infra.test.io/v7")

        await until(known)
        with pytest.raises(ApiError) as refused:
            await client.patch(CLUSTERS, "c1", {"spec": {"infrastructureRef": None, "paused": True}}, "default")
        assert refused.value.code == 422
        check = {
            "apiVersion": API_VERSION,
            "kind": "MachineHealthCheck",
            "metadata": {"name": "mhc", "namespace": "default"},
            "spec": {"clusterName": "c1", "selector": {"matchLabels": {"a": "b"}}},
        }
        made = await client.create(MACHINE_HEALTH_CHECKS, check)
        assert made["spec"]["checks"] == {"nodeStartupTimeoutSeconds": 600}


async def test_without_the_core_nothing_of_it_is_there() -> None:
    async with running(Config(None), listen=False, choice=chosen("-capi,-access")) as server:
        client = InProcessClient(server)
        await asyncio.sleep(0.3)
        assert (await client.list(CRDS))["items"] == []
        assert server.converters.get(GROUP, "clusters") is None


async def test_the_api_alone_still_has_the_rules_but_installs_nothing() -> None:
    async with running(Config(None), listen=False, controllers=False, choice=chosen("*")) as server:
        assert server.converters.get(GROUP, "clusters") is not None
        assert (await InProcessClient(server).list(CRDS))["items"] == []


def test_controllers_are_chosen_by_the_names_that_kubernetes_and_cluster_api_give_them() -> None:
    choice = chosen("*,-garbage-collector-controller,-machinehealthcheck")
    assert "garbage-collector-controller" not in choice
    assert "namespace-controller" in choice
    assert "machinehealthcheck" not in choice
    assert "machine" in choice
    with pytest.raises(UnknownController):
        chosen("discovery")


async def test_a_cluster_that_is_wanted_is_planned() -> None:
    async with running(Config(None), listen=False, choice=chosen("*")) as server:
        client = await served(server)
        for resource in (management.SETTINGS, provisioning.CLUSTERS, rke.RKE_CONTROL_PLANES, plan.BEACONS):
            await until(lambda resource=resource: client.list(resource))  # type: ignore[misc]
        await until(lambda: client.get(management.SETTINGS, "server-url"))
        await client.patch(management.SETTINGS, "server-url", {"value": "https://remuda.test"})
        await until(lambda: client.get(NAMESPACES, "fleet-default"))
        wanted = {
            "apiVersion": provisioning.API_VERSION,
            "kind": "Cluster",
            "metadata": {"name": "demo", "namespace": "fleet-default"},
            "spec": {"kubernetesVersion": "v1.34.1+remuda1", "rkeConfig": {}},
        }
        with pytest.raises(ApiError, match="kubernetesVersion"):
            without = {**wanted, "spec": {"rkeConfig": {}}}
            await client.create(provisioning.CLUSTERS, without, "fleet-default")
        await client.create(provisioning.CLUSTERS, wanted, "fleet-default")

        async def waits_for_machines() -> bool:
            found = await client.get(provisioning.CLUSTERS, "demo", "fleet-default")
            said = {each["type"]: each.get("message") for each in (found.get("status") or {}).get("conditions") or ()}
            return "to be registered" in (said.get("Ready") or "")

        await until(waits_for_machines)
        (beacon,) = (await client.list(plan.BEACONS))["items"]
        assert beacon["metadata"]["name"] == "demo"


async def test_without_provisioning_its_kinds_are_not_there() -> None:
    async with running(Config(None), listen=False, choice=chosen("*,-provisioning")) as server:
        client = await served(server)
        await until(lambda: client.list(provisioning.CLUSTERS))
        with pytest.raises(ApiError) as refused:
            await client.list(rke.RKE_CONTROL_PLANES)
        assert refused.value.is_not_found
