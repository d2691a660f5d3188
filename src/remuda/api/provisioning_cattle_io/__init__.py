"""The group provisioning.cattle.io: the Clusters that users create.

Names of its kinds are here; :mod:`.crds` and the types are imported only when definitions are generated.
Not here: checks that a schema can't express (`provisioning/admission`), the objects that a Cluster becomes
(`provisioning/graph`). Read :mod:`.cluster`, then :mod:`.cluster_configuration`.
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
