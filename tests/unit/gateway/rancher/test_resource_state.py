"""The state of an object: a table of what it reports and what is shown."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.gateway.rancher.resource_state import State, judged, shown_conditions, state_of

Obj = dict[str, Any]
NOW = 1_000_000_000.0


def condition(type_: str, status: str, message: str = "", reason: str = "") -> Obj:
    return {"type": type_, "status": status, "message": message, "reason": reason}


def obj(api_version: str, kind: str, status: Obj | None = None, spec: Obj | None = None, **metadata: Any) -> Obj:
    found: Obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", **metadata}}
    return {**found, **({"spec": spec} if spec is not None else {}), **({"status": status} if status is not None else {})}


def cluster(*conditions: Obj, **metadata: Any) -> Obj:
    return obj("provisioning.cattle.io/v1", "Cluster", {"conditions": list(conditions)}, **metadata)


def capi(kind: str, *conditions: Obj, spec: Obj | None = None, **more: Any) -> Obj:
    metadata = more.pop("metadata", {})
    return obj("cluster.x-k8s.io/v1beta2", kind, {"conditions": list(conditions), **more}, spec or {}, **metadata)


CURRENT = "Resource is current"
GONE = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
DEPLOYED = {"observedGeneration": 2, "updatedReplicas": 3, "availableReplicas": 2, "readyReplicas": 2}

TABLE: list[tuple[str, Obj, State]] = [
    ("nothing is reported", obj("v1", "ConfigMap"), State("active", message=CURRENT)),
    (
        "all is well",
        cluster(condition("Ready", "True"), condition("Updated", "True")),
        State("active", message="Resource is Ready"),
    ),
    (
        "a transition of a cluster",
        cluster(condition("Updated", "Unknown", "configuring node a"), condition("Ready", "True")),
        State("updating", False, True, "configuring node a"),
    ),
    (
        "the cause before what follows from it",
        cluster(condition("Ready", "False", "not ready"), condition("Provisioned", "Unknown", "waiting for a")),
        State("provisioning", False, True, "waiting for a:not ready"),
    ),
    (
        "a failure",
        cluster(condition("Provisioned", "False", "the driver failed")),
        State("provisioning", True, False, "the driver failed"),
    ),
    ("a reason that says Error", cluster(condition("X", "True", "it broke", "Error")), State("error", True, False, "it broke")),
    ("stalled", cluster(condition("Stalled", "True", "stuck")), State("error", True, False, "stuck")),
    (
        "a removal that is explained",
        cluster(condition("Removed", "Unknown", "waiting for machine [a] to delete"), **GONE),
        State("removing", False, True, "waiting for machine [a] to delete"),
    ),
    ("a plain removal", obj("v1", "ConfigMap", **GONE), State("removing", False, True, "Resource scheduled for deletion")),
    (
        "a removal keeps an earlier word",
        cluster(condition("Updated", "Unknown", "w"), **GONE),
        State("updating", False, True, "w"),
    ),
    (
        "a removal as Rancher's old API marks it",
        obj("management.cattle.io/v3", "Node", removed="2001-09-09T01:46:00Z", finalizers=["controller.cattle.io/node"]),
        State("removing", False, True, "waiting on node"),
    ),
    (
        "which takes too long",
        obj("management.cattle.io/v3", "Node", removed="2001-09-09T01:00:00Z", finalizers=["controller.cattle.io/node"]),
        State("removing", True, True, "waiting on node"),
    ),
    (
        "reconciling",
        cluster(condition("Reconciling", "True", "m", "Because")),
        State("reconciling", False, True, "m"),
    ),
    ("paused, by its reason", cluster(condition("Paused", "True", "", "OnPurpose")), State("onpurpose", False, True, "")),
    ("Ready that is unknown", cluster(condition("Ready", "Unknown", "m")), State("unavailable", True, False, "m")),
    (
        "a node under pressure",
        obj("v1", "Node", {"conditions": [condition("DiskPressure", "True", "full")]}),
        State("error", True, False, "full"),
    ),
    (
        "a node that is well",
        obj("v1", "Node", {"conditions": [condition("DiskPressure", "False", "ok")]}),
        State("active", message=CURRENT),
    ),
    ("a namespace", obj("v1", "Namespace", {"phase": "Active"}), State("active")),
    ("a namespace that ends", obj("v1", "Namespace", {"phase": "Terminating"}, **GONE), State("terminating", False, True)),
    ("a pod that waits", obj("v1", "Pod", {"phase": "Pending"}), State("pending", False, True)),
    ("a pod that runs", obj("v1", "Pod", {"phase": "Running"}), State("running")),
    ("a pod that failed", obj("v1", "Pod", {"phase": "Failed"}), State("failed", True)),
    ("inactive by its spec", obj("management.cattle.io/v3", "NodeDriver", {}, {"active": False}), State("inactive")),
    ("active by its spec", obj("management.cattle.io/v3", "NodeDriver", {}, {"active": True}), State("active")),
    (
        "a summary of its own",
        obj(
            "fleet.cattle.io/v1alpha1", "GitRepo", {"display": {"state": "WaitApplied", "message": "soon", "transitioning": True}}
        ),
        State("waitapplied", False, True, "soon"),
    ),
    (
        "a change that its controller has not seen",
        obj("apps/v1", "Deployment", {"observedGeneration": 1}, {"replicas": 1}, generation=2),
        State("in-progress", False, True, "Deployment generation is 2, but latest observed generation is 1"),
    ),
    (
        "replicas that are missing",
        obj("apps/v1", "Deployment", DEPLOYED, {"replicas": 3}, generation=2),
        State("in-progress", False, True, "Available: 2/3"),
    ),
    (
        "a deployment that makes no progress",
        obj("apps/v1", "Deployment", {"conditions": [condition("Progressing", "False", "deadline")]}, {"replicas": 1}),
        State("error", True, True, "deadline"),
    ),
    (
        "a load balancer without an address",
        obj("v1", "Service", {"loadBalancer": {}}, {"type": "LoadBalancer"}),
        State("pending", False, True, "Load balancer is being provisioned"),
    ),
    (
        "an operation",
        obj("operation.cattle.io/v1", "ETCDSnapshotSave", {"conditions": [condition("InProgress", "True", "2 of 3")]}),
        State("inprogress", False, True, "2 of 3"),
    ),
    ("a machine", capi("Machine", condition("Ready", "True"), phase="Running"), State("running")),
    (
        "a machine without infrastructure",
        capi("Machine", condition("Ready", "False", "* BootstrapConfigReady: waiting for a Job\n* other")),
        State("waitingforinfrastructure", False, True, "waiting for a Job"),
    ),
    (
        "a machine without a node",
        capi("Machine", condition("Ready", "False", "* InfrastructureReady: 1 of 2 completed")),
        State("waitingfornoderef", False, True, ""),
    ),
    (
        "a machine that drains",
        capi("Machine", condition("Deleting", "True", "Drain not completed yet: pods a")),
        State("deleting", False, True, "Draining node"),
    ),
    (
        "a machine whose plan failed",
        capi("Machine", condition("Reconciled", "False", "exit 1")),
        State("reconciling", True, True, "exit 1"),
    ),
    (
        "a machine that is paused",
        capi("Machine", condition("Paused", "True", "by hand")),
        State("paused", False, True, "by hand"),
    ),
    (
        "a pool that grows",
        capi("MachineDeployment", spec={"replicas": 3}, replicas=3, readyReplicas=1),
        State("scalingup", False, True, "Scaling up from 1 to 3 machines"),
    ),
    (
        "a pool that shrinks",
        capi("MachineSet", spec={"replicas": 1}, replicas=2, readyReplicas=2),
        State("scalingdown", False, True, "Scaling down from 2 to 1 machines"),
    ),
    ("a pool at its size", capi("MachineDeployment", spec={"replicas": 1}, replicas=1, readyReplicas=1), State("running")),
    (
        "a Cluster API cluster that is not available",
        capi("Cluster", condition("Available", "False", "* x: down")),
        State("updating", False, True, "x: down"),
    ),
    ("another kind of Cluster API", capi("MachineHealthCheck"), State("active", message=CURRENT)),
    ("conditions of a wrong type", obj("v1", "X", {"conditions": "none", "phase": 3}), State("active", message=CURRENT)),
]


@pytest.mark.parametrize(("given", "expected"), [each[1:] for each in TABLE], ids=[each[0] for each in TABLE])
def test_states(given: Obj, expected: State) -> None:
    assert state_of(given, NOW) == expected


def test_messages_are_not_repeated() -> None:
    given = cluster(condition("Provisioned", "Unknown", "same"), condition("Updated", "Unknown", "same"))
    assert state_of(given).message == "same"


@pytest.mark.parametrize(
    ("type_", "status", "error", "transitioning"),
    [
        ("Updated", "Unknown", False, True),
        ("Updated", "False", True, False),
        ("Updated", "True", False, False),
        ("ScalingUp", "True", False, True),
        ("ScalingUp", "False", False, False),
        ("Ready", "False", False, True),
        ("Ready", "Unknown", True, False),
        ("Other", "False", False, False),
    ],
)
def test_the_meaning_of_one_condition(type_: str, status: str, error: bool, transitioning: bool) -> None:
    meaning = judged(condition(type_, status))
    assert (meaning.error, meaning.transitioning) == (error, transitioning)


def test_an_activity_that_rests_is_no_error() -> None:
    resting = condition("Updating", "False", reason="NotUpdating")
    assert judged(resting) == ("", False, False) and shown_conditions([resting])[0]["error"] is False
    assert judged(condition("Updating", "False", reason="Other")).error


def test_conditions_are_shown_with_their_meaning_and_the_time_of_their_change() -> None:
    given = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    assert shown_conditions([given]) == [
        {**given, "error": False, "transitioning": True, "lastUpdateTime": "2026-01-01T00:00:00Z"}
    ]
    assert "error" not in given
