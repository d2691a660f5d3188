"""How clusters are: whether their agent is there, whether their API is well, what they consist of; and what is left of them.

`downstream_caches` follows each connected cluster's nodes and pods; `cluster_resources` and `management_node` say what they
mean, `cluster_conditions` what that means for the Cluster. `cluster_health` and `nodesync` are the controllers that write it,
`cluster_removal` is the one that cleans up. Read :mod:`.cluster_health` first.
"""
