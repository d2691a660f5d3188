"""Names, labels and annotations of clusters, their namespaces and their registration tokens, as other programs expect them."""

from __future__ import annotations

import re
from typing import Final

from remuda.kube.objects import GroupVersionResource

SECRETS: Final = GroupVersionResource("", "v1", "secrets")
ROLES: Final = GroupVersionResource("rbac.authorization.k8s.io", "v1", "roles")

# The cluster on which this server runs.
LOCAL: Final = "local"
FLEET_LOCAL: Final = "fleet-local"
# Clusters that predate clusters.provisioning.cattle.io: the latter is made from them, not the reverse.
LEGACY: Final = re.compile(r"c-[a-z0-9]{5}|local")
_ID: Final = re.compile(r"c-[a-z0-9]([-a-z0-9]*[a-z0-9])?|local")

# Marks a namespace that this server keeps for itself.
SYSTEM_NAMESPACE: Final = "management.cattle.io/system-namespace"
NAMESPACE_CREATED: Final = "BackingNamespaceCreated"
EXTERNALLY_MANAGED: Final = "provisioning.cattle.io/externally-managed"

# Opens the tunnel; the other registers nodes and nothing else.
DEFAULT_TOKEN: Final = "default-token"
NODE_TOKEN: Final = "node-token"
TOKEN_SECRET_PREFIX: Final = "crt-token-"
TOKEN_READER: Final = "crt-token-reader"
# A label of the Secrets with tokens, so that the informer does not follow every Secret.
TOKEN_LABEL: Final = "remuda.dev/registration-token"
# On a ClusterRegistrationToken: another value requests a new token. On its Secret: the last value that was applied.
ROTATE: Final = "remuda.dev/rotate-token"


def token_secret(crt: str) -> str:
    """The Secret with the token of a ClusterRegistrationToken."""
    return TOKEN_SECRET_PREFIX + crt


def is_legacy(name: str) -> bool:
    return LEGACY.fullmatch(name) is not None


def is_cluster_id(name: str) -> bool:
    """True if this is a valid name of a management Cluster: its namespace can't be one that serves another purpose."""
    return len(name) <= 63 and _ID.fullmatch(name) is not None
