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

import contextlib
import logging
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from remuda.kube.clock import rfc3339

from ..store import StoreError

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


# From version n to n + 1, in the transaction of the whole upgrade (:func:`migrate`).
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


# --- upgrades of the schema -----------------------------------------------------------------------------------------------
#
# Upgrade from the schema of an older Remuda to this one's: a copy first, then all steps in one transaction.
#
# The copy is made before the first step, in the directory of backups, and stays there: the older program can
# open it. The last two are kept. After a crash at any point the database is unchanged or wholly of the new
# schema, and the next start continues from there. Disk space for both is checked before any change.


log = logging.getLogger(__name__)

KEPT = 2
# Space for other files on the same disk that may grow meanwhile.
_SPARE = 16 * 1024 * 1024


class CopyRows(Protocol):
    def __call__(self, source: sqlite3.Connection, path: Path) -> None:
        """Make a durable copy, whole or not at all."""


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema of the database. Raises StoreError for one that this Remuda can't upgrade."""
    found = int(get_meta(connection).get("schema", 0))
    if found > VERSION:
        raise StoreError(
            f"the database {path} was written by a newer Remuda (schema {found}, this one knows {VERSION}): "
            "start that version, or restore a copy made before the upgrade"
        )
    if any(version not in MIGRATIONS for version in range(found, VERSION)):
        raise StoreError(
            f"the database {path} has schema {found}, which this Remuda can't upgrade to {VERSION}: "
            "start a version in between first"
        )
    return found


def migrate(connection: sqlite3.Connection, path: Path, backups: Path, now: float, copy: CopyRows) -> None:
    """Bring an older database to the present schema; `copy` makes the copy of it."""
    found = check_version(connection, path)
    if found == VERSION:
        return
    size = _size(path)
    _check_room(path, backups, size, found)
    kept = backups / f"{path.name}.schema-{found}.{rfc3339(now).replace(':', '').replace('-', '')}.db"
    log.info("the database %s has schema %d, this Remuda uses %d: copying it first", path, found, VERSION)
    copy(connection, kept)
    log.info("the copy is %s (%.1f MiB); it stays there for the older version", kept, size / 2**20)
    _forget_old(path, backups, kept)
    connection.execute("BEGIN IMMEDIATE")
    try:
        for version in range(found, VERSION):
            log.info("bringing the database from schema %d to %d", version, version + 1)
            MIGRATIONS[version](connection)
        set_meta(connection, {"schema": VERSION})
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    log.info("the database %s has schema %d now", path, VERSION)


def _size(path: Path) -> int:
    """The size including the part that is not folded in yet."""
    wal = path.with_name(path.name + "-wal")
    return path.stat().st_size + (wal.stat().st_size if wal.exists() else 0)


def _check_room(path: Path, backups: Path, size: int, found: int) -> None:
    """A copy takes as much as the database, and in the worst case the steps write all of it once more."""
    wanted = {backups: size + _SPARE, path.parent: size + _SPARE}
    if backups.stat().st_dev == path.parent.stat().st_dev:
        wanted = {path.parent: 2 * size + _SPARE}
    for directory, room in wanted.items():
        if (there := shutil.disk_usage(directory).free) < room:
            raise StoreError(
                f"the database {path} has schema {found} and must be brought to {VERSION}, which takes "
                f"{-(-room >> 20)} MiB on the disk of {directory}, a copy included, and {there >> 20} are free: make "
                "room and start again; nothing was changed"
            )


def _forget_old(path: Path, backups: Path, newest: Path) -> None:
    """Delete old copies of ours, the oldest first; never another program's files."""
    copies = sorted(backups.glob(f"{path.name}.schema-*.db"), key=lambda copy: (copy == newest, copy.stat().st_mtime))
    for old in copies[:-KEPT]:
        with contextlib.suppress(OSError):
            old.unlink()
            log.info("removed %s, an older copy", old)
