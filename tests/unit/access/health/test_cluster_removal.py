"""A cluster that is let go is left as it was found: without what was ours, and with everything that was not."""

from __future__ import annotations

from typing import Any, cast

import pytest

from remuda.access.health.cluster_removal import (
    BINDINGS,
    DEPLOYMENTS,
    FINALIZER,
    ROLES,
    SECRETS,
    SERVICES,
    RemainingObjects,
    clean,
)
from remuda.access.settings.settings import Settings
from remuda.api.management_cattle_io import CLUSTERS
from remuda.client.interface import Client
from remuda.gateway.proxy.impersonation import Grant, objects_for
from remuda.gateway.registration.agent_manifest import ManifestInputs, objects
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.objects import GroupVersionKind, GroupVersionResource, annotations_of, name_of, namespace_of
from tests.unit.access.management_api import EVENTS

from .downstream_clusters import DEPLOYED, ID, Place, place

Obj = dict[str, Any]
ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")


async def create(found: Place, obj: Obj) -> None:
    group, version, kind = GroupVersionKind.of(obj)
    plural = {"PodDisruptionBudget": "poddisruptionbudgets", "PriorityClass": "priorityclasses"}.get(kind, kind.lower() + "s")
    await found.below.create(GroupVersionResource(group, version, plural), obj, namespace_of(obj))


async def imported(found: Place, cluster: str = ID) -> None:
    """What one `kubectl apply` makes, and what users that came through us have."""
    custom = {"schedulingCustomization": {"priorityClass": {"value": 1}, "podDisruptionBudget": {"minAvailable": "1"}}}
    wanted = ManifestInputs(
        {"metadata": {"name": cluster}, "spec": {"clusterAgentDeploymentCustomization": custom}},
        Settings(),
        "https://r",
        "b" * 54,
    )
    for obj in objects(wanted):
        await create(found, obj)
    for _, obj in objects_for(Grant("u-abcde"), cluster):
        await create(found, obj)
    await found.up.patch(CLUSTERS, ID, {"status": DEPLOYED})
    await found.connect()


async def left(found: Place) -> list[str]:
    """Everything downstream that says it is ours, and our namespaces."""
    listed = []
    for resource in (BINDINGS, ROLES, NAMESPACES, DEPLOYMENTS, SECRETS, SERVICES, ACCOUNTS):
        for obj in (await found.below.list(resource))["items"]:
            if "remuda.dev/made-for" in annotations_of(obj) or name_of(obj).startswith("cattle-"):
                listed.append(f"{resource.resource} {name_of(obj)}")
    return sorted(listed)


async def told(found: Place) -> list[tuple[str, str]]:
    return [(event["reason"], event["message"]) for event in await found.up.list(EVENTS) if event["type"]]


async def test_nothing_of_ours_is_left_in_a_cluster_that_can_be_reached() -> None:
    async with place() as found:
        await imported(found)
        assert FINALIZER in (await found.cluster())["metadata"]["finalizers"]
        assert len(await left(found)) > 12
        await found.up.delete(CLUSTERS, ID)
        await found.up.settle(30)
        assert await found.up.find(CLUSTERS, ID) is None
        assert await left(found) == []
        assert ("DownstreamCleaned", "everything that we made in the cluster was removed") in await told(found)


async def test_the_account_that_cleans_is_there_until_the_end() -> None:
    """Its namespace takes it along: whoever deletes that first may do nothing more."""
    async with place() as found:
        await imported(found)
        asked: list[tuple[str, str]] = []

        class Followed:
            def __getattr__(self, verb: str) -> Any:
                async def call(resource: GroupVersionResource, *arguments: Any, **named: Any) -> Any:
                    asked.append((verb, f"{resource.resource} {arguments[0] if arguments else ''}"))
                    return await getattr(found.below, verb)(resource, *arguments, **named)

                return call

        await clean(cast(Client, Followed()), ID, RemainingObjects())
    assert asked[-1] == ("delete", "clusterrolebindings cattle-admin-binding")
    assert ("delete", "namespaces cattle-system") not in asked


async def test_foreign_objects_stay() -> None:
    async with place() as found:
        await imported(found)
        theirs = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "theirs", "namespace": "cattle-system"},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}},
            },
        }
        await create(found, theirs)
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "cattle-theirs"},
            "rules": [],
        }
        await create(found, role)
        other = {**role, "metadata": {"name": "others", "annotations": {"remuda.dev/made-for": "c-m-another"}}}
        await create(found, other)
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "x", "namespace": "cattle-impersonation-system"},
        }
        await create(found, account)
        await found.up.delete(CLUSTERS, ID)
        await found.up.settle(30)
        assert await found.up.find(CLUSTERS, ID) is None
        assert await left(found) == [
            "clusterroles cattle-theirs",
            "clusterroles others",
            "namespaces cattle-impersonation-system",
            "namespaces cattle-system",
        ]
        ((_, message),) = [each for each in await told(found) if each[0] == "DownstreamPartlyCleaned"]
        assert "namespaces cattle-system (deployments.apps theirs runs in it)" in message
        assert "it has service accounts of others, such as x" in message


async def test_a_namespace_that_another_server_made_is_left() -> None:
    async with place() as found:
        await imported(found, "c-m-another")
        await found.up.delete(CLUSTERS, ID)
        await found.up.settle(30)
        assert await found.up.find(CLUSTERS, ID) is None
        assert "namespaces cattle-system" in await left(found) and "clusterrolebindings cattle-admin-binding" in await left(found)


async def test_a_cluster_that_is_away_is_waited_for_and_then_let_go() -> None:
    async with place() as found:
        await imported(found)
        found.clusters.cut(ID)
        await found.up.delete(CLUSTERS, ID)
        await found.up.settle(50)
        assert await found.up.find(CLUSTERS, ID) is not None
        await found.up.settle(20)
        assert await found.up.find(CLUSTERS, ID) is None
        ((_, message),) = [each for each in await told(found) if each[0] == "DownstreamNotCleaned"]
        assert "its agent is not connected" in message and "cattle-system" in message


async def test_a_cluster_that_comes_back_in_time_is_cleaned() -> None:
    async with place() as found:
        await imported(found)
        found.clusters.cut(ID)
        await found.up.delete(CLUSTERS, ID)
        await found.up.settle(30)
        await found.connect()
        await found.up.settle(10)
        assert await found.up.find(CLUSTERS, ID) is None
        assert await left(found) == []


@pytest.mark.parametrize("contacted", [False, True])
async def test_a_cluster_with_nothing_to_clean_goes_at_once(contacted: bool) -> None:
    async with place() as found:
        if contacted:
            administrated = {"metadata": {"annotations": {"provisioning.cattle.io/administrated": "true"}}}
            await found.up.patch(CLUSTERS, ID, {"status": DEPLOYED, **administrated})
            await found.up.settle(1)
        await found.up.delete(CLUSTERS, ID)
        await found.up.settle(1)
        assert await found.up.find(CLUSTERS, ID) is None
