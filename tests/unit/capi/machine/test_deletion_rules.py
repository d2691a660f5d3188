"""What a deletion may still do, and for how long: on plain objects, without any server."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.capi.machine import deletion_rules as rules
from remuda.kube.clock import rfc3339

Obj = dict[str, Any]

NOW = 1_800_000_000.0
INFRA: Obj = {"metadata": {"name": "m1"}}
GOING: Obj = {"metadata": {"name": "x", "deletionTimestamp": rfc3339(NOW)}}
CLUSTER: Obj = {"metadata": {"name": "c1"}}
CONTROL_PLANE: Obj = {"metadata": {"labels": {"cluster.x-k8s.io/control-plane": ""}}}
WORKER: Obj = {"metadata": {"labels": {}}}


def machine(
    *, limit: int | None = None, age: float | None = None, annotations: dict[str, str] | None = None, **times: str
) -> Obj:
    """With a drain that began `age` seconds ago and may take `limit`."""
    if age is not None:
        times["nodeDrainStartTime"] = rfc3339(NOW - age)
    return {
        "metadata": {"name": "m1", "annotations": annotations or {}, "deletionTimestamp": rfc3339(NOW - 30)},
        "spec": {"deletion": {"nodeDrainTimeoutSeconds": limit}} if limit is not None else {},
        "status": {"nodeRef": {"name": "n1"}, "deletion": times},
    }


@pytest.mark.parametrize(
    ("cluster", "control_plane", "machines", "why"),
    [
        (None, None, [CONTROL_PLANE], "cluster is being deleted"),
        (GOING, None, [CONTROL_PLANE], "cluster is being deleted"),
        (CLUSTER, GOING, [CONTROL_PLANE], "control plane is being deleted"),
        (CLUSTER, {**GOING, "status": {"externalManagedControlPlane": True}}, [], "control plane is being deleted"),
        (CLUSTER, {"status": {"externalManagedControlPlane": True}}, [], ""),
        (CLUSTER, {"status": {}}, [], "no control plane members"),
        (CLUSTER, None, [], "no control plane members"),
        (CLUSTER, None, [WORKER], "no control plane members"),
        (CLUSTER, None, [WORKER, CONTROL_PLANE], ""),
        (CLUSTER, {"status": {}}, [CONTROL_PLANE], ""),
        (CLUSTER, None, [{"metadata": {**CONTROL_PLANE["metadata"], **GOING["metadata"]}}], "no control plane members"),
    ],
)
def test_when_a_node_is_left_alone(cluster: Obj | None, control_plane: Obj | None, machines: list[Obj], why: str) -> None:
    assert rules.why_node_stays(cluster, machine(), control_plane, machines) == why


def test_a_machine_without_a_node_has_none_to_drain() -> None:
    assert rules.why_node_stays(CLUSTER, {"metadata": {}}, None, [CONTROL_PLANE]) == "noderef is nil"


@pytest.mark.parametrize(
    ("found", "infra", "may"),
    [
        pytest.param(machine(), INFRA, True, id="at first"),
        pytest.param(machine(annotations={"machine.cluster.x-k8s.io/exclude-node-draining": ""}), INFRA, False, id="excluded"),
        pytest.param(machine(waitForPreTerminateHookStartTime=rfc3339(NOW)), INFRA, False, id="after pre-terminate hooks began"),
        pytest.param(machine(), None, False, id="no machine"),
        pytest.param(machine(), GOING, False, id="the machine is going"),
        pytest.param(machine(limit=60, age=59), INFRA, True, id="before the timeout"),
        pytest.param(machine(limit=60, age=60), INFRA, False, id="at the timeout"),
        pytest.param(machine(limit=60), INFRA, True, id="a timeout, not begun"),
        pytest.param(machine(limit=0, age=10_000), INFRA, True, id="0 is no timeout"),
    ],
)
def test_when_a_node_is_drained(found: Obj, infra: Obj | None, may: bool) -> None:
    assert rules.may_drain(found, infra, NOW) is may


def test_a_stage_begins_once() -> None:
    began = rules.with_started(machine(), rules.DRAIN_TIME, NOW)
    assert rules.started(began, rules.DRAIN_TIME) == rfc3339(NOW)
    assert rules.with_started(began, rules.DRAIN_TIME, NOW + 60) is began


@pytest.mark.parametrize(
    ("age", "limit", "pause"),
    [(0, None, 1.0), (2, None, 1.0), (30, None, 10.0), (60, None, 20.0), (3600, None, 20.0), (58, 60, 2.0), (30, 600, 10.0)],
)
def test_pauses_grow_but_not_past_the_timeout(age: float, limit: int | None, pause: float) -> None:
    assert rules.pause(machine(limit=limit, age=age), rules.DRAIN_TIME, rules.DRAIN_TIMEOUT, NOW) == pause


@pytest.mark.parametrize(
    ("seconds", "expired"),
    [(None, False), (0, False), (31, False), (30, True), (10, True)],
)
def test_a_node_is_given_up_after_its_timeout_counted_from_the_deletion(seconds: int | None, expired: bool) -> None:
    found = machine()
    if seconds is not None:
        found["spec"]["deletion"] = {"nodeDeletionTimeoutSeconds": seconds}
    assert rules.node_deletion_expired(found, NOW) is expired


def test_hooks_are_annotations_by_prefix() -> None:
    found = machine(annotations={"pre-drain.delete.hook/b": "", "pre-drain.delete.hook/a": "x", "other": ""})
    assert rules.hooks(found, "pre-drain.delete.hook") == ["pre-drain.delete.hook/a", "pre-drain.delete.hook/b"]
