"""Backups: the whole state of a server in one sealed file, and a restored server from such a file.

    sqlite ──┐                                                 ┌──▶ a data directory, in one step (restore)
             ├──▶ records ──▶ chunks, each sealed ──▶ FILE ──▶─┤
    etcd   ──┘   (format)     (format)               (take)    └──▶ an etcd, behind a mark (restore_to_etcd)

One format for both stores: a backup of one can be restored into the other. `take` reads a store at one revision and makes
the file, `key_files` lists the keys that belong to it; `restore` is shared by both restores, `restore_staging` moves files.
Not here: snapshots of a cluster's etcd (`lab/distro/etcd`), encryption at rest (`keys/encryption`).
Begin with `format`, then `take`.
"""
