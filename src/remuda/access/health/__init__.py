"""Health of clusters: agent, API, nodes and capacity, written to the Cluster; and the clean-up of a removed cluster.

`downstream_caches` follows each connected cluster's nodes and pods; `cluster_resources` and `management_node` say what they
mean, `cluster_conditions` what that means for the Cluster. `cluster_health` and `nodesync` are the controllers that write it,
`cluster_removal` is the one that cleans up.
Not here: connections to the agents (`gateway/agents`; the port is `agents`). Read :mod:`.cluster_health` first.
"""
