"""What lets upstream's Cluster API act on our providers' kinds: a ClusterRole that its manager's own role takes in by a label.

Our core needs none of it; whoever puts upstream's in its place should not have to find out what is missing.
"""

from __future__ import annotations

from typing import Any, Final

from remuda.api import rke_cattle_io as rke
from remuda.client.field_ownership import apply_owned
from remuda.client.interface import Client
from remuda.kube.objects import GroupVersionResource

from .graph.names import MACHINE_GROUP

CLUSTER_ROLES: Final = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")
NAME: Final = "remuda-providers"
_VERBS: Final = ("create", "delete", "get", "list", "patch", "update", "watch")


def manager_role() -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": NAME, "labels": {"cluster.x-k8s.io/aggregate-to-manager": "true"}},
        "rules": [{"apiGroups": [rke.GROUP, MACHINE_GROUP], "resources": ["*"], "verbs": list(_VERBS)}],
    }


async def ensure_manager_role(client: Client) -> None:
    await apply_owned(client, CLUSTER_ROLES, manager_role(), "remuda")
