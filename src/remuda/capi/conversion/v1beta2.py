"""The structs of v1beta2, which is stored and which the controllers see. :mod:`.v1beta1` has the older ones."""

from __future__ import annotations

from .go_structs import (
    COLLECTION,
    CONDITION,
    DRAIN_RULE_MACHINES,
    DRAIN_RULE_PODS,
    INT,
    LABEL_SELECTOR,
    LEGACY_CONDITION,
    NODE_SYSTEM_INFO,
    OBJECT_META,
    POINTER,
    REPLICA_COUNTS,
    STATUS_VERSION,
    STRING,
    TAINT,
    TIME,
    Field,
    Shape,
    many,
    pointer,
    struct,
)

_TIMEOUTS: dict[str, Field] = {"nodeDrainTimeoutSeconds nodeVolumeDetachTimeoutSeconds nodeDeletionTimeoutSeconds": POINTER}
_DELETION = struct(Shape(_TIMEOUTS))
_DELETION_ORDER = struct(Shape({"order": STRING}))

_REFERENCE = struct(Shape({"kind name apiGroup": STRING}))
_GATE = Shape({"conditionType polarity": STRING})
_VARIABLE = Shape({"name": STRING, "value": POINTER})
_VARIABLES = struct(Shape({"overrides": many(_VARIABLE)}))
_UNHEALTHY = many(Shape({"type status": STRING, "timeoutSeconds": POINTER}))
_CHECKS = struct(Shape({"nodeStartupTimeoutSeconds": POINTER, "unhealthyNodeConditions unhealthyMachineConditions": _UNHEALTHY}))
_REMEDIATION: dict[str, Field] = {
    "triggerIf": struct(Shape({"unhealthyLessThanOrEqualTo": POINTER, "unhealthyInRange": STRING})),
    "templateRef": struct(Shape({"kind name apiVersion": STRING})),
}
_MAX_IN_FLIGHT: dict[str, Field] = {"maxInFlight": POINTER}
_ROLLOUT = struct(
    Shape(
        {
            "after": TIME,
            "strategy": struct(Shape({"type": STRING, "rollingUpdate": struct(Shape({"maxUnavailable maxSurge": POINTER}))})),
        }
    )
)

_CONTROL_PLANE_TOPOLOGY = Shape(
    {
        "metadata": struct(OBJECT_META),
        "replicas": POINTER,
        "rollout": struct(Shape({"after": TIME})),
        "healthCheck": struct(Shape({"enabled": POINTER, "checks": _CHECKS, "remediation": struct(Shape(_REMEDIATION))})),
        "deletion": _DELETION,
        "taints": many(TAINT),
        "readinessGates": many(_GATE),
        "variables": _VARIABLES,
    }
)
_DEPLOYMENT_TOPOLOGY = Shape(
    {
        "metadata": struct(OBJECT_META),
        "class name failureDomain": STRING,
        "replicas minReadySeconds": POINTER,
        "healthCheck": struct(
            Shape({"enabled": POINTER, "checks": _CHECKS, "remediation": struct(Shape({**_MAX_IN_FLIGHT, **_REMEDIATION}))})
        ),
        "deletion": struct(Shape({"order": STRING, **_TIMEOUTS})),
        "taints": many(TAINT),
        "readinessGates": many(_GATE),
        "rollout": _ROLLOUT,
        "variables": _VARIABLES,
    }
)
_POOL_TOPOLOGY = Shape(
    {
        "metadata": struct(OBJECT_META),
        "class name": STRING,
        "failureDomains": COLLECTION,
        "deletion": _DELETION,
        "taints": many(TAINT),
        "minReadySeconds replicas": POINTER,
        "variables": _VARIABLES,
    }
)
_TOPOLOGY = Shape(
    {
        "classRef": struct(Shape({"name namespace": STRING})),
        "version": STRING,
        "controlPlane": struct(_CONTROL_PLANE_TOPOLOGY),
        "workers": struct(Shape({"machineDeployments": many(_DEPLOYMENT_TOPOLOGY), "machinePools": many(_POOL_TOPOLOGY)})),
        "variables": many(_VARIABLE),
    }
)
_CLUSTER_SPEC = Shape(
    {
        "paused": POINTER,
        "clusterNetwork": struct(
            Shape({"apiServerPort": INT, "services pods": struct(Shape({"cidrBlocks": COLLECTION})), "serviceDomain": STRING})
        ),
        "controlPlaneEndpoint": struct(Shape({"host": STRING, "port": INT})),
        "controlPlaneRef infrastructureRef": _REFERENCE,
        "topology": struct(_TOPOLOGY),
        "availabilityGates": many(_GATE),
    }
)


def _deprecated(**counts: Field) -> Field:
    """The fields of v1beta1 alone: its conditions, and for some kinds its own counters or the reason of a failure."""
    return pointer(Shape({"v1beta1": pointer(Shape({"conditions": many(LEGACY_CONDITION), **counts}))}))


def _failures() -> dict[str, Field]:
    return {"failureReason": POINTER, "failureMessage": POINTER}


_CLUSTER_STATUS = Shape(
    {
        "conditions": many(CONDITION),
        "initialization": struct(Shape({"infrastructureProvisioned controlPlaneInitialized": POINTER})),
        "controlPlane workers": pointer(REPLICA_COUNTS),
        "failureDomains": many(Shape({"name": STRING, "controlPlane": POINTER, "attributes": COLLECTION})),
        "phase": STRING,
        "observedGeneration": INT,
        "deprecated": _deprecated(**_failures()),
    }
)

_MACHINE_SPEC = Shape(
    {
        "clusterName version providerID failureDomain": STRING,
        "bootstrap": struct(Shape({"configRef": _REFERENCE, "dataSecretName": POINTER})),
        "infrastructureRef": _REFERENCE,
        "minReadySeconds": POINTER,
        "readinessGates": many(_GATE),
        "deletion": _DELETION,
        "taints": many(TAINT),
    }
)
_MACHINE_TEMPLATE = struct(Shape({"metadata": struct(OBJECT_META), "spec": struct(_MACHINE_SPEC)}))
_DELETION_TIMES = Shape(
    {"nodeDrainStartTime waitForNodeVolumeDetachStartTime waitForPreDrainHookStartTime waitForPreTerminateHookStartTime": TIME}
)
_MACHINE_STATUS = Shape(
    {
        "conditions": many(CONDITION),
        "initialization": struct(Shape({"infrastructureProvisioned bootstrapDataSecretCreated": POINTER})),
        "nodeRef": struct(Shape({"name": STRING})),
        "nodeInfo": pointer(NODE_SYSTEM_INFO),
        "lastUpdated certificatesExpiryDate": TIME,
        "addresses": many(Shape({"type address": STRING})),
        "failureDomain phase": STRING,
        "observedGeneration": INT,
        "deletion": pointer(_DELETION_TIMES),
        "deprecated": _deprecated(**_failures()),
    }
)

_NAMING = struct(Shape({"template": STRING}))
_MACHINE_SET_SPEC = Shape(
    {
        "clusterName": STRING,
        "replicas": POINTER,
        "selector": struct(LABEL_SELECTOR),
        "template": _MACHINE_TEMPLATE,
        "machineNaming": _NAMING,
        "deletion": _DELETION_ORDER,
    }
)
_MACHINE_SET_STATUS = Shape(
    {
        "conditions": many(CONDITION),
        "selector": STRING,
        "replicas readyReplicas availableReplicas upToDateReplicas": POINTER,
        "versions": many(STATUS_VERSION),
        "observedGeneration": INT,
        "deprecated": _deprecated(**_failures(), **{"fullyLabeledReplicas! readyReplicas! availableReplicas!": INT}),
    }
)
_DEPLOYMENT_SPEC = Shape(
    {
        "clusterName": STRING,
        "replicas paused": POINTER,
        "rollout": _ROLLOUT,
        "selector": struct(LABEL_SELECTOR),
        "template": _MACHINE_TEMPLATE,
        "machineNaming": _NAMING,
        "remediation": struct(Shape(_MAX_IN_FLIGHT)),
        "deletion": _DELETION_ORDER,
    }
)
_DEPLOYMENT_STATUS = Shape(
    {
        "conditions": many(CONDITION),
        "observedGeneration": INT,
        "selector phase": STRING,
        "replicas readyReplicas availableReplicas upToDateReplicas": POINTER,
        "versions": many(STATUS_VERSION),
        "deprecated": _deprecated(**{"updatedReplicas! readyReplicas! availableReplicas! unavailableReplicas!": INT}),
    }
)

_HEALTH_CHECK_SPEC = Shape(
    {
        "clusterName": STRING,
        "selector": struct(LABEL_SELECTOR),
        "checks": _CHECKS,
        "remediation": struct(Shape(_REMEDIATION)),
    }
)
_HEALTH_CHECK_STATUS = Shape(
    {
        "conditions": many(CONDITION),
        "expectedMachines currentHealthy remediationsAllowed": POINTER,
        "observedGeneration": INT,
        "targets": COLLECTION,
        "deprecated": _deprecated(),
    }
)

_DRAIN_RULE_SPEC = Shape(
    {
        "drain": struct(Shape({"behavior": STRING, "order": POINTER})),
        "machines": many(DRAIN_RULE_MACHINES),
        "pods": many(DRAIN_RULE_PODS),
    }
)

CLUSTER = Shape({"spec": struct(_CLUSTER_SPEC), "status": struct(_CLUSTER_STATUS)})
MACHINE = Shape({"spec": struct(_MACHINE_SPEC), "status": struct(_MACHINE_STATUS)})
MACHINE_SET = Shape({"spec": struct(_MACHINE_SET_SPEC), "status": struct(_MACHINE_SET_STATUS)})
MACHINE_DEPLOYMENT = Shape({"spec": struct(_DEPLOYMENT_SPEC), "status": struct(_DEPLOYMENT_STATUS)})
MACHINE_HEALTH_CHECK = Shape({"spec": struct(_HEALTH_CHECK_SPEC), "status": struct(_HEALTH_CHECK_STATUS)})
MACHINE_DRAIN_RULE = Shape({"spec": struct(_DRAIN_RULE_SPEC)})
