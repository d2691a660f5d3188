"""The store on etcd: for several API servers on one state.

    write() ──▶ one transaction ─────────────┐
    get(), range(), current() ──▶ one read ──┤  members: gRPC, failover
    watch() ◀── hub ◀── feed: one watch ◀────┘

`engine` is the store itself, `writing` its transactions, `feed` what etcd tells, `leases` keys that go by themselves, `keyspace`
and `messages` what things are called over there. The way to etcd: `members` and `member`, whom to ask; `grpc` one connection,
HTTP/2 with its header blocks in `hpack`; `rpc` the calls, written and read by `protobuf`. `connection` is for etcd's other side,
plain HTTP: its version, and what the distribution asks of it besides keys. :mod:`..watch_hub` is shared with sqlite.
"""

from .engine import EtcdStore
from .members import EtcdConfig

__all__ = ["EtcdConfig", "EtcdStore"]
