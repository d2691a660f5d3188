"""Managed clusters: their standard objects, their registration tokens, and the tokens that a cluster checks itself.

Controllers: `management_cluster`, `clusterregistrationtoken`, `cluster_auth`. Pure: `token_rotation`, `registration_commands`,
`cluster_auth_tokens`. `local_cluster` has the objects of a new server, `server_settings` the settings that clusters are told;
`admission` refuses invalid writes.
Not here: health and removal (`..health`), access to a cluster (`..roles`), the HTTP side (`gateway/registration`).
Read :mod:`.management_cluster` first.
"""

from __future__ import annotations

from .clusterregistrationtoken import RegistrationTokens
from .management_cluster import ManagedClusters, standing
from .registration_commands import revealed
from .server_settings import Server, ServerFacts, server_facts

__all__ = [
    "ManagedClusters",
    "RegistrationTokens",
    "Server",
    "ServerFacts",
    "revealed",
    "server_facts",
    "standing",
]
