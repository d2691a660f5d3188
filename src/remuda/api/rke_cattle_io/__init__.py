"""The providers of Cluster API that a cluster of RKE2 or K3s is made with: the names of its kinds (:mod:`.names`); the types are
read only when definitions are generated."""

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
