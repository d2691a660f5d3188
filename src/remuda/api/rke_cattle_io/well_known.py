"""Labels and annotations that say what the objects of a cluster are, byte for byte as Rancher has them
(docs/reference/objects.md#labels-and-annotations).

Those are here that `provisioning`, which makes such objects, shares with the packages that act on them.
"""

from __future__ import annotations

from typing import Final

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
