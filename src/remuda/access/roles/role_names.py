"""Names of the roles and bindings that follow from ours, and the labels by which they are found again.

Names are Rancher's (people and scripts look for them): `cattle-globalrole-<name>`, `cattle-globalrolebinding-<name>`,
`<cluster>-clusterowner`, `r-cluster-<name>-admin`, `globaladmin-<user>`.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from remuda.kube.names import label_value_problems
from remuda.kube.objects import GroupVersionResource

RBAC_GROUP: Final = "rbac.authorization.k8s.io"
RBAC_VERSION: Final = f"{RBAC_GROUP}/v1"
ROLES: Final = GroupVersionResource(RBAC_GROUP, "v1", "roles")
ROLE_BINDINGS: Final = GroupVersionResource(RBAC_GROUP, "v1", "rolebindings")
CLUSTER_ROLES: Final = GroupVersionResource(RBAC_GROUP, "v1", "clusterroles")
CLUSTER_ROLE_BINDINGS: Final = GroupVersionResource(RBAC_GROUP, "v1", "clusterrolebindings")
RBAC_KINDS: Final = {
    "Role": ROLES,
    "RoleBinding": ROLE_BINDINGS,
    "ClusterRole": CLUSTER_ROLES,
    "ClusterRoleBinding": CLUSTER_ROLE_BINDINGS,
}

# On objects made from a GlobalRole, from a GlobalRoleBinding, and from a ClusterRoleTemplateBinding.
GLOBAL_ROLE_OWNER: Final = "authz.management.cattle.io/gr-owner"
GLOBAL_BINDING_OWNER: Final = "authz.management.cattle.io/grb-owner"
TEMPLATE_BINDING_OWNER: Final = "authz.cluster.cattle.io/rtb-owner-updated"
# On all objects on the management API that exist for one cluster; the value is its id.
CLUSTER: Final = "authz.management.cattle.io/cluster"
# On all our objects inside a downstream cluster.
DOWNSTREAM: Final = "authz.cluster.cattle.io/managed"

CREATOR: Final = "field.cattle.io/creatorId"
NO_CREATOR_RBAC: Final = "field.cattle.io/no-creator-rbac"
# The creator's bindings that were made: they are made once, a removed one stays removed.
CREATOR_BINDINGS: Final = "authz.management.cattle.io/creator-role-bindings"
MANAGEMENT_CLUSTER: Final = "provisioning.cattle.io/management-cluster-name"
WORKSPACE: Final = "provisioning.cattle.io/fleet-workspace-name"

ADMIN, LOCAL = "admin", "local"


def digest(*parts: str) -> str:
    """A digest of the parts: ten letters and digits."""
    return base64.b32encode(hashlib.sha256("\x00".join(parts).encode()).digest())[:10].decode().lower()


def label_value(*parts: str) -> str:
    """The parts as a label's value: joined if that is valid, else their digest."""
    joined = "_".join(parts)
    return digest(joined) if label_value_problems(joined) else joined


def global_role(name: str) -> str:
    return f"cattle-globalrole-{name}"


def global_role_binding(name: str) -> str:
    return f"cattle-globalrolebinding-{name}"


def cluster_owner(cluster: str) -> str:
    return f"{cluster}-clusterowner"


def cluster_member(cluster: str) -> str:
    return f"{cluster}-clustermember"


def workspace_role(cluster: str, *, admin: bool) -> str:
    """`cluster` is the provisioning Cluster's name. It is not cut: otherwise a user could choose a name with the short form of
    another cluster's, and would be bound to that cluster's Role."""
    return f"r-cluster-{cluster}-{'admin' if admin else 'view'}"
