"""The store in one sqlite file: the default, durable engine.

    loop thread                writer thread                 reader threads
    write() ── queue ──▶  drain, decide, INSERT, COMMIT
       ▲                           │ (fsync)
       └── futures, events ◀───────┘ one wake-up a batch    range(), replay, history

`engine` is the store itself, `writer` the one thread that writes, `reader` every query, `..watching` who is told,
`pruning` what is forgotten, `schema` the tables, `files` locks, damage and copies.
"""

from .engine import SqliteStore

__all__ = ["SqliteStore"]
