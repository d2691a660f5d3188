"""Clusters that are managed: what each of them always has, and how it is registered.

`keeping` looks after a Cluster's namespace and tokens, `registration` after the tokens themselves (`rotation` and `commands`
decide), `local` after what is there before any cluster is; `admission` says what is refused. All on the management API.
"""

from __future__ import annotations

from .commands import revealed
from .keeping import ManagedClusters
from .local import standing
from .registration import RegistrationTokens
from .server import Server, ServerFacts, server_facts

__all__ = [
    "ManagedClusters",
    "RegistrationTokens",
    "Server",
    "ServerFacts",
    "revealed",
    "server_facts",
    "standing",
]
