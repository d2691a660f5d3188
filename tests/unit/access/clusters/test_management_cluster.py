"""What a management Cluster always has: a namespace, two tokens in it, a Role for them; and what is there before any cluster."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from remuda.access.clusters import ManagedClusters, RegistrationTokens, local_clusters, system_namespaces
from remuda.access.clusters.projects import project_name
from remuda.access.rancher_conditions import condition_of
from remuda.api.management_cattle_io import API_VERSION, CLUSTER_REGISTRATION_TOKENS, CLUSTERS, PROJECTS
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.objects import GroupVersionResource, dig
from remuda.runtime import Reconciler
from tests.unit.access.management_api import SECRETS, Obj, Parts, World, world

ID = "c-m-bcdfg245"
ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "roles")


def everything(parts: Parts) -> Iterable[Reconciler]:
    yield ManagedClusters(parts.manager, parts.server)
    yield RegistrationTokens(parts.manager, parts.server, parts.entropy)
    yield system_namespaces(parts.manager)
    yield local_clusters(parts.manager)


async def tokens(made: World, cluster: str = ID) -> list[str]:
    return [crt["metadata"]["name"] for crt in await made.list(CLUSTER_REGISTRATION_TOKENS, cluster)]


async def test_a_cluster_gets_its_namespace_tokens_and_workspace() -> None:
    async with world(everything) as made:
        cluster = await made.cluster(ID, displayName="demo")
        await made.settle()
        namespace = await made.get(NAMESPACES, ID)
        assert namespace["metadata"]["ownerReferences"][0]["uid"] == cluster["metadata"]["uid"]
        assert await tokens(made) == ["default-token", "node-token"]
        role = await made.get(ROLES, "crt-token-reader", ID)
        names = ["crt-token-default-token", "crt-token-node-token"]
        assert role["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": names}]
        found = await made.get(CLUSTERS, ID)
        assert found["spec"]["fleetWorkspaceName"] == "fleet-default"
        condition = condition_of(found, "BackingNamespaceCreated")
        assert condition is not None and condition["status"] == "True"


async def test_each_cluster_gets_its_projects_and_local_does_too() -> None:
    async with world(everything) as made:
        await made.cluster(ID)
        await made.settle()
        for cluster in (ID, "local"):
            found = sorted(await made.list(PROJECTS, cluster), key=lambda project: project["spec"]["displayName"])
            assert [(each["spec"]["displayName"], list(each["metadata"]["labels"])) for each in found] == [
                ("Default", ["authz.management.cattle.io/default-project"]),
                ("System", ["authz.management.cattle.io/system-project"]),
            ]
            assert {each["spec"]["clusterName"] for each in found} == {cluster}


async def test_a_project_that_was_marked_as_the_default_takes_its_place() -> None:
    async with world(everything) as made:
        await made.cluster(ID)
        await made.settle()
        labels = {"authz.management.cattle.io/default-project": "true"}
        meta = {"name": "p-other", "namespace": ID, "labels": labels}
        await made.client.create(PROJECTS, {"apiVersion": API_VERSION, "kind": "Project", "metadata": meta, "spec": {}}, ID)
        await made.delete(PROJECTS, project_name(ID, "Default"), ID)
        await made.settle(60)
        assert {each["metadata"]["name"] for each in await made.list(PROJECTS, ID)} == {"p-other", project_name(ID, "System")}


async def test_nothing_is_written_when_nothing_changes() -> None:
    async with world(everything) as made:
        await made.cluster(ID)
        await made.settle(5)
        before = (await made.client.list(CLUSTERS))["metadata"]["resourceVersion"]
        # The slow look at everything comes by.
        await made.settle(1500)
        assert (await made.client.list(CLUSTERS))["metadata"]["resourceVersion"] == before


async def test_all_of_it_goes_with_the_cluster() -> None:
    async with world(everything) as made:
        await made.cluster(ID)
        await made.settle()
        await made.delete(CLUSTERS, ID)
        await made.settle(60)
        assert await made.find(NAMESPACES, ID) is None
        assert await made.list(CLUSTER_REGISTRATION_TOKENS, ID) == []


@pytest.mark.parametrize(
    ("resource", "name", "namespace"),
    [
        (NAMESPACES, ID, ""),
        (CLUSTER_REGISTRATION_TOKENS, "node-token", ID),
        (PROJECTS, project_name(ID, "Default"), ID),
        (ROLES, "crt-token-reader", ID),
    ],
)
async def test_what_is_deleted_by_hand_comes_back(resource: GroupVersionResource, name: str, namespace: str) -> None:
    async with world(everything) as made:
        await made.cluster(ID)
        await made.settle()
        old = await made.get(resource, name, namespace)
        token = await made.secret_text("crt-token-node-token", ID, "token")
        await made.delete(resource, name, namespace)
        await made.settle(120)
        assert (await made.get(resource, name, namespace))["metadata"]["uid"] != old["metadata"]["uid"]
        renewed = await made.secret_text("crt-token-node-token", ID, "token")
        assert (renewed == token) == (resource in (PROJECTS, ROLES)), (
            "a token that went with its object is worth nothing any more"
        )


async def test_a_role_that_was_widened_is_put_back() -> None:
    async with world(everything) as made:
        await made.cluster(ID)
        await made.settle()
        wanted = (await made.get(ROLES, "crt-token-reader", ID))["rules"]
        wider = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]
        await made.patch(ROLES, "crt-token-reader", {"rules": wider}, ID)
        await made.settle()
        assert (await made.get(ROLES, "crt-token-reader", ID))["rules"] == wanted


async def test_the_role_knows_every_token_there_is() -> None:
    async with world(everything) as made:
        await made.cluster(ID)
        await made.settle()
        crt = {"apiVersion": API_VERSION, "kind": "ClusterRegistrationToken", "metadata": {"name": "mine", "namespace": ID}}
        await made.create(CLUSTER_REGISTRATION_TOKENS, {**crt, "spec": {"clusterName": ID}})
        await made.settle()
        names = (await made.get(ROLES, "crt-token-reader", ID))["rules"][0]["resourceNames"]
        assert names == ["crt-token-default-token", "crt-token-mine", "crt-token-node-token"]
        assert len(await made.secret_text("crt-token-mine", ID, "token")) == 54


def squatted(**metadata: object) -> Obj:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ID, **metadata}}


async def test_no_token_is_put_into_a_foreign_namespace() -> None:
    async with world(everything) as made:
        await made.create(NAMESPACES, squatted())
        await made.cluster(ID)
        await made.settle(120)
        assert await tokens(made) == []
        condition = condition_of(await made.get(CLUSTERS, ID), "BackingNamespaceCreated")
        assert condition is not None and condition["status"] == "False"
        assert "was not made for this cluster" in condition["message"]
        await made.delete(CLUSTERS, ID)
        await made.settle(60)
        assert await made.find(NAMESPACES, ID) is not None, "and it is not taken down with the cluster either"


async def test_a_namespace_that_was_made_for_it_is_taken_over() -> None:
    async with world(everything) as made:
        await made.create(NAMESPACES, squatted(annotations={"management.cattle.io/system-namespace": "true"}))
        await made.cluster(ID)
        await made.settle()
        assert await tokens(made) == ["default-token", "node-token"]
        await made.delete(CLUSTERS, ID)
        await made.settle(60)
        assert await made.find(NAMESPACES, ID) is None


async def test_a_cluster_of_the_same_name_waits_until_the_old_ones_things_are_gone() -> None:
    async with world(everything) as made:
        await made.cluster(ID)
        await made.settle()
        token = await made.secret_text("crt-token-default-token", ID, "token")
        await made.delete(CLUSTERS, ID)
        await made.cluster(ID)
        await made.settle(120)
        assert await made.secret_text("crt-token-default-token", ID, "token") != token
        condition = condition_of(await made.get(CLUSTERS, ID), "BackingNamespaceCreated")
        assert condition is not None and condition["status"] == "True"


async def test_local_is_always_there_and_has_no_token_to_steal() -> None:
    async with world(everything) as made:
        local = await made.get(CLUSTERS, "local")
        assert dig(local, "spec", "internal") is True
        assert dig(local, "spec", "fleetWorkspaceName") == "fleet-local"
        assert await made.find(NAMESPACES, "local") is not None
        assert await made.list(SECRETS, "local") == []
        await made.delete(CLUSTERS, "local")
        await made.settle(60)
        again = await made.get(CLUSTERS, "local")
        assert again["metadata"]["uid"] != local["metadata"]["uid"]


async def test_the_servers_own_namespaces_are_always_there() -> None:
    async with world(everything) as made:
        for name in ("cattle-system", "cattle-global-data"):
            before = await made.get(NAMESPACES, name)
            await made.delete(NAMESPACES, name)
            await made.settle(60)
            assert (await made.get(NAMESPACES, name))["metadata"]["uid"] != before["metadata"]["uid"]


async def test_who_manages_a_cluster_elsewhere_chooses_its_workspace() -> None:
    async with world(everything) as made:
        metadata = {"name": ID, "annotations": {"provisioning.cattle.io/externally-managed": "true"}}
        await made.create(CLUSTERS, {"apiVersion": API_VERSION, "kind": "Cluster", "metadata": metadata, "spec": {}})
        await made.settle()
        assert "fleetWorkspaceName" not in (await made.get(CLUSTERS, ID))["spec"]
