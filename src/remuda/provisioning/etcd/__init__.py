"""Members of a cluster's etcd, and what its snapshots hold.

`members` removes a member, `removal` decides whether its host may be deleted, `snapshot_specs` reads the cluster spec in a
snapshot, `snapshot_sets` groups snapshots to backups.
Not here: operations on a whole cluster such as taking a snapshot (`planner.operations`).
Read :mod:`.removal` first.
"""
