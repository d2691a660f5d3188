"""The agent of a downstream cluster: it dials out, so that a cluster to which nobody can connect is reached all the same.

It knows the server by the checksum of its CA (:mod:`.server_trust`), introduces its cluster (:mod:`.own_cluster`), and keeps
two tunnels (:mod:`.connections`): one through which the cluster's API is dialled and nothing else (:mod:`.dial_allow_list`),
one that is answered right here (:mod:`.ping_responder`). :mod:`.agent` notices what changes and moves over without a gap.
Facts: protocols.md §9.1.

This room is what goes into the agent's image, with what it imports: the tunnel, the client, `kube`, and the names of what we
leave in a cluster, nothing else.
"""

from __future__ import annotations

from .agent import Agent
from .dial_allow_list import AllowList, Place
from .own_cluster import Introduction, OwnCluster
from .server_trust import Trust, TrustError
from .settings import Given, Mounted, Settings, SettingsError

__all__ = [
    "Agent",
    "AllowList",
    "Given",
    "Introduction",
    "Mounted",
    "OwnCluster",
    "Place",
    "Settings",
    "SettingsError",
    "Trust",
    "TrustError",
]
