"""Objects are made, put back, taken away, and told of: the controllers at work, with Cluster API's core beside them."""

from __future__ import annotations

from typing import Any

from remuda.access.rancher_conditions import condition_of, is_true
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import management_cattle_io as management
from remuda.api import plan_cattle_io as plan
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.kube.objects import GroupVersionResource
from remuda.kube.waits import NOTES, Actor, Code
from tests.unit.access.management_api import EVENTS, World
from tests.unit.provisioning.cluster.mirrored_clusters import FLEET, demo, managed

from .graph_controllers import POD_CONFIGS, POD_TEMPLATES, SCHEMAS, VERSION, cluster_world, controllers

Obj = dict[str, Any]
PARTS = (rke.RKE_CLUSTERS, rke.RKE_CONTROL_PLANES, capi.CLUSTERS, plan.BEACONS)


async def custom(made: World, **rke_config: Any) -> None:
    await made.wanted("demo", kubernetesVersion=VERSION, rkeConfig=rke_config)
    await made.settle(5)


async def part(made: World, resource: GroupVersionResource, name: str = "demo") -> Obj:
    return await made.get(resource, name, FLEET)


async def told(made: World, kind: str) -> tuple[str, str, str]:
    found = condition_of(await demo(made), kind)
    assert found is not None, kind
    return found["status"], found.get("reason", ""), found.get("message", "")


async def plane_says(made: World, *conditions: Obj, **status: Any) -> None:
    """What the planner would write."""
    await made.patch(rke.RKE_CONTROL_PLANES, "demo", {"status": {"conditions": list(conditions), **status}}, FLEET, "status")
    await made.settle(3)


async def put_back(made: World) -> list[Obj]:
    return [event for event in await made.list(EVENTS, FLEET) if event["reason"] == "PutBack"]


async def test_a_cluster_of_custom_machines_becomes_cluster_apis() -> None:
    async with cluster_world() as made:
        await custom(made, machineGlobalConfig={"cni": "canal"})
        for resource in PARTS:
            assert (await part(made, resource))["metadata"]["labels"]["objectset.rio.cattle.io/hash"], resource
        plane = await part(made, rke.RKE_CONTROL_PLANES)
        assert plane["spec"]["machineGlobalConfig"] == {"cni": "canal"}
        assert plane["spec"]["managementClusterName"] == (await managed(made))["metadata"]["name"]
        assert plane["status"]["observedGeneration"] == plane["metadata"]["generation"]
        assert plane["status"]["agentConnected"] is False
        cluster = await part(made, capi.CLUSTERS)
        assert cluster["status"]["initialization"] == {"infrastructureProvisioned": True}
        assert cluster["spec"]["controlPlaneEndpoint"] == {"host": "localhost", "port": 6443}
        for resource in (rke.RKE_CLUSTERS, rke.RKE_CONTROL_PLANES):
            (owner,) = (await part(made, resource))["metadata"]["ownerReferences"]
            assert owner["uid"] == cluster["metadata"]["uid"], "Cluster API adopted it"
        assert is_true(await demo(made), "RKECluster")
        assert (await told(made, "Reconciling"))[0] == "True"
        finalizers = (await demo(made))["metadata"]["finalizers"]
        assert finalizers == ["wrangler.cattle.io/provisioning-cluster-remove", "wrangler.cattle.io/rke-cluster-remove"]


async def test_nothing_is_written_when_nothing_changes() -> None:
    async with cluster_world() as made:
        await custom(made, machineGlobalConfig={"cni": "canal"})
        # Until Cluster API has said that the cluster does not answer.
        await made.settle(600)
        before = (await made.client.list(capi.CLUSTERS))["metadata"]["resourceVersion"]
        await made.settle(1800)
        assert (await made.client.list(capi.CLUSTERS))["metadata"]["resourceVersion"] == before


async def test_an_import_is_left_alone() -> None:
    async with cluster_world() as made:
        await made.wanted("demo")
        await made.settle(5)
        assert await made.list(rke.RKE_CONTROL_PLANES) == await made.list(capi.CLUSTERS) == []
        assert condition_of(await demo(made), "RKECluster") is None


async def test_a_change_of_the_wish_reaches_the_control_plane() -> None:
    async with cluster_world() as made:
        await custom(made, machineGlobalConfig={"cni": "canal", "debug": True})
        change = {"kubernetesVersion": "v1.34.2+rke2r1", "rkeConfig": {"machineGlobalConfig": {"debug": None}}}
        await made.patch(provisioning.CLUSTERS, "demo", {"spec": change}, FLEET)
        await made.settle(3)
        spec = (await part(made, rke.RKE_CONTROL_PLANES))["spec"]
        assert spec["kubernetesVersion"] == "v1.34.2+rke2r1" and spec["machineGlobalConfig"] == {"cni": "canal"}
        assert await put_back(made) == []


async def test_hand_edits_are_put_back_and_told_and_what_others_say_stays() -> None:
    async with cluster_world() as made:
        await custom(made)
        edit = {"metadata": {"labels": {"mine": "1"}}, "spec": {"kubernetesVersion": "v1.1.1+rke2r1", "unmanagedConfig": True}}
        await made.patch(rke.RKE_CONTROL_PLANES, "demo", edit, FLEET)
        await made.settle(3)
        plane = await part(made, rke.RKE_CONTROL_PLANES)
        assert plane["spec"]["kubernetesVersion"] == VERSION
        assert plane["spec"]["unmanagedConfig"] is True and plane["metadata"]["labels"]["mine"] == "1"
        (event,) = await put_back(made)
        assert event["involvedObject"]["kind"] == "RKEControlPlane"
        assert "edit clusters.provisioning.cattle.io demo in namespace fleet-default instead" in event["message"]


async def test_deleted_objects_are_made_again_and_reported() -> None:
    async with cluster_world() as made:
        await custom(made)
        before = await part(made, plan.BEACONS)
        await made.delete(plan.BEACONS, "demo", FLEET)
        await made.settle(3)
        assert (await part(made, plan.BEACONS))["metadata"]["uid"] != before["metadata"]["uid"]
        (event,) = await put_back(made)
        assert event["involvedObject"]["kind"] == "Beacon" and "made anew" in event["message"]


async def test_a_deleted_cluster_of_cluster_api_goes_with_all_its_parts_and_comes_back() -> None:
    async with cluster_world() as made:
        await custom(made)
        before = {resource: (await part(made, resource))["metadata"]["uid"] for resource in PARTS[:3]}
        await made.delete(capi.CLUSTERS, "demo", FLEET)
        await made.settle(120)
        for resource, uid in before.items():
            assert (await part(made, resource))["metadata"]["uid"] != uid
        assert (await part(made, capi.CLUSTERS))["status"]["initialization"]["infrastructureProvisioned"] is True


async def test_another_ones_cluster_of_the_same_name_is_not_touched() -> None:
    async with cluster_world() as made:
        spec = {"controlPlaneRef": {"apiGroup": "other.test", "kind": "Other", "name": "demo"}}
        metadata = {"name": "demo", "namespace": FLEET}
        await made.create(capi.CLUSTERS, {"apiVersion": capi.API_VERSION, "kind": "Cluster", "metadata": metadata, "spec": spec})
        await custom(made)
        assert (await part(made, capi.CLUSTERS))["spec"]["controlPlaneRef"]["kind"] == "Other"
        status, reason, message = await told(made, "RKECluster")
        assert (status, reason) == ("False", "Error") and "Cluster fleet-default/demo is there already" in message
        assert (await told(made, "Stalled"))[0] == "True"
        assert await made.find(rke.RKE_CONTROL_PLANES, "demo", FLEET) is None, "nothing is made by halves"
        await made.delete(provisioning.CLUSTERS, "demo", FLEET)
        await made.settle(30)
        assert await made.find(provisioning.CLUSTERS, "demo", FLEET) is None
        assert await made.find(capi.CLUSTERS, "demo", FLEET) is not None


async def test_what_the_planner_says_shows_on_both_clusters() -> None:
    async with cluster_world() as made:
        await custom(made)
        waiting = {"type": "Ready", "status": "Unknown", "reason": "Waiting", "message": "waiting for a machine"}
        await plane_says(made, waiting)
        for kind in ("Ready", "Updated", "Provisioned"):
            assert await told(made, kind) == ("Unknown", "Waiting", "waiting for a machine")
        there = await managed(made)
        assert there["status"]["readyReconciling"] is True
        assert (condition_of(there, "Ready") or {})["message"] == "waiting for a machine"
        spec = (await part(made, rke.RKE_CONTROL_PLANES))["spec"]
        good = [{"type": kind, "status": "True"} for kind in ("Ready", "Stable", "Provisioned")]
        await plane_says(made, *good, appliedSpec=spec)
        assert await told(made, "Ready") == ("True", "", "") and (await told(made, "Reconciling"))[0] == "False"
        there = await managed(made)
        assert there["status"]["readyReconciling"] is False and is_true(there, "Provisioned") and is_true(there, "Updated")


async def test_all_of_it_goes_with_the_cluster() -> None:
    async with cluster_world() as made:
        await custom(made)
        await made.delete(provisioning.CLUSTERS, "demo", FLEET)
        await made.settle(60)
        assert await made.find(provisioning.CLUSTERS, "demo", FLEET) is None
        for resource in PARTS:
            assert await made.list(resource) == [], resource


async def test_what_cluster_api_never_saw_goes_too() -> None:
    """It died before it took the parts for its own, or never ran."""
    async with cluster_world(controllers) as made:
        await custom(made)
        assert "ownerReferences" not in (await part(made, rke.RKE_CONTROL_PLANES))["metadata"]
        await made.delete(provisioning.CLUSTERS, "demo", FLEET)
        await made.settle(60)
        assert await made.find(provisioning.CLUSTERS, "demo", FLEET) is None
        for resource in PARTS:
            assert await made.list(resource) == [], resource


async def test_removal_is_told_in_the_words_of_the_control_plane() -> None:
    async with cluster_world() as made:
        await custom(made)
        await made.create(capi.MACHINES, custom_machine("custom-1"))
        await made.settle(3)
        held = (await made.get(capi.MACHINES, "custom-1", FLEET))["metadata"]["finalizers"]
        await made.patch(capi.MACHINES, "custom-1", {"metadata": {"finalizers": [*held, "test/hold"]}}, FLEET)
        await made.settle(3)
        name = (await managed(made))["metadata"]["name"]
        await made.delete(provisioning.CLUSTERS, "demo", FLEET)
        await made.settle(60)
        said = "waiting for machine [custom-1] to delete"
        assert await told(made, "Removed") == ("Unknown", "Waiting", said)
        assert (await made.get(capi.MACHINES, "custom-1", FLEET))["metadata"]["deletionTimestamp"]
        assert (condition_of(await made.get(management.CLUSTERS, name), "Removed") or {})["message"] == said
        held = (await made.get(capi.MACHINES, "custom-1", FLEET))["metadata"]["finalizers"]
        left = [each for each in held if each != "test/hold"]
        await made.patch(capi.MACHINES, "custom-1", {"metadata": {"finalizers": left or None}}, FLEET)
        await made.settle(120)
        assert await made.find(provisioning.CLUSTERS, "demo", FLEET) is None
        assert await made.list(rke.RKE_CONTROL_PLANES) == []


def custom_machine(name: str) -> Obj:
    labels = {
        "cluster.x-k8s.io/cluster-name": "demo",
        "rke.cattle.io/cluster-name": "demo",
        "rke.cattle.io/control-plane-role": "true",
        "cluster.x-k8s.io/control-plane": "true",
    }
    spec = {
        "clusterName": "demo",
        "bootstrap": {"configRef": {"apiGroup": rke.GROUP, "kind": "RKEBootstrap", "name": name}},
        "infrastructureRef": {"apiGroup": rke.GROUP, "kind": "CustomMachine", "name": name},
    }
    metadata = {"name": name, "namespace": FLEET, "labels": labels}
    return {"apiVersion": capi.API_VERSION, "kind": "Machine", "metadata": metadata, "spec": spec}


# --- pools --------------------------------------------------------------------------------------------------------------------


POOL: Obj = {
    "name": "cp",
    "quantity": 0,
    "etcdRole": True,
    "controlPlaneRole": True,
    "workerRole": True,
    "unhealthyNodeTimeout": "5m",
    "machineConfigRef": {"kind": "PodConfig", "name": "nc"},
}


async def driver(made: World) -> None:
    schema = {"resourceFields": {"userdata": {"type": "string"}}}
    meta = {"name": "podconfig"}
    await made.create(
        SCHEMAS, {"apiVersion": "management.cattle.io/v3", "kind": "DynamicSchema", "metadata": meta, "spec": schema}
    )


async def machine_config(made: World, userdata: str = "x", name: str = "nc") -> None:
    meta = {"name": name, "namespace": FLEET}
    obj = {"apiVersion": "rke-machine-config.cattle.io/v1", "kind": "PodConfig", "metadata": meta, "userdata": userdata, "new": 1}
    await made.create(POD_CONFIGS, obj)


async def test_a_pool_waits_for_its_driver_and_for_what_its_machines_are_like() -> None:
    async with cluster_world() as made:
        await custom(made, machinePools=[POOL])
        assert "there is no node driver pod" in (await told(made, "RKECluster"))[2]
        inactive = {
            "metadata": {"name": "pod"},
            "spec": {"active": False, "builtin": True, "url": "local://", "displayName": "pod"},
        }
        await made.create(management.NODE_DRIVERS, {"apiVersion": "management.cattle.io/v3", "kind": "NodeDriver", **inactive})
        await made.settle(6)
        assert "activate the node driver pod, which is not active: kubectl patch" in (await told(made, "RKECluster"))[2]
        patch = {"spec": {"active": True}}
        await made.client.patch(management.NODE_DRIVERS, "pod", patch, field_manager="user")
        await made.settle(6)
        assert "the node driver pod is active, and can't be used yet" in (await told(made, "RKECluster"))[2]
        await driver(made)
        await made.settle(6)
        assert await told(made, "RKECluster") == ("Unknown", "Waiting", "machine pool cp: there is no PodConfig fleet-default/nc")
        await machine_config(made)
        await made.settle(6)
        assert is_true(await demo(made), "RKECluster")


async def test_a_pool_becomes_machines_of_cluster_api() -> None:
    async with cluster_world() as made:
        await driver(made)
        await machine_config(made)
        await custom(made, machinePools=[POOL])
        (kept,) = (await demo(made))["spec"]["rkeConfig"]["machinePools"]
        assert kept["dynamicSchemaSpec"] == '{"resourceFields":{"userdata":{"type":"string"}}}'
        deployment = await part(made, capi.MACHINE_DEPLOYMENTS, "demo-cp")
        assert deployment["spec"]["selector"]["matchLabels"] == {
            "cluster.x-k8s.io/cluster-name": "demo",
            "cluster.x-k8s.io/deployment-name": "demo-cp",
        }
        (template,) = await made.list(POD_TEMPLATES)
        assert template["spec"]["template"]["spec"] == {"userdata": "x", "common": {}}
        assert deployment["spec"]["template"]["spec"]["infrastructureRef"]["name"] == template["metadata"]["name"]
        assert (await part(made, capi.MACHINE_HEALTH_CHECKS, "demo-cp"))["spec"]["clusterName"] == "demo"
        assert (await part(made, rke.RKE_BOOTSTRAP_TEMPLATES, "demo-bootstrap-template"))["spec"]["clusterName"] == "demo"
        (owner,) = (await part(made, POD_CONFIGS, "nc"))["metadata"]["ownerReferences"]
        assert owner["kind"] == "Cluster" and owner["controller"] is True


async def test_another_config_is_another_template_and_the_old_one_stays() -> None:
    async with cluster_world() as made:
        await driver(made)
        await machine_config(made)
        await custom(made, machinePools=[POOL])
        (before,) = await made.list(POD_TEMPLATES)
        await made.patch(POD_CONFIGS, "nc", {"userdata": "y"}, FLEET)
        await made.settle(5)
        names = {each["metadata"]["name"] for each in await made.list(POD_TEMPLATES)}
        now = (await part(made, capi.MACHINE_DEPLOYMENTS, "demo-cp"))["spec"]["template"]["spec"]["infrastructureRef"]["name"]
        assert names == {before["metadata"]["name"], now} and len(names) == 2


async def test_the_number_of_machines_stays_where_the_pool_has_none() -> None:
    async with cluster_world() as made:
        await driver(made)
        await machine_config(made)
        await custom(made, machinePools=[{field: value for field, value in POOL.items() if field != "quantity"}])
        await made.patch(capi.MACHINE_DEPLOYMENTS, "demo-cp", {"spec": {"replicas": 0}}, FLEET)
        await made.settle(3)
        assert (await part(made, capi.MACHINE_DEPLOYMENTS, "demo-cp"))["spec"]["replicas"] == 0
        assert await put_back(made) == []


async def test_a_pool_that_is_taken_out_goes() -> None:
    async with cluster_world() as made:
        await driver(made)
        await machine_config(made)
        await custom(made, machinePools=[POOL])
        await made.patch(provisioning.CLUSTERS, "demo", {"spec": {"rkeConfig": {"machinePools": None}}}, FLEET)
        await made.settle(30)
        for resource in (capi.MACHINE_DEPLOYMENTS, capi.MACHINE_HEALTH_CHECKS, rke.RKE_BOOTSTRAP_TEMPLATES):
            assert await made.list(resource) == [], resource
        assert await made.find(capi.CLUSTERS, "demo", FLEET) is not None
        assert await put_back(made) == []


async def test_a_config_serves_one_cluster() -> None:
    async with cluster_world() as made:
        await driver(made)
        await machine_config(made)
        await custom(made, machinePools=[POOL])
        await made.wanted("other", kubernetesVersion=VERSION, rkeConfig={"machinePools": [POOL]})
        await made.settle(5)
        said = condition_of(await demo(made, "other"), "RKECluster") or {}
        assert said["status"] == "False" and "belongs to another Cluster already" in said["message"]
        assert "demo" not in said["message"]


async def test_a_credential_must_be_there() -> None:
    async with cluster_world() as made:
        await driver(made)
        await machine_config(made)
        await custom(made, machinePools=[{**POOL, "cloudCredentialSecretName": "cattle-global-data:cc-x"}])
        said = (await told(made, "RKECluster"))[2]
        assert said == "machine pool cp, cloud credential: there is no Secret cattle-global-data/cc-x"


async def test_fields_without_effect_and_a_broken_manifest_are_notes_on_the_cluster() -> None:
    async with cluster_world() as made:
        await custom(made, additionalManifest="a: [", machinePools=[])
        working = made.lives[-1].manager.working("provisioningcluster")
        assert working is not None
        notes = [wait for result in working.waits.values() for wait in result.waits if wait.code is Code.WITHOUT_EFFECT]
        assert [(wait.actor, wait.subject.kind) for wait in notes] == [(Actor.USER, "Cluster")]
        assert notes[0].evidence.startswith("spec.rkeConfig.additionalManifest can't be applied: it is no YAML")
        # Nothing is waited for, so nothing makes it look again.
        results = working.waits.values()
        assert {wait.code for result in results for wait in result.waits} <= NOTES
        assert {result.after for result in results} == {None}


async def test_what_is_not_offered_is_a_note_on_the_cluster() -> None:
    async with cluster_world() as made:
        await driver(made)
        await machine_config(made)
        feature = {"metadata": {"name": "provisioningprebootstrap"}, "spec": {"value": True}}
        await made.client.create(management.FEATURES, {"apiVersion": management.API_VERSION, "kind": "Feature", **feature})
        await custom(made, machinePools=[POOL, {**POOL, "name": "win", "machineOS": "windows"}])
        working = made.lives[-1].manager.working("provisioningcluster")
        assert working is not None
        notes = [wait.evidence for result in working.waits.values() for wait in result.waits if wait.code is Code.WITHOUT_EFFECT]
        assert len(notes) == 2 and notes[0].startswith("the feature provisioningprebootstrap: not offered yet")
        assert "spec.rkeConfig.machinePools[1].machineOS: windows is not offered yet" in notes[1]


async def test_pools_that_lack_a_role_are_the_reason_why_there_is_no_control_plane() -> None:
    async with cluster_world() as made:
        await driver(made)
        await machine_config(made)
        await custom(made, machinePools=[{**POOL, "etcdRole": False}])
        working = made.lives[-1].manager.working("provisioningcluster")
        assert working is not None
        found = [wait for result in working.waits.values() for wait in result.waits]
        assert [wait.code for wait in found] == [Code.ROLES] and "(missing: etcd" in found[0].evidence
