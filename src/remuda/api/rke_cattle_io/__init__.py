"""The group rke.cattle.io: Cluster API's providers for clusters of RKE2 and K3s.

Names of its kinds, labels and annotations are here; :mod:`.crds` and the types are imported only when definitions are generated.
Not here: the controllers of these kinds (`provisioning`). Read :mod:`.rkecontrolplane` first.
"""

from __future__ import annotations

from typing import Final

from remuda.kube.objects import GroupVersionResource

__all__ = [
    "API_VERSION",
    "CUSTOM_MACHINES",
    "ETCD_SNAPSHOTS",
    "GROUP",
    "RKE_BOOTSTRAPS",
    "RKE_BOOTSTRAP_TEMPLATES",
    "RKE_CLUSTERS",
    "RKE_CONTROL_PLANES",
    "VERSION",
]


# --- names ----------------------------------------------------------------------------------------------------------------
#
# What the kinds of this group are called, for controllers; their types are in the modules beside this one.

GROUP: Final = "rke.cattle.io"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

CUSTOM_MACHINES: Final = GroupVersionResource(GROUP, VERSION, "custommachines")
ETCD_SNAPSHOTS: Final = GroupVersionResource(GROUP, VERSION, "etcdsnapshots")
RKE_BOOTSTRAPS: Final = GroupVersionResource(GROUP, VERSION, "rkebootstraps")
RKE_BOOTSTRAP_TEMPLATES: Final = GroupVersionResource(GROUP, VERSION, "rkebootstraptemplates")
RKE_CLUSTERS: Final = GroupVersionResource(GROUP, VERSION, "rkeclusters")
RKE_CONTROL_PLANES: Final = GroupVersionResource(GROUP, VERSION, "rkecontrolplanes")


# --- labels and annotations -----------------------------------------------------------------------------------------------
#
# Labels and annotations of the objects of a cluster, byte for byte as Rancher has them
# (docs/reference/objects.md#labels-and-annotations).
#
# Those are here that `provisioning`, which makes such objects, shares with the packages that act on them.

# Labels.
CLUSTER_NAME: Final = "rke.cattle.io/cluster-name"
ETCD_ROLE: Final = "rke.cattle.io/etcd-role"
CONTROL_PLANE_ROLE: Final = "rke.cattle.io/control-plane-role"
WORKER_ROLE: Final = "rke.cattle.io/worker-role"
OPERATING_SYSTEM: Final = "cattle.io/os"
# Of a control plane: the machine with this id has to be the init node.
INIT_NODE_MACHINE: Final = "rke.cattle.io/init-node-machine-id"

# Annotations.
CLUSTER_SPEC: Final = "rke.cattle.io/cluster-spec"
DELETE_MISSING_AFTER: Final = "rke.cattle.io/delete-missing-custom-machines-after"
LABELS: Final = "rke.cattle.io/labels"
TAINTS: Final = "rke.cattle.io/taints"
# Of a Secret or a ConfigMap: the clusters whose hosts may be given its content.
AUTHORIZED: Final = "rke.cattle.io/object-authorized-for-clusters"
PRIME: Final = "provisioning.cattle.io/rke2-prime-enabled"
# Ours, on a control plane: agents that could not be replaced are tried again whenever it changes.
REDEPLOY_AGENT: Final = "remuda.dev/redeploy-system-agent-generation"
