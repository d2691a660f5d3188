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
    StructFields,
    many,
    mapping,
    pointer,
    struct,
)

_TIMEOUTS: dict[str, Field] = {"nodeDrainTimeout nodeVolumeDetachTimeout nodeDeletionTimeout": POINTER}

_GATE = StructFields({"conditionType!": STRING, "polarity": STRING})
_VARIABLE = StructFields({"name!": STRING, "definitionFrom": STRING, "value!": POINTER})
_VARIABLES = StructFields({"overrides": many(_VARIABLE)})
_HEALTH_CHECK: dict[str, Field] = {
    "unhealthyConditions": many(StructFields({"type! status!": STRING, "timeout!": DURATION})),
    "unhealthyMachineConditions": many(StructFields({"type status": STRING, "timeout!": DURATION})),
    "maxUnhealthy unhealthyRange nodeStartupTimeout": POINTER,
    "remediationTemplate": pointer(OBJECT_REFERENCE),
}
_STRATEGY = StructFields(
    {
        "type": STRING,
        "rollingUpdate": pointer(StructFields({"maxUnavailable maxSurge deletePolicy": POINTER})),
        "remediation": pointer(StructFields({"maxInFlight": POINTER})),
    }
)
_TOPOLOGY_HEALTH_CHECK = StructFields({"enable": POINTER, **_HEALTH_CHECK})
_ROLLOUT = StructFields({"after": TIME})

_CONTROL_PLANE_TOPOLOGY = StructFields(
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
_DEPLOYMENT_TOPOLOGY = StructFields(
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
_POOL_TOPOLOGY = StructFields(
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
_TOPOLOGY = StructFields(
    {
        "class! version!": STRING,
        "classNamespace": STRING,
        "rolloutAfter": TIME,
        "controlPlane!": struct(_CONTROL_PLANE_TOPOLOGY),
        "workers": pointer(
            StructFields({"machineDeployments": many(_DEPLOYMENT_TOPOLOGY), "machinePools": many(_POOL_TOPOLOGY)})
        ),
        "variables": many(_VARIABLE),
    }
)
_NETWORK_RANGES = StructFields({"cidrBlocks!": KEPT_COLLECTION})
_CLUSTER_SPEC = StructFields(
    {
        "paused": BOOL,
        "clusterNetwork": pointer(
            StructFields({"apiServerPort": POINTER, "services pods": pointer(_NETWORK_RANGES), "serviceDomain": STRING})
        ),
        "controlPlaneEndpoint!": struct(StructFields({"host!": STRING, "port!": INT})),
        "controlPlaneRef infrastructureRef": pointer(OBJECT_REFERENCE),
        "topology": pointer(_TOPOLOGY),
        "availabilityGates": many(_GATE),
    }
)
_CLUSTER_STATUS = StructFields(
    {
        "failureDomains": mapping(FAILURE_DOMAIN_BY_NAME),
        "failureReason failureMessage": POINTER,
        "phase": STRING,
        "infrastructureReady! controlPlaneReady!": BOOL,
        "conditions": many(LEGACY_CONDITION),
        "observedGeneration": INT,
        "v1beta2": pointer(StructFields({"conditions": many(CONDITION), "controlPlane workers": pointer(REPLICA_COUNTS)})),
    }
)

_MACHINE_SPEC = StructFields(
    {
        "clusterName!": STRING,
        "bootstrap!": struct(StructFields({"configRef": pointer(OBJECT_REFERENCE), "dataSecretName": POINTER})),
        "infrastructureRef!": struct(OBJECT_REFERENCE),
        "version providerID failureDomain": POINTER,
        "readinessGates": many(_GATE),
        **_TIMEOUTS,
        "taints": many(TAINT),
    }
)
_MACHINE_TEMPLATE = StructFields({"metadata!": struct(OBJECT_META), "spec!": struct(_MACHINE_SPEC)})
_DELETION_TIMES = StructFields(
    {"nodeDrainStartTime waitForNodeVolumeDetachStartTime waitForPreDrainHookStartTime waitForPreTerminateHookStartTime": TIME}
)
_MACHINE_STATUS = StructFields(
    {
        "nodeRef": pointer(OBJECT_REFERENCE),
        "nodeInfo": pointer(NODE_SYSTEM_INFO),
        "lastUpdated certificatesExpiryDate": TIME,
        "failureReason failureMessage": POINTER,
        "addresses": many(StructFields({"type! address!": STRING})),
        "phase": STRING,
        "bootstrapReady! infrastructureReady!": BOOL,
        "observedGeneration": INT,
        "conditions": many(LEGACY_CONDITION),
        "deletion": pointer(_DELETION_TIMES),
        "v1beta2": pointer(StructFields({"conditions": many(CONDITION)})),
    }
)

_NAMING = pointer(StructFields({"template": STRING}))
_NEW_COUNTS = pointer(StructFields({"conditions": many(CONDITION), "readyReplicas availableReplicas upToDateReplicas": POINTER}))
_MACHINE_SET_SPEC = StructFields(
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
_MACHINE_SET_STATUS = StructFields(
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
_DEPLOYMENT_SPEC = StructFields(
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
_DEPLOYMENT_STATUS = StructFields(
    {
        "observedGeneration": INT,
        "selector phase": STRING,
        "replicas! updatedReplicas! readyReplicas! availableReplicas! unavailableReplicas!": INT,
        "conditions": many(LEGACY_CONDITION),
        "versions": many(STATUS_VERSION),
        "v1beta2": _NEW_COUNTS,
    }
)

_HEALTH_CHECK_SPEC = StructFields({"clusterName!": STRING, "selector!": struct(LABEL_SELECTOR), **_HEALTH_CHECK})
_HEALTH_CHECK_STATUS = StructFields(
    {
        "expectedMachines! currentHealthy! remediationsAllowed!": INT,
        "observedGeneration": INT,
        "targets": COLLECTION,
        "conditions": many(LEGACY_CONDITION),
        "v1beta2": pointer(StructFields({"conditions": many(CONDITION)})),
    }
)

_DRAIN_RULE_SPEC = StructFields(
    {
        "drain!": struct(StructFields({"behavior!": STRING, "order": POINTER})),
        "machines": many(DRAIN_RULE_MACHINES),
        "pods": many(DRAIN_RULE_PODS),
    }
)

CLUSTER = StructFields({"spec!": struct(_CLUSTER_SPEC), "status!": struct(_CLUSTER_STATUS)})
MACHINE = StructFields({"spec!": struct(_MACHINE_SPEC), "status!": struct(_MACHINE_STATUS)})
MACHINE_SET = StructFields({"spec!": struct(_MACHINE_SET_SPEC), "status!": struct(_MACHINE_SET_STATUS)})
MACHINE_DEPLOYMENT = StructFields({"spec!": struct(_DEPLOYMENT_SPEC), "status!": struct(_DEPLOYMENT_STATUS)})
MACHINE_HEALTH_CHECK = StructFields({"spec!": struct(_HEALTH_CHECK_SPEC), "status!": struct(_HEALTH_CHECK_STATUS)})
MACHINE_DRAIN_RULE = StructFields({"spec!": struct(_DRAIN_RULE_SPEC)})
