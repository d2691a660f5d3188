"""The status of a MachineSet, both halves, from what one reconcile found."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.capi.machineset.scope import CreationFailure
from remuda.capi.machineset.status import MachineSetSnapshot, seconds_until_change, with_legacy_status, with_status
from remuda.kube.clock import rfc3339
from remuda.kube.conditions import LEGACY, get, with_legacy
from remuda.kube.objects import with_path

from .machinesets import NOW, machine, machine_set

Obj = dict[str, Any]
MINUTE = 60.0


def shown(machines: list[Obj] | None, wanted: Obj | None = None, **found: Any) -> Obj:
    return with_status(MachineSetSnapshot(wanted or machine_set(), machines, NOW, **found))


def condition(obj: Obj, kind: str) -> tuple[str, str, str]:
    found = get(obj, kind)
    assert found is not None
    return found["status"], found["reason"], found["message"]


def deleted(obj: Obj) -> Obj:
    return with_path(obj, ("metadata", "deletionTimestamp"), rfc3339(NOW))


# --- counters --------------------------------------------------------------------------------------------------------------


def test_machines_are_counted_by_their_conditions() -> None:
    found = shown(
        [
            machine("a", ("Ready", "True"), ("Available", "True"), ("UpToDate", "True"), spec={"version": "v1.30.0"}),
            machine("b", ("Ready", "True"), ("Available", "False"), ("UpToDate", "True"), spec={"version": "v1.31.0"}),
            machine("c", spec={"version": "v1.30.0"}),
        ],
        selector="app=ms",
    )["status"]
    counters = {field: found[field] for field in ("replicas", "readyReplicas", "availableReplicas", "upToDateReplicas")}
    assert counters == {"replicas": 3, "readyReplicas": 2, "availableReplicas": 1, "upToDateReplicas": 2}
    assert found["versions"] == [{"version": "v1.30.0", "replicas": 2}, {"version": "v1.31.0", "replicas": 1}]
    assert found["selector"] == "app=ms"


def test_without_machines_there_are_no_versions() -> None:
    before = with_path(machine_set(), ("status",), {"versions": [{"version": "v1"}]})
    found = shown([], before)["status"]
    assert (found["replicas"], "versions" in found) == (0, False)


def test_counters_stay_when_machines_can_t_be_listed() -> None:
    before = with_path(machine_set(), ("status",), {"replicas": 7})
    found = shown(None, before)
    assert found["status"]["replicas"] == 7
    for kind in ("ScalingUp", "ScalingDown", "MachinesReady", "MachinesUpToDate", "Remediating", "Deleting"):
        assert condition(found, kind) == ("Unknown", "InternalError", "Please check controller logs for errors")


def test_what_keeps_machines_from_being_listed_is_said() -> None:
    assert condition(shown(None, why="MachineDeployment herd/md does not exist"), "ScalingUp")[2].startswith("MachineDeployment")


# --- scaling ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("present", "found", "expected"),
    [
        (3, {}, ("False", "NotScalingUp", "")),
        (4, {}, ("False", "NotScalingUp", "")),
        (1, {}, ("True", "ScalingUp", "Scaling up from 1 to 3 replicas")),
        (
            3,
            {"bootstrap_missing": True},
            ("False", "NotScalingUp", "Scaling up would be blocked because TestConfigTemplate does not exist"),
        ),
        (
            3,
            {"bootstrap_missing": True, "infrastructure_missing": True},
            (
                "False",
                "NotScalingUp",
                "Scaling up would be blocked because TestConfigTemplate and TestMachineTemplate do not exist",
            ),
        ),
        (
            0,
            {"infrastructure_missing": True, "preflight": ["first", "second"]},
            (
                "True",
                "ScalingUp",
                "Scaling up from 0 to 3 replicas is blocked because:\n* first\n* second\n* TestMachineTemplate does not exist",
            ),
        ),
        (
            0,
            {"failure": CreationFailure("MachineCreationFailed", "failed to apply Machine: no")},
            ("True", "ScalingUp", "Scaling up from 0 to 3 replicas is blocked because:\n* failed to apply Machine: no"),
        ),
    ],
)
def test_scaling_up(present: int, found: Obj, expected: tuple[str, str, str]) -> None:
    assert condition(shown([machine(f"m{each}") for each in range(present)], **found), "ScalingUp") == expected


def test_without_replicas_there_is_no_scale_to_reach() -> None:
    found = shown([], machine_set(replicas=None))
    expected = ("Unknown", "WaitingForReplicasSet", "Waiting for spec.replicas set")
    assert condition(found, "ScalingUp") == condition(found, "ScalingDown") == expected


def test_a_set_that_goes_scales_to_nothing() -> None:
    found = shown([machine("a")], deleted(machine_set()), infrastructure_missing=True)
    assert condition(found, "ScalingUp") == ("False", "NotScalingUp", "")
    assert condition(found, "ScalingDown") == ("True", "ScalingDown", "Scaling down from 1 to 0 replicas")


def test_scaling_down_names_what_takes_long() -> None:
    machines = [machine(name, deleting=16 * MINUTE) for name in ("d", "b", "c", "a")]
    assert condition(shown(machines), "ScalingDown") == (
        "True",
        "ScalingDown",
        "Scaling down from 4 to 3 replicas\n* Machines a, b, c, ... (1 more) are in deletion since more than 15m",
    )
    assert condition(shown(machines[:3]), "ScalingDown") == ("False", "NotScalingDown", "")


def draining(name: str, message: str, since: float) -> Obj:
    status = {"deletion": {"nodeDrainStartTime": rfc3339(NOW - since)}}
    return machine(name, ("Deleting", "True", "DrainingNode", message), deleting=20 * MINUTE, status=status)


def test_what_most_likely_keeps_machines_is_named() -> None:
    machines = [
        draining("a", "* Pod x: waiting for completion", 10 * MINUTE),
        draining("b", "* Pod y: cannot evict pod as it would violate the pod's disruption budget. More", 10 * MINUTE),
    ]
    assert condition(shown(machines, deleted(machine_set())), "Deleting")[2] == (
        "Deleting 2 Machines\n* Machines a, b are in deletion since more than 15m, delay likely due to "
        "PodDisruptionBudgets, Pods not completed yet"
    )


def test_a_drain_has_five_minutes_before_it_is_blamed() -> None:
    found = shown([draining("a", "* Pod x: failed to evict Pod", MINUTE)], deleted(machine_set()))
    assert condition(found, "Deleting")[2] == "Deleting 1 Machine\n* Machine a is in deletion since more than 15m"


# --- machines --------------------------------------------------------------------------------------------------------------


def test_without_machines_all_of_them_are_ready_and_up_to_date() -> None:
    found = shown([])
    assert condition(found, "MachinesReady") == condition(found, "MachinesUpToDate") == ("True", "NoReplicas", "")


def test_readiness_is_summed_up() -> None:
    machines = [machine("a", ("Ready", "True")), machine("b", ("Ready", "False", "NotReady", "no node")), machine("c")]
    assert condition(shown(machines), "MachinesReady") == (
        "False",
        "NotReady",
        "* Machine b: no node\n* Machine c: Condition Ready not yet reported",
    )
    assert condition(shown(machines[:1]), "MachinesReady") == ("True", "Ready", "")
    assert condition(shown(machines[2:]), "MachinesReady")[:2] == ("Unknown", "ReadyUnknown")


def test_a_new_machine_has_ten_seconds_to_say_whether_it_is_up_to_date() -> None:
    assert condition(shown([machine("a", age=5)]), "MachinesUpToDate") == ("True", "NoReplicas", "")
    assert condition(shown([machine("a", age=11)]), "MachinesUpToDate") == (
        "Unknown",
        "UpToDateUnknown",
        "* Machine a: Condition UpToDate not yet reported",
    )
    found = shown([machine("a", ("UpToDate", "False", "NotUpToDate", "old"), age=5), machine("b", age=5)])
    assert condition(found, "MachinesUpToDate") == ("False", "NotUpToDate", "* Machine a: old")


def test_remediation_is_told() -> None:
    unhealthy = ("HealthCheckSucceeded", "False")
    owed = machine("a", unhealthy, ("OwnerRemediated", "False", "MachineDeleting", "Machine is deleting"))
    assert condition(shown([owed]), "Remediating") == ("True", "Remediating", "* Machine a: Machine is deleting")
    assert condition(shown([machine("a")]), "Remediating") == ("False", "NotRemediating", "")
    external = [machine(name, unhealthy) for name in ("b", "a")]
    assert condition(shown(external), "Remediating") == (
        "False",
        "NotRemediating",
        "Machines a, b are not healthy (not to be remediated by MachineSet)",
    )


def test_deletion_is_told() -> None:
    assert condition(shown([]), "Deleting") == ("False", "NotDeleting", "")
    going = deleted(machine_set())
    assert condition(shown([], going), "Deleting") == ("True", "Deleting", "Deletion completed")
    assert condition(shown([machine("a")], going), "Deleting") == ("True", "Deleting", "Deleting 1 Machine")


# --- when to look again ----------------------------------------------------------------------------------------------------


def again(machines: list[Obj], wanted: Obj | None = None) -> float | None:
    snapshot = MachineSetSnapshot(wanted or machine_set(replicas=len(machines)), machines, NOW)
    return seconds_until_change(with_status(snapshot), snapshot)


def test_a_set_whose_machines_are_all_there_is_left_alone() -> None:
    fine = (("Ready", "True"), ("Available", "True"), ("UpToDate", "True"))
    assert again([machine("a", *fine)]) is None


def test_until_all_are_ready_it_is_looked_at_every_fifteen_seconds() -> None:
    assert again([machine("a", ("UpToDate", "True"))]) == 15.0


def test_until_all_are_available_it_is_looked_at_after_min_ready_seconds() -> None:
    wanted = with_path(machine_set(replicas=1), ("spec", "template", "spec", "minReadySeconds"), 40)
    assert again([machine("a", ("Ready", "True"), ("UpToDate", "True"))], wanted) == 40.0


def test_what_has_yet_to_say_whether_it_is_up_to_date_is_asked_again() -> None:
    assert again([machine("a", age=4)]) == 7.0


def test_deletions_that_take_long_are_noticed_in_time() -> None:
    assert again([machine("a", ("UpToDate", "True"), deleting=14 * MINUTE)], deleted(machine_set())) == MINUTE + 1


# --- the older half --------------------------------------------------------------------------------------------------------


def older(machines: list[Obj] | None, wanted: Obj | None = None, **found: Any) -> Obj:
    snapshot = MachineSetSnapshot(wanted or machine_set(), machines, NOW, **found)
    return with_legacy_status(with_status(snapshot), snapshot)


def legacy(obj: Obj, kind: str) -> tuple[str, str, str, str] | None:
    found = get(obj, kind, LEGACY)
    if found is None:
        return None
    return found["status"], found.get("severity", ""), found.get("reason", ""), found.get("message", "")


def with_node(name: str, **fields: Any) -> Obj:
    return machine(
        name, labels={"app": "ms", "cluster.x-k8s.io/cluster-name": "c1"}, status={"nodeRef": {"name": name}}, **fields
    )


def node(status: str, since: float = 0.0) -> Obj:
    return {"status": {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": rfc3339(NOW - since)}]}}


def test_the_older_counters_are_by_nodes_and_labels() -> None:
    nodes = {"a": node("True", 100), "b": node("True", 5), "c": node("False")}
    wanted = with_path(machine_set(), ("spec", "template", "spec", "minReadySeconds"), 60)
    found = older([*map(with_node, "abcd"), machine("e")], wanted, node=nodes.get)
    counters = {"fullyLabeledReplicas": 4, "readyReplicas": 2, "availableReplicas": 1}
    assert found["status"]["deprecated"]["v1beta1"].items() >= counters.items()


def test_growing_in_the_older_words() -> None:
    found = older([machine("a")])
    expected = ("False", "Warning", "ScalingUp", "Scaling up MachineSet to 3 replicas (actual 1)")
    assert legacy(found, "Resized") == legacy(found, "Ready") == expected
    assert legacy(found, "MachinesCreated") is None


def test_shrinking_in_the_older_words() -> None:
    found = older([machine(name) for name in "abcd"])
    assert legacy(found, "Resized") == ("False", "Warning", "ScalingDown", "Scaling down MachineSet to 3 replicas (actual 4)")
    assert legacy(found, "MachinesCreated") == ("True", "", "", "")


def test_resizing_is_done_when_all_nodes_are_ready() -> None:
    machines = [with_node(name) for name in "abc"]
    assert legacy(older(machines, node=lambda name: None), "Resized") is None
    assert legacy(older(machines, node=lambda name: node("True")), "Resized") == ("True", "", "", "")


def test_why_machines_could_not_be_made_in_the_older_words() -> None:
    failure = CreationFailure("BootstrapTemplateCloningFailed", "no such template")
    found = older([], failure=failure)
    assert legacy(found, "MachinesCreated") == ("False", "Error", "BootstrapTemplateCloningFailed", "no such template")
    assert legacy(found, "Ready") == ("False", "Error", "BootstrapTemplateCloningFailed", "no such template")


def test_the_older_readiness_names_whose_it_is() -> None:
    broken = with_legacy(machine("b"), "Ready", "False", "Broken", "it is", "Error", now=NOW)
    found = older([with_legacy(machine("a"), "Ready", "True", now=NOW), broken, machine("c")])
    assert legacy(found, "MachinesReady") == ("False", "Error", "Broken @ Machine/b", "1 of 3 completed")
    assert legacy(older([]), "MachinesReady") == ("True", "", "", "")


def test_the_older_half_stays_when_machines_can_t_be_listed() -> None:
    before = with_path(machine_set(), ("status", "deprecated"), {"v1beta1": {"readyReplicas": 3}})
    assert older(None, before)["status"]["deprecated"] == {"v1beta1": {"readyReplicas": 3}}
