"""Members of a cluster's etcd, its snapshots, and the list of them.

`members` removes a member, `removal` decides whether its host may be deleted. `snapshot_inventory` is the controller that lists
snapshots: `snapshot_reports`, `bucket_inventory` and `own_list` read what is said about them, `inventory` decides.
`snapshot_files` is the controller that has files checked and deleted, by hosts (`file_requests`) or the server (`bucket_files`).
`snapshot_imports` makes ETCDSnapshots of what a user names in a bucket (`import_request`).
`snapshot_specs` reads the cluster spec in a snapshot, `snapshot_sets` groups snapshots to backups, `bucket_looks` looks for one.
Not here: operations on a whole cluster such as taking a snapshot (`planner.operations`).
Read :mod:`.removal` first, and :mod:`.inventory` for snapshots.
"""
