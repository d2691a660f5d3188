"""The MachineHealthCheck controller on a management cluster in memory; the test plays everybody else."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINE_HEALTH_CHECKS, MACHINES
from remuda.capi.controller_context import ControllerOptions
from remuda.capi.machinehealthcheck import MachineHealthChecks
from remuda.kube.builtin_resources import CRDS, NODES
from remuda.kube.clock import rfc3339
from remuda.kube.conditions import LEGACY, get
from remuda.kube.objects import GroupVersionResource, name_of
from remuda.kube.owners import reference
from tests.unit.capi.memory_clusters import INFRA, NAMESPACE, World, core_object, thing, world

Obj = dict[str, Any]

GROUP = {"group": "workers"}
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
REMEDIATIONS = GroupVersionResource(INFRA, "v1", "testremediations")
REMEDIATION_TEMPLATES = GroupVersionResource(INFRA, "v1", "testremediationtemplates")
TEMPLATE_REF = {"apiVersion": f"{INFRA}/v1", "kind": "TestRemediationTemplate", "name": "reboot"}
NODE_CHECKS = {
    "nodeStartupTimeoutSeconds": 600,
    "unhealthyNodeConditions": [
        {"type": "Ready", "status": "False", "timeoutSeconds": 300},
        {"type": "Ready", "status": "Unknown", "timeoutSeconds": 300},
    ],
}


def a_condition(made: World, kind: str, status: str, reason: str = "Because", ago: float = 0) -> Obj:
    when = rfc3339(made.clock.time() - ago)
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": when}


async def cluster_up(made: World, name: str = "c1", *, initialized: bool = True, infrastructure: bool = True) -> None:
    """A Cluster as its own controller would say it is, and its API."""
    await made.cluster(name)
    found = [
        a_condition(made, "InfrastructureReady", str(infrastructure)),
        a_condition(made, "ControlPlaneInitialized", str(initialized)),
    ]
    await made.patch(CLUSTERS, name, {"status": {"conditions": found}}, "status")
    if initialized:
        await made.workloads.connect(name)


async def running(made: World, name: str, *, ready: str = "True", ago: float = 0, cluster: str = "c1", **labels: str) -> None:
    """A Machine with a node."""
    await made.machine(name, cluster, labels or GROUP)
    await node(made, f"node-{name}", ready, ago, cluster)
    await made.patch(MACHINES, name, {"status": {"nodeRef": {"name": f"node-{name}"}}}, "status")


async def node(made: World, name: str, ready: str, ago: float = 0, cluster: str = "c1") -> None:
    client = (await made.workloads.connect(cluster)).client
    status = {"conditions": [{**a_condition(made, "Ready", ready, "KubeletSays", ago), "lastHeartbeatTime": None}]}
    if name not in {name_of(each) for each in (await client.list(NODES))["items"]}:
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    await client.patch(NODES, name, {"status": status}, subresource="status")


async def check(made: World, name: str = "mhc", cluster: str = "c1", **spec: Any) -> None:
    whole = {"clusterName": cluster, "selector": {"matchLabels": GROUP}, "checks": NODE_CHECKS, **spec}
    await made.create(MACHINE_HEALTH_CHECKS, core_object("MachineHealthCheck", name, whole))
    await made.settle()


async def machine(made: World, name: str) -> Obj:
    return await made.get(MACHINES, name)


async def the_check(made: World, name: str = "mhc") -> Obj:
    return await made.get(MACHINE_HEALTH_CHECKS, name)


def said(obj: Obj, kind: str, legacy: bool = False) -> tuple[str, str, str] | None:
    found = get(obj, kind, LEGACY) if legacy else get(obj, kind)
    return None if found is None else (found["status"], found.get("reason", ""), found.get("message", ""))


def counts(found: Obj) -> tuple[int, int, int]:
    status = found["status"]
    return status["expectedMachines"], status["currentHealthy"], status["remediationsAllowed"]


# --- what it is ------------------------------------------------------------------------------------------------------------


async def test_it_belongs_to_its_cluster_by_owner_and_label() -> None:
    async with world(MachineHealthChecks) as made:
        cluster = await made.cluster()
        await check(made)
        found = await the_check(made)
        uid = cluster["metadata"]["uid"]
        owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": uid}
        assert found["metadata"]["ownerReferences"] == [owner]
        assert found["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == "c1"
        assert said(found, "Paused") == ("False", "NotPaused", "")
        assert found["status"]["observedGeneration"] == found["metadata"]["generation"]


async def test_a_wrong_label_is_put_right_and_others_stay() -> None:
    async with world(MachineHealthChecks) as made:
        await made.cluster()
        made_check = core_object("MachineHealthCheck", "mhc", {"clusterName": "c1", "selector": {"matchLabels": GROUP}})
        made_check["metadata"]["labels"] = {"cluster.x-k8s.io/cluster-name": "wrong", "mine": "too"}
        other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other", "namespace": NAMESPACE}}
        made_check["metadata"]["ownerReferences"] = [reference(await made.create(CONFIG_MAPS, other))]
        await made.create(MACHINE_HEALTH_CHECKS, made_check)
        await made.settle()
        found = await the_check(made)
        assert found["metadata"]["labels"] == {"cluster.x-k8s.io/cluster-name": "c1", "mine": "too"}
        assert [owner["kind"] for owner in found["metadata"]["ownerReferences"]] == ["ConfigMap", "Cluster"]


async def test_it_waits_for_a_cluster_that_comes_later() -> None:
    async with world(MachineHealthChecks) as made:
        await check(made)
        assert "status" not in await the_check(made)
        await made.cluster()
        await made.settle()
        assert counts(await the_check(made)) == (0, 0, 0)


async def test_without_machines_nothing_is_expected_and_remediation_is_allowed() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await check(made)
        found = await the_check(made)
        assert counts(found) == (0, 0, 0)
        assert "targets" not in found["status"]
        assert said(found, "RemediationAllowed") == ("True", "RemediationAllowed", "")
        assert said(found, "RemediationAllowed", legacy=True) == ("True", "", "")


# --- whom it looks at ------------------------------------------------------------------------------------------------------


async def test_healthy_machines_are_counted_and_told() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        for name in ("m2", "m1"):
            await running(made, name)
        await check(made)
        found = await the_check(made)
        assert counts(found) == (2, 2, 2)
        assert found["status"]["targets"] == ["m1", "m2"]
        for name in ("m1", "m2"):
            assert said(await machine(made, name), "HealthCheckSucceeded") == ("True", "HealthCheckSucceeded", "")
            assert said(await machine(made, name), "HealthCheckSucceeded", legacy=True) == ("True", "", "")


async def test_machines_of_other_labels_other_clusters_or_taken_out_are_left_alone() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await cluster_up(made, "c2")
        await running(made, "other-label", role="db")
        await running(made, "other-cluster", cluster="c2")
        for name, annotation in (("paused", "paused"), ("skipped", "skip-remediation")):
            await running(made, name, ready="False", ago=900)
            await made.patch(MACHINES, name, {"metadata": {"annotations": {f"cluster.x-k8s.io/{annotation}": ""}}})
        await running(made, "mine")
        await check(made)
        assert (await the_check(made))["status"]["targets"] == ["mine"]
        for name in ("other-label", "other-cluster", "paused", "skipped"):
            assert said(await machine(made, name), "HealthCheckSucceeded") is None


async def test_a_machine_that_moves_out_of_the_selection_is_forgotten() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "m1")
        await check(made)
        await made.patch(MACHINES, "m1", {"metadata": {"labels": {"group": "retired"}}})
        await made.settle()
        assert counts(await the_check(made)) == (0, 0, 0)


async def test_two_checks_may_look_at_one_machine() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "m1")
        await check(made)
        await check(made, "second")
        assert counts(await the_check(made)) == counts(await the_check(made, "second")) == (1, 1, 1)


async def test_only_what_the_watch_filter_lets_through_is_looked_at() -> None:
    async with world(MachineHealthChecks, options=ControllerOptions(watch_filter="mine")) as made:
        await cluster_up(made)
        await check(made)
        assert "status" not in await the_check(made)
        await made.patch(MACHINE_HEALTH_CHECKS, "mhc", {"metadata": {"labels": {"cluster.x-k8s.io/watch-filter": "mine"}}})
        await made.settle()
        assert counts(await the_check(made)) == (0, 0, 0)


# --- when somebody is unwell -----------------------------------------------------------------------------------------------


async def test_an_unhealthy_machine_is_marked_and_its_owner_is_asked_to_replace_it() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "good")
        await running(made, "bad", ready="Unknown", ago=400)
        await check(made)
        bad = await machine(made, "bad")
        why = "Condition Ready on Node is reporting status Unknown with reason KubeletSays for more than 5m0s"
        assert said(bad, "HealthCheckSucceeded") == ("False", "UnhealthyNode", f"Health check failed:\n  * {why}")
        assert said(bad, "HealthCheckSucceeded", legacy=True) == ("False", "UnhealthyNode", why)
        assert (get(bad, "HealthCheckSucceeded", LEGACY) or {})["severity"] == "Warning"
        assert said(bad, "OwnerRemediated") == ("False", "WaitingForRemediation", "Waiting for remediation")
        assert said(bad, "OwnerRemediated", legacy=True) == ("False", "WaitingForRemediation", "")
        assert counts(await the_check(made)) == (2, 1, 1)
        told = f"Machine {NAMESPACE}/bad has been marked as unhealthy by {NAMESPACE}/mhc"
        assert ("Machine", "MachineMarkedUnhealthy", told) in await made.events()
        assert said(await machine(made, "good"), "OwnerRemediated") is None


async def test_a_node_that_fails_is_noticed_and_its_machine_marked_when_the_timeout_is_over() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "m1")
        await check(made)
        await node(made, "node-m1", "False")
        await made.settle(5)
        assert counts(await the_check(made)) == (1, 0, 0)
        assert said(await machine(made, "m1"), "HealthCheckSucceeded") == ("True", "HealthCheckSucceeded", "")
        await made.settle(290)
        assert said(await machine(made, "m1"), "OwnerRemediated") is None
        await made.settle(10)
        assert (said(await machine(made, "m1"), "HealthCheckSucceeded") or ())[:2] == ("False", "UnhealthyNode")
        assert said(await machine(made, "m1"), "OwnerRemediated") is not None


async def test_a_machine_that_recovers_is_told_so_and_the_owners_condition_is_left_to_the_owner() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "m1", ready="False", ago=400)
        await check(made)
        await node(made, "node-m1", "True")
        await made.settle(2)
        assert said(await machine(made, "m1"), "HealthCheckSucceeded") == ("True", "HealthCheckSucceeded", "")
        assert said(await machine(made, "m1"), "OwnerRemediated") is not None
        assert counts(await the_check(made)) == (1, 1, 1)


async def test_a_condition_of_the_machine_itself_counts() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "m1")
        listed = [{"type": "DiskHealthy", "status": "False", "timeoutSeconds": 60}]
        await check(made, checks={"unhealthyMachineConditions": listed})
        found = [*(await machine(made, "m1"))["status"]["conditions"], a_condition(made, "DiskHealthy", "False", "Broken")]
        await made.patch(MACHINES, "m1", {"status": {"conditions": found}}, "status")
        await made.settle(62)
        why = "Condition DiskHealthy on Machine is reporting status False with reason Broken for more than 1m0s"
        message = f"Health check failed:\n  * {why}"
        assert said(await machine(made, "m1"), "HealthCheckSucceeded") == ("False", "UnhealthyMachine", message)


async def test_a_machine_that_gets_no_node_in_time_is_unhealthy() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await made.machine("m1", labels=GROUP)
        await check(made)
        await made.settle(590)
        assert said(await machine(made, "m1"), "HealthCheckSucceeded") is None
        assert counts(await the_check(made)) == (1, 0, 0)
        await made.settle(15)
        message = "Health check failed:\n  * Node failed to report startup in 10m0s"
        assert said(await machine(made, "m1"), "HealthCheckSucceeded") == ("False", "NodeStartupTimeout", message)


async def test_a_node_that_is_deleted_makes_its_machine_unhealthy_at_once() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "m1")
        await check(made)
        await (await made.workloads.connect("c1")).client.delete(NODES, "node-m1")
        await made.settle()
        message = "Health check failed:\n  * Node node-m1 has been deleted"
        assert said(await machine(made, "m1"), "HealthCheckSucceeded") == ("False", "NodeDeleted", message)
        assert said(await machine(made, "m1"), "HealthCheckSucceeded", legacy=True) == ("False", "NodeNotFound", "")


async def test_the_annotation_asks_for_remediation_of_a_healthy_machine() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "m1")
        await check(made)
        await made.patch(MACHINES, "m1", {"metadata": {"annotations": {"cluster.x-k8s.io/remediate-machine": ""}}})
        await made.settle()
        assert (said(await machine(made, "m1"), "HealthCheckSucceeded") or ())[:2] == ("False", "HasRemediateAnnotation")
        assert said(await machine(made, "m1"), "OwnerRemediated") is not None


async def test_a_remediation_that_is_under_way_is_the_owners_and_one_that_is_done_is_begun_anew() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "m1", ready="False", ago=400)
        await made.patch(MACHINES, "m1", {"metadata": {"annotations": {"cluster.x-k8s.io/skip-remediation": ""}}})
        own = a_condition(made, "OwnerRemediated", "False", "RemediationDeferred")
        await made.patch(MACHINES, "m1", {"status": {"conditions": [own]}}, "status")
        await check(made)
        await made.patch(MACHINES, "m1", {"metadata": {"annotations": None}})
        await made.settle()
        assert said(await machine(made, "m1"), "OwnerRemediated") == ("False", "RemediationDeferred", "")
        kept = [each for each in (await machine(made, "m1"))["status"]["conditions"] if each["type"] != "OwnerRemediated"]
        done = a_condition(made, "OwnerRemediated", "True", "Remediated")
        await made.patch(MACHINES, "m1", {"status": {"conditions": [*kept, done]}}, "status")
        await made.settle()
        assert said(await machine(made, "m1"), "OwnerRemediated") == (
            "False",
            "WaitingForRemediation",
            "Waiting for remediation",
        )


async def test_a_machine_that_is_being_deleted_is_not_asked_to_be_replaced() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "m1", ready="False", ago=400)
        await made.patch(MACHINES, "m1", {"metadata": {"finalizers": ["test.io/stay"]}})
        await made.delete(MACHINES, "m1")
        await check(made)
        going = await machine(made, "m1")
        assert (said(going, "HealthCheckSucceeded") or ())[:2] == ("False", "UnhealthyNode")
        assert said(going, "OwnerRemediated") is None
        assert counts(await the_check(made)) == (1, 0, 0)


# --- when not to judge -----------------------------------------------------------------------------------------------------


async def test_while_the_clusters_infrastructure_is_not_ready_nodes_count_as_healthy_and_the_rest_is_not_judged() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made, infrastructure=False)
        await running(made, "m1", ready="False", ago=400)
        await made.machine("starting", labels=GROUP)
        await check(made)
        await made.settle(700)
        assert (said(await machine(made, "m1"), "HealthCheckSucceeded") or ())[:1] == ("True",)
        assert said(await machine(made, "starting"), "HealthCheckSucceeded") is None
        assert counts(await the_check(made)) == (2, 1, 1)
        conditions = [a_condition(made, "InfrastructureReady", "True"), a_condition(made, "ControlPlaneInitialized", "True")]
        await made.patch(CLUSTERS, "c1", {"status": {"conditions": conditions}}, "status")
        await made.settle()
        assert (said(await machine(made, "m1"), "HealthCheckSucceeded") or ())[:2] == ("False", "UnhealthyNode")


async def test_before_the_control_plane_only_its_own_machines_are_judged() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made, initialized=False)
        await made.machine("worker", labels=GROUP)
        await made.machine("first", labels={**GROUP, "cluster.x-k8s.io/control-plane": ""})
        await check(made)
        await made.settle(700)
        assert said(await machine(made, "worker"), "HealthCheckSucceeded") is None
        assert (said(await machine(made, "first"), "HealthCheckSucceeded") or ())[:2] == ("False", "NodeStartupTimeout")


async def test_a_cluster_that_can_not_be_reached_never_has_its_machines_remediated() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "m1")
        await made.machine("starting", labels=GROUP)
        await check(made)
        before = await the_check(made)
        made.workloads.cut("c1")
        await made.settle(5000)
        for name in ("m1", "starting"):
            assert said(await machine(made, name), "OwnerRemediated") is None
        assert (await the_check(made))["status"] == before["status"]
        await made.workloads.connect("c1")
        await made.settle(2)
        assert said(await machine(made, "starting"), "OwnerRemediated") is not None


@pytest.mark.parametrize("who", ["cluster", "check"])
async def test_while_paused_it_only_says_so(who: str) -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "m1", ready="False", ago=400)
        if who == "cluster":
            await made.patch(CLUSTERS, "c1", {"spec": {"paused": True}})
            await check(made)
            why = "Cluster spec.paused is set to true"
        else:
            paused = core_object("MachineHealthCheck", "mhc", {"clusterName": "c1", "selector": {"matchLabels": GROUP}})
            paused["metadata"]["annotations"] = {"cluster.x-k8s.io/paused": ""}
            await made.create(MACHINE_HEALTH_CHECKS, {**paused, "spec": {**paused["spec"], "checks": NODE_CHECKS}})
            await made.settle()
            why = "MachineHealthCheck has the cluster.x-k8s.io/paused annotation"
        found = await the_check(made)
        assert said(found, "Paused") == ("True", "Paused", why)
        assert "expectedMachines" not in found["status"]
        assert said(await machine(made, "m1"), "HealthCheckSucceeded") is None
        if who == "cluster":
            await made.patch(CLUSTERS, "c1", {"spec": {"paused": None}})
        else:
            await made.patch(MACHINE_HEALTH_CHECKS, "mhc", {"metadata": {"annotations": None}})
        await made.settle()
        assert said(await the_check(made), "Paused") == ("False", "NotPaused", "")
        assert said(await machine(made, "m1"), "OwnerRemediated") is not None


# --- too many at once ------------------------------------------------------------------------------------------------------


async def test_too_many_unhealthy_machines_stop_remediation_visibly() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "good")
        for name in ("bad1", "bad2"):
            await running(made, name, ready="False", ago=400)
        await check(made, remediation={"triggerIf": {"unhealthyLessThanOrEqualTo": "40%"}})
        found = await the_check(made)
        message = (
            "Remediation is not allowed, the number of not started or unhealthy machines exceeds maxUnhealthy "
            "(total: 3, unhealthy: 2, maxUnhealthy: 40%)"
        )
        assert counts(found) == (3, 1, 0)
        assert said(found, "RemediationAllowed") == ("False", "TooManyUnhealthy", message)
        assert said(found, "RemediationAllowed", legacy=True) == ("False", "TooManyUnhealthy", message)
        assert ("MachineHealthCheck", "RemediationRestricted", message) in await made.events()
        for name in ("bad1", "bad2"):
            assert (said(await machine(made, name), "HealthCheckSucceeded") or ())[:2] == ("False", "UnhealthyNode")
            assert said(await machine(made, name), "OwnerRemediated") is None
        assert said(await machine(made, "good"), "HealthCheckSucceeded") == ("True", "HealthCheckSucceeded", "")
        working = made.manager.working("machinehealthcheck")
        assert working is not None
        assert [wait.evidence for result in working.waits.values() for wait in result.waits] == [
            f"{message}; unhealthy: bad1, bad2"
        ]


async def test_remediation_begins_when_enough_machines_are_well_again() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        for name in ("bad1", "bad2"):
            await running(made, name, ready="False", ago=400)
        await check(made, remediation={"triggerIf": {"unhealthyLessThanOrEqualTo": 1}})
        await node(made, "node-bad1", "True")
        await made.settle(2)
        assert said(await the_check(made), "RemediationAllowed") == ("True", "RemediationAllowed", "")
        assert said(await machine(made, "bad1"), "OwnerRemediated") is None
        assert said(await machine(made, "bad2"), "OwnerRemediated") is not None


async def test_while_it_is_restricted_machines_are_still_watched_for_what_time_makes_of_them() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "bad", ready="False", ago=400)
        await made.machine("starting", labels=GROUP)
        await check(made, remediation={"triggerIf": {"unhealthyLessThanOrEqualTo": 0}})
        await made.settle(620)
        assert (said(await machine(made, "starting"), "HealthCheckSucceeded") or ())[:2] == ("False", "NodeStartupTimeout")


async def test_a_restriction_that_stays_is_told_of_again_but_not_all_the_time() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "bad", ready="False", ago=400)
        await check(made, remediation={"triggerIf": {"unhealthyLessThanOrEqualTo": 0}})
        await made.settle(1300)
        events = await made.list(GroupVersionResource("", "v1", "events"))
        assert [each["count"] for each in events if each["reason"] == "RemediationRestricted"] == [3]


async def test_machines_that_only_start_slowly_make_no_event() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await made.machine("starting", labels=GROUP)
        await check(made, remediation={"triggerIf": {"unhealthyLessThanOrEqualTo": 0}})
        assert (said(await the_check(made), "RemediationAllowed") or ())[:2] == ("False", "TooManyUnhealthy")
        assert await made.events() == []


async def test_a_range_can_ask_for_a_least_number_of_unhealthy_machines() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "good")
        await running(made, "bad", ready="False", ago=400)
        await check(made, remediation={"triggerIf": {"unhealthyInRange": "[2-3]"}})
        message = (
            "Remediation is not allowed, the number of not started or unhealthy machines does not fall within the range "
            "(total: 2, unhealthy: 1, unhealthyRange: [2-3])"
        )
        assert said(await the_check(made), "RemediationAllowed") == ("False", "TooManyUnhealthy", message)
        await node(made, "node-good", "False", 400)
        await made.settle(2)
        assert counts(await the_check(made)) == (2, 0, 1)
        assert said(await machine(made, "good"), "OwnerRemediated") is not None


async def test_an_unreadable_budget_stops_remediation_and_is_reported() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "bad", ready="False", ago=400)
        await check(made, remediation={"triggerIf": {"unhealthyInRange": "[3-1]"}})
        found = await the_check(made)
        why = "max value 1 cannot be less than min value 3 for unhealthyRange"
        message = f"error checking if remediation is allowed: {why}"
        assert said(found, "RemediationAllowed") == ("False", "InvalidTrigger", message)
        assert counts(found) == (1, 0, 0)
        assert (said(await machine(made, "bad"), "HealthCheckSucceeded") or ())[:2] == ("False", "UnhealthyNode")
        assert said(await machine(made, "bad"), "OwnerRemediated") is None


# --- remediation by somebody else ------------------------------------------------------------------------------------------


async def template(made: World) -> None:
    inner = {"metadata": {"labels": {"kind": "reboot"}}, "spec": {"strategy": "Reboot"}}
    await made.create(REMEDIATION_TEMPLATES, thing(INFRA, "TestRemediationTemplate", "reboot", {"template": inner}))


async def test_with_a_template_a_request_is_made_for_each_unhealthy_machine() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await template(made)
        for name in ("bad1", "bad2"):
            await running(made, name, ready="False", ago=400)
        await check(made, remediation={"templateRef": TEMPLATE_REF})
        for name in ("bad1", "bad2"):
            bad = await machine(made, name)
            request = await made.get(REMEDIATIONS, name)
            assert request["spec"] == {"strategy": "Reboot"}
            assert request["metadata"]["labels"] == {"cluster.x-k8s.io/cluster-name": "c1", "kind": "reboot"}
            assert request["metadata"]["annotations"] == {
                "cluster.x-k8s.io/cloned-from-name": "reboot",
                "cluster.x-k8s.io/cloned-from-groupkind": f"TestRemediationTemplate.{INFRA}",
            }
            owner = {"apiVersion": bad["apiVersion"], "kind": "Machine", "name": name, "uid": bad["metadata"]["uid"]}
            assert request["metadata"]["ownerReferences"] == [owner]
            assert said(bad, "ExternallyRemediated") == ("False", "WaitingForRemediation", "")
            assert said(bad, "OwnerRemediated") is None
        assert {each[1] for each in await made.events()} == {"MachineMarkedUnhealthy"}


async def test_what_the_remediator_says_is_not_overwritten() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await template(made)
        await running(made, "bad", ready="False", ago=400)
        await check(made, remediation={"templateRef": TEMPLATE_REF})
        kept = [each for each in (await machine(made, "bad"))["status"]["conditions"] if each["type"] != "ExternallyRemediated"]
        its = a_condition(made, "ExternallyRemediated", "False", "Rebooting")
        await made.patch(MACHINES, "bad", {"status": {"conditions": [*kept, its]}}, "status")
        await made.settle(700)
        assert said(await machine(made, "bad"), "ExternallyRemediated") == ("False", "Rebooting", "")


async def test_a_request_goes_when_its_machine_is_healthy_again() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await template(made)
        await running(made, "m1", ready="False", ago=400)
        await check(made, remediation={"templateRef": TEMPLATE_REF})
        assert await made.find(REMEDIATIONS, "m1") is not None
        await node(made, "node-m1", "True")
        await made.settle(2)
        assert await made.find(REMEDIATIONS, "m1") is None
        assert said(await machine(made, "m1"), "HealthCheckSucceeded") == ("True", "HealthCheckSucceeded", "")


async def test_healthy_machines_are_told_so_also_when_there_is_no_request_to_withdraw() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await template(made)
        await running(made, "m1")
        await check(made, remediation={"templateRef": TEMPLATE_REF})
        assert said(await machine(made, "m1"), "HealthCheckSucceeded") == ("True", "HealthCheckSucceeded", "")


async def test_a_template_that_is_missing_is_named_and_used_as_soon_as_it_comes() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "bad", ready="False", ago=400)
        await check(made, remediation={"templateRef": TEMPLATE_REF})
        why = f"Error retrieving remediation template TestRemediationTemplate {NAMESPACE}/reboot"
        assert said(await machine(made, "bad"), "ExternallyRemediated") == ("False", "RemediationTemplateNotFound", why)
        found = await the_check(made)
        said_there = said(found, "ExternalRemediationTemplateAvailable", legacy=True)
        wrong = (
            f'failed to retrieve TestRemediationTemplate {NAMESPACE}/reboot: TestRemediationTemplate.{INFRA} "reboot" not found'
        )
        assert said_there == ("False", "ExternalRemediationTemplateNotFound", wrong)
        assert "observedGeneration" not in found["status"]
        await template(made)
        await made.settle()
        assert await made.find(REMEDIATIONS, "bad") is not None
        assert said(await machine(made, "bad"), "ExternallyRemediated") == ("False", "WaitingForRemediation", "")
        assert said(await the_check(made), "ExternalRemediationTemplateAvailable", legacy=True) is None


async def test_a_kind_of_remediation_that_is_not_installed_is_named_too() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "bad", ready="False", ago=400)
        unknown = {**TEMPLATE_REF, "kind": "NobodysTemplate"}
        await check(made, remediation={"templateRef": unknown})
        found = said(await the_check(made), "ExternalRemediationTemplateAvailable", legacy=True)
        assert found is not None and 'no matches for kind "Nobodys' in found[2]
        assert (said(await machine(made, "bad"), "HealthCheckSucceeded") or ())[:2] == ("False", "UnhealthyNode")


async def test_a_request_that_is_refused_is_told_on_the_check_and_the_machine() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await template(made)
        loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        strict = {"type": "object", "properties": {"strategy": {"type": "string", "maxLength": 2}}}
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": strict, "status": loose}}}
        crd = await made.client.get(CRDS, f"testremediations.{INFRA}")
        versions = [{**crd["spec"]["versions"][0], "schema": schema}]
        await made.client.patch(CRDS, f"testremediations.{INFRA}", {"spec": {"versions": versions}})
        await made.settle()
        await running(made, "bad", ready="False", ago=400)
        await check(made, remediation={"templateRef": TEMPLATE_REF})
        failed = ("False", "RemediationRequestCreationFailed", "Please check controller logs for errors")
        assert said(await machine(made, "bad"), "ExternallyRemediated") == failed
        found = said(await the_check(made), "ExternalRemediationRequestAvailable", legacy=True)
        assert found is not None and found[:2] == ("False", "ExternalRemediationRequestCreationFailed")
        assert "Too long" in found[2]


async def test_a_request_made_just_before_a_crash_is_found_again() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await template(made)
        await made.create(REMEDIATIONS, thing(INFRA, "TestRemediation", "bad"))
        await running(made, "bad", ready="False", ago=400)
        await check(made, remediation={"templateRef": TEMPLATE_REF})
        assert said(await machine(made, "bad"), "ExternallyRemediated") == ("False", "WaitingForRemediation", "")


# --- few writes ------------------------------------------------------------------------------------------------------------


async def test_when_nothing_changes_nothing_is_written() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "good")
        await running(made, "bad", ready="False", ago=400)
        await check(made)
        await made.settle(5)
        before = [await the_check(made), await machine(made, "good"), await machine(made, "bad")]
        await made.settle(3600)
        assert [await the_check(made), await machine(made, "good"), await machine(made, "bad")] == before
        events = await made.list(GroupVersionResource("", "v1", "events"))
        assert [each["count"] for each in events] == [1]


async def test_a_range_that_forbids_remediation_of_no_machine_is_no_wait() -> None:
    async with world(MachineHealthChecks) as made:
        await cluster_up(made)
        await running(made, "good")
        await check(made, remediation={"triggerIf": {"unhealthyInRange": "[1-3]"}})
        assert (said(await the_check(made), "RemediationAllowed") or ())[0] == "False"
        working = made.manager.working("machinehealthcheck")
        assert working is not None and not working.waits
