"""The kinds of this group: how each version is served, and the columns of `kubectl get`. Both versions have the same fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required, TypedDict

from ..crd import Kind, Version, age_column
from ..kubernetes import Conditions, LabelSelector
from ..schema import AtLeast, Atomic, Doc, Int64, Items, Length, Object, Preserve, Time
from . import GROUP, OLD_VERSION, VERSION

_LABELS = {
    "cluster.x-k8s.io/provider": "cluster-api",
    "clusterctl.cluster.x-k8s.io": "",
    "cluster.x-k8s.io/v1beta1": OLD_VERSION,
    "cluster.x-k8s.io/v1beta2": VERSION,
}
_Name = Annotated[str, Length(1, 253)]
_SourceKind = Literal["Secret", "ConfigMap"]


class ResourceReference(TypedDict, total=False):
    """A Secret or ConfigMap whose values are YAML documents."""

    kind: Required[Annotated[_SourceKind, Doc("Secret (of type addons.cluster.x-k8s.io/resource-set) or ConfigMap.")]]
    name: Required[Annotated[_Name, Doc("Its name, in the namespace of the ClusterResourceSet.")]]


class ClusterResourceSetSpec(TypedDict, total=False):
    """The objects, and the clusters that get them."""

    clusterSelector: Required[Annotated[LabelSelector, Doc("The Clusters that get them, by their labels. Can't be changed.")]]
    resources: Required[Annotated[list[ResourceReference], Doc("Where the objects are."), Items(1, 100), Atomic()]]
    strategy: Annotated[
        Literal["ApplyOnce", "Reconcile"], Doc("ApplyOnce: objects that exist stay as they are. Reconcile: changes follow.")
    ]


class ClusterResourceSetStatus(TypedDict, total=False):
    """Whether the objects are in the clusters."""

    conditions: Conditions
    deprecated: Annotated[dict[str, Any], Doc("Conditions of older clients."), Preserve()]
    observedGeneration: Annotated[Int64, Doc("The metadata.generation that was last acted on."), AtLeast(1)]


class ClusterResourceSet(Object, total=False):
    """Objects, such as a network plugin, for every cluster that its selector chooses."""

    spec: Required[ClusterResourceSetSpec]
    status: ClusterResourceSetStatus


class ResourceBinding(TypedDict, total=False):
    """What became of one Secret or ConfigMap in the cluster."""

    applied: Required[Annotated[bool, Doc("All of its objects are in the cluster.")]]
    hash: Annotated[str, Doc("The digest of its content when it was last applied."), Length(1, 256)]
    kind: Required[Annotated[_SourceKind, Doc("Its kind.")]]
    lastAppliedTime: Annotated[Time, Doc("When it was last applied.")]
    name: Required[Annotated[_Name, Doc("Its name.")]]


class ResourceSetBinding(TypedDict, total=False):
    """What became of one ClusterResourceSet."""

    clusterResourceSetName: Required[Annotated[_Name, Doc("The name of the ClusterResourceSet.")]]
    resources: Annotated[list[ResourceBinding], Doc("Its Secrets and ConfigMaps."), Items(most=100), Atomic()]


class BindingSpec(TypedDict, total=False):
    """The ClusterResourceSets of one cluster."""

    bindings: Annotated[list[ResourceSetBinding], Doc("They, and what became of them."), Items(most=100), Atomic()]
    clusterName: Required[Annotated[str, Doc("The name of the Cluster."), Length(1, 63)]]


class ClusterResourceSetBinding(Object, total=False):
    """What ClusterResourceSets have put into a cluster; it has the Cluster's name."""

    spec: Required[BindingSpec]


def _kind(name: str, type_: type, status: bool) -> Kind:
    columns = (age_column(),)
    versions = (
        Version(OLD_VERSION, type_, columns, deprecated=True, status=status),
        Version(VERSION, type_, columns, storage=True, status=status),
    )
    return Kind(GROUP, name, versions, categories=("cluster-api",), labels=_LABELS)


KINDS = (
    _kind("ClusterResourceSet", ClusterResourceSet, True),
    _kind("ClusterResourceSetBinding", ClusterResourceSetBinding, False),
)
