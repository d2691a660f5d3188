"""The tables of the sqlite engine.

`log` has one row for each change of a key, in the order of time. Its id is the revision and the place within the
transaction in one integer, so the table is append-only, ordered by revision without a second index, and a range of
revisions is a range of ids. A row without a value is a deletion. `prev` is the id of the key's row before this one: each
key's rows are a chain from its newest back, which is how the past is read (an index over (key, id) would cost every write
one more page, and the past is read rarely). Small columns come first: sqlite then walks a chain without loading values.
`who` made the change, as far as it is known; it came with version 2, so it is the last.

`current` has the start of each key's chain. A deleted key stays in it (live = 0) until its deletion is pruned. A
trigger keeps it in step with the log, so that a batch of writes is one INSERT (why that matters: :mod:`.writer`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping

ORDINAL_BITS = 8
APPLICATION_ID = 0x52454D55  # "REMU"
VERSION = 2
PAGE_SIZE = 8192
# The place of the value in a row of the log.
VALUE = 6

_STATEMENTS = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE log (
  id INTEGER PRIMARY KEY, prev INTEGER NOT NULL, created INTEGER NOT NULL, at REAL NOT NULL, expires REAL,
  key TEXT NOT NULL, value BLOB, who TEXT
);
CREATE TABLE current (key TEXT PRIMARY KEY, id INTEGER NOT NULL, live INTEGER NOT NULL, expires REAL) WITHOUT ROWID;
CREATE INDEX expiring ON current (expires) WHERE expires IS NOT NULL;
"""
_TRIGGER = """
CREATE TRIGGER head AFTER INSERT ON log BEGIN
  INSERT INTO current VALUES (new.key, new.id, new.value IS NOT NULL, new.expires)
  ON CONFLICT (key) DO UPDATE SET id = excluded.id, live = excluded.live, expires = excluded.expires;
END
"""

# The keys of `meta` beside `schema`. `revision` is only a lower bound: the log has the true one while it has rows.
FRESH: Mapping[str, float] = {
    "revision": 0,  # the newest one, as of the last deletion of rows
    "at": 0.0,  # the time when that was written
    "floor": 0,  # watches and past reads work from here
    "swept": 0,  # id up to which compaction has looked at the log
    "pruned": 0,  # id up to which history has been pruned
    "pruned_at": 0.0,  # the time when that was written
    "history_bytes": 0,  # size of the kept states that are no longer current
    "clean": 1,  # whether the last process closed it properly
}


def _add_who(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE log ADD COLUMN who TEXT")


# From version n to n + 1, in the transaction of the whole upgrade (:mod:`.migration`).
MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {1: _add_who}


def first_id(revision: int) -> int:
    return revision << ORDINAL_BITS


def last_id(revision: int) -> int:
    return (revision + 1 << ORDINAL_BITS) - 1


def create(connection: sqlite3.Connection) -> None:
    """Lay out an empty database, whole or not at all."""
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("BEGIN IMMEDIATE")
    for statement in [*_STATEMENTS.strip().split(";\n"), _TRIGGER]:
        connection.execute(statement)
    set_meta(connection, {"schema": VERSION, **FRESH})
    connection.execute("COMMIT")


def get_meta(connection: sqlite3.Connection) -> dict[str, float]:
    return dict(connection.execute("SELECT name, value FROM meta").fetchall())


def set_meta(connection: sqlite3.Connection, values: Mapping[str, float]) -> None:
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())
