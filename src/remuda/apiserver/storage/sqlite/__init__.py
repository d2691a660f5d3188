"""The store in one sqlite file: the default, durable engine.

    loop thread                writer thread                 reader threads
    write() ── queue ──▶  drain, decide, INSERT, COMMIT
       ▲                           │ (fsync)
       └── futures, events ◀───────┘ one wake-up a batch    range(), replay, history

`engine` is the store, `writer` the one thread that writes, `reader` the queries, `history` reads and
deletes past states, `tables` has the schema and its upgrades, `files` locks, damage and copies.
Not here: watchers (`..watch_hub`), requests for past states (`apiserver/history`). Begin with `engine`, then `writer`.
"""

from .engine import SqliteStore

__all__ = ["SqliteStore"]
