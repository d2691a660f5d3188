"""The group provisioning.cattle.io: the Clusters that users ask for.

Names of its kinds are here; :mod:`.crds` and the types are imported only when definitions are generated.
"""

from __future__ import annotations

from typing import Final

from remuda.kube.objects import GroupVersionResource

__all__ = ["API_VERSION", "CLUSTERS", "GROUP", "VERSION"]


# --- names ----------------------------------------------------------------------------------------------------------------
#
# What the kinds of this group are called, for controllers; their types are in the modules beside this one.

GROUP: Final = "provisioning.cattle.io"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

CLUSTERS: Final = GroupVersionResource(GROUP, VERSION, "clusters")
