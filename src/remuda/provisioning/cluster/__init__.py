"""clusters.provisioning.cattle.io, its management Cluster, and the two provider objects of a cluster.

`provisioning_to_management` and `management_to_provisioning` are the two directions of the mirror, `mirror` computes
each side (pure); `kubeconfig`, `removal`, `provisioninglog` follow.
`rkecluster`, `rkecontrolplane`: infrastructure and control plane for Cluster API.
Not here: machine pools and everything generated (`graph`).
Read :mod:`.mirror` first.
"""

from __future__ import annotations

from .kubeconfig import BeingWritten, Kubeconfigs
from .management_to_provisioning import ManagementMirror
from .provisioning_to_management import ProvisioningMirror

__all__ = ["BeingWritten", "Kubeconfigs", "ManagementMirror", "ProvisioningMirror"]
