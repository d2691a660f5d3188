"""The structs of v1beta1, which old clients speak.

:mod:`.v1beta2` has the stored structs, :mod:`.kind_rules` the mapping between both.
"""

from __future__ import annotations

from .go_structs import (
    BOOL,
    COLLECTION,
    CONDITION,
    DRAIN_RULE_MACHINES,
    DRAIN_RULE_PODS,
    DURATION,
    FAILURE_DOMAIN_BY_NAME,
    INT,
    KEPT_COLLECTION,
    LABEL_SELECTOR,
    LEGACY_CONDITION,
    NODE_SYSTEM_INFO,
    OBJECT_META,
    OBJECT_REFERENCE,
    POINTER,
    REPLICA_COUNTS,
    STATUS_VERSION,
    STRING,
    TAINT,
    TIME,
    Field,
    Shape,
    many,
    mapping,
    pointer,
    struct,
)

_TIMEOUTS: dict[str, Field] = {"nodeDrainTimeout nodeVolumeDetachTimeout nodeDeletionTimeout": POINTER}

_GATE = Shape({"conditionType!": STRING, "polarity": STRING})
_VARIABLE = Shape({"name!": STRING, "definitionFrom": STRING, "value!": POINTER})
_VARIABLES = Shape({"overrides": many(_VARIABLE)})
_HEALTH_CHECK: dict[str, Field] = {
    "unhealthyConditions": many(Shape({"type! status!": STRING, "timeout!": DURATION})),
    "unhealthyMachineConditions": many(Shape({"type status": STRING, "timeout!": DURATION})),
    "maxUnhealthy unhealthyRange nodeStartupTimeout": POINTER,
    "remediationTemplate": pointer(OBJECT_REFERENCE),
}
_STRATEGY = Shape(
    {
        "type": STRING,
        "rollingUpdate": pointer(Shape({"maxUnavailable maxSurge deletePolicy": POINTER})),
        "remediation": pointer(Shape({"maxInFlight": POINTER})),
    }
)
_TOPOLOGY_HEALTH_CHECK = Shape({"enable": POINTER, **_HEALTH_CHECK})
_ROLLOUT = Shape({"after": TIME})

_CONTROL_PLANE_TOPOLOGY = Shape(
    {
        "metadata!": struct(OBJECT_META),
        "replicas": POINTER,
        "rollout": struct(_ROLLOUT),
        "machineHealthCheck": pointer(_TOPOLOGY_HEALTH_CHECK),
        **_TIMEOUTS,
        "taints": many(TAINT),
        "readinessGates": many(_GATE),
        "variables": pointer(_VARIABLES),
    }
)
_DEPLOYMENT_TOPOLOGY = Shape(
    {
        "metadata!": struct(OBJECT_META),
        "class! name!": STRING,
        "failureDomain replicas minReadySeconds": POINTER,
        "machineHealthCheck": pointer(_TOPOLOGY_HEALTH_CHECK),
        **_TIMEOUTS,
        "taints": many(TAINT),
        "readinessGates": many(_GATE),
        "rollout": struct(_ROLLOUT),
        "strategy": pointer(_STRATEGY),
        "variables": pointer(_VARIABLES),
    }
)
_POOL_TOPOLOGY = Shape(
    {
        "metadata!": struct(OBJECT_META),
        "class! name!": STRING,
        "failureDomains": COLLECTION,
        **_TIMEOUTS,
        "taints": many(TAINT),
        "minReadySeconds replicas": POINTER,
        "variables": pointer(_VARIABLES),
    }
)
_TOPOLOGY = Shape(
    {
        "class! version!": STRING,
        "classNamespace": STRING,
        "rolloutAfter": TIME,
        "controlPlane!": struct(_CONTROL_PLANE_TOPOLOGY),
        "workers": pointer(Shape({"machineDeployments": many(_DEPLOYMENT_TOPOLOGY), "machinePools": many(_POOL_TOPOLOGY)})),
        "variables": many(_VARIABLE),
    }
)
_NETWORK_RANGES = Shape({"cidrBlocks!": KEPT_COLLECTION})
_CLUSTER_SPEC = Shape(
    {
        "paused": BOOL,
        "clusterNetwork": pointer(
            Shape({"apiServerPort": POINTER, "services pods": pointer(_NETWORK_RANGES), "serviceDomain": STRING})
        ),
        "controlPlaneEndpoint!": struct(Shape({"host!": STRING, "port!": INT})),
        "controlPlaneRef infrastructureRef": pointer(OBJECT_REFERENCE),
        "topology": pointer(_TOPOLOGY),
        "availabilityGates": many(_GATE),
    }
)
_CLUSTER_STATUS = Shape(
    {
        "failureDomains": mapping(FAILURE_DOMAIN_BY_NAME),
        "failureReason failureMessage": POINTER,
        "phase": STRING,
        "infrastructureReady! controlPlaneReady!": BOOL,
        "conditions": many(LEGACY_CONDITION),
        "observedGeneration": INT,
        "v1beta2": pointer(Shape({"conditions": many(CONDITION), "controlPlane workers": pointer(REPLICA_COUNTS)})),
    }
)

_MACHINE_SPEC = Shape(
    {
        "clusterName!": STRING,
        "bootstrap!": struct(Shape({"configRef": pointer(OBJECT_REFERENCE), "dataSecretName": POINTER})),
        "infrastructureRef!": struct(OBJECT_REFERENCE),
        "version providerID failureDomain": POINTER,
        "readinessGates": many(_GATE),
        **_TIMEOUTS,
        "taints": many(TAINT),
    }
)
_MACHINE_TEMPLATE = Shape({"metadata!": struct(OBJECT_META), "spec!": struct(_MACHINE_SPEC)})
_DELETION_TIMES = Shape(
    {"nodeDrainStartTime waitForNodeVolumeDetachStartTime waitForPreDrainHookStartTime waitForPreTerminateHookStartTime": TIME}
)
_MACHINE_STATUS = Shape(
    {
        "nodeRef": pointer(OBJECT_REFERENCE),
        "nodeInfo": pointer(NODE_SYSTEM_INFO),
        "lastUpdated certificatesExpiryDate": TIME,
        "failureReason failureMessage": POINTER,
        "addresses": many(Shape({"type! address!": STRING})),
        "phase": STRING,
        "bootstrapReady! infrastructureReady!": BOOL,
        "observedGeneration": INT,
        "conditions": many(LEGACY_CONDITION),
        "deletion": pointer(_DELETION_TIMES),
        "v1beta2": pointer(Shape({"conditions": many(CONDITION)})),
    }
)

_NAMING = pointer(Shape({"template": STRING}))
_NEW_COUNTS = pointer(Shape({"conditions": many(CONDITION), "readyReplicas availableReplicas upToDateReplicas": POINTER}))
_MACHINE_SET_SPEC = Shape(
    {
        "clusterName!": STRING,
        "replicas": POINTER,
        "minReadySeconds": INT,
        "deletePolicy": STRING,
        "selector!": struct(LABEL_SELECTOR),
        "template!": struct(_MACHINE_TEMPLATE),
        "machineNamingStrategy": _NAMING,
    }
)
_MACHINE_SET_STATUS = Shape(
    {
        "selector": STRING,
        "replicas! fullyLabeledReplicas! readyReplicas! availableReplicas!": INT,
        "observedGeneration": INT,
        "failureReason failureMessage": POINTER,
        "conditions": many(LEGACY_CONDITION),
        "versions": many(STATUS_VERSION),
        "v1beta2": _NEW_COUNTS,
    }
)
_DEPLOYMENT_SPEC = Shape(
    {
        "clusterName!": STRING,
        "replicas minReadySeconds revisionHistoryLimit progressDeadlineSeconds": POINTER,
        "rolloutAfter": TIME,
        "selector!": struct(LABEL_SELECTOR),
        "template!": struct(_MACHINE_TEMPLATE),
        "strategy": pointer(_STRATEGY),
        "machineNamingStrategy": _NAMING,
        "paused": BOOL,
    }
)
_DEPLOYMENT_STATUS = Shape(
    {
        "observedGeneration": INT,
        "selector phase": STRING,
        "replicas! updatedReplicas! readyReplicas! availableReplicas! unavailableReplicas!": INT,
        "conditions": many(LEGACY_CONDITION),
        "versions": many(STATUS_VERSION),
        "v1beta2": _NEW_COUNTS,
    }
)

_HEALTH_CHECK_SPEC = Shape({"clusterName!": STRING, "selector!": struct(LABEL_SELECTOR), **_HEALTH_CHECK})
_HEALTH_CHECK_STATUS = Shape(
    {
        "expectedMachines! currentHealthy! remediationsAllowed!": INT,
        "observedGeneration": INT,
        "targets": COLLECTION,
        "conditions": many(LEGACY_CONDITION),
        "v1beta2": pointer(Shape({"conditions": many(CONDITION)})),
    }
)

_DRAIN_RULE_SPEC = Shape(
    {
        "drain!": struct(Shape({"behavior!": STRING, "order": POINTER})),
        "machines": many(DRAIN_RULE_MACHINES),
        "pods": many(DRAIN_RULE_PODS),
    }
)

CLUSTER = Shape({"spec!": struct(_CLUSTER_SPEC), "status!": struct(_CLUSTER_STATUS)})
MACHINE = Shape({"spec!": struct(_MACHINE_SPEC), "status!": struct(_MACHINE_STATUS)})
MACHINE_SET = Shape({"spec!": struct(_MACHINE_SET_SPEC), "status!": struct(_MACHINE_SET_STATUS)})
MACHINE_DEPLOYMENT = Shape({"spec!": struct(_DEPLOYMENT_SPEC), "status!": struct(_DEPLOYMENT_STATUS)})
MACHINE_HEALTH_CHECK = Shape({"spec!": struct(_HEALTH_CHECK_SPEC), "status!": struct(_HEALTH_CHECK_STATUS)})
MACHINE_DRAIN_RULE = Shape({"spec!": struct(_DRAIN_RULE_SPEC)})
