"""Cluster API's labels, annotations, finalizers and taints, byte for byte as in upstream."""

from __future__ import annotations

import base64
import re

DOMAIN = "cluster.x-k8s.io"
# The release of upstream's Cluster API that the core is compatible with.
UPSTREAM_VERSION = "v1.14.2"

# Labels.
CLUSTER_NAME = "cluster.x-k8s.io/cluster-name"
CONTROL_PLANE = "cluster.x-k8s.io/control-plane"
CONTROL_PLANE_NAME = "cluster.x-k8s.io/control-plane-name"
SET_NAME = "cluster.x-k8s.io/set-name"
DEPLOYMENT_NAME = "cluster.x-k8s.io/deployment-name"
POOL_NAME = "cluster.x-k8s.io/pool-name"
TEMPLATE_HASH = "machine-template-hash"
WATCH_FILTER = "cluster.x-k8s.io/watch-filter"
INTERRUPTIBLE = "cluster.x-k8s.io/interruptible"
POD_DRAIN = "cluster.x-k8s.io/drain"

# Annotations.
PAUSED = "cluster.x-k8s.io/paused"
DELETE_MACHINE = "cluster.x-k8s.io/delete-machine"
DISABLE_MACHINE_CREATE = "cluster.x-k8s.io/disable-machine-create"
SKIP_REMEDIATION = "cluster.x-k8s.io/skip-remediation"
REMEDIATE_MACHINE = "cluster.x-k8s.io/remediate-machine"
CLONED_FROM_NAME = "cluster.x-k8s.io/cloned-from-name"
CLONED_FROM_GROUP_KIND = "cluster.x-k8s.io/cloned-from-groupkind"
CONVERSION_DATA = "cluster.x-k8s.io/conversion-data"
NODE_CLUSTER_NAMESPACE = "cluster.x-k8s.io/cluster-namespace"
NODE_MACHINE = "cluster.x-k8s.io/machine"
NODE_OWNER_KIND = "cluster.x-k8s.io/owner-kind"
NODE_OWNER_NAME = "cluster.x-k8s.io/owner-name"
LABELS_FROM_MACHINE = "cluster.x-k8s.io/labels-from-machine"
ANNOTATIONS_FROM_MACHINE = "cluster.x-k8s.io/annotations-from-machine"
TAINTS_FROM_MACHINE = "cluster.x-k8s.io/taints-from-machine"
EXCLUDE_NODE_DRAINING = "machine.cluster.x-k8s.io/exclude-node-draining"
EXCLUDE_VOLUME_DETACH = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach"
CERTIFICATES_EXPIRY = "machine.cluster.x-k8s.io/certificates-expiry"
PRE_DRAIN_HOOK = "pre-drain.delete.hook.machine.cluster.x-k8s.io"
PRE_TERMINATE_HOOK = "pre-terminate.delete.hook.machine.cluster.x-k8s.io"
SKIP_PREFLIGHT_CHECKS = "machineset.cluster.x-k8s.io/skip-preflight-checks"
AUTOSCALER_MIN = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
AUTOSCALER_MAX = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
REVISION = "machinedeployment.clusters.x-k8s.io/revision"
REVISION_HISTORY = "machinedeployment.clusters.x-k8s.io/revision-history"
DESIRED_REPLICAS = "machinedeployment.clusters.x-k8s.io/desired-replicas"
MAX_REPLICAS = "machinedeployment.clusters.x-k8s.io/max-replicas"

# Ours, on a Machine: it holds data of its cluster, so a rollout never gives it up as one that never came up.
HOLDS_DATA = "remuda.dev/holds-data"

# Set by clusterctl on objects that it deletes here because they were moved to another management cluster.
MOVED_AWAY = "clusterctl.cluster.x-k8s.io/delete-for-move"

# Finalizers.
CLUSTER_FINALIZER = "cluster.cluster.x-k8s.io"
MACHINE_FINALIZER = "machine.cluster.x-k8s.io"
MACHINE_SET_FINALIZER = "cluster.x-k8s.io/machineset"
MACHINE_DEPLOYMENT_FINALIZER = "cluster.x-k8s.io/machinedeployment"

# Taints of nodes.
UNINITIALIZED_TAINT = "node.cluster.x-k8s.io/uninitialized"
OUTDATED_REVISION_TAINT = "node.cluster.x-k8s.io/outdated-revision"

SECRET_TYPE = "cluster.x-k8s.io/secret"

_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")


def label_value(name: str) -> str:
    """A name as a label value: itself or, if it is no valid value, a hash that others compute alike."""
    if len(name) <= 63 and _LABEL_VALUE.fullmatch(name):
        return name
    encoded = base64.urlsafe_b64encode(fnv32a(name.encode()).to_bytes(4, "big")).decode().rstrip("=")
    return f"hash_{encoded}_z"


def fnv32a(data: bytes) -> int:
    digest = 0x811C9DC5
    for byte in data:
        digest = (digest ^ byte) * 0x01000193 & 0xFFFFFFFF
    return digest


def kubeconfig_secret(cluster: str) -> str:
    return f"{cluster}-kubeconfig"


def ca_secret(cluster: str) -> str:
    return f"{cluster}-ca"
