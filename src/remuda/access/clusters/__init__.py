"""Managed clusters: their standard objects, their registration tokens, and the tokens that a cluster checks itself.

Controllers: `management_cluster`, `clusterregistrationtoken` (with the registration commands and the rotation of tokens) and
`cluster_auth`. `server_settings` has the settings that clusters get, `well_known` names and labels; `admission` refuses invalid
writes.
Not here: health and removal (`..health`), access to a cluster (`..roles`), the HTTP side (`gateway/registration`).
Read :mod:`.management_cluster` first.
"""

from __future__ import annotations

from .clusterregistrationtoken import RegistrationTokens, revealed
from .management_cluster import ManagedClusters, local_clusters, system_namespaces
from .server_settings import ServerFacts, ServerSettings, server_facts

__all__ = [
    "ManagedClusters",
    "RegistrationTokens",
    "ServerFacts",
    "ServerSettings",
    "local_clusters",
    "revealed",
    "server_facts",
    "system_namespaces",
]
