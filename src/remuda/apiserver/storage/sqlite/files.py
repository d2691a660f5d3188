"""The files of the sqlite engine: locking, damage, copies, and error messages.

An operator who sees one of these messages has a server that does not start, so each names the file, the problem,
and the next step.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..store import StoreError
from . import tables as schema

OLDEST_SQLITE = (3, 35, 0)
# After a crash the whole file is checked if that takes a fraction of a second; sqlite's own recovery needs no such check.
CHECK_UP_TO = 256 * 1024 * 1024
_ADVICE = {
    errno.ENOSPC: ". Free some space on its disk and try again",
    errno.EDQUOT: ". Free some space on its disk and try again",
    errno.EROFS: ". Look for errors of its disk in the kernel's log",
    # Other words for the same are in `failure`: sqlite can fail in its own way.
    errno.EACCES: ". Check the owner and mode of it and of its directory",
}


class Lock:
    """Held while the database is open. The kernel drops it with the process, so a crash leaves nothing to clean up."""

    def __init__(self, database: Path) -> None:
        self._file = os.open(_lock_file(database), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _pid_in(self._file)
            os.close(self._file)
            raise StoreError(
                f"the database {database} is in use by another process (pid {holder}): "
                "stop that one first, or use another data directory"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._file)


def holder_of(database: Path) -> str:
    """The pid of the process that has the database open; empty if there is none. Creates nothing."""
    try:
        file = os.open(_lock_file(database), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _pid_in(file)
    finally:
        os.close(file)
    return ""


def _lock_file(database: Path) -> Path:
    return database.with_name(database.name + ".lock")


def _pid_in(file: int) -> str:
    return os.read(file, 32).decode(errors="replace").strip() or "unknown"


def connect(path: Path, *, cache_kib: int, read_only: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
    connection.execute(f"PRAGMA cache_size = -{cache_kib}")
    connection.execute("PRAGMA temp_store = MEMORY")
    if read_only:
        connection.execute("PRAGMA query_only = ON")
    return connection


def open_writer(path: Path, backups: Path, now: float) -> sqlite3.Connection:
    """The writing connection to a valid database of our schema, marked as in use. Creates a missing one."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        raise StoreError(
            f"sqlite {sqlite3.sqlite_version} is too old, Remuda needs {wanted} or newer: upgrade Python or libsqlite3"
        )
    fresh = not path.exists() or path.stat().st_size == 0
    with speaking(path, backups, "open"):
        if fresh:
            # sqlite gives the files beside it the same mode; all may contain secrets.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        else:
            _check_header(path, backups)
        connection = connect(path, cache_kib=8192)
        try:
            _prepare(connection, path, backups, fresh, now)
        except BaseException:
            connection.close()
            raise
    if fresh:
        sync(path.parent)
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, backups: Path, fresh: bool, now: float) -> None:
    if not fresh and connection.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables:
            raise StoreError(f"{path} is a sqlite database, but not one of Remuda's: use another data directory")
        fresh = True  # the process crashed after it made the file and before the tables
    if fresh:
        connection.execute(f"PRAGMA page_size = {schema.PAGE_SIZE}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = FAST")
    # The writer does it by itself after it has answered; this is the fallback.
    connection.execute("PRAGMA wal_autocheckpoint = 8000")
    if fresh or not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        schema.create(connection)
    # A newer one is left as it is, and a damaged one is not copied and used.
    older = schema.check_version(connection, path) < schema.VERSION
    if not schema.get_meta(connection).get("clean") and path.stat().st_size <= CHECK_UP_TO:
        found = connection.execute("PRAGMA quick_check(3)").fetchall()
        if found != [("ok",)]:
            raise damaged(path, backups, "; ".join(str(row[0]).splitlines()[-1] for row in found))
    if older:
        backups.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync(backups.parent)
        schema.migrate(connection, path, backups, now, back_up)
    with transaction(connection):
        schema.set_meta(connection, {"clean": 0})


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check_header(path: Path, backups: Path) -> None:
    """Detect a truncated file, or one of another format. A hundred bytes are enough, which is cheap for every start."""
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise damaged(path, backups, "it does not begin like a sqlite database")
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size:
        return  # the missing part may be in there
    (size,) = struct.unpack_from(">H", header, 16)
    (pages,) = struct.unpack_from(">I", header, 28)
    expected = (65536 if size == 1 else size) * pages
    if path.stat().st_size < expected:
        raise damaged(path, backups, f"it has {path.stat().st_size} bytes and should have {expected}")


def damaged(path: Path, backups: Path, what: str) -> StoreError:
    copies = sorted(backups.glob("*.db"), key=lambda copy: copy.stat().st_mtime, reverse=True) if backups.is_dir() else []
    if copies:
        advice = f"restore the newest good copy; in {backups} there are {', '.join(copy.name for copy in copies[:3])}"
    else:
        advice = "restore a backup with `remuda restore`"
    return StoreError(
        f"the database {path} is damaged: {what}. Move it and the files {path.name}-wal and {path.name}-shm aside, then {advice}"
    )


def failure(error: sqlite3.Error | OSError, path: Path, backups: Path, doing: str) -> StoreError:
    """A message for operators instead of sqlite's own words."""
    if isinstance(error, OSError):
        advice = _ADVICE.get(error.errno or 0, "")
        return StoreError(f"could not {doing} the database {path}: {error.strerror or error}{advice}")
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return damaged(path, backups, str(error))
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return StoreError(
            f"could not {doing} the database {path}: {error}. Nothing of it was kept; free some space on its disk "
            "(or look for errors of the disk in the kernel's log) and try again"
        )
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")):
        return StoreError(f"could not {doing} the database {path}: {error}. Check the owner and mode of it and of its directory")
    return StoreError(f"could not {doing} the database {path}: {error}")


@contextmanager
def speaking(path: Path, backups: Path, doing: str) -> Iterator[None]:
    """Turn sqlite's and the system's errors into a StoreError with the next step."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise failure(error, path, backups, doing) from error


def sync(path: Path) -> None:
    """Make a file's content, or a directory's names, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def arriving(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a new database that appears at `path` whole and durable at the end of the block, or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        connection = sqlite3.connect(partial, isolation_level=None)
        try:
            yield connection
        finally:
            connection.close()
        sync(partial)
        partial.rename(path)
        sync(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def back_up(source: sqlite3.Connection, path: Path) -> None:
    """Copy a live database in one step, so that concurrent writers neither wait nor restart the copy."""
    with arriving(path) as copy:
        source.backup(copy, pages=-1)
        # One file, not three, and nothing to recover in it.
        copy.execute("PRAGMA journal_mode = DELETE")
        with transaction(copy):
            schema.set_meta(copy, {"clean": 1})
