"""Several servers on one store: liveness, fencing of leaders, and true answers although the cache may be behind.

`server_leases`, `fencing`, `allocation_locks` (addresses and ports), `consistent_retry`, and `leadership`, which has one of the
servers run the controllers. Leader election itself is `runtime/leader_election`; keys that replicas share are `keys/`. Begin
with `consistent_retry`.
"""
