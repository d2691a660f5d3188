"""Resources that several of these controllers watch."""

from __future__ import annotations

from remuda.kube.objects import GroupVersionResource
from remuda.runtime import Informers, synced

__all__ = ["CONFIG_MAPS", "NAMESPACES", "PODS", "SECRETS", "SERVICE_ACCOUNTS", "Informers", "synced"]

NAMESPACES = GroupVersionResource("", "v1", "namespaces")
PODS = GroupVersionResource("", "v1", "pods")
SECRETS = GroupVersionResource("", "v1", "secrets")
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
SERVICE_ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
