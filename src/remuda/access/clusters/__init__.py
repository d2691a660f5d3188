"""Clusters that are managed: what each of them always has, and how it is registered.

`keeping` looks after a Cluster's namespace and tokens, `registration` after the tokens themselves (`rotation` and `commands`
decide), `local` after what is there before any cluster is; `admission` says what is refused. All on the management API.
"""

from __future__ import annotations

from .clusterregistrationtoken import RegistrationTokens
from .local_cluster import standing
from .management_cluster import ManagedClusters
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
