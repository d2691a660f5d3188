"""Several servers on one store: liveness, leadership, and true answers although the cache may be behind.

`server_leases`, `leadership` with `fencing`, `allocation_locks` (addresses and ports), `consistent_retry`.
Leader election itself is `runtime/leader_election`; keys that replicas share are `keys/`. Begin with `consistent_retry`.
"""
