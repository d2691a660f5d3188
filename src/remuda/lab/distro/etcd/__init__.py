"""The etcd of a server: `process` runs it, `client` connects to it, `local_member` starts or joins this server's member,
`members` adds and removes others, `snapshots` saves its data.

Not here: a restore (:mod:`..cluster_reset`), the API server's store on etcd (`apiserver/storage/etcd`). Read :mod:`.local_member`
first.
"""
