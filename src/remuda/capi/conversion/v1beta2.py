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
    StructFields,
    many,
    pointer,
    struct,
)

_TIMEOUTS: dict[str, Field] = {"nodeDrainTimeoutSeconds nodeVolumeDetachTimeoutSeconds nodeDeletionTimeoutSeconds": POINTER}
_DELETION = struct(StructFields(_TIMEOUTS))
_DELETION_ORDER = struct(StructFields({"order": STRING}))

_REFERENCE = struct(StructFields({"kind name apiGroup": STRING}))
_GATE = StructFields({"conditionType polarity": STRING})
_VARIABLE = StructFields({"name": STRING, "value": POINTER})
_VARIABLES = struct(StructFields({"overrides": many(_VARIABLE)}))
_UNHEALTHY = many(StructFields({"type status": STRING, "timeoutSeconds": POINTER}))
_CHECKS = struct(
    StructFields({"nodeStartupTimeoutSeconds": POINTER, "unhealthyNodeConditions unhealthyMachineConditions": _UNHEALTHY})
)
_REMEDIATION: dict[str, Field] = {
    "triggerIf": struct(StructFields({"unhealthyLessThanOrEqualTo": POINTER, "unhealthyInRange": STRING})),
    "templateRef": struct(StructFields({"kind name apiVersion": STRING})),
}
_MAX_IN_FLIGHT: dict[str, Field] = {"maxInFlight": POINTER}
_ROLLOUT = struct(
    StructFields(
        {
            "after": TIME,
            "strategy": struct(
                StructFields({"type": STRING, "rollingUpdate": struct(StructFields({"maxUnavailable maxSurge": POINTER}))})
            ),
        }
    )
)

_CONTROL_PLANE_TOPOLOGY = StructFields(
    {
        "metadata": struct(OBJECT_META),
        "replicas": POINTER,
        "rollout": struct(StructFields({"after": TIME})),
        "healthCheck": struct(
            StructFields({"enabled": POINTER, "checks": _CHECKS, "remediation": struct(StructFields(_REMEDIATION))})
        ),
        "deletion": _DELETION,
        "taints": many(TAINT),
        "readinessGates": many(_GATE),
        "variables": _VARIABLES,
    }
)
_DEPLOYMENT_TOPOLOGY = StructFields(
    {
        "metadata": struct(OBJECT_META),
        "class name failureDomain": STRING,
        "replicas minReadySeconds": POINTER,
        "healthCheck": struct(
            StructFields(
                {"enabled": POINTER, "checks": _CHECKS, "remediation": struct(StructFields({**_MAX_IN_FLIGHT, **_REMEDIATION}))}
            )
        ),
        "deletion": struct(StructFields({"order": STRING, **_TIMEOUTS})),
        "taints": many(TAINT),
        "readinessGates": many(_GATE),
        "rollout": _ROLLOUT,
        "variables": _VARIABLES,
    }
)
_POOL_TOPOLOGY = StructFields(
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
_TOPOLOGY = StructFields(
    {
        "classRef": struct(StructFields({"name namespace": STRING})),
        "version": STRING,
        "controlPlane": struct(_CONTROL_PLANE_TOPOLOGY),
        "workers": struct(StructFields({"machineDeployments": many(_DEPLOYMENT_TOPOLOGY), "machinePools": many(_POOL_TOPOLOGY)})),
        "variables": many(_VARIABLE),
    }
)
_CLUSTER_SPEC = StructFields(
    {
        "paused": POINTER,
        "clusterNetwork": struct(
            StructFields(
                {"apiServerPort": INT, "services pods": struct(StructFields({"cidrBlocks": COLLECTION})), "serviceDomain": STRING}
            )
        ),
        "controlPlaneEndpoint": struct(StructFields({"host": STRING, "port": INT})),
        "controlPlaneRef infrastructureRef": _REFERENCE,
        "topology": struct(_TOPOLOGY),
        "availabilityGates": many(_GATE),
    }
)


def _deprecated(**counts: Field) -> Field:
    """The fields of v1beta1 alone: its conditions, and for some kinds its own counters or the reason of a failure."""
    return pointer(StructFields({"v1beta1": pointer(StructFields({"conditions": many(LEGACY_CONDITION), **counts}))}))


def _failures() -> dict[str, Field]:
    return {"failureReason": POINTER, "failureMessage": POINTER}


_CLUSTER_STATUS = StructFields(
    {
        "conditions": many(CONDITION),
        "initialization": struct(StructFields({"infrastructureProvisioned controlPlaneInitialized": POINTER})),
        "controlPlane workers": pointer(REPLICA_COUNTS),
        "failureDomains": many(StructFields({"name": STRING, "controlPlane": POINTER, "attributes": COLLECTION})),
        "phase": STRING,
        "observedGeneration": INT,
        "deprecated": _deprecated(**_failures()),
    }
)

_MACHINE_SPEC = StructFields(
    {
        "clusterName version providerID failureDomain": STRING,
        "bootstrap": struct(StructFields({"configRef": _REFERENCE, "dataSecretName": POINTER})),
        "infrastructureRef": _REFERENCE,
        "minReadySeconds": POINTER,
        "readinessGates": many(_GATE),
        "deletion": _DELETION,
        "taints": many(TAINT),
    }
)
_MACHINE_TEMPLATE = struct(StructFields({"metadata": struct(OBJECT_META), "spec": struct(_MACHINE_SPEC)}))
_DELETION_TIMES = StructFields(
    {"nodeDrainStartTime waitForNodeVolumeDetachStartTime waitForPreDrainHookStartTime waitForPreTerminateHookStartTime": TIME}
)
_MACHINE_STATUS = StructFields(
    {
        "conditions": many(CONDITION),
        "initialization": struct(StructFields({"infrastructureProvisioned bootstrapDataSecretCreated": POINTER})),
        "nodeRef": struct(StructFields({"name": STRING})),
        "nodeInfo": pointer(NODE_SYSTEM_INFO),
        "lastUpdated certificatesExpiryDate": TIME,
        "addresses": many(StructFields({"type address": STRING})),
        "failureDomain phase": STRING,
        "observedGeneration": INT,
        "deletion": pointer(_DELETION_TIMES),
        "deprecated": _deprecated(**_failures()),
    }
)

_NAMING = struct(StructFields({"template": STRING}))
_MACHINE_SET_SPEC = StructFields(
    {
        "clusterName": STRING,
        "replicas": POINTER,
        "selector": struct(LABEL_SELECTOR),
        "template": _MACHINE_TEMPLATE,
        "machineNaming": _NAMING,
        "deletion": _DELETION_ORDER,
    }
)
_MACHINE_SET_STATUS = StructFields(
    {
        "conditions": many(CONDITION),
        "selector": STRING,
        "replicas readyReplicas availableReplicas upToDateReplicas": POINTER,
        "versions": many(STATUS_VERSION),
        "observedGeneration": INT,
        "deprecated": _deprecated(**_failures(), **{"fullyLabeledReplicas! readyReplicas! availableReplicas!": INT}),
    }
)
_DEPLOYMENT_SPEC = StructFields(
    {
        "clusterName": STRING,
        "replicas paused": POINTER,
        "rollout": _ROLLOUT,
        "selector": struct(LABEL_SELECTOR),
        "template": _MACHINE_TEMPLATE,
        "machineNaming": _NAMING,
        "remediation": struct(StructFields(_MAX_IN_FLIGHT)),
        "deletion": _DELETION_ORDER,
    }
)
_DEPLOYMENT_STATUS = StructFields(
    {
        "conditions": many(CONDITION),
        "observedGeneration": INT,
        "selector phase": STRING,
        "replicas readyReplicas availableReplicas upToDateReplicas": POINTER,
        "versions": many(STATUS_VERSION),
        "deprecated": _deprecated(**{"updatedReplicas! readyReplicas! availableReplicas! unavailableReplicas!": INT}),
    }
)

_HEALTH_CHECK_SPEC = StructFields(
    {
        "clusterName": STRING,
        "selector": struct(LABEL_SELECTOR),
        "checks": _CHECKS,
        "remediation": struct(StructFields(_REMEDIATION)),
    }
)
_HEALTH_CHECK_STATUS = StructFields(
    {
        "conditions": many(CONDITION),
        "expectedMachines currentHealthy remediationsAllowed": POINTER,
        "observedGeneration": INT,
        "targets": COLLECTION,
        "deprecated": _deprecated(),
    }
)

_DRAIN_RULE_SPEC = StructFields(
    {
        "drain": struct(StructFields({"behavior": STRING, "order": POINTER})),
        "machines": many(DRAIN_RULE_MACHINES),
        "pods": many(DRAIN_RULE_PODS),
    }
)

CLUSTER = StructFields({"spec": struct(_CLUSTER_SPEC), "status": struct(_CLUSTER_STATUS)})
MACHINE = StructFields({"spec": struct(_MACHINE_SPEC), "status": struct(_MACHINE_STATUS)})
MACHINE_SET = StructFields({"spec": struct(_MACHINE_SET_SPEC), "status": struct(_MACHINE_SET_STATUS)})
MACHINE_DEPLOYMENT = StructFields({"spec": struct(_DEPLOYMENT_SPEC), "status": struct(_DEPLOYMENT_STATUS)})
MACHINE_HEALTH_CHECK = StructFields({"spec": struct(_HEALTH_CHECK_SPEC), "status": struct(_HEALTH_CHECK_STATUS)})
MACHINE_DRAIN_RULE = StructFields({"spec": struct(_DRAIN_RULE_SPEC)})
