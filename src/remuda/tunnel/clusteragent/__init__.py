"""The agent of a downstream cluster: it dials out, so that the server reaches a cluster that accepts no connections.

It verifies the server by the checksum of its CA (:mod:`.server_trust`), introduces its cluster (:mod:`.own_cluster`), and keeps
two tunnels (:mod:`.connections`): one that dials only the cluster's API, one on which the agent itself answers. :mod:`.agent`
detects changes and reconnects without a gap (docs/reference/tunnel.md#start-of-a-cluster-agent). This package goes into the
agent's image with its imports: the tunnel, the client, `kube`, and the names of what we leave in a cluster. Not here: its
manifest (`gateway/registration/agent_manifest`). Read :mod:`.agent` first.
"""

from __future__ import annotations

from .agent import Agent
from .connections import AllowedAddress, AllowList
from .own_cluster import Introduction, OwnCluster
from .server_trust import Trust, TrustError
from .settings import AgentOptions, Mounted, Settings, SettingsError

__all__ = [
    "Agent",
    "AgentOptions",
    "AllowList",
    "AllowedAddress",
    "Introduction",
    "Mounted",
    "OwnCluster",
    "Settings",
    "SettingsError",
    "Trust",
    "TrustError",
]
