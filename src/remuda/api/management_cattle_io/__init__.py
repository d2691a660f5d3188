"""The group management.cattle.io: managed clusters, users and roles, settings, node drivers.

Names of its kinds are in :mod:`.names`, which is read first; the types (:mod:`.v3`) are read only when definitions are generated.
"""

from .names import (
    API_VERSION,
    CLUSTER_REGISTRATION_TOKENS,
    CLUSTER_ROLE_TEMPLATE_BINDINGS,
    CLUSTERS,
    DYNAMIC_SCHEMAS,
    FEATURES,
    FLEET_WORKSPACES,
    GLOBAL_ROLE_BINDINGS,
    GLOBAL_ROLES,
    GROUP,
    NODE_DRIVERS,
    NODES,
    POD_SECURITY_TEMPLATES,
    ROLE_TEMPLATES,
    SETTINGS,
    TOKENS,
    USERS,
    VERSION,
)

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
    "ROLE_TEMPLATES",
    "SETTINGS",
    "TOKENS",
    "USERS",
    "VERSION",
]
