"""The group addons.cluster.x-k8s.io: ClusterResourceSets, objects for every new cluster, and the bindings that record them.

Names of its kinds are here; :mod:`.crds`, which has the types, is imported only when definitions are generated.
Not here: what the kinds do (`capi/clusterresourceset`). Read :mod:`.crds` first.
"""

from __future__ import annotations

from typing import Final

from remuda.kube.objects import GroupVersionResource

__all__ = ["API_VERSION", "BINDINGS", "GROUP", "OLD_VERSION", "RESOURCE_SETS", "VERSION"]

GROUP: Final = "addons.cluster.x-k8s.io"
VERSION: Final = "v1beta2"
OLD_VERSION: Final = "v1beta1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

RESOURCE_SETS: Final = GroupVersionResource(GROUP, VERSION, "clusterresourcesets")
BINDINGS: Final = GroupVersionResource(GROUP, VERSION, "clusterresourcesetbindings")
