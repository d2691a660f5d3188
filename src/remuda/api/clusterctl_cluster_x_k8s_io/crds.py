"""The kind of this group: how it is served, and the columns of `kubectl get`."""

from __future__ import annotations

from typing import Annotated

from ..crd import Column, Kind, Version, age_column
from ..schema import Doc, Object
from . import GROUP, VERSION


class InventoryEntry(Object, total=False):
    """An entry of clusterctl's inventory: one program of Cluster API that runs on this management cluster."""

    providerName: Annotated[str, Doc("The name, such as cluster-api or kubeadm.")]
    type: Annotated[str, Doc("CoreProvider, BootstrapProvider, ControlPlaneProvider, InfrastructureProvider or another.")]
    version: Annotated[str, Doc("The version, with a leading v.")]
    watchedNamespace: Annotated[str, Doc("The only namespace that it works in. Deprecated by clusterctl: leave it empty.")]


PROVIDER = Kind(
    GROUP,
    "Provider",
    (
        Version(
            VERSION,
            InventoryEntry,
            (
                age_column(),
                Column("Type", ".type", "string", "What it provides"),
                Column("Provider", ".providerName", "string", "Its name"),
                Column("Version", ".version", "string", "Its version"),
            ),
            storage=True,
            status=False,
        ),
    ),
    categories=("cluster-api",),
    # As clusterctl sets it when it installs the definition.
    labels={"clusterctl.cluster.x-k8s.io/core": "inventory"},
)

KINDS = (PROVIDER,)
