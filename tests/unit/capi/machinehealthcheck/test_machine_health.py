"""Whether one machine is well, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.capi.machinehealthcheck.machine_health import (
    HEALTHY,
    UNJUDGED,
    ClusterState,
    ConditionCheck,
    HealthChecks,
    HealthCheckTarget,
    HealthState,
    HealthVerdict,
    examine,
    is_checked,
)
from remuda.kube.clock import rfc3339

Obj = dict[str, Any]

NOW = 1_800_000_000.0
UP = ClusterState(NOW - 3600, NOW - 3600)
CHECKS = HealthChecks(
    600,
    node=(ConditionCheck("Ready", "Unknown", 300), ConditionCheck("Ready", "False", 300)),
    machine=(ConditionCheck("EtcdPodHealthy", "False", 300), ConditionCheck("EtcdPodHealthy", "Unknown", 300)),
)


def condition(kind: str, status: str, ago: float, reason: str = "Why") -> Obj:
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": rfc3339(NOW - ago)}


def machine(*conditions: Obj, ago: float = 7200, node: str = "n1", control_plane: bool = False, **annotations: str) -> Obj:
    meta: Obj = {"name": "m1", "namespace": "herd", "creationTimestamp": rfc3339(NOW - ago)}
    if control_plane:
        meta["labels"] = {"cluster.x-k8s.io/control-plane": ""}
    if annotations:
        meta["annotations"] = {f"cluster.x-k8s.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    status: Obj = {"conditions": list(conditions)}
    if node:
        status["nodeRef"] = {"name": node}
    return {"metadata": meta, "status": status}


def node(*conditions: Obj) -> Obj:
    return {"metadata": {"name": "n1"}, "status": {"conditions": list(conditions)}}


READY = node(condition("Ready", "True", 5000))


def judge(target: HealthCheckTarget, cluster: ClusterState = UP, checks: HealthChecks = CHECKS) -> HealthVerdict:
    return examine(target, cluster, checks, NOW)


def test_a_machine_with_a_ready_node_is_healthy() -> None:
    assert judge(HealthCheckTarget(machine(), READY)) == HEALTHY


def test_conditions_that_are_not_listed_are_ignored() -> None:
    bad = node(condition("Ready", "False", 9000), condition("DiskPressure", "True", 9000))
    assert judge(HealthCheckTarget(machine(condition("NodeHealthy", "False", 9000)), bad), checks=HealthChecks()) == HEALTHY


@pytest.mark.parametrize(("ago", "left"), [(200, 101), (299, 2), (300, 1)])
def test_a_node_that_is_not_ready_for_less_than_the_timeout_is_looked_at_again_just_after_it(ago: float, left: float) -> None:
    verdict = judge(HealthCheckTarget(machine(), node(condition("Ready", "Unknown", ago))))
    assert verdict == HealthVerdict(HealthState.LATER, after=left)


def test_a_node_that_is_not_ready_for_too_long_makes_its_machine_unhealthy() -> None:
    verdict = judge(HealthCheckTarget(machine(), node(condition("Ready", "Unknown", 400, "NodeStatusUnknown"))))
    said = "Condition Ready on Node is reporting status Unknown with reason NodeStatusUnknown for more than 5m0s"
    assert verdict == HealthVerdict(
        HealthState.UNHEALTHY, "UnhealthyNode", f"Health check failed:\n  * {said}", "UnhealthyNode", said
    )


def test_a_machines_own_condition_counts_like_a_nodes() -> None:
    verdict = judge(HealthCheckTarget(machine(condition("EtcdPodHealthy", "False", 400, "Failed")), READY))
    said = "Condition EtcdPodHealthy on Machine is reporting status False with reason Failed for more than 5m0s"
    assert verdict == HealthVerdict(
        HealthState.UNHEALTHY, "UnhealthyMachine", f"Health check failed:\n  * {said}", "UnhealthyMachine", said
    )


def test_a_machines_own_condition_may_have_time_left() -> None:
    assert judge(HealthCheckTarget(machine(condition("EtcdPodHealthy", "False", 200)), READY)) == HealthVerdict(
        HealthState.LATER, after=101
    )


def test_everything_that_is_wrong_is_said_and_the_machine_gives_the_reason() -> None:
    target = HealthCheckTarget(
        machine(condition("EtcdPodHealthy", "False", 400, "Failed")), node(condition("Ready", "False", 400, "Down"))
    )
    verdict = judge(target)
    own = "Condition EtcdPodHealthy on Machine is reporting status False with reason Failed for more than 5m0s"
    nodes = "Condition Ready on Node is reporting status False with reason Down for more than 5m0s"
    assert verdict.reason == "UnhealthyMachine"
    assert verdict.message == f"Health check failed:\n  * {own}\n  * {nodes}"
    assert verdict.legacy_message == f"{own}; {nodes}"


def test_what_is_wrong_for_too_long_is_not_put_off_by_what_has_time_left() -> None:
    target = HealthCheckTarget(machine(condition("EtcdPodHealthy", "False", 10)), node(condition("Ready", "False", 400)))
    assert judge(target).state is HealthState.UNHEALTHY


def test_the_sooner_of_two_timeouts_decides_when_to_look_again() -> None:
    target = HealthCheckTarget(machine(condition("EtcdPodHealthy", "False", 10)), node(condition("Ready", "False", 100)))
    assert judge(target) == HealthVerdict(HealthState.LATER, after=201)


def test_a_node_that_is_gone_makes_its_machine_unhealthy_whatever_the_checks_are() -> None:
    verdict = judge(HealthCheckTarget(machine(), node_gone=True), checks=HealthChecks())
    said = "Health check failed:\n  * Node n1 has been deleted"
    # Whoever reads the older set has never got a message for this one.
    assert verdict == HealthVerdict(HealthState.UNHEALTHY, "NodeDeleted", said, "NodeNotFound", "")


def test_a_machine_without_a_node_has_until_the_startup_timeout() -> None:
    assert judge(HealthCheckTarget(machine(ago=400, node=""))) == HealthVerdict(HealthState.LATER, after=201)


def test_a_machine_that_gets_no_node_in_time_is_unhealthy() -> None:
    verdict = judge(HealthCheckTarget(machine(ago=1200, node="")))
    said = "Node failed to report startup in 10m0s"
    message = f"Health check failed:\n  * {said}"
    assert verdict == HealthVerdict(HealthState.UNHEALTHY, "NodeStartupTimeout", message, "NodeStartupTimeout", said)


@pytest.mark.parametrize(
    ("cluster", "conditions"),
    [
        (ClusterState(NOW - 50, NOW - 3600), ()),
        (ClusterState(NOW - 3600, NOW - 50), ()),
        (UP, (condition("InfrastructureReady", "True", 50),)),
    ],
)
def test_the_startup_timeout_begins_with_the_last_thing_the_machine_had_to_wait_for(
    cluster: ClusterState, conditions: tuple[Obj, ...]
) -> None:
    assert judge(HealthCheckTarget(machine(*conditions, ago=1200, node="")), cluster) == HealthVerdict(
        HealthState.LATER, after=551
    )


def test_infrastructure_that_is_not_ready_does_not_put_off_the_startup_timeout() -> None:
    late = machine(condition("InfrastructureReady", "False", 50), ago=1200, node="")
    assert judge(HealthCheckTarget(late)).state is HealthState.UNHEALTHY


def test_a_startup_timeout_of_zero_lets_a_machine_take_for_ever() -> None:
    assert judge(HealthCheckTarget(machine(ago=90_000, node="")), checks=HealthChecks(0)) == UNJUDGED


def test_the_annotation_makes_a_machine_unhealthy_before_anything_else_is_asked() -> None:
    verdict = judge(HealthCheckTarget(machine(remediate_machine="")), ClusterState())
    assert verdict == HealthVerdict(
        HealthState.UNHEALTHY,
        "HasRemediateAnnotation",
        "Health check failed: marked for remediation via cluster.x-k8s.io/remediate-machine annotation",
        "HasRemediateMachineAnnotation",
        "Marked for remediation via remediate-machine annotation",
    )


def test_nothing_is_judged_before_the_clusters_infrastructure_is_ready() -> None:
    assert judge(HealthCheckTarget(machine(ago=90_000, node=""), None), ClusterState(None, NOW - 3600)) == UNJUDGED


def test_with_a_node_a_machine_counts_as_healthy_while_the_clusters_infrastructure_is_not_ready() -> None:
    not_ready = ClusterState(None, NOW - 3600)
    assert judge(HealthCheckTarget(machine(), node({"type": "Ready", "status": "False"})), not_ready) == HEALTHY
    assert judge(HealthCheckTarget(machine(), None, node_gone=True), not_ready) == UNJUDGED
    going = machine()
    going["metadata"]["deletionTimestamp"] = rfc3339(NOW)
    assert judge(HealthCheckTarget(going, READY), not_ready) == UNJUDGED


def test_workers_are_not_judged_before_there_is_a_control_plane() -> None:
    assert judge(HealthCheckTarget(machine(ago=90_000, node="")), ClusterState(NOW - 3600, None)) == UNJUDGED


def test_the_first_machine_of_a_control_plane_is() -> None:
    verdict = judge(HealthCheckTarget(machine(ago=90_000, node="", control_plane=True)), ClusterState(NOW - 3600, None))
    assert verdict.reason == "NodeStartupTimeout"


def test_a_machine_that_is_being_deleted_is_not_called_healthy() -> None:
    going = machine()
    going["metadata"]["deletionTimestamp"] = rfc3339(NOW)
    assert judge(HealthCheckTarget(going, READY)) == UNJUDGED


def test_a_condition_that_does_not_say_since_when_has_always_been_so() -> None:
    timeless = {"type": "Ready", "status": "False"}
    assert judge(HealthCheckTarget(machine(), node(timeless))).state is HealthState.UNHEALTHY


@pytest.mark.parametrize(
    ("annotations", "looked_at"),
    [({}, True), ({"paused": ""}, False), ({"skip_remediation": ""}, False), ({"remediate_machine": ""}, True)],
)
def test_paused_and_skipped_machines_are_not_looked_at(annotations: dict[str, str], looked_at: bool) -> None:
    assert is_checked(machine(**annotations)) is looked_at


def test_checks_are_read_with_the_defaults_that_admission_fills_in() -> None:
    assert HealthChecks.of({"spec": {}}) == HealthChecks(600)
    listed = [{"type": "Ready", "status": "False", "timeoutSeconds": 60}]
    spec = {"checks": {"nodeStartupTimeoutSeconds": 0, "unhealthyNodeConditions": listed, "unhealthyMachineConditions": listed}}
    ready = ConditionCheck("Ready", "False", 60)
    assert HealthChecks.of({"spec": spec}) == HealthChecks(0, (ready,), (ready,))


def test_a_cluster_is_up_since_its_conditions_say_so() -> None:
    cluster = {
        "status": {"conditions": [condition("InfrastructureReady", "True", 9), condition("ControlPlaneInitialized", "False", 5)]}
    }
    assert ClusterState.of(cluster) == ClusterState(NOW - 9, None)
