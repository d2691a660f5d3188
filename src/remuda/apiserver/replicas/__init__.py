"""Several servers on one store: liveness, fencing of leaders, and true answers although the cache may be behind.

`server_leases`, `allocation_locks` (addresses and ports), `consistent_retry`, and `leadership`, which has one of the servers run
the controllers and fences its writes.
Not here: leader election itself (`runtime/leader_election`), keys that replicas share (`keys/`). Begin with `consistent_retry`.
"""
