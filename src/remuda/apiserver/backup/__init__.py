"""Backups: the whole state of a server in one sealed file, and a restored server from such a file.

    sqlite  ──┐                                                      ┌──▶ a data directory, in one step (restore_to_directory)
    (sources) ├──▶ records ──▶ chunks, each sealed ──▶ FILE ──▶──────┤
    etcd    ──┘   (format)     (sealed_file)           (output_file) └──▶ an etcd, behind a mark (restore_to_etcd)

One format for both stores: a backup of one can be restored into the other. `take` makes the file, `sources` reads a store at
one revision, `key_files` lists the keys that belong to it; `restore` is shared by both restores, `restore_staging` moves files.
Not here: snapshots of a cluster's etcd (`lab/distro/etcd`), encryption at rest (`keys/encryption`).
Begin with `format`, then `take`.
"""
