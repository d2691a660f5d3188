"""What a server has before anybody makes a cluster: its own namespaces, and the cluster `local`, which it runs on itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.api.management_cattle_io import API_VERSION, CLUSTERS
from remuda.runtime import Manager

from ..default_objects import Standing
from .well_known import FLEET_LOCAL, LOCAL, NAMESPACES, SYSTEM_NAMESPACE

Obj = dict[str, Any]

# Credentials of clusters and of clouds are in the second.
SYSTEM_NAMESPACES = ("cattle-system", "cattle-global-data")


def local_cluster() -> Obj:
    return {
        "apiVersion": API_VERSION,
        "kind": "Cluster",
        "metadata": {"name": LOCAL},
        "spec": {"displayName": LOCAL, "internal": True, "fleetWorkspaceName": FLEET_LOCAL, "importedConfig": {}},
        "status": {"driver": LOCAL},
    }


def namespace(name: str) -> Obj:
    metadata = {"name": name, "annotations": {SYSTEM_NAMESPACE: "true"}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def standing(manager: Manager) -> tuple[Standing, ...]:
    """The controllers that keep them there."""
    namespaces: Mapping[str, Obj] = {name: namespace(name) for name in SYSTEM_NAMESPACES}
    local: Mapping[str, Obj] = {LOCAL: local_cluster()}
    return (
        Standing(manager, "system-namespace", NAMESPACES, lambda: namespaces),
        Standing(manager, "local-cluster", CLUSTERS, lambda: local),
    )
