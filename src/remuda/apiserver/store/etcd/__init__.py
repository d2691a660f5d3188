"""The store on etcd: for several API servers on one state.

    write() ──▶ one transaction ─────────────┐
    get(), range(), current() ──▶ one read ──┤  members: JSON gateway, HTTP/1.1, failover
    watch() ◀── hub ◀── feed: one watch ◀────┘

`engine` is the store itself, `writing` its transactions, `members` and `connection` the way to etcd, `feed` what etcd tells,
`leases` keys that go by themselves, `keyspace` and `messages` what things are called over there. :mod:`..watching` is shared
with sqlite.
"""

from .engine import EtcdStore
from .members import EtcdConfig

__all__ = ["EtcdConfig", "EtcdStore"]
