"""clusterctl's inventory lists the core and our providers, as long as nothing else is in their place."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from remuda import __version__
from remuda.api import crds
from remuda.api.clusterctl_cluster_x_k8s_io import API_VERSION, GROUP, PROVIDERS
from remuda.clusterctl.inventory import KEPT, core_inventory, provider_inventory
from remuda.clusterctl.providers import CORE, OURS
from remuda.kube.builtin_resources import CRDS, NAMESPACES
from remuda.kube.objects import labels_of, name_of, namespace_of
from remuda.runtime import Reconciler
from tests.real.build import peers
from tests.unit.access.management_api import Obj, Parts, World, world

NAMESPACE = "remuda-system"


def everything(parts: Parts) -> Iterable[Reconciler]:
    yield core_inventory(parts.manager, NAMESPACE)
    yield provider_inventory(parts.manager, NAMESPACE)


def entry(name: str, kind: str, provider: str = "cluster-api", namespace: str = "capi-system") -> Obj:
    meta = {"name": name, "namespace": namespace}
    return {
        "apiVersion": API_VERSION,
        "kind": "Provider",
        "metadata": meta,
        "type": kind,
        "providerName": provider,
        "version": "v1.2.3",
    }


async def listed(made: World) -> dict[str, Obj]:
    found = (await made.client.list(PROVIDERS))["items"]
    return {f"{namespace_of(each)}/{name_of(each)}": each for each in found}


async def defined(made: World, *namespaces: str) -> None:
    for name in namespaces:
        await made.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for definition in crds([GROUP]):
        await made.create(CRDS, definition)
    await made.settle(60)


async def test_the_core_and_our_providers_are_listed() -> None:
    async with world(everything) as made:
        await defined(made)
        found = await listed(made)
        assert {key: (each["providerName"], each["type"], each["version"]) for key, each in found.items()} == {
            "remuda-system/cluster-api": ("cluster-api", "CoreProvider", CORE.version),
            "remuda-system/bootstrap-remuda": ("remuda", "BootstrapProvider", f"v{__version__}"),
            "remuda-system/control-plane-remuda": ("remuda", "ControlPlaneProvider", f"v{__version__}"),
            "remuda-system/infrastructure-remuda": ("remuda", "InfrastructureProvider", f"v{__version__}"),
        }
        for key, each in found.items():
            assert labels_of(each) == {
                "clusterctl.cluster.x-k8s.io": "",
                "clusterctl.cluster.x-k8s.io/core": "inventory",
                "cluster.x-k8s.io/provider": key.partition("/")[2],
                KEPT: "true",
            }
        assert await made.find(NAMESPACES, NAMESPACE) is not None


def test_the_core_has_the_version_that_the_tests_compare_it_with() -> None:
    assert CORE.version == peers()["CLUSTER_API_VERSION"]


async def test_a_changed_or_deleted_entry_is_put_back() -> None:
    async with world(everything) as made:
        await defined(made)
        await made.client.delete(PROVIDERS, "infrastructure-remuda", NAMESPACE)
        await made.client.patch(PROVIDERS, "cluster-api", {"version": "v9.9.9"}, NAMESPACE)
        await made.settle(60)
        found = await listed(made)
        assert "remuda-system/infrastructure-remuda" in found
        assert found["remuda-system/cluster-api"]["version"] == CORE.version


@pytest.mark.parametrize("earlier", [True, False], ids=["before ours", "after ours"])
async def test_another_core_is_the_only_one(earlier: bool) -> None:
    async with world(everything, begin=not earlier) as made:
        await defined(made, "capi-system")
        await made.create(PROVIDERS, entry("cluster-api", "CoreProvider"))
        if earlier:
            made.begin()
        await made.settle(60)
        found = await listed(made)
        assert [key for key, each in found.items() if each["type"] == "CoreProvider"] == ["capi-system/cluster-api"]
        assert found["capi-system/cluster-api"]["version"] == "v1.2.3"
        assert {f"{NAMESPACE}/{each.label}" for each in OURS} <= found.keys()


async def test_one_of_ours_that_clusterctl_installed_is_its_own() -> None:
    async with world(everything, begin=False) as made:
        await defined(made, NAMESPACE)
        await made.create(PROVIDERS, entry("infrastructure-remuda", "InfrastructureProvider", "remuda", NAMESPACE))
        made.begin()
        await made.settle(60)
        assert (await listed(made))[f"{NAMESPACE}/infrastructure-remuda"]["version"] == "v1.2.3"


async def test_providers_of_others_stand_beside_ours() -> None:
    async with world(everything) as made:
        await defined(made)
        await made.create(PROVIDERS, entry("infrastructure-docker", "InfrastructureProvider", "docker", NAMESPACE))
        await made.settle(60)
        assert len(await listed(made)) == 5


def test_labels_are_those_of_the_directories_of_a_repository() -> None:
    assert [each.label for each in (CORE, *OURS)] == [
        "cluster-api",
        "bootstrap-remuda",
        "control-plane-remuda",
        "infrastructure-remuda",
    ]
