"""How long a fuzzer looks, what an example may cost, and who is told of it.

A fuzzer is a test of this directory that hypothesis feeds. In `make test` each tries a few examples, the same for the same
sources. Under `make soak` all that were chosen share `REMUDA_FUZZ_MINUTES` (60) evenly: each looks in rounds, every round with
a seed of its own, until its share is over. A line a minute says how far it has come, and the summary how much each has tried.
`REMUDA_FUZZ_SEED`, as it was printed, makes the first round the one that failed.

One example in a few is run under tracemalloc: what comes from outside may not make us take more than a small multiple of it.
"""

from __future__ import annotations

import functools
import logging
import os
import random
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, seed, settings
from hypothesis.errors import StopTest, UnsatisfiedAssumption

SOAK = os.environ.get("REMUDA_SOAK") == "1"
SEED = "REMUDA_FUZZ_SEED"
_MINUTES = float(os.environ.get("REMUDA_FUZZ_MINUTES") or 60)
_ROUND = 150
_TELL_EVERY = 60.0
_SAMPLE = 23
# An empty list in JSON is three bytes with its comma, and 64 in memory; what is made of it on the way is as much again.
_TIMES = 96
# What is filled at first use, whatever the example: tables of types, compiled patterns.
_AT_ALL = 24 << 20

_share = pytest.StashKey[float]()


def fuzzing(examples: int = 100) -> settings:
    """`examples` in `make test`."""
    return settings(
        max_examples=_ROUND if SOAK else examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        database=None,
    )


def is_fuzzer(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and is_hypothesis_test(item.obj)


def choose_seed() -> None:
    """Before the workers are started: all of them have the same."""
    os.environ.setdefault(SEED, str(random.SystemRandom().randrange(1 << 32)))


def divide(session: pytest.Session) -> None:
    """Among those that are run at all, whichever worker has them."""
    count = sum(is_fuzzer(item) for item in session.items if "tests/fuzz" in item.nodeid)
    session.config.stash[_share] = _MINUTES * 60 / max(count, 1)


class _Tried:
    """Counts the examples of one fuzzer, and tells."""

    def __init__(self, item: pytest.Function, inner: Callable[..., Any]) -> None:
        self.item = item
        self.inner = inner
        self.count = 0
        self.seed = 0
        self.measures = False
        self.found = False
        self.started = time.monotonic()
        self.told = self.started

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    @property
    def is_over(self) -> bool:
        """Whether the share is used up; one that has found something goes on until that is as small as it gets."""
        return SOAK and not self.found and self.elapsed > self.item.config.stash[_share]

    def run(self, *args: Any, **kwargs: Any) -> None:
        if self.is_over and self.count:
            return
        self.count += 1
        try:
            self._run(*args, **kwargs)
        except (UnsatisfiedAssumption, StopTest):
            raise
        except BaseException:
            self.found = True
            raise

    def _run(self, *args: Any, **kwargs: Any) -> None:
        if SOAK and time.monotonic() - self.told > _TELL_EVERY:
            self.told = time.monotonic()
            self.tell()
        if self.count % _SAMPLE and not self.measures:
            self.inner(*args, **kwargs)
            return
        tracemalloc.start()
        try:
            self.inner(*args, **kwargs)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        allowed = _AT_ALL + _TIMES * _size((args, kwargs))
        # When one has taken too much, hypothesis looks for a smaller one that does: each is measured then.
        self.measures = self.measures or peak > allowed
        assert peak <= allowed, f"{peak:,} bytes were taken for an example that may take {allowed:,}"

    def tell(self) -> None:
        share = self.item.config.stash[_share]
        line = f"{self.item.name}: {self.count:,} examples in {self.elapsed / 60:.1f} of {share / 60:.1f} min, seed {self.seed}"
        capture = self.item.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print(f"\n{line}", file=sys.stderr, flush=True)


def run(item: pytest.Function) -> None:
    """All rounds of one fuzzer."""
    test = item.obj
    arguments = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
    inner = test.hypothesis.inner_test
    tried = _Tried(item, inner)

    @functools.wraps(inner)
    def counted(*args: Any, **kwargs: Any) -> None:
        tried.run(*args, **kwargs)

    test.hypothesis.inner_test = counted
    first = int(os.environ[SEED])
    try:
        if not SOAK:
            test(**arguments)
            return
        tried.seed = first
        while not tried.is_over:
            seed(tried.seed)(test)(**arguments)
            tried.seed += 1
    except BaseException:
        if SOAK:
            print(f"the round that failed again: {SEED}={tried.seed} make soak ARGS='{item.nodeid}'")
        raise
    finally:
        test.hypothesis.inner_test = inner
        item.user_properties.append(("fuzzed", (item.nodeid.rpartition("/")[2], tried.count, tried.elapsed, first)))


def summarize(reporter: pytest.TerminalReporter) -> None:
    reports = [report for kind in ("passed", "failed") for report in reporter.stats.get(kind, []) if report.when == "call"]
    found = [value for report in reports for name, value in report.user_properties if name == "fuzzed"]
    if not found or not SOAK:
        return
    reporter.section("what fuzzers tried")
    for name, count, seconds, first in sorted(found):
        reporter.line(f"{count:>10,}  {seconds / 60:6.1f} min  {name}  seed {first}")
    reporter.line(f"{sum(each[1] for each in found):>10,}  {sum(each[2] for each in found) / 60:6.1f} min  in all")


def complaints(records: list[logging.LogRecord]) -> list[str]:
    """Errors that we told of. What an earlier test left to asyncio is complained about whenever it happens to be collected."""
    return [record.getMessage() for record in records if record.levelno >= logging.ERROR and is_ours(record)]


def is_ours(record: logging.LogRecord) -> bool:
    return record.name.startswith(("remuda", "aiohttp"))


def _size(value: Any) -> int:
    """How much came from outside, about: as it would be written."""
    if isinstance(value, bytes | bytearray | str):
        return len(value)
    if isinstance(value, dict):
        return sum(_size(key) + _size(each) for key, each in value.items())
    if isinstance(value, list | tuple):
        return 2 + sum(_size(each) for each in value)
    return 8
