"""Day-2 operations on a cluster's etcd.

`etcd_members` removes a member, `etcd_removal` decides when its host may go, `snapshot_specs` reads what a snapshot
remembers.
Restore and rotation of certificates and keys belong here.
Not here: when snapshots are taken (`planner.render`).
Read :mod:`.etcd_removal` first.
"""
