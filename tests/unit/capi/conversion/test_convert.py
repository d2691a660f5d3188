"""What becomes of the fields of one version in the other, by example."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remuda.capi.conversion import DATA_ANNOTATION, V1BETA1, V1BETA2, convert, converter
from remuda.capi.conversion.field_rules import to_duration, to_seconds
from remuda.kube.errors import ConversionError
from remuda.runtime.admitted_types import Convert

Obj = dict[str, Any]


class Versions:
    def api_version(self, group: str, kind: str) -> str | None:
        return {("infra.example.com", "Thing"): "infra.example.com/v1beta7"}.get((group, kind))


def old(kind: str, spec: Obj | None = None, status: Obj | None = None, **metadata: Any) -> Obj:
    return _obj(V1BETA1, kind, spec, status, metadata)


def new(kind: str, spec: Obj | None = None, status: Obj | None = None, **metadata: Any) -> Obj:
    return _obj(V1BETA2, kind, spec, status, metadata)


def _obj(api_version: str, kind: str, spec: Obj | None, status: Obj | None, metadata: Obj) -> Obj:
    sections = {key: value for key, value in (("spec", spec), ("status", status)) if value is not None}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "o", "namespace": "ns", **metadata}, **sections}


def up(obj: Obj) -> Obj:
    return convert(obj, V1BETA2, Versions())


def down(obj: Obj) -> Obj:
    return convert(obj, V1BETA1, Versions())


def data(obj: Obj) -> Any:
    return json.loads(obj["metadata"]["annotations"][DATA_ANNOTATION])


def test_an_object_in_the_wanted_version_is_itself() -> None:
    obj = new("Cluster")
    assert convert(obj, V1BETA2, Versions()) is obj


def test_an_object_without_content_only_changes_its_name() -> None:
    assert up({"apiVersion": V1BETA1, "kind": "MachineSet"}) == {"apiVersion": V1BETA2, "kind": "MachineSet"}


@pytest.mark.parametrize(("kind", "target"), [("Secret", V1BETA2), ("Cluster", "cluster.x-k8s.io/v1alpha4")])
def test_other_kinds_and_versions_are_refused(kind: str, target: str) -> None:
    with pytest.raises(ConversionError, match=f"{kind} can't be converted from {V1BETA1} to {target}"):
        convert(old(kind), target, Versions())


def test_it_is_what_an_admitted_type_takes() -> None:
    function: Convert = converter(Versions())
    assert function(old("MachineDrainRule", {"drain": {"behavior": "Skip"}}), V1BETA2)["apiVersion"] == V1BETA2


# --- references ----------------------------------------------------------------------------------------------------------------


def test_a_reference_keeps_group_kind_and_name() -> None:
    reference = {"apiVersion": "infra.example.com/v1alpha3", "kind": "Thing", "name": "n", "namespace": "x", "uid": "u"}
    found = up(old("Cluster", {"infrastructureRef": reference}))
    assert found["spec"]["infrastructureRef"] == {"apiGroup": "infra.example.com", "kind": "Thing", "name": "n"}


def test_a_reference_gets_the_version_of_its_contract_and_the_namespace_of_its_object() -> None:
    reference = {"apiGroup": "infra.example.com", "kind": "Thing", "name": "n"}
    found = down(new("Machine", {"infrastructureRef": reference}))
    expected = {"apiVersion": "infra.example.com/v1beta7", "kind": "Thing", "name": "n", "namespace": "ns"}
    assert found["spec"]["infrastructureRef"] == expected


def test_a_kind_without_a_crd_makes_nothing_unreadable() -> None:
    obj = new("Cluster", {"controlPlaneRef": {"apiGroup": "gone.example.com", "kind": "Plane", "name": "n"}})
    found = down(obj)
    assert found["spec"]["controlPlaneRef"]["apiVersion"] == "gone.example.com/v1beta1"
    assert up(found) == obj


def test_an_api_version_that_is_none_is_refused() -> None:
    with pytest.raises(ConversionError, match="unexpected GroupVersion string: a/b/c"):
        up(old("Cluster", {"infrastructureRef": {"apiVersion": "a/b/c", "kind": "Thing", "name": "n"}}))


def test_a_node_is_a_node() -> None:
    found = down(new("Machine", status={"nodeRef": {"name": "n"}}))
    assert found["status"]["nodeRef"] == {"apiVersion": "v1", "kind": "Node", "name": "n"}


# --- durations -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [("0s", 0), ("0", 0), ("10m", 600), ("1.999s", 1), ("-1.999s", -1), ("999ms", 0), ("2562047h", 2**31 - 1)],
)
def test_durations_become_whole_seconds(duration: str, seconds: int) -> None:
    assert to_seconds(duration) == seconds


@pytest.mark.parametrize(
    ("seconds", "duration"), [(0, "0s"), (59, "59s"), (60, "1m0s"), (3600, "1h0m0s"), (-90, "-1m30s"), (90061, "25h1m1s")]
)
def test_seconds_become_durations(seconds: int, duration: str) -> None:
    assert to_duration(seconds) == duration


def test_what_is_no_duration_is_refused() -> None:
    with pytest.raises(ConversionError, match='time: invalid duration "soon"'):
        up(old("Machine", {"nodeDrainTimeout": "soon"}))


def test_an_unhealthy_condition_always_has_a_timeout() -> None:
    found = down(new("MachineHealthCheck", {"checks": {"unhealthyNodeConditions": [{"type": "Ready", "status": "False"}]}}))
    assert found["spec"]["unhealthyConditions"] == [{"type": "Ready", "status": "False", "timeout": "0s"}]
    assert up(found)["spec"]["checks"]["unhealthyNodeConditions"][0]["timeoutSeconds"] == 0


# --- the annotation ------------------------------------------------------------------------------------------------------------


def test_the_annotation_is_the_object_without_metadata() -> None:
    obj = new("Machine", {"clusterName": "c", "minReadySeconds": 5}, {"phase": "Updating"}, annotations={"a": "b"})
    found = down(obj)
    assert data(found) == {key: value for key, value in obj.items() if key != "metadata"}
    assert found["metadata"]["annotations"]["a"] == "b"
    assert found["status"]["phase"] == "Running"
    assert up(found) == obj


def test_an_empty_object_leaves_empty_metadata_in_it() -> None:
    assert data(down(new("Cluster"))) == {"apiVersion": V1BETA2, "kind": "Cluster", "metadata": {}}


@pytest.mark.parametrize("kind", ["MachineSet", "MachineDrainRule"])
def test_some_kinds_need_no_annotation(kind: str) -> None:
    assert "annotations" not in down(new(kind))["metadata"]


def test_what_a_client_of_v1beta1_writes_wins_over_the_annotation() -> None:
    found = down(new("Cluster", {"paused": False}))
    assert up({**found, "spec": {"paused": True}})["spec"] == {"paused": True}
    found = down(new("Cluster", {"paused": True}))
    assert "spec" not in up({**found, "spec": {"paused": False}})


@pytest.mark.parametrize("paused", [{}, {"paused": False}, {"paused": True}])
def test_three_states_survive_two(paused: Obj) -> None:
    obj = new("MachineDeployment", {"clusterName": "c", **paused})
    assert up(down(obj))["spec"] == obj["spec"]


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '"x"'])
def test_an_unreadable_annotation_is_ignored(text: str) -> None:
    found = up(old("Machine", {"clusterName": "c"}, annotations={DATA_ANNOTATION: text}))
    assert found == new("Machine", {"clusterName": "c"})


# --- shapes --------------------------------------------------------------------------------------------------------------------


def test_counters_of_both_versions_travel_side_by_side() -> None:
    status = {"replicas": 3, "readyReplicas": 1, "deprecated": {"v1beta1": {"readyReplicas": 2, "availableReplicas": 2}}}
    found = down(new("MachineSet", status=status))["status"]
    assert found["readyReplicas"] == 2
    assert found["v1beta2"] == {"readyReplicas": 1}
    assert up(old("MachineSet", status=found))["status"]["readyReplicas"] == 1


def test_conditions_of_both_versions_stay_apart() -> None:
    legacy = {"type": "Ready", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"}
    modern = {**legacy, "reason": "R", "message": ""}
    found = down(new("Cluster", status={"conditions": [modern], "deprecated": {"v1beta1": {"conditions": [legacy]}}}))
    assert found["status"]["conditions"] == [legacy]
    assert found["status"]["v1beta2"] == {"conditions": [modern]}


def test_failure_domains_are_sorted_by_name() -> None:
    found = up(old("Cluster", status={"failureDomains": {"b": {"controlPlane": True}, "a": {"attributes": {"k": "v"}}}}))
    assert found["status"]["failureDomains"] == [
        {"name": "a", "controlPlane": False, "attributes": {"k": "v"}},
        {"name": "b", "controlPlane": True},
    ]


def test_a_rollout_strategy_is_spread_over_three_fields() -> None:
    strategy = {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": "33%", "maxUnavailable": 0, "deletePolicy": "Oldest"},
        "remediation": {"maxInFlight": 2},
    }
    found = up(old("MachineDeployment", {"strategy": strategy, "rolloutAfter": "2024-01-01T02:00:00+02:00"}))["spec"]
    assert found == {
        "rollout": {
            "after": "2024-01-01T00:00:00Z",
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "33%", "maxUnavailable": 0}},
        },
        "deletion": {"order": "Oldest"},
        "remediation": {"maxInFlight": 2},
    }
    assert down(new("MachineDeployment", found))["spec"]["strategy"] == strategy


def test_max_in_flight_alone_is_no_health_check_of_a_topology() -> None:
    deployment = {"class": "c", "name": "n", "healthCheck": {"remediation": {"maxInFlight": 1}}}
    obj = new("Cluster", {"topology": {"workers": {"machineDeployments": [deployment]}}})
    found = down(obj)["spec"]["topology"]["workers"]["machineDeployments"][0]
    assert found == {"metadata": {}, "class": "c", "name": "n", "strategy": {"remediation": {"maxInFlight": 1}}}
    assert up(down(obj)) == obj


def test_unknown_fields_are_dropped() -> None:
    assert up(old("MachineDrainRule", {"drain": {"behavior": "Skip", "odd": 1}, "odd": 2})) == new(
        "MachineDrainRule", {"drain": {"behavior": "Skip"}}
    )
