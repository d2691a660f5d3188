"""What is wanted has a management Cluster, and the other way round where that was first."""

from __future__ import annotations

import re

import pytest

from remuda import __version__
from remuda.access.rancher_conditions import condition_of, is_true
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.kube.builtin_resources import NAMESPACES
from tests.unit.access.management_api import EVENTS, Obj, world

from .mirrored_clusters import FLEET, connect, demo, everything, managed, others

RKE: Obj = {
    "kubernetesVersion": "v1.34.1+rke2r1",
    "rkeConfig": {
        "machineGlobalConfig": {"system-default-registry": "registry.test"},
        "registries": {"configs": {"registry.test": {"authConfigSecretName": "pull"}}},
        "dataDirectories": {"systemAgent": "/srv/agent"},
        "machinePools": [{"name": "cp", "etcdRole": True, "machineConfigRef": {"kind": "Amazonec2Config", "name": "x"}}],
    },
    "agentEnvVars": [{"name": "A", "value": "b"}],
    "enableNetworkPolicy": True,
    "localClusterAuthEndpoint": {"enabled": True, "fqdn": "x.test"},
}


async def test_an_import_becomes_a_management_cluster() -> None:
    async with world(everything) as made:
        await made.wanted("demo", annotations={"field.cattle.io/creatorId": "u-1", "field.cattle.io/description": "mine"})
        await made.settle(3)
        found = await demo(made)
        name = found["status"]["clusterName"]
        assert re.fullmatch(r"c-m-[bcdfghjklmnpqrstvwxz2456789]{8}", name)
        assert found["metadata"]["finalizers"] == ["wrangler.cattle.io/provisioning-cluster-remove"]
        assert found["metadata"]["annotations"]["provisioning.cattle.io/management-cluster-display-name"] == "demo"
        assert found["status"]["ready"] is False and found["status"]["agentDeployed"] is False
        assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
        assert found["status"]["fleetWorkspaceName"] == FLEET
        assert is_true(found, "Created") and is_true(found, "Reconciling")
        stalled = condition_of(found, "Stalled")
        assert stalled is not None and stalled["status"] == "False"
        there = await managed(made)
        assert there["spec"] == {
            "displayName": "demo",
            "fleetWorkspaceName": FLEET,
            "importedConfig": {},
            "description": "mine",
        }
        annotations = there["metadata"]["annotations"]
        assert annotations["provisioning.cattle.io/administrated"] == "false"
        assert annotations["field.cattle.io/creatorId"] == "u-1"
        assert annotations["objectset.rio.cattle.io/owner-name"] == "demo"
        assert there["metadata"]["finalizers"] == ["wrangler.cattle.io/mgmt-cluster-remove"]
        assert there["status"]["info"]["provisioningClusterRef"]["name"] == "demo"
        assert await made.find(NAMESPACES, name) is not None


async def test_what_is_to_be_made_is_told_all_that_follows() -> None:
    async with world(everything) as made:
        feature = {"apiVersion": management.API_VERSION, "kind": "Feature", "metadata": {"name": "rke2"}, "spec": {"value": None}}
        await made.create(management.FEATURES, feature)
        await made.wanted("demo", **RKE)
        await made.settle(3)
        there = await managed(made)
        assert there["metadata"]["annotations"]["provisioning.cattle.io/administrated"] == "true"
        assert there["spec"] == {
            "displayName": "demo",
            "fleetWorkspaceName": FLEET,
            "importedConfig": {},
            "agentEnvVars": [{"name": "A", "value": "b"}, {"name": "CATTLE_AGENT_VAR_DIR", "value": "/srv/agent"}],
            "enableNetworkPolicy": True,
            "localClusterAuthEndpoint": {"enabled": True, "fqdn": "x.test"},
            "desiredAgentImage": f"registry.test/remuda/cluster-agent:{__version__}",
            "clusterSecrets": {"privateRegistryURL": "registry.test", "privateRegistrySecret": "pull"},
        }
        assert there["status"]["provider"] == "rke2"
        assert there["status"]["info"]["machineProvider"] == "amazonec2"
        assert there["status"]["info"]["kubernetesVersion"] == "v1.34.1+rke2r1"
        assert (await made.get(management.FEATURES, "rke2"))["status"]["lockedValue"] is True


async def test_what_is_no_longer_wanted_goes_from_the_management_cluster_too() -> None:
    async with world(everything) as made:
        await made.wanted("demo", **RKE)
        await made.settle(3)
        await made.patch(provisioning.CLUSTERS, "demo", {"spec": {"agentEnvVars": None, "enableNetworkPolicy": None}}, FLEET)
        await made.patch(provisioning.CLUSTERS, "demo", {"metadata": {"labels": {"team": "a"}}}, FLEET)
        await made.settle(3)
        there = await managed(made)
        assert there["spec"]["agentEnvVars"] == [{"name": "CATTLE_AGENT_VAR_DIR", "value": "/srv/agent"}]
        assert "enableNetworkPolicy" not in there["spec"]
        assert there["metadata"]["labels"]["team"] == "a"
        assert (await demo(made))["status"]["observedGeneration"] == (await demo(made))["metadata"]["generation"]


async def test_hand_edits_are_put_back_and_told_and_what_others_say_stays() -> None:
    async with world(everything) as made:
        await made.wanted("demo", **RKE)
        await made.settle(3)
        name = (await managed(made))["metadata"]["name"]
        await made.patch(
            management.CLUSTERS, name, {"spec": {"displayName": "other", "theirs": "kept"}, "status": {"driver": "x"}}
        )
        await made.settle(3)
        there = await managed(made)
        assert there["spec"]["displayName"] == "demo"
        assert there["spec"]["theirs"] == "kept" and there["status"]["driver"] == "x"
        told = [event for event in await made.list(EVENTS, "default") if event["reason"] == "PutBack"]
        assert len(told) == 1 and "clusters.provisioning.cattle.io demo in namespace fleet-default" in told[0]["message"]


async def test_of_an_import_the_management_cluster_has_the_say_but_not_over_its_name() -> None:
    async with world(everything) as made:
        await made.wanted("demo", agentEnvVars=[{"name": "A", "value": "first"}])
        await made.settle(3)
        name = (await managed(made))["metadata"]["name"]
        assert (await managed(made))["spec"]["agentEnvVars"] == [{"name": "A", "value": "first"}]
        await made.patch(management.CLUSTERS, name, {"spec": {"agentEnvVars": [{"name": "A", "value": "x"}], "displayName": "y"}})
        await made.patch(provisioning.CLUSTERS, "demo", {"spec": {"agentEnvVars": [{"name": "A", "value": "z"}]}}, FLEET)
        await made.settle(3)
        there = await managed(made)
        assert there["spec"]["agentEnvVars"] == [{"name": "A", "value": "x"}]
        assert there["spec"]["displayName"] == "demo"


async def test_a_chosen_id_is_used() -> None:
    async with world(everything) as made:
        await made.wanted("demo", annotations={"provisioning.cattle.io/management-cluster-name": "c-m-chosen12"})
        await made.settle(3)
        assert (await demo(made))["status"]["clusterName"] == "c-m-chosen12"


async def test_an_id_that_can_not_be_one_is_refused() -> None:
    async with world(everything) as made:
        for number, name in enumerate(("kube-system", "local", "c-abcde", "C-M-X")):
            await made.wanted(f"demo{number}", annotations={"provisioning.cattle.io/management-cluster-name": name})
            await made.settle(3)
            created = condition_of(await demo(made, f"demo{number}"), "Created")
            assert created is not None and created["status"] == "False" and name in created["message"]
        assert await others(made) == []


@pytest.mark.parametrize("way", ["annotation", "status"])
async def test_no_user_takes_over_another_cluster(way: str) -> None:
    async with world(everything) as made:
        await made.wanted("victim")
        await made.settle(3)
        victim = (await demo(made, "victim"))["status"]["clusterName"]
        await connect(made, victim)
        said = {"provisioning.cattle.io/management-cluster-name": victim} if way == "annotation" else {}
        await made.wanted("thief", annotations=said)
        if way == "status":
            await made.patch(provisioning.CLUSTERS, "thief", {"status": {"clusterName": victim}}, FLEET, "status")
        await made.settle(10)
        created = condition_of(await demo(made, "thief"), "Created")
        assert created is not None and created["status"] == "False"
        assert "belongs to another cluster" in created["message"]
        assert (await made.get(management.CLUSTERS, victim))["spec"]["displayName"] == "victim"
        assert "clientSecretName" not in (await demo(made, "thief"))["status"]
        await made.delete(provisioning.CLUSTERS, "thief", FLEET)
        await made.settle(30)
        assert await made.find(management.CLUSTERS, victim) is not None


async def test_ready_stays_once_the_cluster_was_connected() -> None:
    async with world(everything) as made:
        await made.wanted("demo")
        await made.settle(3)
        name = (await demo(made))["status"]["clusterName"]
        await connect(made, name)
        await made.settle(3)
        found = await demo(made)
        assert found["status"]["ready"] is True
        reconciling = condition_of(found, "Reconciling")
        assert reconciling is not None and reconciling["status"] == "False"
        await connect(made, name, "False")
        await made.settle(3)
        assert (await demo(made))["status"]["ready"] is True


async def test_a_management_cluster_that_was_first_gets_the_other_one() -> None:
    async with world(everything) as made:
        labels, annotations = {"team": "a", "x.cattle.io/y": "z"}, {"mine": "1", "field.cattle.io/creatorId": "u-1"}
        metadata = {"name": "c-abcde", "labels": labels, "annotations": annotations}
        spec = {"displayName": "prod", "clusterAgentDeploymentCustomization": {"appendTolerations": [{"operator": "Exists"}]}}
        first = {"apiVersion": management.API_VERSION, "kind": "Cluster", "metadata": metadata, "spec": spec}
        await made.create(management.CLUSTERS, first)
        await made.settle(3)
        found = await demo(made, "c-abcde")
        assert found["status"]["clusterName"] == "c-abcde"
        assert found["spec"] == {"clusterAgentDeploymentCustomization": {"appendTolerations": [{"operator": "Exists"}]}}
        assert found["metadata"]["labels"].keys() == {"team", "objectset.rio.cattle.io/hash"}
        assert found["metadata"]["annotations"]["mine"] == "1"
        assert found["metadata"]["annotations"]["provisioning.cattle.io/management-cluster-display-name"] == "prod"
        assert len(await others(made)) == 1


async def test_local_is_in_its_own_workspace() -> None:
    async with world(everything) as made:
        await made.settle(3)
        found = await demo(made, "local", "fleet-local")
        assert found["status"]["clusterName"] == "local"
        assert (await made.get(management.CLUSTERS, "local"))["status"]["info"]["machineProvider"] == "local"


async def test_one_that_moves_takes_the_other_one_along() -> None:
    async with world(everything) as made:
        await made.cluster("c-abcde", displayName="prod")
        await made.settle(3)
        workspace = {"apiVersion": management.API_VERSION, "kind": "FleetWorkspace", "metadata": {"name": "team"}}
        await made.patch(management.CLUSTERS, "c-abcde", {"spec": {"fleetWorkspaceName": "team"}})
        await made.settle(3)
        assert await made.find(provisioning.CLUSTERS, "c-abcde", "team") is None, "nobody's namespace is filled by naming it"
        await made.create(management.FLEET_WORKSPACES, workspace)
        await made.settle(30)
        assert (await demo(made, "c-abcde", "team"))["status"]["clusterName"] == "c-abcde"
        assert await made.find(provisioning.CLUSTERS, "c-abcde", FLEET) is None
        assert await made.find(management.CLUSTERS, "c-abcde") is not None


async def test_a_name_of_old_without_its_cluster_is_told_so() -> None:
    async with world(everything) as made:
        await made.wanted("c-abcde")
        await made.settle(3)
        created = condition_of(await demo(made, "c-abcde"), "Created")
        assert created is not None and created["status"] == "False" and "does not exist" in created["message"]


async def test_nothing_is_written_when_nothing_changes() -> None:
    async with world(everything) as made:
        await made.wanted("demo", **RKE)
        await made.cluster("c-abcde", displayName="prod")
        await made.settle(3)
        await connect(made, (await demo(made))["status"]["clusterName"])
        await made.settle(10)
        before = (await made.client.list(NAMESPACES))["metadata"]["resourceVersion"]
        await made.settle(1300)
        assert (await made.client.list(NAMESPACES))["metadata"]["resourceVersion"] == before
