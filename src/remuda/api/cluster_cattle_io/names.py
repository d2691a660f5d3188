"""What the kinds of this group are called. They live in downstream clusters, never on the management side."""

from __future__ import annotations

from typing import Final

from remuda.kube.objects import GroupVersionResource

GROUP: Final = "cluster.cattle.io"
VERSION: Final = "v3"
API_VERSION: Final = f"{GROUP}/{VERSION}"

CLUSTER_AUTH_TOKENS: Final = GroupVersionResource(GROUP, VERSION, "clusterauthtokens")
CLUSTER_USER_ATTRIBUTES: Final = GroupVersionResource(GROUP, VERSION, "clusteruserattributes")
