"""What many clients did and saw, and whether one store could have answered them so.

Every call is noted with the moments when it began and ended; the truth is the log of the store itself, read when all is quiet.
A write is in the log or not; who was told that it was done must find it there, at the revision that was told, and nobody
else's in its place. A read must have seen all that was acknowledged before it began, and nothing that is not in the log.
:mod:`tests.integration.apiserver.storage.etcd.test_chaos` makes such histories.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from remuda.apiserver.storage.store import Delete, Event, KeyValue, Op, Put, Range

DONE, NOT_DONE, UNKNOWN = "done", "not done", "unknown"


@dataclass(slots=True)
class Write:
    op: Put | Delete
    began: float
    ended: float = float("inf")
    outcome: str = UNKNOWN
    revision: int = 0


@dataclass(slots=True)
class Read:
    """`revision` is that of the key (0: absent), of the whole range, or of the store, according to what was asked."""

    key: str
    began: float
    ended: float
    revision: int
    value: bytes | None = None


@dataclass
class History:
    writes: list[Write] = field(default_factory=list)
    gets: list[Read] = field(default_factory=list)
    currents: list[Read] = field(default_factory=list)
    ranges: list[tuple[float, Range]] = field(default_factory=list)

    def told(self) -> str:
        outcomes = [write.outcome for write in self.writes]
        counts = ", ".join(f"{outcomes.count(kind)} {kind}" for kind in (DONE, NOT_DONE, UNKNOWN))
        return (
            f"{len(self.writes)} writes ({counts}), {len(self.gets)} gets, {len(self.ranges)} ranges, {len(self.currents)} asked"
        )


def check(history: History, truth: list[Event], base: int) -> None:
    """`truth` is every event after `base`, in order."""
    assert [event.revision for event in truth] == sorted(event.revision for event in truth)
    check_writes(history.writes, truth)
    check_gets(history, truth)
    check_sequence(history)
    check_ranges(history, truth, base)


def check_writes(writes: list[Write], truth: list[Event]) -> None:
    """Each write is there as often as was told, and everything that is there was written by somebody."""
    happened = {(event.revision, event.key): event for event in truth}
    claimed: dict[tuple[int, str], Write] = {}
    for write in writes:
        if write.outcome != DONE:
            continue
        place = (write.revision, write.op.key)
        if place in claimed and isinstance(write.op, Delete) and claimed[place].op == write.op:
            # Deletions have no bytes by which they could be told apart (test_etcd_faults has the case by itself).
            continue
        assert place not in claimed, f"{write} and {claimed[place]} were both told that {place} is theirs: an update is lost"
        claimed[place] = write
        assert place in happened, f"{write} was acknowledged and is not there"
        assert is_of(happened[place], write.op), f"{write} was acknowledged, but {happened[place]} happened"
    left = [event for place, event in happened.items() if place not in claimed]
    unknown = [write for write in writes if write.outcome == UNKNOWN]
    for event in left:
        made = next((write for write in unknown if is_of(event, write.op)), None)
        assert made is not None, f"{event} happened, and nobody may have done it"
        unknown.remove(made)


def is_of(event: Event, op: Op) -> bool:
    if event.key != op.key:
        return False
    was = event.prev.mod_revision if event.prev is not None else 0
    if op.expect is not None and op.expect != was:
        return False
    if isinstance(op, Put):
        return event.kv is not None and event.kv.value == op.value
    return isinstance(op, Delete) and event.kv is None


def check_gets(history: History, truth: list[Event]) -> None:
    """A read has what was acknowledged before it began, and what it has did happen."""
    by_key: dict[str, list[Event]] = {}
    for event in truth:
        by_key.setdefault(event.key, []).append(event)
    acknowledged = _acknowledged(history)
    for read in history.gets:
        events = by_key.get(read.key, [])
        least = acknowledged.before(read.key, read.began)
        # Any state of the key between the last acknowledged before the read and the newest there is.
        possible = [(0, None)] if least == 0 else []
        possible += [
            (event.revision if event.kv is not None else 0, event.kv.value if event.kv is not None else None)
            for event in events
            if event.revision >= least
        ]
        assert (read.revision, read.value) in possible, f"{read} began after {least} was acknowledged: stale, or never there"


def check_sequence(history: History) -> None:
    """Nobody who began after somebody else had ended saw less of a key that is only ever written, or of the store."""
    for reads in (history.currents, *_by_key(history.gets)):
        _never_back(reads)
    acknowledged = _acknowledged(history)
    for read in history.currents:
        least = acknowledged.before("", read.began)
        assert read.revision >= least, f"{read} began after {least} was acknowledged"


def _never_back(reads: list[Read]) -> None:
    newest, ended = 0, sorted(reads, key=lambda read: read.ended)
    position = 0
    for read in sorted(reads, key=lambda read: read.began):
        while position < len(ended) and ended[position].ended < read.began:
            newest = max(newest, ended[position].revision)
            position += 1
        # A key that was deleted reads as 0, which says nothing of the order.
        assert read.revision == 0 or read.revision >= newest, f"{read} began after somebody had seen {newest}"


def _by_key(reads: list[Read]) -> Iterable[list[Read]]:
    found: dict[str, list[Read]] = {}
    for read in reads:
        found.setdefault(read.key, []).append(read)
    return found.values()


def check_ranges(history: History, truth: list[Event], base: int) -> None:
    """A range is exactly the state at its revision, which is not older than what was acknowledged before."""
    acknowledged = _acknowledged(history)
    state: dict[str, KeyValue] = {}
    position = 0
    for began, got in sorted(history.ranges, key=lambda pair: pair[1].revision):
        while position < len(truth) and truth[position].revision <= got.revision:
            event = truth[position]
            position += 1
            if event.kv is None:
                state.pop(event.key, None)
            else:
                state[event.key] = event.kv
        assert got.items == [state[key] for key in sorted(state)], f"the range at {got.revision} is not what was there"
        least = acknowledged.before("", began)
        assert got.revision >= max(least, base), f"a range at {got.revision} began after {least} was acknowledged"


class _Acknowledged:
    """The newest revision acknowledged before a moment, for each key and (as "") for all."""

    def __init__(self, writes: list[Write]) -> None:
        self._moments: dict[str, list[float]] = {}
        self._newest: dict[str, list[int]] = {}
        done = sorted((write for write in writes if write.outcome == DONE), key=lambda write: write.ended)
        for key, of_key in itertools.groupby(sorted(done, key=lambda write: write.op.key), key=lambda write: write.op.key):
            self._keep(key, sorted(of_key, key=lambda write: write.ended))
        self._keep("", done)

    def _keep(self, key: str, done: list[Write]) -> None:
        self._moments[key] = [write.ended for write in done]
        self._newest[key] = list(itertools.accumulate((write.revision for write in done), max))

    def before(self, key: str, moment: float) -> int:
        moments = self._moments.get(key, [])
        found = bisect.bisect_left(moments, moment)
        return self._newest[key][found - 1] if found else 0


def _acknowledged(history: History) -> _Acknowledged:
    return _Acknowledged(history.writes)
