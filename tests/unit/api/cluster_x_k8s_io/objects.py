"""Objects of Cluster API's kinds: the smallest good ones, and bad ones with what a real API server says to them."""

from __future__ import annotations

from typing import Any

from remuda import api
from remuda.api.cluster_x_k8s_io import (
    API_VERSION,
    CLUSTERS,
    GROUP,
    MACHINE_DEPLOYMENTS,
    MACHINE_DRAIN_RULES,
    MACHINE_HEALTH_CHECKS,
    MACHINE_SETS,
    MACHINES,
)
from remuda.client.interface import Client
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource

Obj = dict[str, Any]
KINDS = {kind.resource: kind.kind for kind in api.kinds([GROUP])}


def obj(resource: GroupVersionResource, spec: Obj) -> Obj:
    kind = KINDS[resource.resource]
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": "a", "namespace": "default"}, "spec": spec}


def ref(kind: str, **fields: Any) -> Obj:
    return {"apiGroup": "infrastructure.example.io", "kind": kind, "name": "x", **fields}


CLUSTER: Obj = {"infrastructureRef": ref("FooCluster"), "controlPlaneRef": ref("FooControlPlane")}
MACHINE: Obj = {"clusterName": "c1", "bootstrap": {"dataSecretName": "m1-data"}, "infrastructureRef": ref("FooMachine")}
DEPLOYMENT: Obj = {"clusterName": "c1", "selector": {}, "template": {"spec": {**MACHINE, "version": "v1.33.1+rke2r1"}}}
HEALTH_CHECK: Obj = {
    "clusterName": "c1",
    "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": "md1"}},
    "checks": {
        "nodeStartupTimeoutSeconds": 600,
        "unhealthyNodeConditions": [{"type": "Ready", "status": "False", "timeoutSeconds": 300}],
    },
    "remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": "40%"}},
}
DRAIN_RULE: Obj = {
    "drain": {"behavior": "Drain", "order": 10},
    "machines": [{"clusterSelector": {"matchLabels": {"tier": "prod"}}}],
    "pods": [{"selector": {"matchLabels": {"app": "db"}}, "namespaceSelector": {"matchLabels": {"team": "data"}}}],
}
GOOD = [
    (CLUSTERS, CLUSTER),
    (MACHINES, MACHINE),
    (MACHINE_SETS, DEPLOYMENT),
    (MACHINE_DEPLOYMENTS, DEPLOYMENT),
    (MACHINE_HEALTH_CHECKS, HEALTH_CHECK),
    (MACHINE_DRAIN_RULES, DRAIN_RULE),
]

_TAINT = {"key": "a", "effect": "NoSchedule", "propagation": "Always"}
_POD = {"selector": {"matchLabels": {"app": "db"}}}


def _watching(condition: str) -> Obj:
    bad = {"type": condition, "status": "True", "timeoutSeconds": 1}
    return {**HEALTH_CHECK, "checks": {"unhealthyMachineConditions": [bad]}}


def _few(path: str, kind: str = "properties") -> str:
    return f"Invalid value: 0: {path} in body should have at least 1 {kind}"


def _unmatched(path: str, value: str, pattern: str) -> str:
    return f"Invalid value: \"{value}\": {path} in body should match '{pattern}'"


def _unknown(value: str, *known: str) -> str:
    return f'Unsupported value: "{value}": supported values: ' + ", ".join(f'"{each}"' for each in known)


_NOT_WATCHABLE = "type must not be one of: Ready, Available, HealthCheckSucceeded, OwnerRemediated, ExternallyRemediated"
_UNCHECKED = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
_NAMESPACE, _NAME = "spec.topology.classRef.namespace", "spec.infrastructureRef.name"
_RANGE, _TIMEOUT = "spec.remediation.triggerIf.unhealthyInRange", "spec.deletion.nodeDrainTimeoutSeconds"
_PORT, _KIND = "spec.clusterNetwork.apiServerPort", "spec.infrastructureRef.kind"
_WATCHED = "spec.checks.unhealthyMachineConditions[0].type"

# Resource, spec, and each cause that is told: field and message.
BAD: list[tuple[GroupVersionResource, Obj, dict[str, str]]] = [
    (CLUSTERS, {}, {"spec": _few("spec")}),
    (CLUSTERS, {"clusterNetwork": {}}, {"spec.clusterNetwork": _few("spec.clusterNetwork")}),
    (
        CLUSTERS,
        {"clusterNetwork": {"apiServerPort": 65536}},
        {_PORT: f"Invalid value: 65536: {_PORT} in body should be less than or equal to 65535"},
    ),
    (
        CLUSTERS,
        {"infrastructureRef": ref("Foo Cluster")},
        {_KIND: _unmatched(_KIND, "Foo Cluster", "^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$")},
    ),
    (
        CLUSTERS,
        {"topology": {"classRef": {"name": "k", "namespace": "No"}}},
        {
            _NAMESPACE: _unmatched(_NAMESPACE, "No", "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
            "spec.topology.version": "Required value",
            "<nil>": _UNCHECKED,
        },
    ),
    (MACHINES, {}, {f"spec.{each}": "Required value" for each in ("bootstrap", "clusterName", "infrastructureRef")}),
    (
        MACHINES,
        {**MACHINE, "clusterName": ""},
        {"spec.clusterName": 'Invalid value: "": spec.clusterName in body should be at least 1 chars long'},
    ),
    (
        MACHINES,
        {**MACHINE, "infrastructureRef": ref("FooMachine", name="Not_a_name")},
        {_NAME: _unmatched(_NAME, "Not_a_name", r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")},
    ),
    (
        MACHINES,
        {**MACHINE, "deletion": {"nodeDrainTimeoutSeconds": -1}},
        {_TIMEOUT: f"Invalid value: -1: {_TIMEOUT} in body should be greater than or equal to 0"},
    ),
    (
        MACHINES,
        {**MACHINE, "taints": [_TAINT, _TAINT]},
        {"spec.taints[1]": 'Duplicate value: {"effect":"NoSchedule","key":"a"}'},
    ),
    (MACHINES, {**MACHINE, "readinessGates": []}, {"spec.readinessGates": _few("spec.readinessGates", "items")}),
    (
        MACHINE_SETS,
        {**DEPLOYMENT, "deletion": {"order": "Best"}},
        {"spec.deletion.order": _unknown("Best", "Random", "Newest", "Oldest")},
    ),
    (
        MACHINE_DEPLOYMENTS,
        {**DEPLOYMENT, "rollout": {"strategy": {"type": "Recreate"}}},
        {"spec.rollout.strategy.type": _unknown("Recreate", "RollingUpdate", "OnDelete")},
    ),
    (MACHINE_HEALTH_CHECKS, _watching("Ready"), {_WATCHED: f'Invalid value: "Ready": {_NOT_WATCHABLE}'}),
    (
        MACHINE_HEALTH_CHECKS,
        {**HEALTH_CHECK, "remediation": {"triggerIf": {"unhealthyInRange": "3-5"}}},
        {_RANGE: _unmatched(_RANGE, "3-5", r"^\[[0-9]+-[0-9]+\]$")},
    ),
    (
        MACHINE_DRAIN_RULES,
        {"drain": {"behavior": "Drain"}, "pods": [_POD, _POD]},
        {"spec.pods": "Invalid value: entries in pods must be unique"},
    ),
    (MACHINE_DRAIN_RULES, {"drain": {"behavior": "Drain"}, "machines": [{}]}, {"spec.machines[0]": _few("spec.machines[0]")}),
]


async def check_words(client: Client) -> None:
    """Every bad object is refused, with these words."""
    for resource, spec, wanted in BAD:
        try:
            await client.create(resource, obj(resource, spec), "default")
        except ApiError as refused:
            causes = (refused.details or {}).get("causes", [])
            told = {cause["field"]: cause["message"] for cause in causes}
            assert (refused.code, told) == (422, wanted), f"{resource.resource}: {told} instead of {wanted}"
        else:
            raise AssertionError(f"{resource.resource} was accepted: {spec}")
