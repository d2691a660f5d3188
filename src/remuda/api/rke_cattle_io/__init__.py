"""The group rke.cattle.io: Cluster API's providers for clusters of RKE2 and K3s.

Names of its kinds are in :mod:`.`, which is read first, labels and annotations in :mod:`.well_known`; the types (:mod:`.v1`)
are read only when definitions are generated.
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
