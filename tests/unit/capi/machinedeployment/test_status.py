"""What a MachineDeployment says about itself, and which set is its new one: decisions without a server."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.capi.machine_messages import in_deletion_for_long, not_to_be_remediated
from remuda.capi.machinedeployment.desired_machinesets import (
    current_machine_set,
    find,
    identity,
    new_machine_set,
    old_machine_set,
    revised,
)
from remuda.capi.machinedeployment.status import MachineDeploymentSnapshot, Rolled, is_complete, next_report_at, with_status
from remuda.capi.well_known import DISABLE_MACHINE_CREATE, REVISION, REVISION_HISTORY, TEMPLATE_HASH
from remuda.kube.clock import rfc3339
from remuda.kube.conditions import LEGACY, get
from remuda.kube.objects import name_of

Obj = dict[str, Any]
NOW = 1_800_000_000.0


def deployment(replicas: int | None = 3, *, surge: Any = 1, unavailable: Any = 0, deleting: bool = False, **spec: Any) -> Obj:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    found: Obj = {"rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}, "template": template()} | spec
    if replicas is not None:
        found["replicas"] = replicas
    made = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "spec": found}
    meta: Obj = {"name": "md", "namespace": "herd", "uid": "md-uid", "generation": 1}
    return made | {"metadata": meta | ({"deletionTimestamp": rfc3339(NOW)} if deleting else {})}


def template(version: str = "v1.36.3", **spec: Any) -> Obj:
    return {"spec": {"version": version, "infrastructureRef": {"apiGroup": "i", "kind": "ITemplate", "name": "t"}, **spec}}


def machine_set(name: str = "ms", replicas: int = 3, made: float = NOW, status: Obj | None = None, **of: Any) -> Obj:
    meta = {"name": name, "namespace": "herd", "uid": name, "creationTimestamp": rfc3339(made), "labels": {TEMPLATE_HASH: "1"}}
    return {"metadata": meta, "spec": {"replicas": replicas, "template": template(**of)}, "status": status or {}}


def counted(present: int, available: int | None = None, up_to_date: int | None = None) -> Obj:
    """A set of three with so many machines."""
    fields = {"replicas": present, "availableReplicas": available, "upToDateReplicas": up_to_date}
    return machine_set(status={field: value for field, value in fields.items() if value is not None})


def machine(name: str, since: float = NOW - 60, deleting: float | None = None, **conditions: tuple[str, str]) -> Obj:
    meta = {"name": name, "creationTimestamp": rfc3339(since)}
    if deleting is not None:
        meta["deletionTimestamp"] = rfc3339(deleting)
    found = [
        {"type": kind, "status": status, "reason": "Because", "message": message}
        for kind, (status, message) in conditions.items()
    ]
    return {"kind": "Machine", "metadata": meta, "status": {"conditions": found}}


def condition(kind: str, obj: Obj, sets: list[Obj] | None = None, **of: Any) -> tuple[str, str, str]:
    found = get(with_status(MachineDeploymentSnapshot(obj, NOW, machine_sets=sets, **of)), kind)
    assert found is not None
    return found["status"], found["reason"], found["message"]


# --- conditions ---------------------------------------------------------------------------------------------------------------

UNSEEN = ("Unknown", "InternalError", "Please check controller logs for errors")


@pytest.mark.parametrize("kind", ["Available", "ScalingUp", "ScalingDown", "Deleting"])
def test_what_can_not_be_told_without_sets_is_unknown(kind: str) -> None:
    assert condition(kind, deployment()) == UNSEEN


@pytest.mark.parametrize("kind", ["Available", "ScalingUp", "ScalingDown"])
def test_what_can_not_be_told_without_a_size_is_unknown(kind: str) -> None:
    assert condition(kind, deployment(None), []) == ("Unknown", "WaitingForReplicasSet", "Waiting for spec.replicas set")


@pytest.mark.parametrize(
    ("obj", "available", "expected"),
    [
        (deployment(5, unavailable=1), 4, ("True", "Available", "")),
        (deployment(5, unavailable=5), 0, ("True", "Available", "")),
        (
            deployment(5, unavailable=1),
            3,
            (
                "False",
                "NotAvailable",
                "3 available replicas, at least 4 required (spec.strategy.rollout.maxUnavailable is 1, spec.replicas is 5)",
            ),
        ),
        (
            deployment(5, unavailable="20%"),
            3,
            (
                "False",
                "NotAvailable",
                "3 available replicas, at least 4 required (spec.strategy.rollout.maxUnavailable is 20%, spec.replicas is 5)",
            ),
        ),
        (
            deployment(5, rollout={"strategy": {"type": "OnDelete"}}),
            3,
            ("False", "NotAvailable", "3 available replicas, at least 5 required"),
        ),
        (deployment(5, deleting=True), 3, ("False", "NotAvailable", "Deletion in progress")),
        (
            deployment(5),
            None,
            ("Unknown", "WaitingForAvailableReplicasSet", "Waiting for status.availableReplicas set"),
        ),
    ],
)
def test_available(obj: Obj, available: int | None, expected: tuple[str, str, str]) -> None:
    assert condition("Available", obj, [counted(5, available)]) == expected


def test_rolling_out_names_every_reason_once_and_versions_first() -> None:
    machines = [
        machine("a", UpToDate=("False", "* Failure domain a, b required\n* Version v1, v2 required")),
        machine("b", UpToDate=("False", "* Version v1, v2 required")),
        machine("c", UpToDate=("False", "")),
        machine("d", UpToDate=("True", "")),
        machine("e", UpToDate=("Unknown", "nobody knows")),
        machine("f"),
    ]
    message = "Rolling out 3 not up-to-date replicas\n* Version v1, v2 required\n* Failure domain a, b required"
    assert condition("RollingOut", deployment(), [], machines=machines) == ("True", "RollingOut", message)
    assert condition("RollingOut", deployment(), [], machines=machines[3:]) == ("False", "NotRollingOut", "")


@pytest.mark.parametrize(
    ("obj", "present", "missing", "expected"),
    [
        (deployment(), 3, {}, ("False", "NotScalingUp", "")),
        (deployment(), 5, {}, ("False", "NotScalingUp", "")),
        (deployment(), 1, {}, ("True", "ScalingUp", "Scaling up from 1 to 3 replicas")),
        (deployment(deleting=True), 1, {}, ("False", "NotScalingUp", "")),
        (
            deployment(),
            3,
            {"infrastructure_missing": True},
            ("False", "NotScalingUp", "Scaling up would be blocked because ITemplate does not exist"),
        ),
        (deployment(deleting=True), 3, {"infrastructure_missing": True}, ("False", "NotScalingUp", "")),
        (
            deployment(),
            0,
            {"infrastructure_missing": True},
            ("True", "ScalingUp", "Scaling up from 0 to 3 replicas is blocked because ITemplate does not exist"),
        ),
    ],
)
def test_scaling_up(obj: Obj, present: int, missing: dict[str, bool], expected: tuple[str, str, str]) -> None:
    assert condition("ScalingUp", obj, [counted(present)], **missing) == expected


def test_scaling_down_names_machines_that_take_long() -> None:
    assert condition("ScalingDown", deployment(), [counted(3)]) == ("False", "NotScalingDown", "")
    assert condition("ScalingDown", deployment(), [counted(4)]) == ("True", "ScalingDown", "Scaling down from 4 to 3 replicas")
    slow = [machine("slow", deleting=NOW - 1000)]
    message = "Scaling down from 4 to 3 replicas\n* Machine slow is in deletion since more than 15m"
    assert condition("ScalingDown", deployment(), [counted(4)], machines=slow) == ("True", "ScalingDown", message)


def draining(name: str, message: str, started: float = NOW - 600) -> Obj:
    made = machine(name, deleting=NOW - 1000, Deleting=("True", message))
    made["status"]["conditions"][0]["reason"] = "DrainingNode"
    made["status"]["deletion"] = {"nodeDrainStartTime": rfc3339(started)}
    return made


@pytest.mark.parametrize(
    ("machines", "expected"),
    [
        ([], ""),
        ([machine("a"), machine("b", deleting=NOW - 60)], ""),
        ([machine(name, deleting=NOW - 1000) for name in "cab"], "Machines a, b, c are in deletion since more than 15m"),
        (
            [machine(name, deleting=NOW - 1000) for name in "abcde"],
            "Machines a, b, c, ... (2 more) are in deletion since more than 15m",
        ),
        (
            [
                draining("a", "Pod x: waiting for completion"),
                draining("b", "cannot evict pod as it would violate the pod's disruption budget."),
            ],
            "Machines a, b are in deletion since more than 15m, delay likely due to PodDisruptionBudgets, Pods not completed yet",
        ),
        (
            [draining("a", "failed to evict Pod", NOW - 60)],
            "Machine a is in deletion since more than 15m",
        ),
    ],
)
def test_machines_that_take_long(machines: list[Obj], expected: str) -> None:
    assert in_deletion_for_long(machines, NOW) == expected


def test_machines_ready_and_up_to_date_are_sums() -> None:
    machines = [machine("a", Ready=("False", "no node"), UpToDate=("True", "")), machine("b", Ready=("True", ""))]
    assert condition("MachinesReady", deployment(), [], machines=machines) == ("False", "NotReady", "* Machine a: no node")
    unheard = "* Machine b: Condition UpToDate not yet reported"
    assert condition("MachinesUpToDate", deployment(), [], machines=machines) == ("Unknown", "UpToDateUnknown", unheard)


def test_a_young_machine_may_be_silent_for_ten_seconds() -> None:
    young = machine("young", since=NOW - 4)
    assert condition("MachinesUpToDate", deployment(), [], machines=[young]) == ("True", "NoReplicas", "")
    assert next_report_at([young, machine("old"), machine("said", since=NOW - 8, UpToDate=("True", ""))], NOW) == NOW + 6
    assert next_report_at([], NOW) is None


def test_remediating_names_replaced_machines_and_others() -> None:
    ill = machine("ill", HealthCheckSucceeded=("False", ""))
    going = machine("going", HealthCheckSucceeded=("False", ""), OwnerRemediated=("False", "Machine is deleting"))
    assert condition("Remediating", deployment(), [], machines=[machine("well")]) == ("False", "NotRemediating", "")
    assert condition("Remediating", deployment(), [], machines=[ill]) == (
        "False",
        "NotRemediating",
        "Machine ill is not healthy (not to be remediated by MachineDeployment/MachineSet)",
    )
    message = "* Machine going: Machine is deleting"
    assert condition("Remediating", deployment(), [], machines=[ill, going]) == ("True", "Remediating", message)
    several = [machine(name) for name in "abcd"]
    assert not_to_be_remediated(several).startswith("Machines a, b, c, ... (1 more) are not healthy")


def test_deleting_counts_machines_then_sets() -> None:
    gone = deployment(deleting=True)
    assert condition("Deleting", deployment(), [])[:2] == ("False", "NotDeleting")
    assert condition("Deleting", gone, [counted(1)], machines=[machine("a")]) == ("True", "Deleting", "Deleting 1 Machine")
    two = [machine("a"), machine("b", deleting=NOW - 1000)]
    message = "Deleting 2 Machines\n* Machine b is in deletion since more than 15m"
    assert condition("Deleting", gone, [counted(1)], machines=two) == ("True", "Deleting", message)
    assert condition("Deleting", gone, [counted(0)]) == ("True", "Deleting", "Deleting 1 MachineSets")
    assert condition("Deleting", gone, []) == ("True", "Deleting", "Deletion completed")


# --- counts and phases --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obj", "sets", "expected"),
    [
        (deployment(), None, "Unknown"),
        (deployment(None), [], "Unknown"),
        (deployment(), [counted(3)], "Running"),
        (deployment(), [counted(1)], "ScalingUp"),
        (deployment(), [counted(2), counted(2)], "ScalingDown"),
        (deployment(deleting=True), [counted(1)], "ScalingDown"),
    ],
)
def test_phase(obj: Obj, sets: list[Obj] | None, expected: str) -> None:
    assert with_status(MachineDeploymentSnapshot(obj, NOW, machine_sets=sets))["status"]["phase"] == expected


def test_counts_are_added_up_and_left_out_while_no_set_has_any() -> None:
    sets = [counted(2, 1), counted(3, 2, 1), machine_set()]
    status = with_status(MachineDeploymentSnapshot(deployment(), NOW, machine_sets=sets))["status"]
    assert (status["replicas"], status["availableReplicas"], status["upToDateReplicas"]) == (5, 3, 1)
    assert "readyReplicas" not in status
    before = {**deployment(), "status": {"replicas": 3, "versions": [{"version": "v1"}]}}
    status = with_status(MachineDeploymentSnapshot(before, NOW, machine_sets=[]))["status"]
    assert "replicas" not in status and "versions" not in status


def test_counts_stay_when_sets_could_not_be_told() -> None:
    before = {**deployment(), "status": {"replicas": 3}}
    assert with_status(MachineDeploymentSnapshot(before, NOW))["status"]["replicas"] == 3


def test_complete_means_all_there_and_nothing_else() -> None:
    assert is_complete(deployment(), [counted(3, 3, 3), counted(0, 0, 0)])
    assert not is_complete(deployment(), [counted(3, 3, 2)])
    assert not is_complete(deployment(), [counted(3, 3, 3), counted(1, 0, 0)])
    assert is_complete(deployment(0), [])


def test_the_older_counts_and_conditions_come_only_from_a_plan_that_was_carried_out() -> None:
    plain = with_status(MachineDeploymentSnapshot(deployment(), NOW, machine_sets=[counted(3, 3)]))
    assert "deprecated" not in plain["status"]
    old = {"v1beta1": {"availableReplicas": 4, "readyReplicas": 4}}
    new = machine_set(replicas=3, status={"replicas": 4, "availableReplicas": 4, "deprecated": old})
    found = with_status(MachineDeploymentSnapshot(deployment(), NOW, machine_sets=[new], rolled=Rolled(new, [new])))
    counts = {"updatedReplicas": 4, "readyReplicas": 4, "availableReplicas": 4, "unavailableReplicas": 0}
    assert {field: found["status"]["deprecated"]["v1beta1"][field] for field in counts} == counts
    assert (get(found, "Ready", LEGACY) or {})["status"] == "True"


# --- which set is the new one -------------------------------------------------------------------------------------------------


def names(found: list[Obj]) -> list[str]:
    return [name_of(each) for each in found]


def test_the_largest_match_is_the_new_one_and_of_equals_the_oldest() -> None:
    other = machine_set("other", 9, version="v1.36.2")
    small, large, later = machine_set("small", 1), machine_set("large", 3), machine_set("later", 3, NOW + 60)
    found = find(deployment(), [small, later, other, large], NOW)
    assert found.new is large
    assert names(found.old) == ["other", "later", "small"]


@pytest.mark.parametrize(
    "change",
    [
        {"version": "v1.37.0"},
        {"failureDomain": "b"},
        {"bootstrap": {"dataSecretName": "x"}},
        {"infrastructureRef": {"apiGroup": "i", "kind": "ITemplate", "name": "t2"}},
    ],
)
def test_what_machines_are_made_of_asks_for_a_new_set(change: Obj) -> None:
    found = find(deployment(template=template(**change)), [machine_set()], NOW)
    assert found.new is None and names(found.old) == ["ms"]
    assert found.why.startswith(
        "couldn't find MachineSet matching MachineDeployment spec template: MachineSet ms needs rollout: "
    )


@pytest.mark.parametrize(
    "change",
    [
        {"minReadySeconds": 5},
        {"readinessGates": [{"conditionType": "x"}]},
        {"deletion": {"nodeDrainTimeoutSeconds": 1}},
        {"taints": [{"key": "x", "effect": "NoSchedule"}]},
    ],
)
def test_what_changes_in_place_does_not(change: Obj) -> None:
    wanted = template(**change) | {"metadata": {"labels": {"x": "y"}}}
    assert find(deployment(template=wanted), [machine_set()], NOW).new is not None


def test_without_sets_one_must_be_made() -> None:
    assert find(deployment(), [], NOW).why == "no MachineSets exist for the MachineDeployment"


def after(when: float, **spec: Any) -> Obj:
    made = deployment(**spec)
    made["spec"]["rollout"]["after"] = rfc3339(when)
    return made


def test_a_rollout_after_a_time_waits_for_it() -> None:
    found = find(after(NOW + 100), [machine_set(made=NOW - 50)], NOW)
    assert found.new is not None
    assert found.revisit_at == NOW + 100


def test_once_the_time_has_passed_only_later_sets_will_do() -> None:
    early, late = machine_set("early", 3, NOW - 100), machine_set("late", 1, NOW - 50)
    found = find(after(NOW - 50), [early, late], NOW)
    assert found.new is late and names(found.old) == ["early"]
    found = find(after(NOW - 10), [early, late], NOW)
    assert found.new is None and names(found.old) == ["early", "late"]
    assert found.why == (
        f"spec.rollout.after on MachineDeployment set to {rfc3339(NOW - 10)}, no MachineSet has been created afterwards"
    )


def test_a_server_whose_clock_is_late_does_not_make_us_make_set_after_set() -> None:
    wanted = after(NOW - 1)
    made = machine_set(identity(wanted, NOW).name, made=NOW - 300)
    assert find(wanted, [machine_set("early", 3, NOW - 900), made], NOW).new is made


def test_the_name_of_a_new_set_follows_from_what_it_is_for() -> None:
    plain = identity(deployment(), NOW)
    assert identity(deployment(replicas=9, template=template(minReadySeconds=3)), NOW + 99) == plain
    others = {
        identity(deployment(template=template(version="v1.37.0")), NOW),
        identity(after(NOW - 1), NOW),
        identity(deployment(), NOW, salt=1),
        plain,
    }
    assert len(others) == 4
    assert identity(after(NOW + 1), NOW) == plain


# --- revisions ----------------------------------------------------------------------------------------------------------------


def revision(value: str | None, history: str | None = None) -> Obj:
    found = {REVISION: value, REVISION_HISTORY: history}
    return {"metadata": {"annotations": {name: text for name, text in found.items() if text is not None}}}


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (None, [], {REVISION: "1"}),
        (None, [revision("1"), revision("7"), revision("x"), revision(None)], {REVISION: "8"}),
        (revision("3"), [revision("1")], {REVISION: "3"}),
        (revision("3", "1"), [], {REVISION: "3", REVISION_HISTORY: "1"}),
        (revision("1"), [revision("2")], {REVISION: "3", REVISION_HISTORY: "1"}),
        (revision("3", "1"), [revision("4")], {REVISION: "5", REVISION_HISTORY: "1,3"}),
        (revision(None), [revision("2")], {REVISION: "3"}),
    ],
)
def test_the_new_set_has_the_highest_revision_and_remembers_its_own(new: Obj | None, old: list[Obj], expected: Obj) -> None:
    assert revised(new, old) == expected


def test_old_sets_keep_their_revision_and_make_no_machines_when_those_are_replaced_by_hand() -> None:
    present = machine_set()
    present["metadata"]["annotations"] = {REVISION: "4", REVISION_HISTORY: "1", "gone": "yes"}
    found = old_machine_set(deployment(rollout={"strategy": {"type": "OnDelete"}}), present)["metadata"]["annotations"]
    assert (found[REVISION], found[REVISION_HISTORY], found[DISABLE_MACHINE_CREATE]) == ("4", "1", "true")
    assert "gone" not in found
    assert old_machine_set(deployment(), present)["metadata"]["annotations"][DISABLE_MACHINE_CREATE] == "false"


def test_a_set_that_is_there_keeps_its_machines_name_uid_and_finalizers() -> None:
    present = machine_set("there", 2, version="v1.36.2")
    present["metadata"]["finalizers"] = ["x"]
    found = current_machine_set(deployment(), present, {REVISION: "2"})
    assert found["metadata"]["uid"] == "there" and found["metadata"]["finalizers"] == ["x"]
    assert found["spec"]["replicas"] == 2
    assert found["spec"]["template"]["spec"]["version"] == "v1.36.2"


def test_a_new_set_begins_without_machines_and_without_empty_fields() -> None:
    found = new_machine_set(deployment(deletion={}), identity(deployment(), NOW), {REVISION: "1"})
    assert found["spec"]["replicas"] == 0
    assert "deletion" not in found["spec"] and "machineNaming" not in found["spec"]
    assert "annotations" not in found["spec"]["template"]["metadata"]
    assert "uid" not in found["metadata"]
