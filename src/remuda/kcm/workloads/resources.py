"""The resources that these controllers watch, and their field manager."""

from __future__ import annotations

from typing import Final

from remuda.kube.objects import GroupVersionResource

MANAGER: Final = "kube-controller-manager"
APPS: Final = "apps"

PODS: Final = GroupVersionResource("", "v1", "pods")
NODES: Final = GroupVersionResource("", "v1", "nodes")
SERVICES: Final = GroupVersionResource("", "v1", "services")
LEASES: Final = GroupVersionResource("coordination.k8s.io", "v1", "leases")
DEPLOYMENTS: Final = GroupVersionResource(APPS, "v1", "deployments")
REPLICA_SETS: Final = GroupVersionResource(APPS, "v1", "replicasets")
STATEFUL_SETS: Final = GroupVersionResource(APPS, "v1", "statefulsets")
DAEMON_SETS: Final = GroupVersionResource(APPS, "v1", "daemonsets")
JOBS: Final = GroupVersionResource("batch", "v1", "jobs")
ENDPOINT_SLICES: Final = GroupVersionResource("discovery.k8s.io", "v1", "endpointslices")

NODE_LEASES: Final = "kube-node-lease"
