"""Which part of a long tier one check runs.

The commit chooses, so that every test has its turn and a repeated check is the same. `REMUDA_STORIES=3:COMMIT` keeps three of the
tests that bring up whole hosts, `REMUDA_SHARE=10:COMMIT` one in ten of `tests/api` and one in ten of the files whose tests share
what they start: those marked `live` or `together`. Without them everything runs, but for what is marked `variant`: that is for
`make soak`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

import pytest

from tests.scenarios.soaking import SOAK

_STORIES, _SHARE = "REMUDA_STORIES", "REMUDA_SHARE"


def stories(tests: Iterable[str], count: int, commit: str) -> set[str]:
    """`count` of the tests, or all when there are not more."""
    return set(sorted(tests, key=lambda test: _number(f"{commit} {test}"))[:count])


def share(tests: Iterable[str], parts: int, commit: str) -> set[str]:
    """One of `parts` equal parts of the tests."""
    turn = _number(commit) % parts
    return {test for test in tests if _number(test) % parts == turn}


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _wanted(variable: str) -> tuple[int, str] | None:
    said = os.environ.get(variable)
    if not said:
        return None
    number, _, commit = said.partition(":")
    return int(number), commit


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = {item.nodeid for item in items if SOAK or not item.get_closest_marker("variant")}
    if (wanted := _wanted(_STORIES)) is not None:
        hosts = {item.nodeid for item in items if item.nodeid in kept and item.get_closest_marker("hosts")}
        kept -= hosts - stories(hosts, *wanted)
    if (wanted := _wanted(_SHARE)) is not None:
        compared = {item.nodeid for item in items if item.nodeid.startswith("tests/api/")}
        live = {item.nodeid for item in items if item.get_closest_marker("live")} - compared
        together = live | {item.nodeid for item in items if item.get_closest_marker("together")}
        kept -= (alone := compared - together) - share(alone, *wanted)
        files = share({test.partition("::")[0] for test in together}, *wanted)
        kept -= {test for test in together if test.partition("::")[0] not in files}
    left_out = [item for item in items if item.nodeid not in kept]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.nodeid in kept]
