"""Resources of Kubernetes' built-in kinds that several rooms read or write, by their usual names."""

from __future__ import annotations

from typing import Final

from .objects import GroupVersionResource

RBAC_GROUP: Final = "rbac.authorization.k8s.io"

CONFIG_MAPS: Final = GroupVersionResource("", "v1", "configmaps")
EVENTS: Final = GroupVersionResource("", "v1", "events")
NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")
NODES: Final = GroupVersionResource("", "v1", "nodes")
PERSISTENT_VOLUMES: Final = GroupVersionResource("", "v1", "persistentvolumes")
PERSISTENT_VOLUME_CLAIMS: Final = GroupVersionResource("", "v1", "persistentvolumeclaims")
PODS: Final = GroupVersionResource("", "v1", "pods")
RESOURCE_QUOTAS: Final = GroupVersionResource("", "v1", "resourcequotas")
SECRETS: Final = GroupVersionResource("", "v1", "secrets")
SERVICES: Final = GroupVersionResource("", "v1", "services")
SERVICE_ACCOUNTS: Final = GroupVersionResource("", "v1", "serviceaccounts")

DAEMON_SETS: Final = GroupVersionResource("apps", "v1", "daemonsets")
DEPLOYMENTS: Final = GroupVersionResource("apps", "v1", "deployments")
REPLICA_SETS: Final = GroupVersionResource("apps", "v1", "replicasets")
STATEFUL_SETS: Final = GroupVersionResource("apps", "v1", "statefulsets")
JOBS: Final = GroupVersionResource("batch", "v1", "jobs")
POD_DISRUPTION_BUDGETS: Final = GroupVersionResource("policy", "v1", "poddisruptionbudgets")

LEASES: Final = GroupVersionResource("coordination.k8s.io", "v1", "leases")
ENDPOINT_SLICES: Final = GroupVersionResource("discovery.k8s.io", "v1", "endpointslices")
VOLUME_ATTACHMENTS: Final = GroupVersionResource("storage.k8s.io", "v1", "volumeattachments")

CLUSTER_ROLES: Final = GroupVersionResource(RBAC_GROUP, "v1", "clusterroles")
CLUSTER_ROLE_BINDINGS: Final = GroupVersionResource(RBAC_GROUP, "v1", "clusterrolebindings")
ROLES: Final = GroupVersionResource(RBAC_GROUP, "v1", "roles")
ROLE_BINDINGS: Final = GroupVersionResource(RBAC_GROUP, "v1", "rolebindings")

CRDS: Final = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
