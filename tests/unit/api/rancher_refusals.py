"""Bad objects of Rancher's kinds, with what an API server says to them; :mod:`.rancher_objects` has the good ones."""

from __future__ import annotations

from typing import Any

from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.client.interface import Client
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource

from .rancher_objects import FLEET, ID, POOL, Obj, obj


def _cluster(**rke: Any) -> Obj:
    return obj(provisioning.CLUSTERS, "bad", FLEET, spec={"kubernetesVersion": "v1.34.1+rke2r1", "rkeConfig": rke})


def _pool(**fields: Any) -> Obj:
    return _cluster(machinePools=[{**POOL, **fields}])


def _customized(**fields: Any) -> Obj:
    return obj(provisioning.CLUSTERS, "bad", FLEET, spec={"clusterAgentDeploymentCustomization": fields})


def _long(most: int) -> str:
    return f"Too long: may not be more than {most} bytes"


def _outside(path: str, value: object, bound: str) -> str:
    return f"Invalid value: {value}: {path} in body should be {bound}"


def _unmatched(path: str, value: str, pattern: str) -> str:
    return f"Invalid value: \"{value}\": {path} in body should match '{pattern}'"


_SHARE = "^((([1-9]|[1-9][0-9]|100)%)|([1-9][0-9]*|0)|)$"
_POOLS = "spec.rkeConfig.machinePools"
_ONE = f"{_POOLS}[0]"
_SCHEDULING = "spec.clusterAgentDeploymentCustomization.schedulingCustomization"
_MIN = "AutoscalingMinSize must be"

# What is refused: the field that must be named, and how.
BAD: list[tuple[GroupVersionResource, Obj, str, str]] = [
    (
        provisioning.CLUSTERS,
        obj(provisioning.CLUSTERS, "bad", FLEET, spec={"cloudCredentialSecretName": "a" * 318}),
        "spec.cloudCredentialSecretName",
        _long(317),
    ),
    (
        provisioning.CLUSTERS,
        _pool(name=""),
        f"{_ONE}.name",
        f'Invalid value: "": {_ONE}.name in body should be at least 1 chars long',
    ),
    (provisioning.CLUSTERS, _cluster(machinePools=[{"name": "a"}]), f"{_ONE}.machineConfigRef", "Required value"),
    (provisioning.CLUSTERS, _cluster(machinePools=[POOL, POOL]), f"{_POOLS}[1]", 'Duplicate value: {"name":"cp"}'),
    (
        provisioning.CLUSTERS,
        _pool(quantity=-1),
        f"{_ONE}.quantity",
        _outside(f"{_ONE}.quantity", -1, "greater than or equal to 0"),
    ),
    (
        provisioning.CLUSTERS,
        _pool(hostnameLengthLimit=9),
        f"{_ONE}.hostnameLengthLimit",
        _outside(f"{_ONE}.hostnameLengthLimit", 9, "greater than or equal to 10"),
    ),
    (
        provisioning.CLUSTERS,
        _cluster(machinePoolDefaults={"hostnameLengthLimit": 64}),
        "spec.rkeConfig.machinePoolDefaults.hostnameLengthLimit",
        _outside("spec.rkeConfig.machinePoolDefaults.hostnameLengthLimit", 64, "less than or equal to 63"),
    ),
    (
        provisioning.CLUSTERS,
        _pool(machineOS="plan9"),
        f"{_ONE}.machineOS",
        _unmatched(f"{_ONE}.machineOS", "plan9", "^(linux|windows|)$"),
    ),
    (
        provisioning.CLUSTERS,
        _pool(autoscalingMinSize=0, autoscalingMaxSize=3, etcdRole=False),
        _ONE,
        f"{_MIN} greater than 0 when ControlPlaneRole is true",
    ),
    (
        provisioning.CLUSTERS,
        _pool(autoscalingMinSize=0, autoscalingMaxSize=3, controlPlaneRole=False),
        _ONE,
        f"{_MIN} greater than 0 when EtcdRole is true",
    ),
    (
        provisioning.CLUSTERS,
        _pool(autoscalingMinSize=4, autoscalingMaxSize=3),
        _ONE,
        f"{_MIN} less than or equal to AutoscalingMaxSize when both are non-nil",
    ),
    (
        provisioning.CLUSTERS,
        _pool(autoscalingMinSize=4),
        _ONE,
        "AutoscalingMinSize and AutoscalingMaxSize must both be set if enabling cluster-autoscaling",
    ),
    (
        provisioning.CLUSTERS,
        _cluster(upgradeStrategy={"workerConcurrency": "some"}),
        "spec.rkeConfig.upgradeStrategy.workerConcurrency",
        _unmatched("spec.rkeConfig.upgradeStrategy.workerConcurrency", "some", _SHARE),
    ),
    (
        provisioning.CLUSTERS,
        _cluster(upgradeStrategy={"controlPlaneConcurrency": "12345678901"}),
        "spec.rkeConfig.upgradeStrategy.controlPlaneConcurrency",
        _long(10),
    ),
    (provisioning.CLUSTERS, _cluster(etcd={"s3": {"bucket": "b" * 64}}), "spec.rkeConfig.etcd.s3.bucket", _long(63)),
    (
        provisioning.CLUSTERS,
        _cluster(networking={"stackPreference": "ipv5"}),
        "spec.rkeConfig.networking.stackPreference",
        _unmatched("spec.rkeConfig.networking.stackPreference", "ipv5", "^(ipv4|ipv6|dual|)$"),
    ),
    (
        provisioning.CLUSTERS,
        _cluster(etcdSnapshotRestore={"restoreRKEConfig": "some"}),
        "spec.rkeConfig.etcdSnapshotRestore.restoreRKEConfig",
        _unmatched("spec.rkeConfig.etcdSnapshotRestore.restoreRKEConfig", "some", "^(none|kubernetesVersion|all|)$"),
    ),
    (
        provisioning.CLUSTERS,
        _cluster(machineGlobalConfig=["cni"]),
        "spec.rkeConfig.machineGlobalConfig",
        'Invalid value: "array": spec.rkeConfig.machineGlobalConfig in body must be of type object: "array"',
    ),
    (
        provisioning.CLUSTERS,
        _customized(schedulingCustomization={"priorityClass": {"value": 1_000_000_001}}),
        f"{_SCHEDULING}.priorityClass.value",
        _outside(f"{_SCHEDULING}.priorityClass.value", 1_000_000_001, "less than or equal to 1000000000"),
    ),
    (
        provisioning.CLUSTERS,
        _customized(schedulingCustomization={"podDisruptionBudget": {"minAvailable": "-1"}}),
        f"{_SCHEDULING}.podDisruptionBudget.minAvailable",
        _unmatched(f"{_SCHEDULING}.podDisruptionBudget.minAvailable", "-1", _SHARE),
    ),
    (
        provisioning.CLUSTERS,
        obj(provisioning.CLUSTERS, "bad", FLEET, spec={"webhookDeploymentCustomization": {"replicaCount": 0}}),
        "spec.webhookDeploymentCustomization.replicaCount",
        _outside("spec.webhookDeploymentCustomization.replicaCount", 0, "greater than or equal to 1"),
    ),
    (
        management.CLUSTERS,
        obj(management.CLUSTERS, "bad", spec={"displayName": 1}),
        "spec.displayName",
        'Invalid value: "integer": spec.displayName in body must be of type string: "integer"',
    ),
    (
        management.CLUSTERS,
        obj(management.CLUSTERS, "bad", status={"conditions": [{"type": "Ready"}]}),
        "status.conditions[0].status",
        "Required value",
    ),
    (
        management.NODES,
        obj(management.NODES, "bad", ID, spec={"etcd": "yes"}),
        "spec.etcd",
        'Invalid value: "string": spec.etcd in body must be of type boolean: "string"',
    ),
    (
        management.CLUSTER_REGISTRATION_TOKENS,
        obj(management.CLUSTER_REGISTRATION_TOKENS, "bad", ID, spec={"ttl": -1}),
        "spec.ttl",
        _outside("spec.ttl", -1, "greater than or equal to 0"),
    ),
    (
        management.SETTINGS,
        obj(management.SETTINGS, "bad", value=1),
        "value",
        'Invalid value: "integer": value in body must be of type string: "integer"',
    ),
    (
        management.FEATURES,
        obj(management.FEATURES, "bad", spec={"value": "true"}),
        "spec.value",
        'Invalid value: "string": spec.value in body must be of type boolean: "string"',
    ),
    (
        management.USERS,
        obj(management.USERS, "bad", principalIds="local://x"),
        "principalIds",
        'Invalid value: "string": principalIds in body must be of type array: "string"',
    ),
    (
        management.TOKENS,
        obj(management.TOKENS, "bad", ttl="1h"),
        "ttl",
        'Invalid value: "string": ttl in body must be of type integer: "string"',
    ),
    (
        management.GLOBAL_ROLES,
        obj(management.GLOBAL_ROLES, "bad", rules=[{"resources": ["*"]}]),
        "rules[0].verbs",
        "Required value",
    ),
    (
        management.ROLE_TEMPLATES,
        obj(management.ROLE_TEMPLATES, "bad", context="node"),
        "context",
        'Unsupported value: "node": supported values: "project", "cluster", ""',
    ),
    (
        management.GLOBAL_ROLE_BINDINGS,
        obj(management.GLOBAL_ROLE_BINDINGS, "bad", userName="u"),
        "globalRoleName",
        "Required value",
    ),
    (
        management.CLUSTER_ROLE_TEMPLATE_BINDINGS,
        obj(management.CLUSTER_ROLE_TEMPLATE_BINDINGS, "bad", ID, clusterName=ID),
        "roleTemplateName",
        "Required value",
    ),
]


async def check_refused(client: Client) -> None:
    """Every bad object is refused, and the field is named."""
    for resource, bad, field, message in BAD:
        try:
            await client.create(resource, bad)
        except ApiError as refused:
            told = {cause["field"]: cause["message"] for cause in (refused.details or {}).get("causes", [])}
            assert refused.code == 422
            assert message in told.get(field, ""), f"{resource.resource}: {told} instead of {field}: {message}"
        else:
            raise AssertionError(f"{resource.resource} was accepted: {bad}")
