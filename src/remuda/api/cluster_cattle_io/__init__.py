"""The group cluster.cattle.io: what a downstream cluster is told about its users.

Names of its kinds are in :mod:`.names`, which is read first; the types (:mod:`.v3`) are read only when definitions are generated.
"""

from .names import API_VERSION, CLUSTER_AUTH_TOKENS, CLUSTER_USER_ATTRIBUTES, GROUP, VERSION

__all__ = ["API_VERSION", "CLUSTER_AUTH_TOKENS", "CLUSTER_USER_ATTRIBUTES", "GROUP", "VERSION"]
