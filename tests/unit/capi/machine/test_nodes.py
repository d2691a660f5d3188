"""A Machine and its Node: how it is found, what the two say about each other, and what a lost connection means."""

from __future__ import annotations

import re
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES
from remuda.capi.controller_context import ControllerOptions
from remuda.capi.machine.controller import Machines
from remuda.kube.builtin_resources import NODES
from remuda.kube.conditions import LEGACY
from remuda.kube.objects import annotations_of, dig, labels_of, resource_version_of
from remuda.kube.owners import reference
from tests.unit.capi.memory_clusters import TEST_MACHINES, World, core_object, machine_spec, world

from .nodes import HEALTHY, NODE_INFO, initialized, node, running, told

Obj = dict[str, Any]
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}  # every new node has it


async def provisioned(made: World, name: str = "m1", **spec: Any) -> None:
    """A Machine with everything but its Node."""
    await made.machine(name, **spec)
    await made.bootstrap(name)
    await made.provision(name)
    await made.settle()


# --- finding it ------------------------------------------------------------------------------------------------------------


async def test_a_machine_waits_for_its_cluster_then_for_its_provider_then_for_its_node() -> None:
    async with world(Machines) as made:
        await made.cluster()
        await made.machine("m1")
        await made.settle()
        waiting = [told(await made.get(MACHINES, "m1"), "NodeHealthy")]
        await made.patch(CLUSTERS, "c1", {"status": {"initialization": {"infrastructureProvisioned": True}}}, "status")
        await made.settle()
        waiting.append(told(await made.get(MACHINES, "m1"), "NodeHealthy"))
        await initialized(made)
        await made.settle()
        waiting.append(told(await made.get(MACHINES, "m1"), "NodeHealthy"))
        await made.provision("m1")
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        waiting.append(told(machine, "NodeHealthy"))
        assert waiting == [
            ("Unknown", "InspectionFailed", "Waiting for Cluster status.initialization.infrastructureProvisioned to be true"),
            ("Unknown", "InspectionFailed", "Waiting for Cluster control plane to be initialized"),
            ("Unknown", "InspectionFailed", "Waiting for TestMachine to report spec.providerID"),
            ("Unknown", "InspectionFailed", "Waiting for a Node with spec.providerID test:///m1 to exist"),
        ]
        assert told(machine, "NodeReady") == waiting[-1]
        assert told(machine, "NodeHealthy", LEGACY) == (
            "False",
            "NodeProvisioning",
            "Waiting for a node with matching ProviderID to exist",
            "Warning",
        )


async def test_a_machine_finds_its_node_by_provider_id_and_runs() -> None:
    async with world(Machines) as made:
        await made.cluster()
        workload = await initialized(made)
        machine = await running(made, "m1", workload)
        status = machine["status"]
        assert status["nodeRef"] == {"name": "node-m1"}
        assert status["nodeInfo"] == NODE_INFO
        assert status["phase"] == "Running"
        assert told(machine, "NodeReady") == ("True", "NodeReady", "")
        assert told(machine, "NodeHealthy") == ("True", "NodeHealthy", "")
        assert told(machine, "NodeHealthy", LEGACY) == ("True", "", "", "")
        assert told(machine, "Ready") == ("True", "Ready", "")
        assert told(machine, "Available") == ("True", "Available", "")
        assert told(machine, "UpToDate") == ()
        assert ("Machine", "SuccessfulSetNodeRef", "node-m1") in await made.events()


async def test_two_nodes_of_one_provider_id_are_an_error() -> None:
    async with world(Machines) as made:
        await made.cluster()
        workload = await initialized(made)
        await provisioned(made)
        for name in ("a", "b"):
            await workload.client.create(NODES, node(name, "test:///m1"))
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        assert dig(machine, "status", "nodeRef") is None or dig(machine, "status", "nodeRef", "name") == "a"
        assert told(machine, "NodeHealthy") == ("Unknown", "InternalError", "Please check controller logs for errors")
        assert told(machine, "NodeHealthy", LEGACY) == (
            "Unknown",
            "NodeInspectionFailed",
            "Failed to get the Node for this Machine by ProviderID",
            "",
        )
        message = "unexpectedly found more than one Node matching the providerID test:///m1"
        assert ("Machine", "Failed to retrieve Node by ProviderID", message) in await made.events()
        await workload.client.delete(NODES, "b")
        await made.settle()
        assert (await made.get(MACHINES, "m1"))["status"]["phase"] == "Running"


async def test_a_node_that_never_matches_is_explained_by_those_that_could_be_meant() -> None:
    async with world(Machines) as made:
        await made.cluster()
        workload = await initialized(made)
        await running(made, "m0", workload)
        await provisioned(made)
        await workload.client.create(NODES, node("bare"))
        await workload.client.create(NODES, node("close", "test:////m1"))
        await made.settle(300)
        told_by = [message for _, reason, message in await made.events() if reason == "NoMatchingNode"]
        wanted = "no Node has providerID test:///m1; of the Nodes without a Machine bare has none, close has test:////m1"
        assert set(told_by) == {wanted}


async def test_a_node_that_vanished_is_said_and_one_that_comes_back_is_taken() -> None:
    async with world(Machines) as made:
        await made.cluster()
        workload = await initialized(made)
        await running(made, "m1", workload)
        await workload.client.delete(NODES, "node-m1")
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        gone = "Node node-m1 has been deleted while the Machine still exists"
        assert told(machine, "NodeHealthy") == told(machine, "NodeReady") == ("False", "NodeDeleted", gone)
        assert told(machine, "NodeHealthy", LEGACY) == ("False", "NodeNotFound", "", "Error")
        assert told(machine, "Ready") == ("False", "NotReady", f"* NodeHealthy: {gone}")
        await workload.client.create(NODES, node("another", "test:///m1"))
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        assert told(machine, "NodeHealthy")[0] == "True"
        assert machine["status"]["nodeRef"] == {"name": "node-m1"}, "it is written once"


# --- what the node says ----------------------------------------------------------------------------------------------------


async def test_a_nodes_trouble_is_its_machines_trouble_at_once() -> None:
    async with world(Machines) as made:
        await made.cluster()
        workload = await initialized(made)
        await running(made, "m1", workload)
        sick = node("x", conditions={**HEALTHY, "Ready": "False", "DiskPressure": "True"})["status"]
        await workload.client.patch(NODES, "node-m1", {"status": sick}, subresource="status")
        await made.settle(0.1)
        machine = await made.get(MACHINES, "m1")
        assert told(machine, "NodeReady") == ("False", "NodeNotReady", "")
        assert told(machine, "NodeHealthy") == (
            "False",
            "NodeNotHealthy",
            "* Node.Ready: Condition is False\n* Node.DiskPressure: Condition is True",
        )
        assert told(machine, "NodeHealthy", LEGACY) == (
            "False",
            "NodeConditionsFailed",
            "Node condition Ready is False. Node condition DiskPressure is True",
            "Warning",
        )
        assert told(machine, "Available") == ("False", "NotReady", "")


async def test_a_machine_is_available_once_it_was_ready_for_long_enough() -> None:
    async with world(Machines) as made:
        await made.cluster()
        workload = await initialized(made)
        await provisioned(made, minReadySeconds=30)
        await workload.client.create(NODES, node("n", "test:///m1"))
        await made.settle(10)
        assert told(await made.get(MACHINES, "m1"), "Available") == ("False", "WaitingForMinReadySeconds", "")
        await made.settle(25)
        assert told(await made.get(MACHINES, "m1"), "Available") == ("True", "Available", "")


async def test_readiness_gates_count_with_their_polarity() -> None:
    async with world(Machines) as made:
        await made.cluster()
        workload = await initialized(made)
        gates = [{"conditionType": "Warm"}, {"conditionType": "Busy", "polarity": "Negative"}]
        await provisioned(made, readinessGates=gates)
        await workload.client.create(NODES, node("n", "test:///m1"))
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        missing = "* Warm: Condition not yet reported\n* Busy: Condition not yet reported"
        assert told(machine, "Ready") == ("Unknown", "ReadyUnknown", missing)
        since = machine["status"]["conditions"][0]["lastTransitionTime"]
        said = [
            {"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": since}
            for kind, status in (("Warm", "True"), ("Busy", "True"))
        ]
        await made.patch(MACHINES, "m1", {"status": {"conditions": [*machine["status"]["conditions"], *said]}}, "status")
        await made.settle()
        assert told(await made.get(MACHINES, "m1"), "Ready") == ("False", "NotReady", "* Busy: R")


# --- what the machine says -------------------------------------------------------------------------------------------------


async def test_a_node_gets_its_machines_labels_annotations_and_taints_and_loses_them_again() -> None:
    async with world(Machines, options=ControllerOptions(additional_sync_labels=(re.compile("^team$"),))) as made:
        await made.cluster()
        workload = await initialized(made)
        await running(made, "m1", workload)
        meta = {
            "labels": {"node.cluster.x-k8s.io/rack": "7", "team": "herd", "other": "x"},
            "annotations": {"node.cluster.x-k8s.io/note": "n"},
        }
        taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule", "propagation": "Always"}]
        await made.patch(MACHINES, "m1", {"metadata": meta, "spec": {"taints": taints}})
        await made.settle()
        found = await workload.client.get(NODES, "node-m1")
        assert labels_of(found) == {"node.cluster.x-k8s.io/rack": "7", "team": "herd"}
        assert annotations_of(found) == {
            "cluster.x-k8s.io/cluster-name": "c1",
            "cluster.x-k8s.io/cluster-namespace": "herd",
            "cluster.x-k8s.io/machine": "m1",
            "cluster.x-k8s.io/labels-from-machine": "node.cluster.x-k8s.io/rack,team",
            "cluster.x-k8s.io/annotations-from-machine": "node.cluster.x-k8s.io/note",
            "cluster.x-k8s.io/taints-from-machine": "gpu:NoSchedule",
            "node.cluster.x-k8s.io/note": "n",
        }
        assert found["spec"]["taints"] == [NOT_READY, {"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
        gone = {"labels": dict.fromkeys(meta["labels"]), "annotations": dict.fromkeys(meta["annotations"])}
        await made.patch(MACHINES, "m1", {"metadata": gone, "spec": {"taints": None}})
        await made.settle()
        found = await workload.client.get(NODES, "node-m1")
        assert labels_of(found) == {} and found["spec"]["taints"] == [NOT_READY]
        assert "node.cluster.x-k8s.io/note" not in annotations_of(found)


async def test_a_node_is_only_written_when_something_changes() -> None:
    async with world(Machines) as made:
        await made.cluster()
        workload = await initialized(made)
        await running(made, "m1", workload)
        before = resource_version_of(await workload.client.get(NODES, "node-m1"))
        await made.patch(MACHINES, "m1", {"metadata": {"labels": {"unrelated": "x"}}})
        await made.settle(1500)
        assert resource_version_of(await workload.client.get(NODES, "node-m1")) == before


async def test_a_machine_that_may_be_taken_away_labels_its_node() -> None:
    async with world(Machines) as made:
        await made.cluster()
        workload = await initialized(made)
        await running(made, "m1", workload)
        await made.patch(TEST_MACHINES, "m1", {"status": {"interruptible": True}}, "status")
        await made.settle()
        assert labels_of(await workload.client.get(NODES, "node-m1")) == {"cluster.x-k8s.io/interruptible": ""}
        events = [reason for _, reason, _ in await made.events()]
        assert events.count("SuccessfulSetInterruptibleNodeLabel") == 1


# --- sets and deployments --------------------------------------------------------------------------------------------------


async def of_a_deployment(made: World) -> None:
    """A Machine m1 of MachineSet s of MachineDeployment d, with a Node."""
    spec = {"clusterName": "c1", "selector": {"matchLabels": {"a": "b"}}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": machine_spec("m1")}
    revision = {"machinedeployment.clusters.x-k8s.io/revision": "1"}
    deployment = core_object("MachineDeployment", "d", {**spec, "template": template})
    deployment["metadata"]["annotations"] = revision
    deployment = await made.create(MACHINE_DEPLOYMENTS, deployment)
    machine_set = core_object("MachineSet", "s", {**spec, "template": template})
    labels = {"cluster.x-k8s.io/deployment-name": "d"}
    machine_set["metadata"] |= {
        "annotations": revision,
        "labels": labels,
        "ownerReferences": [reference(deployment, controller=True)],
    }
    machine_set = await made.create(MACHINE_SETS, machine_set)
    await made.machine("m1", labels={**labels, "cluster.x-k8s.io/set-name": "s"})
    await made.patch(MACHINES, "m1", {"metadata": {"ownerReferences": [reference(machine_set, controller=True)]}})
    await made.bootstrap("m1")
    await made.provision("m1")


async def test_a_machine_of_a_deployment_says_whether_it_is_up_to_date_and_so_does_its_node() -> None:
    async with world(Machines) as made:
        await made.cluster()
        workload = await initialized(made)
        await of_a_deployment(made)
        await workload.client.create(NODES, node("n", "test:///m1"))
        await made.settle()
        assert told(await made.get(MACHINES, "m1"), "UpToDate") == ("True", "UpToDate", "")
        found = await workload.client.get(NODES, "n")
        assert annotations_of(found)["cluster.x-k8s.io/owner-kind"] == "MachineSet"
        assert annotations_of(found)["cluster.x-k8s.io/owner-name"] == "s"
        change = {
            "metadata": {"annotations": {"machinedeployment.clusters.x-k8s.io/revision": "2"}},
            "spec": {"template": {"spec": {"version": "v1.37.0"}}},
        }
        await made.patch(MACHINE_DEPLOYMENTS, "d", change)
        await made.settle()
        assert told(await made.get(MACHINES, "m1"), "UpToDate") == (
            "False",
            "NotUpToDate",
            "* Version v1.36.3, v1.37.0 required",
        )
        taint = {"key": "node.cluster.x-k8s.io/outdated-revision", "effect": "PreferNoSchedule"}
        assert (await workload.client.get(NODES, "n"))["spec"]["taints"] == [NOT_READY, taint]


# --- connections -----------------------------------------------------------------------------------------------------------


async def test_before_the_first_connection_nothing_is_known_about_a_node() -> None:
    async with world(Machines) as made:
        await made.cluster()
        await initialized(made)
        made.workloads.connected.clear()
        made.workloads._healths.clear()
        await provisioned(made)
        machine = await made.get(MACHINES, "m1")
        assert told(machine, "NodeHealthy") == ("Unknown", "ConnectionDown", "Remote connection not established yet")
        assert "observedGeneration" not in machine["status"]


async def test_a_short_loss_of_the_connection_changes_nothing_and_a_long_one_is_said() -> None:
    async with world(Machines) as made:
        await made.cluster()
        workload = await initialized(made)
        await running(made, "m1", workload)
        made.workloads.cut("c1")
        await made.settle(200)
        assert told(await made.get(MACHINES, "m1"), "NodeHealthy")[0] == "True"
        await made.settle(120)
        machine = await made.get(MACHINES, "m1")
        assert told(machine, "NodeHealthy")[:2] == told(machine, "NodeReady")[:2] == ("Unknown", "ConnectionDown")
        assert told(machine, "NodeHealthy")[2].startswith("Last successful probe at 2027-")
        assert told(machine, "Ready")[:2] == ("Unknown", "ReadyUnknown")
        await made.workloads.connect("c1")
        await made.settle()
        assert told(await made.get(MACHINES, "m1"), "NodeHealthy")[0] == "True"


async def test_after_a_restart_machines_keep_what_was_known_until_there_is_a_connection() -> None:
    async with world(Machines) as made:
        await made.cluster()
        workload = await initialized(made)
        await running(made, "m1", workload)
        made.workloads.cut("c1")
        made.workloads._healths.clear()
        await made.settle(1000)
        assert told(await made.get(MACHINES, "m1"), "NodeHealthy")[0] == "True"
