"""The Cluster controller on a management API in memory; the test plays the providers."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.api.cluster_x_k8s_io import API_VERSION, CLUSTERS, MACHINE_DEPLOYMENTS, MACHINES
from remuda.capi.cluster import Clusters
from remuda.capi.controller_context import ControllerOptions
from remuda.kube.builtin_resources import CRDS
from remuda.kube.conditions import LEGACY, get
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource
from tests.unit.capi.memory_clusters import (
    CONTROL,
    INFRA,
    NAMESPACE,
    TEST_CLUSTERS,
    TEST_CONTROL_PLANES,
    World,
    core_object,
    machine_spec,
    provider_crd,
    thing,
    world,
)

Obj = dict[str, Any]
FINALIZER = "cluster.cluster.x-k8s.io"


def said(cluster: Obj, kind: str) -> tuple[str, str, str]:
    found = get(cluster, kind)
    assert found is not None, f"no condition {kind}"
    return found["status"], found["reason"], found["message"]


def said_before(cluster: Obj, kind: str) -> tuple[str, str, str, str]:
    """A condition of the older kind."""
    found = get(cluster, kind, LEGACY)
    assert found is not None, f"no older condition {kind}"
    return found["status"], found.get("reason", ""), found.get("message", ""), found.get("severity", "")


async def read(w: World, name: str = "c1") -> Obj:
    return await w.get(CLUSTERS, name)


async def standing(w: World, name: str = "c1") -> Obj:
    """A Cluster whose infrastructure and control plane are there."""
    await w.cluster(name)
    await w.settle()
    await w.provision_cluster(name)
    await w.initialize_control_plane(name)
    await w.settle()
    return await read(w, name)


# --- beginnings ---------------------------------------------------------------------------------------------------------------


async def test_a_cluster_gets_a_finalizer_and_its_objects_an_owner_and_a_label() -> None:
    async with world(Clusters) as w:
        made = await w.cluster()
        await w.settle()
        cluster = await read(w)
        assert cluster["metadata"]["finalizers"] == [FINALIZER]
        owner = {"apiVersion": API_VERSION, "kind": "Cluster", "name": "c1", "uid": made["metadata"]["uid"]}
        for resource in (TEST_CLUSTERS, TEST_CONTROL_PLANES):
            found = await w.get(resource, "c1")
            assert found["metadata"]["ownerReferences"] == [owner]
            assert found["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == "c1"


async def test_other_owners_and_controllers_of_a_providers_object_stay() -> None:
    async with world(Clusters) as w:
        boss = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "boss", "namespace": NAMESPACE}}
        uid = (await w.create(GroupVersionResource("", "v1", "configmaps"), boss))["metadata"]["uid"]
        other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "uid": uid, "controller": True}
        infra = thing(INFRA, "TestCluster", "c1")
        infra["metadata"] |= {"ownerReferences": [other], "labels": {"mine": "yes"}}
        await w.create(TEST_CLUSTERS, infra)
        spec = {"infrastructureRef": {"apiGroup": INFRA, "kind": "TestCluster", "name": "c1"}}
        await w.create(CLUSTERS, core_object("Cluster", "c1", spec))
        await w.settle(0.1)
        found = await w.get(TEST_CLUSTERS, "c1")
        assert [ref["kind"] for ref in found["metadata"]["ownerReferences"]] == ["ConfigMap", "Cluster"]
        assert found["metadata"]["labels"] == {"mine": "yes", "cluster.x-k8s.io/cluster-name": "c1"}


async def test_an_owner_reference_that_says_the_same_is_left_alone() -> None:
    async with world(Clusters) as w:
        await w.cluster()
        await w.settle()
        found = await w.get(TEST_CLUSTERS, "c1")
        kept = [{**found["metadata"]["ownerReferences"][0], "controller": False, "blockOwnerDeletion": True}]
        await w.patch(TEST_CLUSTERS, "c1", {"metadata": {"ownerReferences": kept}})
        await w.settle()
        assert (await w.get(TEST_CLUSTERS, "c1"))["metadata"]["ownerReferences"] == kept


async def test_what_it_says_before_anything_is_there() -> None:
    async with world(Clusters) as w:
        await w.cluster()
        await w.settle()
        cluster = await read(w)
        assert cluster["status"]["phase"] == "Provisioning"
        assert cluster["status"]["observedGeneration"] == cluster["metadata"]["generation"]
        assert said(cluster, "InfrastructureReady") == (
            "False",
            "NotReady",
            "TestCluster status.initialization.provisioned is false",
        )
        assert said(cluster, "ControlPlaneAvailable") == (
            "False",
            "NotAvailable",
            "TestControlPlane status.initialization.controlPlaneInitialized is false",
        )
        assert said(cluster, "ControlPlaneInitialized") == ("False", "NotInitialized", "Control plane not yet initialized")
        assert said(cluster, "RemoteConnectionProbe") == ("False", "ProbeFailed", "Remote connection not established yet")
        assert said(cluster, "WorkersAvailable") == ("True", "NoWorkers", "")
        assert said(cluster, "Deleting") == ("False", "NotDeleting", "")
        assert said(cluster, "Paused") == ("False", "NotPaused", "")
        assert said(cluster, "Available") == (
            "False",
            "NotAvailable",
            "* RemoteConnectionProbe: Remote connection not established yet\n"
            "* InfrastructureReady: TestCluster status.initialization.provisioned is false\n"
            "* ControlPlaneAvailable: TestControlPlane status.initialization.controlPlaneInitialized is false",
        )
        assert said_before(cluster, "InfrastructureReady") == ("False", "WaitingForInfrastructure", "", "Info")
        assert said_before(cluster, "ControlPlaneReady") == ("False", "WaitingForControlPlane", "", "Info")
        assert said_before(cluster, "ControlPlaneInitialized") == (
            "False",
            "WaitingForControlPlaneProviderInitialized",
            "Waiting for control plane provider to indicate the control plane has been initialized",
            "Info",
        )
        assert said_before(cluster, "Ready") == ("False", "WaitingForControlPlane", "", "Info")
        assert ("Cluster", "Provisioning", "Cluster c1 is Provisioning") in await w.events()


async def test_objects_may_come_after_the_cluster() -> None:
    async with world(Clusters) as w:
        spec = {
            "infrastructureRef": {"apiGroup": INFRA, "kind": "TestCluster", "name": "c1"},
            "controlPlaneRef": {"apiGroup": CONTROL, "kind": "TestControlPlane", "name": "c1"},
        }
        await w.create(CLUSTERS, core_object("Cluster", "c1", spec))
        await w.settle()
        cluster = await read(w)
        assert said(cluster, "InfrastructureReady") == ("False", "ObjectDoesNotExist", "TestCluster does not exist")
        assert said(cluster, "ControlPlaneAvailable") == ("False", "ObjectDoesNotExist", "TestControlPlane does not exist")
        assert said(cluster, "ControlPlaneInitialized") == ("Unknown", "ObjectDoesNotExist", "TestControlPlane does not exist")
        await w.create(TEST_CLUSTERS, thing(INFRA, "TestCluster", "c1"))
        await w.create(TEST_CONTROL_PLANES, thing(CONTROL, "TestControlPlane", "c1"))
        await w.settle(0)
        assert "ownerReferences" in (await w.get(TEST_CLUSTERS, "c1"))["metadata"]


async def test_a_provider_that_is_installed_later_is_picked_up() -> None:
    async with world(Clusters) as w:
        spec = {"infrastructureRef": {"apiGroup": "late.test.io", "kind": "LateCluster", "name": "c1"}}
        await w.create(CLUSTERS, core_object("Cluster", "c1", spec))
        await w.settle()
        cluster = await read(w)
        status, reason, message = said(cluster, "InfrastructureReady")
        assert (status, reason) == ("Unknown", "InternalError")
        assert message.startswith("Please check controller logs for errors")
        assert "LateCluster.late.test.io: no CustomResourceDefinition defines it" in message
        assert "observedGeneration" not in cluster["status"]
        late = GroupVersionResource("late.test.io", "v1", "lateclusters")
        await w.create(CRDS, provider_crd("late.test.io", "LateCluster"))
        await w.settle()
        await w.create(late, thing("late.test.io", "LateCluster", "c1"))
        await w.settle()
        assert said(await read(w), "InfrastructureReady")[1] == "NotReady"


# --- hand-offs ----------------------------------------------------------------------------------------------------------------


async def test_provisioned_infrastructure_is_taken_over() -> None:
    async with world(Clusters) as w:
        await w.cluster()
        await w.settle()
        domains = [{"name": "b"}, {"name": "a", "controlPlane": True, "attributes": {"zone": "1"}}]
        await w.patch(TEST_CLUSTERS, "c1", {"status": {"failureDomains": domains}}, "status")
        await w.provision_cluster("c1")
        await w.settle()
        cluster = await read(w)
        assert cluster["spec"]["controlPlaneEndpoint"] == {"host": "127.0.0.1", "port": 6443}
        assert cluster["status"]["initialization"] == {"infrastructureProvisioned": True}
        assert cluster["status"]["phase"] == "Provisioned"
        assert cluster["status"]["failureDomains"] == [
            {"name": "a", "controlPlane": True, "attributes": {"zone": "1"}},
            {"name": "b", "controlPlane": False},
        ]
        assert said(cluster, "InfrastructureReady") == ("True", "Ready", "")
        assert said_before(cluster, "InfrastructureReady")[0] == "True"
        events = await w.events()
        assert ("Cluster", "InfrastructureReady", "Cluster c1 InfrastructureProvisioned is now True") in events
        assert ("Cluster", "Provisioned", "Cluster c1 is Provisioned") in events


async def test_an_initialized_control_plane_is_taken_over() -> None:
    async with world(Clusters) as w:
        cluster = await standing(w)
        assert cluster["status"]["initialization"] == {"infrastructureProvisioned": True, "controlPlaneInitialized": True}
        assert said(cluster, "ControlPlaneInitialized") == ("True", "Initialized", "")
        assert said(cluster, "ControlPlaneAvailable") == ("True", "Available", "")
        assert said_before(cluster, "ControlPlaneInitialized")[0] == "True"
        assert said_before(cluster, "ControlPlaneReady")[0] == "True"
        assert said_before(cluster, "Ready")[0] == "True"
        assert cluster["status"]["controlPlane"]["versions"] == [{"version": "v1.36.3"}]
        assert ("Cluster", "ControlPlaneInitialized", "Cluster c1 ControlPlaneInitialized is now True") in await w.events()


async def test_an_endpoint_may_come_from_the_control_plane() -> None:
    async with world(Clusters) as w:
        await w.cluster()
        await w.patch(TEST_CLUSTERS, "c1", {"status": {"initialization": {"provisioned": True}}}, "status")
        await w.patch(TEST_CONTROL_PLANES, "c1", {"spec": {"controlPlaneEndpoint": {"host": "cp", "port": 443}}})
        await w.initialize_control_plane("c1")
        await w.settle()
        cluster = await read(w)
        assert cluster["spec"]["controlPlaneEndpoint"] == {"host": "cp", "port": 443}
        assert cluster["status"]["phase"] == "Provisioned"


async def test_what_was_handed_over_stays_whatever_a_provider_says_later() -> None:
    async with world(Clusters) as w:
        await standing(w)
        await w.patch(TEST_CLUSTERS, "c1", {"spec": {"controlPlaneEndpoint": {"host": "other", "port": 1}}})
        await w.patch(TEST_CLUSTERS, "c1", {"status": {"initialization": {"provisioned": False}}}, "status")
        gone = {"status": {"initialization": {"controlPlaneInitialized": False}}}
        await w.patch(TEST_CONTROL_PLANES, "c1", gone, "status")
        await w.settle(2)
        cluster = await read(w)
        assert cluster["spec"]["controlPlaneEndpoint"] == {"host": "127.0.0.1", "port": 6443}
        assert cluster["status"]["initialization"] == {"infrastructureProvisioned": True, "controlPlaneInitialized": True}
        assert said(cluster, "ControlPlaneInitialized")[0] == "True"
        assert cluster["status"]["phase"] == "Provisioned"


async def test_failure_domains_go_when_the_provider_takes_them_back() -> None:
    async with world(Clusters) as w:
        await w.cluster()
        await w.patch(TEST_CLUSTERS, "c1", {"status": {"failureDomains": [{"name": "a"}]}}, "status")
        await w.provision_cluster("c1")
        await w.settle()
        await w.patch(TEST_CLUSTERS, "c1", {"status": {"failureDomains": None}}, "status")
        await w.settle(2)
        assert "failureDomains" not in (await read(w))["status"]


async def test_conditions_of_providers_are_mirrored() -> None:
    async with world(Clusters) as w:
        await standing(w)
        since = "2020-01-01T00:00:00Z"
        ready = {"type": "Ready", "status": "False", "reason": "Flooded", "message": "water", "lastTransitionTime": since}
        await w.patch(TEST_CLUSTERS, "c1", {"status": {"conditions": [ready]}}, "status")
        available = {"type": "Available", "status": "True", "reason": "Up", "message": "", "lastTransitionTime": since}
        await w.patch(TEST_CONTROL_PLANES, "c1", {"status": {"conditions": [available]}}, "status")
        await w.settle(2)
        cluster = await read(w)
        assert said(cluster, "InfrastructureReady") == ("False", "Flooded", "water")
        assert (get(cluster, "InfrastructureReady") or {})["lastTransitionTime"] == since
        assert said(cluster, "ControlPlaneAvailable") == ("True", "Up", "")
        assert said_before(cluster, "InfrastructureReady") == ("False", "Flooded", "water", "")


async def test_a_providers_nonsense_is_told_and_stops_nothing() -> None:
    async with world(Clusters) as w:
        await standing(w)
        nonsense: Obj = {"conditions": [{"type": "Ready"}], "failureDomains": "everywhere", "initialization": "yes"}
        await w.patch(TEST_CLUSTERS, "c1", {"status": nonsense, "spec": {"controlPlaneEndpoint": 7}}, "status")
        await w.patch(TEST_CONTROL_PLANES, "c1", {"status": {"versions": "many", "replicas": "two"}}, "status")
        await w.settle(2)
        cluster = await read(w)
        assert said(cluster, "InfrastructureReady") == (
            "Unknown",
            "InvalidConditionReported",
            "failed to convert status.conditions from TestCluster to []metav1.Condition: "
            "status must be set for the Ready condition",
        )
        assert cluster["status"]["controlPlane"]["versions"] == [{"version": "v1.36.3"}]


async def test_more_than_a_cluster_can_take_stops_nothing() -> None:
    async with world(Clusters) as w:
        await w.cluster()
        await w.provision_cluster("c1")
        await w.patch(TEST_CLUSTERS, "c1", {"spec": {"controlPlaneEndpoint": {"host": "h", "port": 70000}}})
        domains = [{"name": f"d{number:03}", "attributes": {"n": number}} for number in range(150)]
        await w.patch(TEST_CLUSTERS, "c1", {"status": {"failureDomains": domains}}, "status")
        versions = [{"version": f"v1.{number}.0"} for number in range(40)]
        await w.patch(TEST_CONTROL_PLANES, "c1", {"status": {"versions": versions}}, "status")
        await w.settle(2)
        cluster = await read(w)
        assert "controlPlaneEndpoint" not in cluster["spec"]
        assert len(cluster["status"]["failureDomains"]) == 100
        assert len(cluster["status"]["controlPlane"]["versions"]) == 32


async def test_an_object_that_refuses_to_be_owned_is_told() -> None:
    async with world(Clusters) as w:
        await w.cluster()
        patch = w.core.client.patch

        async def refusing(resource: GroupVersionResource, *args: Any, **options: Any) -> Obj:
            if resource == TEST_CLUSTERS:
                raise ApiError(403, "Forbidden", "not yours")
            return await patch(resource, *args, **options)

        w.core.client.patch = refusing  # type: ignore[method-assign]
        await w.patch(TEST_CLUSTERS, "c1", {"metadata": {"ownerReferences": None, "labels": None}})
        await w.settle(2)
        assert said(await read(w), "InfrastructureReady") == (
            "Unknown",
            "InternalError",
            "Please check controller logs for errors: not yours",
        )
        w.core.client.patch = patch  # type: ignore[method-assign]
        await w.settle(10)
        assert said(await read(w), "InfrastructureReady")[1] == "NotReady"


async def test_a_failure_that_a_provider_reports_is_shown() -> None:
    async with world(Clusters) as w:
        await w.cluster()
        status = {"failureReason": "CreateError", "failureMessage": "no money"}
        await w.patch(TEST_CLUSTERS, "c1", {"status": status}, "status")
        await w.settle()
        found = (await read(w))["status"]["deprecated"]["v1beta1"]
        assert found["failureReason"] == "CreateError"
        assert found["failureMessage"] == (
            'Failure detected from referenced resource infrastructure.test.io/v1, Kind=TestCluster with name "c1": no money'
        )


async def test_the_older_contract_is_understood() -> None:
    async with world(Clusters) as w:
        for group, kind in (("old.test.io", "OldCluster"), ("old.test.io", "OldControlPlane")):
            await w.create(CRDS, provider_crd(group, kind, "v1beta1"))
        await w.settle()
        infra = GroupVersionResource("old.test.io", "v1", "oldclusters")
        plane = GroupVersionResource("old.test.io", "v1", "oldcontrolplanes")
        await w.create(infra, thing("old.test.io", "OldCluster", "c1", {"controlPlaneEndpoint": {"host": "h", "port": 1}}))
        await w.create(plane, thing("old.test.io", "OldControlPlane", "c1", {"replicas": 3}))
        spec = {
            "infrastructureRef": {"apiGroup": "old.test.io", "kind": "OldCluster", "name": "c1"},
            "controlPlaneRef": {"apiGroup": "old.test.io", "kind": "OldControlPlane", "name": "c1"},
        }
        await w.create(CLUSTERS, core_object("Cluster", "c1", spec))
        await w.settle()
        domains = {"z": {"controlPlane": True}, "a": {"attributes": {"rack": "1"}}}
        await w.patch(infra, "c1", {"status": {"ready": True, "failureDomains": domains}}, "status")
        status = {"initialized": True, "replicas": 3, "readyReplicas": 3, "unavailableReplicas": 1, "updatedReplicas": 2}
        await w.patch(plane, "c1", {"status": status}, "status")
        await w.settle(2)
        cluster = await read(w)
        assert cluster["status"]["initialization"] == {"infrastructureProvisioned": True, "controlPlaneInitialized": True}
        assert [domain["name"] for domain in cluster["status"]["failureDomains"]] == ["a", "z"]
        assert cluster["status"]["controlPlane"] == {
            "desiredReplicas": 3,
            "replicas": 3,
            "readyReplicas": 3,
            "availableReplicas": 2,
            "upToDateReplicas": 2,
        }


async def test_infrastructure_that_vanishes_is_told() -> None:
    async with world(Clusters) as w:
        await standing(w)
        await w.delete(TEST_CLUSTERS, "c1")
        await w.delete(TEST_CONTROL_PLANES, "c1")
        await w.settle(2)
        cluster = await read(w)
        assert said(cluster, "InfrastructureReady") == (
            "False",
            "ObjectDeleted",
            "TestCluster has been deleted while the cluster still exists",
        )
        assert said(cluster, "ControlPlaneAvailable") == (
            "False",
            "ObjectDeleted",
            "TestControlPlane has been deleted while the cluster still exists",
        )
        assert cluster["status"]["controlPlane"] == {}


async def test_without_infrastructure_there_is_nothing_to_wait_for() -> None:
    async with world(Clusters) as w:
        await w.create(TEST_CONTROL_PLANES, thing(CONTROL, "TestControlPlane", "c1"))
        spec = {"controlPlaneRef": {"apiGroup": CONTROL, "kind": "TestControlPlane", "name": "c1"}}
        await w.create(CLUSTERS, core_object("Cluster", "c1", spec))
        await w.settle()
        cluster = await read(w)
        assert cluster["status"]["initialization"] == {"infrastructureProvisioned": True}
        assert said_before(cluster, "InfrastructureReady")[0] == "True"


# --- the rest of the life -----------------------------------------------------------------------------------------------------


async def test_a_settled_cluster_writes_nothing() -> None:
    async with world(Clusters) as w:
        await standing(w)
        await w.workloads.connect("c1")
        await w.settle(10)
        before = (await read(w))["metadata"]["resourceVersion"]
        await w.settle(3600)
        assert (await read(w))["metadata"]["resourceVersion"] == before


async def test_a_connected_cluster_is_available() -> None:
    async with world(Clusters) as w:
        await standing(w)
        await w.workloads.connect("c1")
        await w.settle(2)
        cluster = await read(w)
        assert said(cluster, "RemoteConnectionProbe") == ("True", "ProbeSucceeded", "")
        assert said(cluster, "Available") == ("True", "Available", "")


async def test_a_lost_connection_is_told_after_a_while() -> None:
    async with world(Clusters, options=ControllerOptions(remote_connection_grace=50)) as w:
        await standing(w)
        await w.workloads.connect("c1")
        await w.settle(2)
        w.workloads.cut("c1")
        await w.settle(600)
        status, reason, message = said(await read(w), "RemoteConnectionProbe")
        assert (status, reason) == ("False", "ProbeFailed")
        assert message.startswith("Remote connection probe failed, probe last succeeded at 20")


@pytest.mark.parametrize("how", ["spec", "annotation"])
async def test_a_paused_cluster_is_left_alone_but_for_saying_so(how: str) -> None:
    async with world(Clusters) as w:
        annotations = {"cluster.x-k8s.io/paused": ""} if how == "annotation" else {}
        await w.create(TEST_CLUSTERS, thing(INFRA, "TestCluster", "c1"))
        spec: Obj = {"infrastructureRef": {"apiGroup": INFRA, "kind": "TestCluster", "name": "c1"}}
        made = core_object("Cluster", "c1", spec | ({"paused": True} if how == "spec" else {}))
        made["metadata"]["annotations"] = annotations
        await w.create(CLUSTERS, made)
        await w.settle()
        cluster = await read(w)
        words = "Cluster spec.paused is set to true"
        if how == "annotation":
            words = "Cluster has the cluster.x-k8s.io/paused annotation"
        assert said(cluster, "Paused") == ("True", "Paused", words)
        assert get(cluster, "Available") is None
        assert "ownerReferences" not in (await w.get(TEST_CLUSTERS, "c1"))["metadata"]
        free: Obj = {"spec": {"paused": False}, "metadata": {"annotations": {"cluster.x-k8s.io/paused": None}}}
        await w.patch(CLUSTERS, "c1", free)
        await w.settle()
        assert said(await read(w), "Paused") == ("False", "NotPaused", "")
        assert "ownerReferences" in (await w.get(TEST_CLUSTERS, "c1"))["metadata"]


async def test_a_removed_finalizer_is_added_again() -> None:
    async with world(Clusters) as w:
        await standing(w)
        await w.patch(CLUSTERS, "c1", {"metadata": {"finalizers": None}})
        await w.settle(2)
        assert (await read(w))["metadata"]["finalizers"] == [FINALIZER]


async def test_clusters_of_others_are_left_alone() -> None:
    async with world(Clusters, options=ControllerOptions(watch_filter="mine")) as w:
        await w.cluster()
        await w.settle()
        assert "finalizers" not in (await read(w))["metadata"]
        await w.patch(CLUSTERS, "c1", {"metadata": {"labels": {"cluster.x-k8s.io/watch-filter": "mine"}}})
        await w.settle()
        assert "finalizers" in (await read(w))["metadata"]


async def test_machines_that_stand_by_themselves_make_a_control_plane() -> None:
    async with world(Clusters) as w:
        await w.cluster(control_plane=False)
        await w.provision_cluster("c1")
        await w.machine("m1", labels={"cluster.x-k8s.io/control-plane": ""})
        await w.settle(2)
        cluster = await read(w)
        waiting = "Waiting for the first control plane machine to have status.nodeRef set"
        assert said(cluster, "ControlPlaneInitialized") == ("False", "NotInitialized", waiting)
        assert said_before(cluster, "ControlPlaneInitialized") == (
            "False",
            "MissingNodeRef",
            "Waiting for the first control plane machine to have its status.nodeRef set",
            "Info",
        )
        assert cluster["status"]["controlPlane"]["replicas"] == 1
        await w.patch(MACHINES, "m1", {"status": {"nodeRef": {"name": "n1"}}}, "status")
        await w.settle(2)
        cluster = await read(w)
        assert said(cluster, "ControlPlaneInitialized") == ("True", "Initialized", "")
        assert said_before(cluster, "ControlPlaneInitialized")[0] == "True"


async def test_a_change_of_a_worker_shows_in_the_sums() -> None:
    async with world(Clusters) as w:
        await standing(w)
        deployment = core_object("MachineDeployment", "md1", deployment_spec("md1", replicas=3))
        deployment["metadata"]["labels"] = {"cluster.x-k8s.io/cluster-name": "c1"}
        await w.create(MACHINE_DEPLOYMENTS, deployment)
        await w.settle(2)
        cluster = await read(w)
        assert cluster["status"]["workers"] == {"desiredReplicas": 3}
        assert said(cluster, "WorkersAvailable") == (
            "Unknown",
            "AvailableUnknown",
            "* MachineDeployment md1: Condition Available not yet reported",
        )
        condition = {"type": "Available", "status": "False", "reason": "NotAvailable", "message": "0 available replicas"}
        status = {"replicas": 1, "conditions": [{**condition, "lastTransitionTime": "2030-01-01T00:00:00Z"}]}
        await w.patch(MACHINE_DEPLOYMENTS, "md1", {"status": status}, "status")
        await w.settle(2)
        cluster = await read(w)
        assert cluster["status"]["workers"] == {"desiredReplicas": 3, "replicas": 1}
        assert said(cluster, "WorkersAvailable") == (
            "False",
            "NotAvailable",
            "* MachineDeployment md1: 0 available replicas",
        )


def deployment_spec(name: str, replicas: int) -> Obj:
    return {
        "clusterName": "c1",
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": machine_spec(name)},
    }
