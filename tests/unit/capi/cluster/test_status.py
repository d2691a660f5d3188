"""The status of a Cluster as a function of what was found: no API, no time but the one given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from remuda.capi.cluster.scope import ClusterScope, Descendants, Referred, referred
from remuda.capi.cluster.status import of_control_plane, of_workers, phase_of, with_status
from remuda.capi.contracts import V1BETA1, V1BETA2, ContractKind
from remuda.capi.external_objects import External
from remuda.capi.workload_clusters import Health
from remuda.kube.clock import rfc3339
from remuda.kube.conditions import get
from remuda.kube.objects import GroupVersionResource
from remuda.runtime import Informer

Obj = dict[str, Any]
NOW = 1_800_000_000.0
OLD, NEW = rfc3339(NOW - 3600), rfc3339(NOW - 3)
INFRA_REF = {"apiGroup": "infrastructure.test.io", "kind": "TestCluster", "name": "c1"}
PLANE_REF = {"apiGroup": "controlplane.test.io", "kind": "TestControlPlane", "name": "c1"}
BOTH_REFS = {"infrastructureRef": INFRA_REF, "controlPlaneRef": PLANE_REF}
SOUND = {"infrastructureProvisioned": True, "controlPlaneInitialized": True}


def cond(kind: str, status: str = "True", message: str = "", reason: str = "Foo") -> Obj:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": OLD}


def cluster(
    spec: Obj | None = None, *conditions: Obj, initialization: Obj | None = None, deleting: bool = False, **status: Any
) -> Obj:
    meta: Obj = {"name": "c1", "namespace": "herd", "uid": "u1", "generation": 2}
    if deleting:
        meta["deletionTimestamp"] = OLD
    found: Obj = {**status}
    if initialization:
        found["initialization"] = initialization
    if conditions:
        found["conditions"] = list(conditions)
    spec = BOTH_REFS if spec is None else spec
    return {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": meta, "spec": spec, "status": found}


def part(kind: str, name: str, *conditions: Obj, spec: Obj | None = None, owned: bool = False, **status: Any) -> Obj:
    meta: Obj = {"name": name, "creationTimestamp": OLD, "labels": {"cluster.x-k8s.io/cluster-name": "c1"}}
    if owned:
        meta["ownerReferences"] = [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": "u1"}]
    if conditions:
        status["conditions"] = list(conditions)
    return {"kind": kind, "metadata": meta, "spec": spec or {}, "status": status}


def machine(name: str, *conditions: Obj, plane: bool = False, created: str = OLD, owned: bool = True, **status: Any) -> Obj:
    made = part("Machine", name, *conditions, owned=owned, **status)
    made["metadata"]["creationTimestamp"] = created
    if plane:
        made["metadata"]["labels"]["cluster.x-k8s.io/control-plane"] = ""
    return made


def deployment(name: str, *conditions: Obj, **status: Any) -> Obj:
    return part("MachineDeployment", name, *conditions, **status)


def provider(kind: str, contract: str = V1BETA2, spec: Obj | None = None, **status: Any) -> External:
    obj = {"apiVersion": "test.io/v1", "kind": kind, "metadata": {"name": "c1"}, "spec": spec or {}, "status": status}
    resource = GroupVersionResource("test.io", "v1", f"{kind.lower()}s")
    return External(obj, ContractKind(resource, kind, contract), cast(Informer, None))


def scope(
    found: Obj | None = None,
    *,
    infra: External | str | None = None,
    plane: External | str | None = None,
    machines: tuple[Obj, ...] = (),
    deployments: tuple[Obj, ...] = (),
    sets: tuple[Obj, ...] = (),
    health: Health | None = None,
) -> ClusterScope:
    """`infra` and `plane` are objects, "missing", or None when they could not be read."""
    found = found or cluster()

    def refers(field: str, what: External | str | None) -> Referred:
        base = referred(found, field)
        if isinstance(what, External):
            return replace(base, found=what)
        return replace(base, missing=what == "missing")

    return ClusterScope(
        found,
        NOW,
        refers("infrastructureRef", infra),
        refers("controlPlaneRef", plane),
        Descendants(found, list(deployments), list(sets), list(machines)),
        health or Health(),
    )


def said(made: ClusterScope, kind: str) -> tuple[str, str, str]:
    found = get(with_status(made).cluster, kind)
    assert found is not None
    return found["status"], found["reason"], found["message"]


UNREADABLE = ("Unknown", "InternalError", "Please check controller logs for errors")


# --- phase --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "before", "expected"),
    [
        (cluster({"paused": False}), "", "Pending"),
        (cluster({"infrastructureRef": INFRA_REF}), "", "Provisioning"),
        (cluster({"controlPlaneRef": PLANE_REF}), "Pending", "Provisioning"),
        (cluster(initialization=SOUND), "Provisioning", "Provisioning"),
        (cluster({**BOTH_REFS, "controlPlaneEndpoint": {"host": "h"}}, initialization=SOUND), "", "Provisioning"),
        (cluster({**BOTH_REFS, "controlPlaneEndpoint": {"host": "h", "port": 1}}, initialization=SOUND), "", "Provisioned"),
        (cluster({"controlPlaneEndpoint": {"host": "h", "port": 1}}, initialization=SOUND), "", "Provisioned"),
    ],
)
def test_the_phase(found: Obj, before: str, expected: str) -> None:
    assert phase_of(found, before, deleting=False) == expected
    assert phase_of(found, before, deleting=True) == "Deleting"


# --- the connection -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        (Health(), ("False", "ProbeFailed", "Remote connection not established yet")),
        (Health(None, NOW, 4), ("False", "ProbeFailed", "Remote connection not established yet")),
        (Health(None, NOW, 5), ("False", "ProbeFailed", "Remote connection probe failed")),
        (Health(NOW - 10, NOW, 1), ("True", "ProbeSucceeded", "")),
        (Health(NOW - 50, NOW, 4), ("True", "ProbeSucceeded", "")),
        (
            Health(NOW - 51, NOW, 5),
            ("False", "ProbeFailed", f"Remote connection probe failed, probe last succeeded at {rfc3339(NOW - 51)}"),
        ),
    ],
)
def test_the_connections_condition(health: Health, expected: tuple[str, str, str]) -> None:
    assert said(scope(health=health), "RemoteConnectionProbe") == expected


def test_what_was_said_of_a_connection_stays_until_there_is_news() -> None:
    found = cluster(None, cond("RemoteConnectionProbe", "True", reason="ProbeSucceeded"))
    assert said(scope(found), "RemoteConnectionProbe")[0] == "True"
    assert said(scope(found, health=Health(None, NOW, 5)), "RemoteConnectionProbe")[0] == "False"


def test_failing_probes_are_looked_at_again_when_the_grace_is_over() -> None:
    assert with_status(scope(health=Health(NOW - 20, NOW, 2))).revisit == pytest.approx(30.1)
    assert with_status(scope(health=Health(NOW - 5, NOW, 0))).revisit is None


# --- infrastructure and control plane -----------------------------------------------------------------------------------------


def test_objects_that_could_not_be_read_are_unknown() -> None:
    made = scope()
    for kind in ("InfrastructureReady", "ControlPlaneAvailable", "ControlPlaneInitialized"):
        assert said(made, kind) == UNREADABLE
    for kind in ("RollingOut", "ScalingUp", "ScalingDown"):
        assert said(made, kind) == UNREADABLE


@pytest.mark.parametrize("deleting", [False, True])
def test_objects_that_do_not_exist(deleting: bool) -> None:
    made = scope(cluster(deleting=deleting), infra="missing", plane="missing")
    assert said(made, "InfrastructureReady") == ("False", "ObjectDoesNotExist", "TestCluster does not exist")
    assert said(made, "ControlPlaneAvailable") == ("False", "ObjectDoesNotExist", "TestControlPlane does not exist")
    assert said(made, "ControlPlaneInitialized") == ("Unknown", "ObjectDoesNotExist", "TestControlPlane does not exist")


@pytest.mark.parametrize(("deleting", "more"), [(False, " while the cluster still exists"), (True, "")])
def test_objects_that_went_after_they_had_been_there(deleting: bool, more: str) -> None:
    made = scope(cluster(initialization=SOUND, deleting=deleting), infra="missing", plane="missing")
    assert said(made, "InfrastructureReady") == ("False", "ObjectDeleted", f"TestCluster has been deleted{more}")
    assert said(made, "ControlPlaneAvailable") == ("False", "ObjectDeleted", f"TestControlPlane has been deleted{more}")


def test_an_initialized_control_plane_never_becomes_uninitialized() -> None:
    found = cluster(None, cond("ControlPlaneInitialized", reason="Initialized"))
    assert said(scope(found, plane=provider("TestControlPlane")), "ControlPlaneInitialized")[0] == "True"


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (None, ("False", "NotInitialized", "Waiting for the first control plane machine to have status.nodeRef set")),
        ({"name": "n1"}, ("True", "Initialized", "")),
    ],
)
def test_a_control_plane_of_machines_is_initialized_with_its_first_node(node: Obj | None, expected: Any) -> None:
    found = cluster({"infrastructureRef": INFRA_REF})
    machines = (machine("cp1", plane=True, **({"nodeRef": node} if node else {})), machine("w1", nodeRef={"name": "n2"}))
    assert said(scope(found, machines=machines), "ControlPlaneInitialized") == expected


# --- workers and machines -----------------------------------------------------------------------------------------------------


def test_workers_are_available_when_all_deployments_are() -> None:
    assert said(scope(), "WorkersAvailable") == ("True", "NoWorkers", "")
    good, bad = deployment("md1", cond("Available")), deployment("md2", cond("Available", "False", "too few"))
    assert said(scope(deployments=(good,)), "WorkersAvailable") == ("True", "Available", "")
    assert said(scope(deployments=(good, bad)), "WorkersAvailable") == (
        "False",
        "NotAvailable",
        "* MachineDeployment md2: too few",
    )
    silent = deployment("md3")
    assert said(scope(deployments=(good, silent)), "WorkersAvailable") == (
        "Unknown",
        "AvailableUnknown",
        "* MachineDeployment md3: Condition Available not yet reported",
    )


@pytest.mark.parametrize(("kind", "plane"), [("ControlPlaneMachinesReady", True), ("WorkerMachinesReady", False)])
def test_readiness_of_machines(kind: str, plane: bool) -> None:
    assert said(scope(machines=(machine("x", plane=not plane),)), kind) == ("True", "NoReplicas", "")
    good = machine("m1", cond("Ready"), plane=plane)
    assert said(scope(machines=(good,)), kind) == ("True", "Ready", "")
    others = (
        good,
        machine("m2", cond("Ready", "False", "NotReady"), plane=plane),
        machine("m3", cond("Ready", "Unknown", "Waiting"), plane=plane),
        machine("m4", cond("Ready", "False", "Deleting"), plane=plane),
        machine("m5", plane=plane),
    )
    status, reason, message = said(scope(machines=others), kind)
    assert (status, reason) == ("False", "NotReady")
    assert message.split("\n") == [
        "* Machine m2: NotReady",
        "* Machine m4: Deleting",
        "* Machine m3: Waiting",
        "And 1 Machine with status unknown",
    ]


@pytest.mark.parametrize(("kind", "plane"), [("ControlPlaneMachinesUpToDate", True), ("WorkerMachinesUpToDate", False)])
def test_machines_up_to_date(kind: str, plane: bool) -> None:
    assert said(scope(), kind) == ("True", "NoReplicas", "")
    assert said(scope(machines=(machine("m1", cond("UpToDate"), plane=plane),)), kind) == ("True", "UpToDate", "")
    bad = machine("m1", cond("UpToDate", "False", "Version v1"), plane=plane)
    assert said(scope(machines=(bad,)), kind) == ("False", "NotUpToDate", "* Machine m1: Version v1")
    silent = machine("m1", plane=plane)
    assert said(scope(machines=(silent,)), kind)[:2] == ("Unknown", "UpToDateUnknown")


def test_a_new_machine_may_keep_silent_about_being_up_to_date_for_ten_seconds() -> None:
    made = scope(machines=(machine("m1", created=NEW),))
    assert said(made, "WorkerMachinesUpToDate") == ("True", "NoReplicas", "")
    assert with_status(made).revisit == pytest.approx(7)


def test_machines_of_pools_do_not_count() -> None:
    pooled = machine("m1", cond("HealthCheckSucceeded", "False"), cond("OwnerRemediated", "False", "soon"))
    pooled["metadata"]["labels"]["cluster.x-k8s.io/pool-name"] = "p"
    made = scope(machines=(pooled,))
    assert said(made, "WorkerMachinesReady") == ("True", "NoReplicas", "")
    assert said(made, "Remediating") == ("False", "NotRemediating", "")


def test_remediation() -> None:
    sick = cond("HealthCheckSucceeded", "False")
    owned = cond("OwnerRemediated", "False", "Waiting for remediation")
    assert said(scope(machines=(machine("m1"),)), "Remediating") == ("False", "NotRemediating", "")
    assert said(scope(machines=(machine("m1", sick, owned), machine("m2", sick))), "Remediating") == (
        "True",
        "Remediating",
        "* Machine m1: Waiting for remediation",
    )
    assert said(scope(machines=(machine("m1", sick),)), "Remediating")[2] == ("Machine m1 is not healthy (not to be remediated)")
    many = tuple(machine(f"m{number}", sick) for number in range(5))
    assert said(scope(machines=many), "Remediating")[2] == (
        "Machines m0, m1, m2, ... (2 more) are not healthy (not to be remediated)"
    )


@pytest.mark.parametrize("kind", ["RollingOut", "ScalingUp", "ScalingDown"])
def test_movements(kind: str) -> None:
    assert said(scope(infra="missing", plane="missing"), kind) == ("False", f"Not{kind}", "")
    still, moving = deployment("md1", cond(kind, "False")), deployment("md2", cond(kind, "True", "from 1 to 3"))
    silent_plane = provider("TestControlPlane")
    assert said(scope(plane=silent_plane, deployments=(still,)), kind) == ("False", f"Not{kind}", "")
    plane = provider("TestControlPlane", conditions=[cond(kind, "True", "from 3 to 5")])
    assert said(scope(plane=plane, deployments=(still, moving)), kind) == (
        "True",
        kind,
        "* MachineDeployment md2: from 1 to 3\n* TestControlPlane c1: from 3 to 5",
    )
    assert said(scope(plane=silent_plane, deployments=(deployment("md1"),)), kind) == (
        "Unknown",
        f"{kind}Unknown",
        f"* MachineDeployment md1: Condition {kind} not yet reported",
    )


def test_sets_that_stand_by_themselves_scale_but_do_not_roll_out() -> None:
    alone = part("MachineSet", "ms1", cond("ScalingUp", "True", "from 0 to 1"), cond("RollingOut"), owned=True)
    controlled = part("MachineSet", "ms2", cond("ScalingUp", "True", "not mine"))
    made = scope(infra="missing", plane="missing", sets=(alone, controlled))
    assert said(made, "ScalingUp") == ("True", "ScalingUp", "* MachineSet ms1: from 0 to 1")
    assert said(made, "RollingOut")[0] == "False"


# --- available ----------------------------------------------------------------------------------------------------------------


def sound(spec: Obj | None = None, *conditions: Obj, deleting: bool = False) -> ClusterScope:
    return scope(
        cluster({**BOTH_REFS, **(spec or {})}, *conditions, initialization=SOUND, deleting=deleting),
        infra=provider("TestCluster", conditions=[cond("Ready")]),
        plane=provider("TestControlPlane", conditions=[cond("Available")]),
        health=Health(NOW, NOW, 0),
    )


def test_a_cluster_is_available_when_all_of_it_is() -> None:
    assert said(sound(), "Available") == ("True", "Available", "")


def test_gates_count_with_their_polarity() -> None:
    gates = {"availabilityGates": [{"conditionType": "Mine"}, {"conditionType": "Smoke", "polarity": "Negative"}]}
    assert said(sound(gates, cond("Mine"), cond("Smoke", "False")), "Available") == ("True", "Available", "")
    assert said(sound(gates, cond("Mine", "False", "no"), cond("Smoke", "True", "fire")), "Available") == (
        "False",
        "NotAvailable",
        "* Mine: no\n* Smoke: fire",
    )
    assert said(sound(gates, cond("Mine")), "Available") == (
        "Unknown",
        "AvailableUnknown",
        "* Smoke: Condition not yet reported",
    )


def test_what_is_gone_already_is_no_issue_while_deleting() -> None:
    made = scope(cluster(initialization=SOUND, deleting=True), infra="missing", plane="missing", health=Health(NOW, NOW, 0))
    made.deleting_reason, made.deleting_message = "WaitingForX", "Some message"
    assert said(made, "Available") == ("False", "NotAvailable", "* Deleting: Some message")


def test_a_topology_counts_only_when_it_failed() -> None:
    failed = cond("TopologyReconciled", "False", "broken", "ReconcileFailed")
    assert said(sound(None, failed), "Available") == ("False", "NotAvailable", "* TopologyReconciled: broken")
    upgrading = cond("TopologyReconciled", "False", "upgrading", "ClusterUpgrading")
    assert said(sound(None, upgrading), "Available") == ("True", "Available", "* TopologyReconciled: upgrading")


def test_the_same_snapshot_twice_changes_nothing() -> None:
    once = with_status(sound())
    again = with_status(replace(sound(), cluster=once.cluster))
    assert again.cluster == once.cluster
    assert not again.phase_changed


# --- counters -----------------------------------------------------------------------------------------------------------------


def plane_of(external: External | None, *, missing: bool = False) -> Referred:
    return Referred(PLANE_REF, external, missing)


def descendants(**found: Any) -> Descendants:
    lists = {"machine_deployments": [], "machine_sets": [], "machines": [], **found}
    return Descendants(cluster(), **lists)


COUNTERS = {"desiredReplicas": 3, "replicas": 3, "readyReplicas": 2, "availableReplicas": 1, "upToDateReplicas": 3}


def test_a_control_plane_reports_its_own_counters() -> None:
    status = {"replicas": 3, "readyReplicas": 2, "availableReplicas": 1, "upToDateReplicas": 3}
    plane = provider("TestControlPlane", spec={"replicas": 3}, **status, versions=[{"version": "v1.2.3", "replicas": 3}])
    expected = {**COUNTERS, "versions": [{"version": "v1.2.3", "replicas": 3}]}
    assert of_control_plane({}, plane_of(plane), descendants()) == expected


def test_a_control_plane_that_reports_nothing_has_no_counters() -> None:
    assert of_control_plane({}, plane_of(provider("TestControlPlane")), descendants()) == {}


def test_counters_go_with_the_control_plane() -> None:
    before = {**COUNTERS, "versions": [{"version": "v1"}], "upgradePlan": [{"version": "v2"}]}
    assert of_control_plane(before, plane_of(None, missing=True), descendants()) == {"upgradePlan": [{"version": "v2"}]}
    assert of_control_plane(before, plane_of(None), descendants()) == {"upgradePlan": [{"version": "v2"}]}


def test_the_older_contract_counts_what_is_unavailable() -> None:
    plane = provider("TestControlPlane", V1BETA1, {"replicas": 3}, unavailableReplicas=5, updatedReplicas=2)
    assert of_control_plane({}, plane_of(plane), descendants()) == {
        "desiredReplicas": 3,
        "availableReplicas": 0,
        "upToDateReplicas": 2,
    }


@pytest.mark.parametrize(
    "versions",
    ["nonsense", [{"version": "x"}], [{"version": "v1.3.0"}, {"version": "v1.2.0"}], [{"version": "v1.2.0", "replicas": -1}]],
)
def test_versions_that_cannot_be_are_not_taken_over(versions: Any) -> None:
    before = {"versions": [{"version": "v1.1.0"}]}
    plane = provider("TestControlPlane", versions=versions)
    assert of_control_plane(before, plane_of(plane), descendants()) == before


def test_control_plane_machines_that_stand_by_themselves_are_counted() -> None:
    machines = [
        machine("cp1", cond("Ready"), cond("Available"), plane=True, nodeInfo={"kubeletVersion": "v1.30.0"}),
        machine("cp2", cond("Ready"), cond("UpToDate"), plane=True),
        machine("w1", cond("Ready")),
    ]
    assert of_control_plane({}, Referred({}), descendants(machines=machines)) == {
        "desiredReplicas": 2,
        "replicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 1,
        "upToDateReplicas": 1,
        "versions": [{"version": "v1.30.0", "replicas": 1}],
    }
    assert of_control_plane(COUNTERS, Referred({}), descendants()) == {}


def test_workers_are_the_sum_of_all_that_is_the_clusters_own() -> None:
    counts = {"replicas": 2, "readyReplicas": 1, "availableReplicas": 1, "upToDateReplicas": 2}
    versions = [{"version": "v1.31.0", "replicas": 2}]
    found = descendants(
        machine_deployments=[part("MachineDeployment", "md1", spec={"replicas": 3}, versions=versions, **counts)],
        machine_sets=[
            part("MachineSet", "ms1", spec={"replicas": 2}, owned=True, versions=versions, **counts),
            part("MachineSet", "ms2", spec={"replicas": 100}, **counts),
        ],
        machines=[
            machine("w1", cond("Ready"), nodeInfo={"kubeletVersion": "v1.30.0"}),
            machine("w2", cond("Ready"), owned=False),
        ],
    )
    assert of_workers({}, found) == {
        "desiredReplicas": 6,
        "replicas": 5,
        "readyReplicas": 3,
        "availableReplicas": 2,
        "upToDateReplicas": 4,
        "versions": [{"version": "v1.30.0", "replicas": 1}, {"version": "v1.31.0", "replicas": 4}],
    }


def test_workers_that_report_nothing_are_not_zero() -> None:
    assert of_workers(COUNTERS, descendants()) == {}
    assert of_workers({}, descendants(machine_deployments=[deployment("md1")])) == {}
