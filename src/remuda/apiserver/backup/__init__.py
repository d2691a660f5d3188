"""Backups: the whole state of a server in one sealed file, and a server out of such a file.

    sqlite  ──┐                                                  ┌──▶ a data directory, in one step (arriving)
    (sources) ├──▶ records ──▶ chunks, each sealed ──▶ FILE ──▶──┤
    etcd    ──┘   (records)    (sealed)               (files)    └──▶ an etcd, behind a mark (intoetcd)

One format for both stores: what was taken from one restores into the other. `taking` makes the file, `sources` read a store as of
one revision, `keyring` knows which keys belong to it, `records` and `sealed` are the format, `intofiles` and `intoetcd` restore.
"""
