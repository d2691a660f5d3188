"""Cluster agents: who may open a tunnel (`/v3/connect`), what an agent claims about its cluster, how that is verified and
stored, and the controller that keeps agents deployed.

The protocol and the agent itself are in `tunnel`.
Read :mod:`.tunnels` first, then :mod:`.agent_claims` (pure) and :mod:`.agent_verification`.
"""
