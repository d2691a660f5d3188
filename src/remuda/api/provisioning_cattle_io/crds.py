"""The kinds of this group: names, how each version is served, and the columns of `kubectl get`."""

from __future__ import annotations

from ..cattle import CLUSTER_INDEXED
from ..crd import Column, Kind, Version, age_column
from . import GROUP, VERSION, cluster

CLUSTER = Kind(
    GROUP,
    "Cluster",
    (
        Version(
            VERSION,
            cluster.Cluster,
            (
                Column("Version", ".spec.kubernetesVersion", "string", "The version of Kubernetes that is wanted"),
                Column("Cluster Name", ".status.clusterName", "string", "The id of the cluster it became"),
                age_column(),
                Column("Kubeconfig", ".status.clientSecretName", "string", "The Secret with its kubeconfig"),
                Column("Ready", ".status.ready", "string", "Whether it has been ready"),
            ),
            storage=True,
        ),
    ),
    categories=("provisioning",),
    labels=CLUSTER_INDEXED,
)

KINDS = (CLUSTER,)
