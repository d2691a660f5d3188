"""The group cluster.cattle.io: the users' tokens that a downstream cluster checks by itself.

Names of its kinds are here; :mod:`.crds`, which has the types, is imported only when definitions are generated.
Not here: the objects for a cluster (`access/clusters/cluster_auth`), the program that checks tokens (`tunnel/clusteragent`).
Read :mod:`.crds` first.
"""

from __future__ import annotations

from typing import Final

from remuda.kube.objects import GroupVersionResource

__all__ = ["API_VERSION", "CLUSTER_AUTH_TOKENS", "CLUSTER_USER_ATTRIBUTES", "GROUP", "VERSION"]


# --- names ----------------------------------------------------------------------------------------------------------------
#
# What the kinds of this group are called. They live in downstream clusters, never on the management side.

GROUP: Final = "cluster.cattle.io"
VERSION: Final = "v3"
API_VERSION: Final = f"{GROUP}/{VERSION}"

CLUSTER_AUTH_TOKENS: Final = GroupVersionResource(GROUP, VERSION, "clusterauthtokens")
CLUSTER_USER_ATTRIBUTES: Final = GroupVersionResource(GROUP, VERSION, "clusteruserattributes")
