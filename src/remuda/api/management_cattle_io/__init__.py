"""The group management.cattle.io: managed clusters, users and roles, settings, node drivers.

Names of its kinds are here; :mod:`.crds` and the types are imported only when definitions are generated.
Not here: the checks of writes and the controllers (`access`, `machines/nodedrivers`). Read :mod:`.crds`, then :mod:`.cluster`.
"""

from __future__ import annotations

from typing import Final

from remuda.kube.objects import GroupVersionResource

__all__ = [
    "API_VERSION",
    "CLUSTERS",
    "CLUSTER_REGISTRATION_TOKENS",
    "CLUSTER_ROLE_TEMPLATE_BINDINGS",
    "DYNAMIC_SCHEMAS",
    "FEATURES",
    "FLEET_WORKSPACES",
    "GLOBAL_ROLES",
    "GLOBAL_ROLE_BINDINGS",
    "GROUP",
    "NODES",
    "NODE_DRIVERS",
    "POD_SECURITY_TEMPLATES",
    "PROJECTS",
    "ROLE_TEMPLATES",
    "SETTINGS",
    "TOKENS",
    "USERS",
    "VERSION",
]


# --- names ----------------------------------------------------------------------------------------------------------------
#
# What the kinds of this group are called, for controllers; their types are in the modules beside this one.

GROUP: Final = "management.cattle.io"
VERSION: Final = "v3"
API_VERSION: Final = f"{GROUP}/{VERSION}"

CLUSTERS: Final = GroupVersionResource(GROUP, VERSION, "clusters")
CLUSTER_REGISTRATION_TOKENS: Final = GroupVersionResource(GROUP, VERSION, "clusterregistrationtokens")
CLUSTER_ROLE_TEMPLATE_BINDINGS: Final = GroupVersionResource(GROUP, VERSION, "clusterroletemplatebindings")
DYNAMIC_SCHEMAS: Final = GroupVersionResource(GROUP, VERSION, "dynamicschemas")
FEATURES: Final = GroupVersionResource(GROUP, VERSION, "features")
FLEET_WORKSPACES: Final = GroupVersionResource(GROUP, VERSION, "fleetworkspaces")
GLOBAL_ROLES: Final = GroupVersionResource(GROUP, VERSION, "globalroles")
GLOBAL_ROLE_BINDINGS: Final = GroupVersionResource(GROUP, VERSION, "globalrolebindings")
NODES: Final = GroupVersionResource(GROUP, VERSION, "nodes")
NODE_DRIVERS: Final = GroupVersionResource(GROUP, VERSION, "nodedrivers")
POD_SECURITY_TEMPLATES: Final = GroupVersionResource(GROUP, VERSION, "podsecurityadmissionconfigurationtemplates")
PROJECTS: Final = GroupVersionResource(GROUP, VERSION, "projects")
ROLE_TEMPLATES: Final = GroupVersionResource(GROUP, VERSION, "roletemplates")
SETTINGS: Final = GroupVersionResource(GROUP, VERSION, "settings")
TOKENS: Final = GroupVersionResource(GROUP, VERSION, "tokens")
USERS: Final = GroupVersionResource(GROUP, VERSION, "users")
