"""What clusters, their namespaces and their registration tokens are called and marked with, as others look for it."""

from __future__ import annotations

import re
from typing import Final

from remuda.kube.objects import GroupVersionResource

NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")
SECRETS: Final = GroupVersionResource("", "v1", "secrets")
ROLES: Final = GroupVersionResource("rbac.authorization.k8s.io", "v1", "roles")

# The cluster that this server itself runs on.
LOCAL: Final = "local"
FLEET_LOCAL: Final = "fleet-local"
# Clusters that were there before clusters.provisioning.cattle.io: the latter is made from them, not they from it.
LEGACY: Final = re.compile(r"c-[a-z0-9]{5}|local")
_ID: Final = re.compile(r"c-[a-z0-9]([-a-z0-9]*[a-z0-9])?|local")

# A namespace that this server keeps for itself.
SYSTEM_NAMESPACE: Final = "management.cattle.io/system-namespace"
NAMESPACE_CREATED: Final = "BackingNamespaceCreated"
EXTERNALLY_MANAGED: Final = "provisioning.cattle.io/externally-managed"

# Opens the tunnel; the other registers nodes and nothing else (design section 7).
DEFAULT_TOKEN: Final = "default-token"
NODE_TOKEN: Final = "node-token"
TOKEN_SECRET_PREFIX: Final = "crt-token-"
TOKEN_READER: Final = "crt-token-reader"
# On the Secrets with tokens, so that they are followed without following every Secret.
TOKEN_LABEL: Final = "remuda.dev/registration-token"
# On a ClusterRegistrationToken: another value asks for a new token. On its Secret: the value that was last followed.
ROTATE: Final = "remuda.dev/rotate-token"


def token_secret(crt: str) -> str:
    """The Secret with the token of a ClusterRegistrationToken."""
    return TOKEN_SECRET_PREFIX + crt


def is_legacy(name: str) -> bool:
    return LEGACY.fullmatch(name) is not None


def is_cluster_id(name: str) -> bool:
    """Whether a management Cluster may be called so: nothing that could be somebody else's namespace."""
    return len(name) <= 63 and _ID.fullmatch(name) is not None
