"""Upgrade from the schema of an older Remuda to this one's: a copy first, then all steps in one transaction.

The copy is made before the first step, in the directory of backups, and stays there: the older program can
open it. The last two are kept. After a crash at any point the database is unchanged or wholly of the new
schema, and the next start continues from there. Disk space for both is checked before any change.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import sqlite3
from pathlib import Path
from typing import Protocol

from remuda.kube.clock import rfc3339

from ..store import StoreError
from . import tables

log = logging.getLogger(__name__)

KEPT = 2
# Space for other files on the same disk that may grow meanwhile.
_SPARE = 16 * 1024 * 1024


class Copy(Protocol):
    def __call__(self, source: sqlite3.Connection, path: Path) -> None:
        """Make a durable copy, whole or not at all."""


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema of the database. Raises StoreError for one that this Remuda can't upgrade."""
    found = int(tables.get_meta(connection).get("schema", 0))
    if found > tables.VERSION:
        raise StoreError(
            f"the database {path} was written by a newer Remuda (schema {found}, this one knows {tables.VERSION}): "
            "start that version, or restore a copy made before the upgrade"
        )
    if any(version not in tables.MIGRATIONS for version in range(found, tables.VERSION)):
        raise StoreError(
            f"the database {path} has schema {found}, which this Remuda can't upgrade to {tables.VERSION}: "
            "start a version in between first"
        )
    return found


def migrate(connection: sqlite3.Connection, path: Path, backups: Path, now: float, copy: Copy) -> None:
    """Bring an older database to the present schema; `copy` makes the copy of it."""
    found = check_version(connection, path)
    if found == tables.VERSION:
        return
    size = _size(path)
    _check_room(path, backups, size, found)
    kept = backups / f"{path.name}.schema-{found}.{rfc3339(now).replace(':', '').replace('-', '')}.db"
    log.info("the database %s has schema %d, this Remuda uses %d: copying it first", path, found, tables.VERSION)
    copy(connection, kept)
    log.info("the copy is %s (%.1f MiB); it stays there for the older version", kept, size / 2**20)
    _forget_old(path, backups, kept)
    connection.execute("BEGIN IMMEDIATE")
    try:
        for version in range(found, tables.VERSION):
            log.info("bringing the database from schema %d to %d", version, version + 1)
            tables.MIGRATIONS[version](connection)
        tables.set_meta(connection, {"schema": tables.VERSION})
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    log.info("the database %s has schema %d now", path, tables.VERSION)


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
                f"the database {path} has schema {found} and must be brought to {tables.VERSION}, which takes "
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
