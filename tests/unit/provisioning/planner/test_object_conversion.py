"""From objects to a snapshot, and from a decision back to objects."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from remuda.kube.clock import rfc3339
from remuda.provisioning import well_known
from remuda.provisioning import well_known as keys
from remuda.provisioning.planner import machine_health, snapshot_reader
from remuda.provisioning.planner.decision import (
    Decision,
    MachineChange,
    SecretChange,
    changed_cluster,
    changed_control_plane,
    changed_machine,
    changed_secret,
)
from remuda.provisioning.planner.snapshot import Address, Condition, Join
from remuda.provisioning.plans.machine_plan_secret import PlanSecretError
from remuda.provisioning.plans.plan import checksum, encode

from . import world
from .world import NOW

Obj = dict[str, Any]
PLAN = world.render(world.snapshot(), world.machine("a"), Join(init=True))
BYTES = encode(PLAN)


def secret(data: dict[str, bytes] | None = None, **marks: Obj) -> Obj:
    packed = {key: base64.b64encode(value).decode() for key, value in (data or {}).items()}
    return {"type": well_known.PLAN_TYPE, "metadata": {"name": "a-plan", "namespace": "ns", **marks}, "data": packed}


def test_a_secret_without_a_plan_is_a_machine_without_one() -> None:
    found = snapshot_reader.plan_secret(secret(labels={well_known.ETCD_ROLE: "true"}))
    assert found.node is None and found.labels == {well_known.ETCD_ROLE: "true"}
    with pytest.raises(PlanSecretError):
        snapshot_reader.plan_secret({"type": "Opaque", "metadata": {"name": "x"}})


def test_what_an_agent_said_is_read() -> None:
    said = {"kubelet": {"healthy": True}, "kube-apiserver": {}}
    output = gzip.compress(json.dumps({"etcd-name": {"name": "etcd-name", "stdout": base64.b64encode(b"a-1").decode()}}).encode())
    data = {"plan": BYTES, "appliedPlan": BYTES, "applied-checksum": checksum(BYTES).encode(), "plan-state": b"succeeded"}
    data |= {"plan-revision": b"3", "probe-statuses": json.dumps(said).encode(), "applied-periodic-output": output}
    node = snapshot_reader.plan_secret(secret(data)).node
    assert node is not None
    assert (node.plan, node.applied, node.state, node.revision, node.in_sync) == (PLAN, PLAN, "succeeded", 3, True)
    assert node.probes == {"kubelet": True, "kube-apiserver": False} and not node.healthy
    assert node.periodic["etcd-name"].stdout == "a-1"


def test_why_a_plan_failed_is_read_without_secrets() -> None:
    why = b"instruction 0 (install): exit status 1: Bearer abc.def refused"
    node = snapshot_reader.plan_secret(secret({"plan": BYTES, "plan-state": b"failed", "failure-reason": why})).node
    assert node is not None and node.failure == "instruction 0 (install): exit status 1: Bearer [hidden] refused"
    busy = snapshot_reader.plan_secret(
        secret({"plan": BYTES, "plan-state": b"in-progress", "failure-reason": b"the disk is full"})
    ).node
    assert busy is not None
    stuck = machine_health.unapplied(busy)
    assert stuck is not None and stuck.message == "waiting for plan to be applied: the disk is full"
    node = snapshot_reader.plan_secret(secret({"plan": BYTES, "plan-state": b"pending", "failure-reason": why})).node
    assert node is not None and node.failure == "", "it is of the try before"


def test_plans_that_nobody_can_read_are_none() -> None:
    assert snapshot_reader.plan_secret(secret({"plan": b"{"})).node is None
    node = snapshot_reader.plan_secret(secret({"plan": BYTES, "appliedPlan": b"{"})).node
    assert node is not None and node.applied is None


def test_a_machine_is_read_from_its_three_objects() -> None:
    condition = {"type": "InfrastructureReady", "status": "True"}
    plans = {"type": "PlanApplied", "status": "False", "reason": "Error", "message": "error applying plan"}
    sick = {"type": "NodeHealthy", "status": "Unknown", "reason": "ConnectionDown", "message": "no answer"}
    obj: Obj = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "deletionTimestamp": rfc3339(NOW)},
        "spec": {"bootstrap": {"configRef": {"name": "boot"}}, "infrastructureRef": {"kind": "CustomMachine"}},
        "status": {
            "phase": "Running",
            "nodeRef": {"name": "host"},
            "nodeInfo": {"kubeletVersion": "v1.34.1"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "conditions": [
                condition,
                plans,
                sick,
                {"type": "Reconciled", "status": "Unknown", "reason": "Waiting", "message": "m"},
            ],
        },
    }
    role = {well_known.WORKER_ROLE: "true"}
    found = snapshot_reader.machine(
        obj, secret(labels=role), {"metadata": {"name": "boot", "labels": role, "annotations": {"k": "v"}}}
    )
    assert found.is_only_worker and found.deleted_at == NOW and found.infrastructure_ready
    assert (found.bootstrap, found.infrastructure_kind, found.node_name, found.kubelet_version) == (
        "boot",
        "CustomMachine",
        "host",
        "v1.34.1",
    )
    assert found.addresses == (Address("InternalIP", "10.0.0.1"),) and found.bootstrap_annotations == {"k": "v"}
    assert found.reconciled == Condition("Reconciled", "Unknown", "Waiting", "m")
    assert (found.failing, found.non_ready) == ("", "NodeHealthy: no answer")
    assert snapshot_reader.machine(obj, None, None).secret is None


def test_control_plane_and_cluster_are_read() -> None:
    status = {
        "agentConnected": True,
        "initialization": {"controlPlaneInitialized": True},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    head = snapshot_reader.control_plane(
        {"metadata": {"name": "demo", "namespace": "ns"}, "spec": {"kubernetesVersion": "v1"}, "status": status}
    )
    assert (head.version, head.agent_connected, head.initialized, head.is_true("Ready")) == ("v1", True, True, True)
    of = snapshot_reader.cluster(
        {
            "metadata": {"name": "demo"},
            "spec": {"paused": True},
            "status": {"initialization": {"infrastructureProvisioned": True}},
        }
    )
    assert of.paused and of.infrastructure_provisioned and not of.deleting


def test_a_plan_is_written_as_agents_look_for_it() -> None:
    change = SecretChange(
        annotations={well_known.JOINED_TO: "", well_known.PLAN_UPDATED: rfc3339(NOW), keys.PLAN_FAILURE: None}, plan=PLAN
    )
    old = secret(
        {"probe-statuses": b"{}"}, annotations={keys.PLAN_FAILURE: "x", "own": "kept"}, labels={well_known.ETCD_ROLE: "true"}
    )
    new = changed_secret(old, change, NOW)
    assert base64.b64decode(new["data"]["plan"]) == BYTES and base64.b64decode(new["data"]["plan-state"]) == b"pending"
    assert "probe-statuses" not in new["data"] and base64.b64decode(new["data"]["max-failures"]) == b"-1"
    notes = new["metadata"]["annotations"]
    assert notes[well_known.JOINED_TO] == "" and notes["own"] == "kept" and keys.PLAN_FAILURE not in notes
    assert snapshot_reader.plan_secret(new).node is not None
    assert old["metadata"]["annotations"][keys.PLAN_FAILURE] == "x"


def test_a_retry_and_a_mark_leave_the_plan_as_it_is() -> None:
    failed = secret({"plan": BYTES, "plan-state": b"failed", "plan-revision": b"4"})
    again = changed_secret(failed, SecretChange(retry=True, annotations={keys.PLAN_FAILURE: "{}"}), NOW)
    assert base64.b64decode(again["data"]["plan-state"]) == b"pending" and again["data"]["plan"] == failed["data"]["plan"]
    marked = changed_secret(failed, SecretChange(labels={well_known.INIT_NODE: "true"}), NOW)
    assert marked["metadata"]["labels"] == {well_known.INIT_NODE: "true"} and marked["data"] == failed["data"]
    cleared = changed_secret(marked, SecretChange(labels={well_known.INIT_NODE: None}), NOW)
    assert well_known.INIT_NODE not in (cleared["metadata"].get("labels") or {})


def test_conditions_of_both_kinds_are_written() -> None:
    ready = Condition("Reconciled", "True", "Reconciled")
    new = changed_machine({"metadata": {"name": "a"}}, MachineChange(ready, {keys.EXCLUDE_NODE_DRAINING: "true"}), NOW)
    assert new["metadata"]["annotations"] == {keys.EXCLUDE_NODE_DRAINING: "true"}
    assert new["status"]["conditions"][0]["status"] == new["status"]["deprecated"]["v1beta1"]["conditions"][0]["status"] == "True"


def test_what_is_said_is_as_old_as_its_words() -> None:
    first, then = Condition("Reconciled", "Unknown", "Waiting", "m"), Condition("Reconciled", "Unknown", "Waiting", "n")
    made = changed_machine({"metadata": {"name": "a"}}, MachineChange(first), NOW)
    made = changed_machine(made, MachineChange(then), NOW + 60)
    read = snapshot_reader.machine(made, None, None).reconciled
    assert read is not None and read.at == rfc3339(NOW + 60)
    plane: Obj = {"metadata": {"name": "demo"}}
    for at, words in ((0, "m"), (60, "n")):
        said = Decision(conditions=(Condition("Ready", "Unknown", "Waiting", words),))
        plane = changed_control_plane(plane, said, NOW + at)
    ready = snapshot_reader.control_plane(plane).condition("Ready")
    assert ready is not None and ready.at == rfc3339(NOW + 60)


def test_the_status_of_a_control_plane_is_written() -> None:
    old = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "Waiting",
        "message": "m",
        "lastTransitionTime": "t",
        "lastUpdateTime": "t",
    }
    obj: Obj = {"spec": {"kubernetesVersion": "v1"}, "status": {"conditions": [old], "agentConnected": True}}
    waiting = Decision(conditions=(Condition("Ready", "Unknown", "Waiting", "n"), Condition("Stable", "False")), initialized=True)
    new = changed_control_plane(obj, waiting, NOW)
    assert new["status"]["conditions"][0] == {**old, "message": "n", "lastUpdateTime": rfc3339(NOW)}
    assert new["status"]["conditions"][1]["type"] == "Stable" and new["status"]["agentConnected"]
    assert new["status"]["initialization"] == {"controlPlaneInitialized": True}
    done = changed_control_plane(new, Decision(conditions=(Condition("Ready", "True"),), applied=True), NOW + 9)
    assert done["status"]["appliedSpec"] == obj["spec"]
    assert done["status"]["conditions"][0] == {
        "type": "Ready",
        "status": "True",
        "lastUpdateTime": rfc3339(NOW + 9),
        "lastTransitionTime": rfc3339(NOW + 9),
    }
    assert changed_control_plane(done, Decision(applied=True), NOW + 99) is done


def test_a_cluster_is_unpaused_when_it_goes() -> None:
    assert changed_cluster({"spec": {"paused": True}}, Decision(unpause_cluster=True), NOW)["spec"]["paused"] is False


def test_an_operation_s_pause_is_marked_and_ends_without_a_trace() -> None:
    cluster = {"metadata": {"name": "demo", "annotations": {"a": "b"}}, "spec": {}}
    paused = changed_cluster(cluster, Decision(pause_for="etcdSnapshotRestore"), NOW)
    assert paused["spec"] == {"paused": True}
    assert paused["metadata"]["annotations"] == {"a": "b", keys.PAUSED_FOR: "etcdSnapshotRestore"}
    assert snapshot_reader.cluster(paused).paused_for == "etcdSnapshotRestore"
    ended = changed_cluster(paused, Decision(pause_for=""), NOW)
    assert ended["spec"] == {"paused": False} and ended["metadata"]["annotations"] == {"a": "b"}
    assert not snapshot_reader.cluster(ended).paused_for
