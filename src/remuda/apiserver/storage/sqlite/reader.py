"""Every query that reads. Each takes a connection, so that it can run on the loop's own or on a reader thread's."""

from __future__ import annotations

import sqlite3
from operator import itemgetter

from ..store import MAX_OPS, Event, KeyValue, Range, after_prefix
from ..watch_hub import Replay
from .tables import ORDINAL_BITS, first_id, last_id

# One read of the log for a watcher; more than a transaction can have, so that none is ever split.
REPLAY = 2 * MAX_OPS

_GET = "SELECT log.value, log.created, log.id FROM current JOIN log ON log.id = current.id WHERE current.key = ? AND current.live"

# From the newest state of each key back to its state at a given id.
_CHAINS = """
WITH RECURSIVE chain(id) AS (
  SELECT id FROM current WHERE {which}
  UNION ALL
  SELECT log.prev FROM chain JOIN log ON log.id = chain.id WHERE chain.id > :at AND log.prev > 0
)
"""
_GET_PAST = (
    _CHAINS.format(which="key = :key")
    + "SELECT value, created, log.id FROM chain JOIN log ON log.id = chain.id WHERE chain.id <= :at AND value IS NOT NULL"
)
# `:at` is the highest id to look at. Most keys have not changed since; only the chains of those that have are walked.
_RANGE = (
    "SELECT current.key, log.value, log.created, log.id FROM current JOIN log ON log.id = current.id "
    "WHERE current.key >= :low AND current.key < :high AND current.live AND current.id <= :at "
    "ORDER BY current.key LIMIT :limit"
)
_RANGE_CHANGED = (
    _CHAINS.format(which="key >= :low AND key < :high AND id > :at")
    + "SELECT key, value, created, log.id FROM chain JOIN log ON log.id = chain.id "
    "WHERE chain.id <= :at AND value IS NOT NULL"
)
_COUNT = "SELECT count(*) FROM current WHERE key >= :low AND key < :high AND live AND id <= :at"
_REVISION = "SELECT max((SELECT value FROM meta WHERE name = 'revision'), coalesce((SELECT max(id) FROM log) >> :bits, 0))"
_EVENTS = (
    "SELECT log.id, log.key, log.created, log.value, before.id, before.created, before.value "
    "FROM log LEFT JOIN log AS before ON before.id = log.prev "
    "WHERE log.id >= ? AND log.id <= ? AND log.key >= ? AND log.key < ? ORDER BY log.id LIMIT ?"
)


def newest(connection: sqlite3.Connection) -> int:
    """The newest revision: of the log, or of the last pruning if that deleted the log's newest rows."""
    return int(connection.execute(_REVISION, {"bits": ORDINAL_BITS}).fetchone()[0])


def get(connection: sqlite3.Connection, key: str) -> KeyValue | None:
    rows = connection.execute(_GET, (key,)).fetchall()
    return KeyValue(key, rows[0][0], rows[0][1], rows[0][2] >> ORDINAL_BITS) if rows else None


def get_past(connection: sqlite3.Connection, key: str, revision: int) -> KeyValue | None:
    rows = connection.execute(_GET_PAST, {"key": key, "at": last_id(revision)}).fetchall()
    return KeyValue(key, rows[0][0], rows[0][1], rows[0][2] >> ORDINAL_BITS) if rows else None


def ranged(connection: sqlite3.Connection, prefix: str, start: str, limit: int, revision: int) -> Range:
    """One consistent range; `revision` 0 is the newest when the read begins."""
    bounds: dict[str, str | int] = {
        "low": max(prefix, start),
        "high": after_prefix(prefix),
        "limit": limit + 1 if limit else -1,
    }
    connection.execute("BEGIN")
    try:
        now = newest(connection)
        at = revision or now
        bounds["at"] = last_id(at)
        rows = connection.execute(_RANGE, bounds).fetchall()
        changed = connection.execute(_RANGE_CHANGED, bounds).fetchall() if at < now else []
        total = len(rows) + len(changed)
        if 0 < limit < total:
            total = connection.execute(_COUNT, bounds).fetchone()[0] + len(changed)
    finally:
        connection.execute("COMMIT")
    if changed:
        rows = sorted(rows + changed, key=itemgetter(0))
    if limit:
        del rows[limit:]
    items = [KeyValue(key, value, created, row >> ORDINAL_BITS) for key, value, created, row in rows]
    return Range(items, at, total > len(items), total - len(items))


def replay(connection: sqlite3.Connection, after: int, upto: int, prefix: str) -> Replay:
    """Events in (after, upto], limited to one read; `reached` is the revision up to which there are no others."""
    bounds = (first_id(after + 1), last_id(upto), prefix, after_prefix(prefix), REPLAY)
    rows = connection.execute(_EVENTS, bounds).fetchall()
    reached = upto
    if len(rows) == REPLAY:
        cut = rows[-1][0] >> ORDINAL_BITS
        rows = [row for row in rows if row[0] >> ORDINAL_BITS < cut]
        reached = cut - 1
    return Replay([_event(*row) for row in rows], reached)


def _event(
    row: int,
    key: str,
    created: int,
    value: bytes | None,
    before: int | None,
    before_created: int,
    before_value: bytes | None,
) -> Event:
    revision = row >> ORDINAL_BITS
    kv = None if value is None else KeyValue(key, value, created, revision)
    if before is None or before_value is None:
        return Event(revision, key, kv, None)
    return Event(revision, key, kv, KeyValue(key, before_value, before_created, before >> ORDINAL_BITS))


def expired(connection: sqlite3.Connection, now: float, limit: int) -> list[tuple[str, int]]:
    """The keys whose ttl has expired, and their revisions."""
    found = connection.execute(
        "SELECT key, id FROM current WHERE expires IS NOT NULL AND expires <= ? ORDER BY expires LIMIT ?", (now, limit)
    ).fetchall()
    return [(key, row >> ORDINAL_BITS) for key, row in found]


def revision_at(connection: sqlite3.Connection, time: float) -> int:
    """The newest kept revision written at or before `time`, 0 for none. Times never go back in the log, so bisect it."""
    # Two selects: together they would scan the whole table.
    edges = connection.execute("SELECT (SELECT min(id) FROM log), (SELECT max(id) FROM log)").fetchone()
    if edges[0] is None:
        return 0
    low, high, found = edges[0], edges[1], 0
    while low <= high:
        middle = (low + high) // 2
        row, at = connection.execute("SELECT id, at FROM log WHERE id >= ? ORDER BY id LIMIT 1", (middle,)).fetchall()[0]
        if at <= time:
            found, low = row, row + 1
        else:
            high = middle - 1
    return found >> ORDINAL_BITS


def time_of(connection: sqlite3.Connection, revision: int) -> float | None:
    """The time when a revision was written; for one whose rows are pruned, that of the next kept one."""
    rows = connection.execute("SELECT at FROM log WHERE id >= ? ORDER BY id LIMIT 1", (first_id(revision),)).fetchall()
    return float(rows[0][0]) if rows else None
