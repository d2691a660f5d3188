"""Day-2 operations on a cluster's etcd.

`etcd_members` removes a member, `etcd_removal` decides whether its host may be deleted, `snapshot_specs` reads the cluster
spec in a snapshot.
Restore and rotation of certificates and keys belong here.
Not here: when snapshots are taken (`planner.render`).
Read :mod:`.etcd_removal` first.
"""
