"""The group rke.cattle.io: Cluster API's providers for clusters of RKE2 and K3s.

Names of its kinds are in :mod:`.names`, which is read first, labels and annotations in :mod:`.well_known`; the types (:mod:`.v1`)
are read only when definitions are generated.
"""

from .names import (
    API_VERSION,
    CUSTOM_MACHINES,
    ETCD_SNAPSHOTS,
    GROUP,
    RKE_BOOTSTRAP_TEMPLATES,
    RKE_BOOTSTRAPS,
    RKE_CLUSTERS,
    RKE_CONTROL_PLANES,
    VERSION,
)

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
