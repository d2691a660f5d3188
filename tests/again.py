"""A second run, alone, of a test of the live tiers that failed.

Tests with real peers and real processes share two cores with each other, and one late answer in thousands says nothing about
Remuda. At the end of the session each failed test of these tiers runs once more, by itself, in a process of its own. If all of
them pass, the session passes and prints `UNSTABLE: <test>`; the first failure stays in the output in full. Every such test
belongs into `tests/unstable.md`, with its cause. Tests of the other tiers are deterministic and have one try: unit tests by the
rule of `tests/unit/test_tiers.py`, and what a fuzzer has found once is found. So has everything when many tests fail: that is a
defect.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

# Real peers, real processes, real time.
LIVE = ("tests/api/", "tests/e2e/", "tests/integration/", "tests/real/", "tests/security/")
MOST = 5
_ALONE = "REMUDA_TEST_ALONE"
_seen = pytest.StashKey["Seen"]()


@dataclass
class Seen:
    failed: dict[str, None] = field(default_factory=dict)
    # Something other than a test failed: a file could not be read, say.
    beside: bool = False
    unstable: list[str] = field(default_factory=list)
    again: dict[str, str] = field(default_factory=dict)


def is_live(test: str) -> bool:
    return test.startswith(LIVE)


def may_run_again(failed: list[str]) -> bool:
    return 0 < len(failed) <= MOST and all(map(is_live, failed))


class Again:
    """A pytest plug-in of the session that hands out the tests; workers know nothing of it."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._seen.failed[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._seen.beside |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        seen = self._seen
        tests = list(seen.failed)
        if seen.beside or session.exitstatus != pytest.ExitCode.TESTS_FAILED or not may_run_again(tests):
            return
        for test in tests:
            ended = run_alone(test, session.config.rootpath)
            if ended.returncode == pytest.ExitCode.OK:
                seen.unstable.append(test)
            else:
                seen.again[test] = ended.stdout
        if not seen.again:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test, output in self._seen.again.items():
            terminalreporter.section(f"failed once more, alone: {test}", red=True)
            terminalreporter.line(output)
        for test in self._seen.unstable:
            terminalreporter.line(f"UNSTABLE: {test} (failed above, passed alone; tests/unstable.md)", yellow=True)


def run_alone(test: str, root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test],
        cwd=root,
        env={**os.environ, _ALONE: "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def begin(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or os.environ.get(_ALONE):
        return
    seen = config.stash[_seen] = Seen()
    config.pluginmanager.register(Again(seen), "remuda-again")
