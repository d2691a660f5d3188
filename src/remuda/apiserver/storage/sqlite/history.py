"""Reads of the past: back along the chains of keys (:mod:`.tables`), in small steps.

A key may have a million states behind it, so a walk holds only its position and its results, and a reader thread
is used only for one step. The past does not change meanwhile, except for its oldest part, which may be pruned: the
caller checks the floor again at the end.
"""

from __future__ import annotations

import sqlite3

from ..store import KeyValue, Version
from ..transaction import after_prefix
from .tables import ORDINAL_BITS, first_id, last_id

# The length of one step: links of chains, which take a few microseconds each.
STEPS = 20_000
HEADS = 200
_STEP_BYTES = 8 * 1024 * 1024

_BACK = """
WITH RECURSIVE chain(id, step) AS (
  VALUES (:row, 0)
  UNION ALL
  SELECT log.prev, step + 1 FROM chain JOIN log ON log.id = chain.id WHERE chain.id > :at AND step < :steps
)
SELECT min(id), max(step) FROM chain
"""
_ROW = "SELECT at, created, value, who, prev FROM log WHERE id = ?"
_WITHIN = "SELECT prev FROM log WHERE id >= ? AND id <= ? AND key = ?"
_HEADS = "SELECT key, id, live FROM current WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"


def _back(connection: sqlite3.Connection, row: int, at: int, steps: int) -> tuple[int, int]:
    """From `row` back to the first one that is not after `at`, or as far as `steps` go; 0 where the chain ends before."""
    reached, took = connection.execute(_BACK, {"row": row, "at": at, "steps": steps}).fetchall()[0]
    # A row that was pruned ends the chain.
    return (0 if reached == row else reached), took


class States:
    """The states of one key, newest first, from before a revision (0: all)."""

    def __init__(self, key: str, before: int, limit: int, most_bytes: int) -> None:
        self.found: list[Version] = []
        self._key = key
        self._before = before
        self._limit = limit
        self._most_bytes = most_bytes
        self._bytes = 0
        self._row: int | None = None

    def step(self, connection: sqlite3.Connection) -> bool:
        """Do one step; whether that was all."""
        row = self._begin(connection) if self._row is None else self._row
        at = first_id(self._before) - 1
        if self._before and row > at:
            self._row, _ = _back(connection, row, at, STEPS)
            return not self._row
        return self._collect(connection, row)

    def _begin(self, connection: sqlite3.Connection) -> int:
        if self._before:
            # The end of the page before this one.
            known = (first_id(self._before), last_id(self._before), self._key)
            for (prev,) in connection.execute(_WITHIN, known).fetchall():
                return int(prev)
        rows = connection.execute("SELECT id FROM current WHERE key = ?", (self._key,)).fetchall()
        return int(rows[0][0]) if rows else 0

    def _collect(self, connection: sqlite3.Connection, row: int) -> bool:
        size = 0
        for _ in range(HEADS):
            cells = connection.execute(_ROW, (row,)).fetchall() if row else []
            if not cells:
                return True
            at, created, value, who, prev = cells[0]
            revision = row >> ORDINAL_BITS
            kv = None if value is None else KeyValue(self._key, value, created, revision)
            self.found.append(Version(revision, at, kv, who or ""))
            size += 0 if value is None else len(value)
            row = prev
            if len(self.found) == self._limit or 0 < self._most_bytes <= self._bytes + size:
                return True
            if size >= _STEP_BYTES:
                break
        self._bytes += size
        self._row = row
        return not row


class Keys:
    """The values of the keys that begin with `prefix` at a revision, in order."""

    def __init__(self, prefix: str, revision: int, start: str, limit: int, most_bytes: int) -> None:
        self.found: list[KeyValue] = []
        self.more = False
        self._at = last_id(revision)
        self._low = max(prefix, start)
        self._high = after_prefix(prefix)
        self._limit = limit
        self._most_bytes = most_bytes
        self._bytes = 0
        # The next keys, the last one first: each with the row that its walk has reached.
        self._heads: list[tuple[str, int, int]] = []

    def step(self, connection: sqlite3.Connection) -> bool:
        """Do one step; whether that was all."""
        left, size = STEPS, 0
        while left > 0 and size < _STEP_BYTES:
            if not self._heads:
                self._heads = connection.execute(_HEADS, (self._low, self._high, HEADS)).fetchall()[::-1]
                if not self._heads:
                    return True
            key, row, live = self._heads.pop()
            if row > self._at:
                row, took = _back(connection, row, self._at, left)
                left -= took
                if row > self._at:
                    self._heads.append((key, row, True))
                    continue
                live = True
            left -= 1
            self._low = key + "\0"
            cells = connection.execute(_ROW, (row,)).fetchall() if row and live else []
            if not cells or cells[0][2] is None:
                continue
            _, created, value, _, _ = cells[0]
            self.found.append(KeyValue(key, value, created, row >> ORDINAL_BITS))
            size += len(value)
            if len(self.found) == self._limit or 0 < self._most_bytes <= self._bytes + size:
                self.more = True
                return True
        self._bytes += size
        return False
