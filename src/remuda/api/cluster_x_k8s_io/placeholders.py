"""Kinds of this group that Remuda does not have and others take for granted: they can be listed, and none can be made.

`clusterctl describe` lists MachinePools, and managers of providers watch them; both give up where the kind is not served at all.
Where somebody else's definition is there, it is left alone (:func:`~remuda.api.crd_installation.install_missing`).
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from ..crd import Column, Kind, Version, age_column
from ..schema import Cel, Doc, Preserve, rules
from . import GROUP, OLD_VERSION, VERSION

_LABELS = {
    "cluster.x-k8s.io/provider": "cluster-api",
    "clusterctl.cluster.x-k8s.io": "",
    "cluster.x-k8s.io/v1beta1": OLD_VERSION,
    "cluster.x-k8s.io/v1beta2": VERSION,
}
NO_POOLS = "MachinePools are not supported: use a MachineDeployment instead"
_COLUMNS = (Column("Cluster", ".spec.clusterName", "string", "The Cluster it belongs to"), age_column())


@rules(Cel("false", NO_POOLS))
class MachinePool(TypedDict, total=False):
    """Machines that a provider makes and removes by itself. Not supported: nothing of this kind can be created."""

    spec: Annotated[Any, Doc("Of no effect."), Preserve()]
    status: Annotated[Any, Doc("Of no effect."), Preserve()]


MACHINE_POOL = Kind(
    GROUP,
    "MachinePool",
    (
        Version(OLD_VERSION, MachinePool, _COLUMNS, deprecated=True),
        Version(VERSION, MachinePool, _COLUMNS, storage=True),
    ),
    short_names=("mp",),
    categories=("cluster-api",),
    labels=_LABELS,
)

PLACEHOLDERS = (MACHINE_POOL,)
