"""Health of clusters: agent, API, nodes and capacity, written to the Cluster; and the clean-up of a removed cluster.

`downstream_caches` follows each connected cluster's nodes and pods, `cluster_resources` adds them up, `cluster_conditions`
computes the Cluster's conditions. The controllers are `cluster_health`, `nodesync` (management Nodes) and `cluster_removal`
(clean-up). Not here: connections to the agents (`gateway/agents`; the port is `..downstreams`). Read :mod:`.cluster_health`
first.
"""
