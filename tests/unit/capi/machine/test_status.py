"""A Machine's status as a function of what was seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remuda.capi.machine.node_sync import legacy_node_health, node_health, node_ready
from remuda.capi.machine.status import MachineSnapshot, computed, deletion_stage, grouped_control_plane, node_conditions
from remuda.capi.workload_clusters import Health
from remuda.kube.clock import rfc3339
from remuda.kube.conditions import LEGACY, with_condition, with_legacy
from remuda.kube.objects import with_metadata, with_path

from .nodes import HEALTHY, told
from .nodes import node as node_of

Obj = dict[str, Any]
NOW = 1_800_000_000.0
CONFIG = {"apiGroup": "b", "kind": "TestConfig", "name": "m"}
INFRA = {"apiGroup": "i", "kind": "TestMachine", "name": "m"}
ALIVE = Health(NOW - 5, NOW - 5, 0)


def machine(**fields: Any) -> Obj:
    made = {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Machine",
        "metadata": {"name": "m", "namespace": "ns", "generation": 3},
        "spec": {"clusterName": "c", "bootstrap": {"configRef": CONFIG}, "infrastructureRef": INFRA, "version": "v1.36.3"},
    }
    for path, value in fields.items():
        made = with_path(made, path.split("__"), value)
    return made


def going(since: float = 60.0, **fields: Any) -> Obj:
    return with_metadata(machine(**fields), deletionTimestamp=rfc3339(NOW - since))


def cluster(initialized_since: float = 1000.0, provisioned: bool = True) -> Obj:
    made = {
        "kind": "Cluster",
        "metadata": {"name": "c"},
        "status": {"initialization": {"infrastructureProvisioned": provisioned}},
    }
    return with_condition(made, "ControlPlaneInitialized", "True", "Initialized", now=NOW - initialized_since)


def provider(kind: str, **status: Any) -> Obj:
    return {"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "m"}, "status": status}


def seen(machine: Obj, **more: Any) -> MachineSnapshot:
    given = {"cluster": cluster(), "now": NOW, "health": ALIVE}
    return MachineSnapshot(machine, **{**given, **more})


def after(snapshot: MachineSnapshot) -> Obj:
    return computed(snapshot).machine


# --- providers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "more", "said"),
    [
        pytest.param(machine(spec__bootstrap={"dataSecretName": "s"}), {}, ("True", "DataSecretProvided", ""), id="by hand"),
        pytest.param(
            machine(),
            {"bootstrap": provider("TestConfig")},
            ("False", "NotReady", "TestConfig status.initialization.dataSecretCreated is false"),
            id="not yet",
        ),
        pytest.param(
            machine(status__initialization={"bootstrapDataSecretCreated": True}),
            {"bootstrap": provider("TestConfig")},
            ("True", "Ready", ""),
            id="done, without a condition",
        ),
        pytest.param(
            machine(),
            {"bootstrap": provider("TestConfig", conditions=[{"type": "Ready", "status": "True"}])},
            ("True", "Ready", ""),
            id="an older condition without a reason",
        ),
        pytest.param(
            machine(),
            {"bootstrap": provider("TestConfig", v1beta2={"conditions": [{"type": "Ready", "status": "False", "reason": "R"}]})},
            ("False", "R", ""),
            id="a condition on its way to today's place",
        ),
        pytest.param(
            machine(), {"bootstrap_missing": True}, ("False", "ObjectDoesNotExist", "TestConfig does not exist"), id="not there"
        ),
        pytest.param(
            going(status__initialization={"bootstrapDataSecretCreated": True}),
            {"bootstrap_missing": True},
            ("False", "ObjectDeleted", "TestConfig has been deleted"),
            id="gone with the machine",
        ),
        pytest.param(machine(), {}, ("Unknown", "InternalError", "Please check controller logs for errors"), id="unreadable"),
    ],
)
def test_bootstrap_config_ready(machine: Obj, more: Obj, said: tuple[str, ...]) -> None:
    assert told(after(seen(machine, **more)), "BootstrapConfigReady") == said


PROVISIONED = {"status__initialization": {"infrastructureProvisioned": True}}


@pytest.mark.parametrize(
    ("machine", "more", "said"),
    [
        pytest.param(
            machine(),
            {"infra": provider("TestMachine")},
            ("False", "NotReady", "TestMachine status.initialization.provisioned is false"),
            id="not yet",
        ),
        pytest.param(machine(**PROVISIONED), {"infra": provider("TestMachine")}, ("True", "Ready", ""), id="provisioned"),
        pytest.param(
            machine(),
            {
                "infra": provider(
                    "TestMachine", conditions=[{"type": "Ready", "status": "False", "reason": "NoRoom", "message": "m"}]
                )
            },
            ("False", "NoRoom", "m"),
            id="what the provider says",
        ),
        pytest.param(
            machine(),
            {"infra": provider("TestMachine", conditions=[{"status": "True"}])},
            (
                "Unknown",
                "InvalidConditionReported",
                "failed to convert status.conditions from TestMachine to []metav1.Condition: type must be set for all conditions",
            ),
            id="nonsense",
        ),
        pytest.param(
            machine(), {"infra_missing": True}, ("False", "ObjectDoesNotExist", "TestMachine does not exist"), id="not there"
        ),
        pytest.param(
            machine(**PROVISIONED),
            {"infra_missing": True},
            ("False", "ObjectDeleted", "TestMachine has been deleted while the Machine still exists"),
            id="lost",
        ),
        pytest.param(
            going(), {"infra_missing": True}, ("False", "ObjectDoesNotExist", "TestMachine does not exist"), id="never was"
        ),
        pytest.param(
            going(**PROVISIONED), {"infra_missing": True}, ("False", "ObjectDeleted", "TestMachine has been deleted"), id="gone"
        ),
        pytest.param(machine(), {}, ("Unknown", "InternalError", "Please check controller logs for errors"), id="unreadable"),
    ],
)
def test_infrastructure_ready(machine: Obj, more: Obj, said: tuple[str, ...]) -> None:
    assert told(after(seen(machine, **more)), "InfrastructureReady") == said


def test_a_provider_conditions_time_is_kept() -> None:
    said = [{"type": "Ready", "status": "True", "reason": "R", "lastTransitionTime": "2020-01-01T00:00:00Z"}]
    made = after(seen(machine(), infra=provider("TestMachine", conditions=said)))
    (found,) = [each for each in made["status"]["conditions"] if each["type"] == "InfrastructureReady"]
    assert found["lastTransitionTime"] == "2020-01-01T00:00:00Z" and found["observedGeneration"] == 3


# --- the node --------------------------------------------------------------------------------------------------------------

KNOWN = with_condition(with_condition(machine(), "NodeReady", "True", "R", now=1), "NodeHealthy", "True", "R", now=1)


@pytest.mark.parametrize(
    ("snapshot", "said"),
    [
        pytest.param(
            seen(machine(), cluster=cluster(provisioned=False)),
            ("InspectionFailed", "Waiting for Cluster status.initialization.infrastructureProvisioned to be true"),
            id="no infrastructure",
        ),
        pytest.param(
            seen(machine(), cluster=with_path(cluster(), ("status", "conditions"), [])),
            ("InspectionFailed", "Waiting for Cluster control plane to be initialized"),
            id="no control plane",
        ),
        pytest.param(
            seen(machine(), health=Health(failures=4), disconnected=True),
            ("ConnectionDown", "Remote connection not established yet"),
            id="never connected",
        ),
        pytest.param(seen(KNOWN, health=Health(failures=4), disconnected=True), None, id="never connected, but known before"),
        pytest.param(
            seen(machine(), health=Health(NOW - 100, NOW, 3), disconnected=True),
            ("ConnectionDown", f"Last successful probe at {rfc3339(NOW - 100)}"),
            id="lost before anything was known",
        ),
        pytest.param(seen(KNOWN, health=Health(NOW - 100, NOW, 3), disconnected=True), None, id="lost for a while"),
        pytest.param(
            seen(KNOWN, health=Health(NOW - 301, NOW, 9), disconnected=True),
            ("ConnectionDown", f"Last successful probe at {rfc3339(NOW - 301)}"),
            id="lost for long",
        ),
        pytest.param(
            seen(KNOWN, health=Health(None, NOW, 9), disconnected=True), ("ConnectionDown", ""), id="never reached at all"
        ),
        pytest.param(
            seen(KNOWN, health=Health(None, NOW, 9), disconnected=True, cluster=cluster(initialized_since=100)),
            None,
            id="a young control plane has time",
        ),
        pytest.param(
            seen(KNOWN, node_unreadable=True), ("InternalError", "Please check controller logs for errors"), id="two nodes"
        ),
        pytest.param(
            seen(machine(spec__providerID="p://1")),
            ("InspectionFailed", "Waiting for a Node with spec.providerID p://1 to exist"),
            id="no node yet",
        ),
        pytest.param(
            seen(machine()), ("InspectionFailed", "Waiting for TestMachine to report spec.providerID"), id="no providerID yet"
        ),
        pytest.param(seen(going()), ("NodeDoesNotExist", "Node does not exist"), id="going, and never had one"),
    ],
)
def test_what_is_not_known_about_a_node(snapshot: MachineSnapshot, said: tuple[str, str] | None) -> None:
    found = node_conditions(snapshot)
    if said is None:
        assert found is None
    else:
        assert found is not None and found.ready == found.healthy == ("Unknown", *said, "")


def test_a_node_that_is_gone() -> None:
    ref = {"status__nodeRef": {"name": "n"}}
    lost, gone = node_conditions(seen(machine(**ref))), node_conditions(seen(going(**ref)))
    assert lost is not None and gone is not None
    assert lost.healthy[:3] == ("False", "NodeDeleted", "Node n has been deleted while the Machine still exists")
    assert gone.healthy[:3] == ("False", "NodeDeleted", "Node n has been deleted")


def test_a_machine_looks_again_when_patience_with_a_lost_connection_ends() -> None:
    assert computed(seen(KNOWN, health=Health(NOW - 100, NOW, 1), disconnected=True)).after == pytest.approx(201)
    assert computed(seen(KNOWN, health=Health(NOW - 301, NOW, 1), disconnected=True)).after is None
    assert computed(seen(KNOWN)).after is None


def conditions(*said: tuple[str, str, str]) -> Obj:
    return {"status": {"conditions": [{"type": kind, "status": status, "message": text} for kind, status, text in said]}}


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (node_of("n"), ("True", "NodeHealthy", "")),
        (
            conditions(
                ("Ready", "False", "no net"),
                ("MemoryPressure", "False", ""),
                ("DiskPressure", "False", ""),
                ("PIDPressure", "False", ""),
            ),
            ("False", "NodeNotHealthy", "* Node.Ready: no net"),
        ),
        (
            conditions(
                ("Ready", "Unknown", "lost"),
                ("MemoryPressure", "Unknown", "lost"),
                ("DiskPressure", "Unknown", "lost"),
                ("PIDPressure", "Unknown", "lost"),
            ),
            ("Unknown", "NodeHealthyUnknown", "* Node.AllConditions: lost"),
        ),
        (
            conditions(("Ready", "True", "")),
            (
                "Unknown",
                "NodeHealthyUnknown",
                "* Node.MemoryPressure: Condition not yet reported\n* Node.DiskPressure: Condition not yet reported\n"
                "* Node.PIDPressure: Condition not yet reported",
            ),
        ),
        (
            conditions(
                ("Ready", "Unknown", ""),
                ("MemoryPressure", "True", "full"),
                ("DiskPressure", "False", ""),
                ("PIDPressure", "False", ""),
            ),
            ("False", "NodeNotHealthy", "* Node.Ready: Condition is Unknown\n* Node.MemoryPressure: full"),
        ),
    ],
)
def test_a_nodes_health(node: Obj, said: tuple[str, ...]) -> None:
    assert node_health(node)[:3] == said


def test_a_nodes_readiness_keeps_its_time() -> None:
    ready = {"type": "Ready", "status": "False", "message": "no net", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    found = node_ready({"status": {"conditions": [ready]}})
    assert found == ("False", "NodeNotReady", "* Node.Ready: no net", "2020-01-01T00:00:00Z")
    assert node_ready({"status": {}})[:3] == ("Unknown", "NodeReadyUnknown", "* Node.Ready: Condition not yet reported")


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        (HEALTHY, ("True", "", "", "")),
        ({}, ("True", "", "", "")),
        ({**HEALTHY, "Ready": "Unknown"}, ("True", "", "", "")),
        ({**HEALTHY, "Ready": "False"}, ("False", "NodeConditionsFailed", "Node condition Ready is False", "Warning")),
        (
            dict.fromkeys(HEALTHY, "Unknown"),
            ("Unknown", "NodeConditionsFailed", ". ".join(f"Node condition {kind} is Unknown" for kind in HEALTHY), ""),
        ),
    ],
)
def test_the_older_rule_for_a_nodes_health(statuses: dict[str, str], said: tuple[str, ...]) -> None:
    assert legacy_node_health(node_of("n", conditions=statuses)) == said


# --- up to date ----------------------------------------------------------------------------------------------------------


def test_only_a_deployments_machines_say_whether_they_are_up_to_date() -> None:
    machine_set: Obj = {"spec": {"template": {}}}
    deployment: Obj = {"spec": {"template": {}}}
    assert told(after(seen(machine())), "UpToDate") == ()
    assert told(after(seen(machine(), machine_set=machine_set)), "UpToDate") == ()
    found = after(seen(machine(), machine_set=machine_set, machine_deployment=deployment))
    assert told(found, "UpToDate") == ("True", "UpToDate", "")


# --- ready, available, phase -----------------------------------------------------------------------------------------------


def well(**fields: Any) -> MachineSnapshot:
    """Everything is there."""
    status = {"bootstrapDataSecretCreated": True, "infrastructureProvisioned": True}
    made = machine(status__initialization=status, spec__providerID="p", status__nodeRef={"name": "n"}, **fields)
    return seen(made, bootstrap=provider("TestConfig"), infra=provider("TestMachine"), node=node_of("n"))


def test_a_machine_with_everything_is_ready_and_available() -> None:
    found = computed(well())
    assert told(found.machine, "Ready") == ("True", "Ready", "")
    assert told(found.machine, "Available") == ("True", "Available", "")
    assert told(found.machine, "Deleting") == ("False", "NotDeleting", "")
    assert told(found.machine, "Updating") == ("False", "NotUpdating", "")
    assert found.machine["status"]["phase"] == "Running"
    assert found.machine["status"]["lastUpdated"] == rfc3339(NOW)
    assert found.after is None


def test_the_same_seen_again_changes_nothing() -> None:
    found = computed(well()).machine
    assert computed(replace(well(), machine=found, now=NOW + 100)).machine is found


def test_a_machine_that_must_be_ready_for_a_while_looks_again_then() -> None:
    found = computed(well(spec__minReadySeconds=90))
    assert told(found.machine, "Available") == ("False", "WaitingForMinReadySeconds", "")
    assert found.after == 90
    later = computed(replace(well(), machine=found.machine, now=NOW + 90))
    assert told(later.machine, "Available") == ("True", "Available", "")


def test_a_failed_health_check_makes_a_machine_not_ready() -> None:
    made = with_condition(well().machine, "HealthCheckSucceeded", "False", "UnhealthyNode", "sick", now=NOW)
    assert told(after(replace(well(), machine=made)), "Ready") == ("False", "NotReady", "* HealthCheckSucceeded: sick")


def test_a_gate_on_readiness_itself_is_an_error() -> None:
    found = after(well(spec__readinessGates=[{"conditionType": "Ready"}]))
    assert told(found, "Ready") == ("Unknown", "InternalError", "Please check controller logs for errors")


def test_while_a_machine_goes_what_goes_with_it_is_no_news() -> None:
    status = {"bootstrapDataSecretCreated": True, "infrastructureProvisioned": True}
    made = going(status__initialization=status, status__nodeRef={"name": "n"})
    snapshot = seen(made, bootstrap_missing=True, infra_missing=True, deleting_reason="WaitingForInfrastructureDeletion")
    found = after(replace(snapshot, deleting_message="Waiting for TestMachine to be deleted"))
    assert told(found, "Deleting") == ("True", "WaitingForInfrastructureDeletion", "Waiting for TestMachine to be deleted")
    message = "* Deleting: Machine deletion in progress, stage: WaitingForInfrastructureDeletion"
    assert told(found, "Ready") == ("False", "NotReady", message)
    assert found["status"]["phase"] == "Deleting"


def test_a_long_drain_says_what_it_is_likely_about() -> None:
    text = "Pod a: cannot evict pod as it would violate the pod's disruption budget. b\nPod c: waiting for completion"
    drained = {"status__deletion": {"nodeDrainStartTime": rfc3339(NOW - 400)}}
    stages = []
    for since in (60.0, 1000.0):
        made = with_condition(going(since, **drained), "Deleting", "True", "DrainingNode", text, now=NOW)
        stages.append(deletion_stage(made, NOW))
    assert stages == [
        "Machine deletion in progress, stage: DrainingNode",
        "Machine deletion in progress since more than 15m, stage: DrainingNode, "
        "delay likely due to PodDisruptionBudgets, Pods not completed yet",
    ]


@pytest.mark.parametrize(
    ("lines", "grouped"),
    [
        (["* A: x"], ["* A: x"]),
        (["* APIServerPodHealthy: x"], ["* APIServerPodHealthy: x"]),
        (
            ["* A: x", "* APIServerPodHealthy: x", "* SchedulerPodHealthy: x", "* EtcdPodHealthy: x", "* EtcdMemberHealthy: x"],
            ["* A: x", "* Control plane components: x", "* EtcdMemberHealthy: x"],
        ),
        (["* APIServerPodHealthy: x", "* SchedulerPodHealthy: y"], ["* APIServerPodHealthy: x", "* SchedulerPodHealthy: y"]),
    ],
)
def test_control_plane_components_that_say_the_same_are_one_line(lines: list[str], grouped: list[str]) -> None:
    assert grouped_control_plane(lines) == grouped


@pytest.mark.parametrize(
    ("machine", "phase"),
    [
        (machine(), "Pending"),
        (machine(status__initialization={"bootstrapDataSecretCreated": True}), "Provisioning"),
        (machine(spec__providerID="p", status__initialization={"infrastructureProvisioned": True}), "Provisioned"),
        (machine(spec__providerID="p"), "Provisioned"),
        (machine(status__nodeRef={"name": "n"}, status__initialization={"infrastructureProvisioned": True}), "Running"),
        (machine(status__phase="Provisioning"), "Provisioning"),
        (going(status__phase="Running"), "Deleting"),
    ],
)
def test_phases(machine: Obj, phase: str) -> None:
    assert after(seen(machine))["status"]["phase"] == phase


# --- the older set ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        pytest.param(
            machine(), ("False", "WaitingForDataSecret", "1 of 2 completed", "Info"), id="being made: steps are counted"
        ),
        pytest.param(machine(spec__providerID="p"), ("False", "WaitingForDataSecret", "", "Info"), id="made: they are not"),
        pytest.param(going(), ("False", "WaitingForDataSecret", "", "Info"), id="going: they are not"),
        pytest.param(
            with_legacy(machine(), "HealthCheckSucceeded", "False", "Sick", "m", "Warning", now=NOW),
            ("False", "Sick", "m", "Warning"),
            id="with a health check they are not, and the worse counts",
        ),
    ],
)
def test_ready_of_the_older_kind(machine: Obj, said: tuple[str, ...]) -> None:
    made = with_legacy(machine, "BootstrapReady", "False", "WaitingForDataSecret", severity="Info", now=NOW)
    made = with_legacy(made, "InfrastructureReady", "True", now=NOW)
    assert told(after(seen(made)), "Ready", LEGACY) == said
