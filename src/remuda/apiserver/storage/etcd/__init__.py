"""The store on etcd: for several API servers on one state.

    write() ──▶ one transaction ─────────────┐
    get(), range(), current() ──▶ one read ──┤  members: gRPC, failover
    watch() ◀── hub ◀── feed: one watch ◀────┘

`engine` is the store, `transactions` its writes and the leases of keys that expire, `watch_feed` etcd's events. `members` chooses
the `member` to ask; `rpc` has the calls and messages, `grpc` the HTTP/2 connection with `hpack`.
:mod:`..watch_hub` is shared with sqlite.
Not here: running etcd (`lab/distro/etcd`). Begin with `engine`, then `transactions`.
"""

from .engine import EtcdStore
from .members import EtcdConfig

__all__ = ["EtcdConfig", "EtcdStore"]
