"""Several servers of one state as one: they know each other, and reach the clusters whose tunnels the others have.

`directory` is what servers tell each other about themselves, and how that is sealed; `lease_directory` keeps it in Leases of a
Kubernetes (servers on one etcd keep it in their records there, `apiserver/replicas`); `peering` connects to each of the others
and accepts their connections; `peer_view` says who sees whom. Not here: streams through another server (`tunnel/peers`).
Begin with `peering`.
"""
