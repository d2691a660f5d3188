"""The agent of a downstream cluster: it dials out, so that a cluster to which nobody can connect is reached all the same.

It knows the server by the checksum of its CA (:mod:`.trust`), introduces its cluster (:mod:`.cluster`), and keeps two tunnels
(:mod:`.attachment`): one through which the cluster's API is dialled and nothing else (:mod:`.allowing`), one that is answered
right here (:mod:`.answering`). :mod:`.agent` notices what changes and moves over without a gap. Facts: protocols.md §9.1.

This room is what goes into the agent's image, with what it imports: the tunnel, the client, `kube`, and the names of what we
leave in a cluster, nothing else.
"""

from __future__ import annotations

from .agent import Agent
from .allowing import AllowList, Place
from .cluster import Introduction, OwnCluster
from .settings import Given, Mounted, Settings, SettingsError
from .trust import Trust, TrustError

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
