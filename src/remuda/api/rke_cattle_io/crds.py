"""The kinds of this group: names, how each is served, and the columns of `kubectl get`."""

from __future__ import annotations

from ..cattle import CLUSTER_INDEXED
from ..crd import Column, Kind, Version, age_column
from . import GROUP, VERSION, infrastructure, rkebootstrap, rkecontrolplane

# By these, Cluster API finds the version that keeps each of its contracts.
_LABELS = {**CLUSTER_INDEXED, "cluster.x-k8s.io/v1beta1": VERSION, "cluster.x-k8s.io/v1beta2": VERSION}
_CLUSTER_API = ("cluster-api",)
_INITIALIZED = ".status.initialization.controlPlaneInitialized"


def _kind(
    type_: type, *columns: Column, status: bool = True, categories: tuple[str, ...] = (), short_names: tuple[str, ...] = ()
) -> Kind:
    return Kind(
        GROUP,
        type_.__name__,
        (Version(VERSION, type_, columns, storage=True, status=status),),
        short_names=short_names,
        categories=categories,
        labels=_LABELS,
    )


KINDS = (
    _kind(infrastructure.CustomMachine),
    _kind(
        infrastructure.ETCDSnapshot,
        Column("Cluster", ".spec.clusterName", "string", "The cluster that it was taken of"),
        Column("Storage", r".metadata.annotations['etcdsnapshot\.rke\.io/storage']", "string", "The storage: local or s3"),
        Column("Machine", ".metadata.ownerReferences[?(@.kind=='Machine')].name", "string", "The machine that has the file"),
        Column("Size", ".snapshotFile.size", "integer", "The size, in bytes"),
        Column("Created", ".snapshotFile.createdAt", "date", "The time since it was taken"),
        Column("Missing", ".status.missing", "boolean", "Whether its storage can't be seen at the moment"),
    ),
    _kind(rkebootstrap.RKEBootstrap, categories=_CLUSTER_API),
    _kind(rkebootstrap.RKEBootstrapTemplate, status=False, categories=_CLUSTER_API),
    _kind(infrastructure.RKECluster, categories=_CLUSTER_API),
    _kind(
        rkecontrolplane.RKEControlPlane,
        Column("Cluster", r".metadata.labels['cluster\.x-k8s\.io/cluster-name']", "string", "The Cluster it belongs to"),
        # Rancher's column looks at a field that is not written any more.
        Column("Initialized", _INITIALIZED, "string", "Whether the control plane is initialized"),
        Column("API Server Available", _INITIALIZED, "boolean", "Whether the cluster's API has answered"),
        age_column(),
        Column("Version", ".spec.kubernetesVersion", "string", "The version of Kubernetes that is wanted"),
        categories=_CLUSTER_API,
        short_names=("rcp",),
    ),
)
