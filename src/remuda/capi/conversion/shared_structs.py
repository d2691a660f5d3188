"""Structs that look the same in v1beta1 and v1beta2, our own and Kubernetes'."""

from __future__ import annotations

from .go_structs import BOOL, COLLECTION, INT, POINTER, STRING, TIME, Shape, many, pointer

# Kubernetes'.
CONDITION = Shape({"type! status! reason! message!": STRING, "lastTransitionTime!": TIME, "observedGeneration": INT})
OBJECT_REFERENCE = Shape({"kind namespace name uid apiVersion resourceVersion fieldPath": STRING})
LABEL_SELECTOR = Shape(
    {
        "matchLabels": COLLECTION,
        "matchExpressions": many(Shape({"key! operator!": STRING, "values": COLLECTION})),
    }
)
NODE_SYSTEM_INFO = Shape(
    {
        "machineID! systemUUID! bootID! kernelVersion! osImage!": STRING,
        "containerRuntimeVersion! kubeletVersion! kubeProxyVersion! operatingSystem! architecture!": STRING,
        "swap": pointer(Shape({"capacity": POINTER})),
    }
)

# Cluster API's.
LEGACY_CONDITION = Shape({"type! status!": STRING, "lastTransitionTime!": TIME, "severity reason message": STRING})
OBJECT_META = Shape({"labels annotations": COLLECTION})
TAINT = Shape({"key value effect propagation": STRING})
STATUS_VERSION = Shape({"version": STRING, "replicas": INT})
REPLICA_COUNTS = Shape(
    {
        "desiredReplicas replicas upToDateReplicas readyReplicas availableReplicas": POINTER,
        "versions": many(STATUS_VERSION),
        "upgradePlan": many(Shape({"version": STRING})),
    }
)
FAILURE_DOMAIN_BY_NAME = Shape({"controlPlane": BOOL, "attributes": COLLECTION})
DRAIN_RULE_MACHINES = Shape({"selector clusterSelector": pointer(LABEL_SELECTOR)})
DRAIN_RULE_PODS = Shape({"selector namespaceSelector": pointer(LABEL_SELECTOR)})
