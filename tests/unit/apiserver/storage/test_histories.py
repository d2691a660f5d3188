"""That the checker of histories finds what it is there to find."""

from __future__ import annotations

import pytest

from remuda.apiserver.storage.store import Delete, Event, KeyValue, Put, Range

from .histories import DONE, NOT_DONE, UNKNOWN, History, Read, Write, check

ONE = KeyValue("/n", b"1", 1, 1)
TWO = KeyValue("/n", b"2", 1, 2)
TRUTH = [Event(1, "/n", ONE, None), Event(2, "/n", TWO, ONE)]


def history(*writes: Write) -> History:
    return History(list(writes))


FIRST = Write(Put("/n", b"1", expect=0), 0, 1, DONE, 1)
SECOND = Write(Put("/n", b"2", expect=1), 2, 3, DONE, 2)


def test_what_could_have_been_is_accepted() -> None:
    good = history(FIRST, SECOND, Write(Put("/n", b"9", expect=1), 2, 3, NOT_DONE), Write(Delete("/n", expect=2), 4, 5, UNKNOWN))
    good.gets = [Read("/n", 0, 1, 0), Read("/n", 1.5, 1.7, 1, b"1"), Read("/n", 2.5, 2.7, 2, b"2"), Read("/n", 4, 5, 2, b"2")]
    good.ranges = [(0, Range([], 0)), (1.5, Range([ONE], 1)), (4, Range([TWO], 2))]
    good.currents = [Read("", 0, 1, 1), Read("", 4, 5, 2)]
    check(good, TRUTH, 0)
    check(history(FIRST, Write(Put("/n", b"2", expect=1), 2, 3, UNKNOWN)), TRUTH, 0)


@pytest.mark.parametrize(
    ("writes", "why"),
    [
        ((FIRST, SECOND, Write(Put("/n", b"2", expect=1), 2, 3, DONE, 2)), "update is lost"),
        ((FIRST, SECOND, Write(Put("/m", b"1", expect=0), 2, 3, DONE, 3)), "is not there"),
        ((FIRST, Write(Put("/n", b"3", expect=1), 2, 3, DONE, 2)), "but"),
        ((FIRST, Write(Put("/n", b"2", expect=1), 2, 3, NOT_DONE)), "nobody"),
        ((FIRST,), "nobody"),
    ],
)
def test_writes_that_got_lost_or_came_from_nowhere_are_found(writes: tuple[Write, ...], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        check(history(*writes), TRUTH, 0)


@pytest.mark.parametrize(
    "read", [Read("/n", 4, 5, 1, b"1"), Read("/n", 1.5, 5, 0), Read("/n", 4, 5, 7, b"7"), Read("/n", 4, 5, 2, b"1")]
)
def test_stale_and_invented_reads_are_found(read: Read) -> None:
    bad = history(FIRST, SECOND)
    bad.gets = [read]
    with pytest.raises(AssertionError, match="stale, or never there"):
        check(bad, TRUTH, 0)


def test_a_read_that_goes_back_behind_another_is_found() -> None:
    bad = history(FIRST, Write(Put("/n", b"2", expect=1), 2, 9, DONE, 2))
    bad.gets = [Read("/n", 3, 4, 2, b"2"), Read("/n", 5, 6, 1, b"1")]
    with pytest.raises(AssertionError, match="somebody had seen"):
        check(bad, TRUTH, 0)


@pytest.mark.parametrize("found", [Range([ONE], 2), Range([], 1), Range([ONE], 1)])
def test_ranges_that_never_were_or_are_stale_are_found(found: Range) -> None:
    bad = history(FIRST, SECOND)
    bad.ranges = [(4, found)]
    with pytest.raises(AssertionError, match="range"):
        check(bad, TRUTH, 0)


def test_a_store_that_says_it_is_further_back_is_found() -> None:
    bad = history(FIRST, SECOND)
    bad.currents = [Read("", 4, 5, 1)]
    with pytest.raises(AssertionError, match="acknowledged"):
        check(bad, TRUTH, 0)
