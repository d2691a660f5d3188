"""Cluster agents: authorization of tunnels (`/v3/connect`), an agent's claims about its cluster, how they are verified and
stored, and the controller that keeps agents deployed.

Not here: the protocol and the agent itself (`tunnel`).
Read :mod:`.tunnels` first, then :mod:`.agent_claims` (pure) and :mod:`.agent_verification`.
"""
