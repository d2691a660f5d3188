"""What the Clusters say of their control plane."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.access.rancher_conditions import condition_of
from remuda.provisioning.graph.cluster_status import (
    managed_with_control_plane,
    managed_with_removal,
    with_control_plane,
    with_graph,
    with_refusal,
    with_support,
    with_wait,
)

Obj = dict[str, Any]
NOW = 1_800_000_000.0
WAITING = {"type": "Ready", "status": "Unknown", "reason": "Waiting", "message": "waiting for at least one control plane"}
READY = {"type": "Ready", "status": "True"}
WINDOWS = {"name": "win", "machineOS": "windows"}


def plane(*conditions: Obj, **status: Any) -> Obj:
    return {"kind": "RKEControlPlane", "spec": {"a": 1}, "status": {"conditions": list(conditions), **status}}


def said(obj: Obj, kind: str) -> tuple[str, str, str] | None:
    found = condition_of(obj, kind)
    return None if found is None else (found["status"], found.get("reason", ""), found.get("message", ""))


def test_three_conditions_say_how_ready_the_control_plane_is() -> None:
    found = with_control_plane({}, plane(WAITING), NOW)
    for kind in ("Updated", "Provisioned", "Ready"):
        assert said(found, kind) == ("Unknown", "Waiting", WAITING["message"])
    assert said(found, "Reconciling") == ("True", "Reconciling", WAITING["message"])
    assert said(found, "Stalled") == ("False", "", "")


@pytest.mark.parametrize("control_plane", [None, plane()])
def test_before_anything_is_known_it_is_under_way(control_plane: Obj | None) -> None:
    found = with_control_plane({}, control_plane, NOW)
    assert said(found, "Ready") is None
    assert said(found, "Reconciling") == ("True", "Reconciling", "waiting for the control plane to be planned")


@pytest.mark.parametrize(("applied", "reconciling"), [(None, "False"), ({"a": 1}, "False"), ({"a": 0}, "True")])
def test_it_is_done_when_what_is_wanted_now_is_applied(applied: Obj | None, reconciling: str) -> None:
    found = with_control_plane({}, plane(READY, **({"appliedSpec": applied} if applied else {})), NOW)
    assert (said(found, "Reconciling") or ())[0] == reconciling


def test_the_same_again_changes_nothing() -> None:
    once = with_graph(with_control_plane({}, plane(WAITING), NOW), NOW)
    assert with_graph(with_control_plane(once, plane(WAITING), NOW + 60), NOW + 60) is once


def test_waits_for_a_user_are_stalled_and_others_are_not() -> None:
    refused = with_refusal({}, "change it", NOW)
    assert said(refused, "RKECluster") == ("False", "Error", "change it")
    assert said(refused, "Stalled") == ("True", "Error", "change it")
    waiting = with_wait(refused, "soon", NOW)
    assert said(waiting, "RKECluster") == ("Unknown", "Waiting", "soon") and said(waiting, "Stalled") == ("False", "", "")


def test_while_it_changes_the_control_plane_has_the_say_over_ready() -> None:
    provisioned = {"type": "Provisioned", "status": "True"}
    found = managed_with_control_plane({}, {}, plane(WAITING, provisioned), NOW)
    assert found["status"]["readyReconciling"] is True
    assert said(found, "Ready") == said(found, "Updated") == ("Unknown", "Waiting", WAITING["message"])
    assert said(found, "Provisioned") == ("True", "", "")


def test_a_stable_cluster_keeps_its_own_ready_condition() -> None:
    before = {"status": {"readyReconciling": True, "conditions": [{"type": "Ready", "status": "False", "message": "away"}]}}
    autoscaler = {"type": "ClusterAutoscalerDeploymentReady", "status": "True"}
    wanted = {"status": {"conditions": [autoscaler]}}
    found = managed_with_control_plane(before, wanted, plane(READY, {"type": "Stable", "status": "True"}), NOW)
    assert found["status"]["readyReconciling"] is False
    assert said(found, "Ready") == ("False", "", "away")
    assert said(found, "Updated") == said(found, "ClusterAutoscalerDeploymentReady") == ("True", "", "")


def test_removal_is_told_in_the_words_of_the_control_plane() -> None:
    removed = {"type": "Removed", "status": "Unknown", "reason": "Waiting", "message": "waiting for machine [x] to delete"}
    assert said(managed_with_removal({}, plane(removed), NOW), "Removed") == ("Unknown", "Waiting", removed["message"])


@pytest.mark.parametrize(
    ("spec", "told", "pre_bootstrap", "why"),
    [
        (
            {"rkeConfig": {"machinePools": [WINDOWS]}},
            "",
            False,
            "rkeConfig.machinePools[0].machineOS: windows is not offered yet; its machines get no plan",
        ),
        ({}, "etcdSnapshotCreate: not offered yet; nothing was done", False, "etcdSnapshotCreate: not offered yet"),
        ({}, "", True, "provisioningprebootstrap: not offered yet"),
        (
            {"kubernetesVersion": "v1.34.1+remuda1", "defaultPodSecurityAdmissionConfigurationTemplateName": "x"},
            "",
            False,
            "defaultPodSecurityAdmissionConfigurationTemplateName: the API server of v1.34.1+remuda1 has no pod",
        ),
    ],
)
def test_unsupported_requests_are_reported_where_they_were_made(spec: Obj, told: str, pre_bootstrap: bool, why: str) -> None:
    condition = {"type": "OperationsSupported", "status": "False", "reason": "NotSupported", "message": told}
    control_plane = plane(READY, *([condition] if told else []))
    found = with_support({"spec": spec}, control_plane, NOW, pre_bootstrap=pre_bootstrap)
    state, reason, message = said(found, "OperationsSupported") or ("", "", "")
    assert (state, reason) == ("False", "NotSupported") and message.startswith(why)
    taken_back = with_support({**found, "spec": {}}, plane(READY), NOW)
    assert said(taken_back, "OperationsSupported") == ("True", "", "")


def test_who_asks_for_nothing_of_that_is_told_nothing() -> None:
    assert with_support({"spec": {"rkeConfig": {}}}, None, NOW) == {"spec": {"rkeConfig": {}}}
