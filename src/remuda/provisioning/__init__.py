"""Clusters of machines: provisioning.cattle.io and the providers of rke.cattle.io.

`cluster` mirrors Clusters, `graph` makes the objects a cluster consists of, `references` checks the objects that specs name,
`bootstrap` and `nodes` register hosts, `planner` decides their plans, `plans` carries them, `etcd` and
`releases` serve the planner; `admission` checks writes.
Not here: machines of node drivers (`machines`), Cluster API's core (`capi`).
Read `graph.cluster_objects`, then `planner.decide`.
"""
