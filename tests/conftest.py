"""For every test: the caches of all servers, in this process or started by it, are watched for changes in place, and their logs
for secrets (:mod:`tests.lookout`).

Objects of the cache are shared and read-only (:mod:`remuda.apiserver.cache.entries` says how that is checked). Every
process of the session reports to one file; if anything is in it at the end the session has failed, whatever the tests said.
"""

from __future__ import annotations

import gc
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import again, lookout, sampling, tiers

from .fuzz import budget

# A test asserts no wall time, and neither does hypothesis: an example may be slow because the machine is busy. The same sources
# are given the same examples; to look for others is what `make soak` is for.
settings.register_profile(
    "remuda",
    deadline=None,
    derandomize=os.environ.get("REMUDA_SOAK") != "1",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("remuda")

_ENVIRONMENT = "REMUDA_CHECK_MUTATION"
_reported = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    budget.choose_seed()
    again.begin(config)
    lookout.begin(worker=hasattr(config, "workerinput"))
    if hasattr(config, "workerinput") or os.environ.get(_ENVIRONMENT):
        return
    handle, name = tempfile.mkstemp(prefix="remuda-mutations-")
    os.close(handle)
    os.environ[_ENVIRONMENT] = name
    config.stash[_reported] = Path(name)


def pytest_itemcollected(item: pytest.Item) -> None:
    tiers.mark(item)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    return tiers.scheduler(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    sampling.select(config, items)


def pytest_collection_finish() -> None:
    # What was imported stays to the end: the collector need not walk through all of it again and again. A test makes whole
    # servers and drops them at once, so that most looks in between find nothing: with Python's thresholds they take a quarter of
    # the time of simulations.
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 10, 50)


def _found(config: pytest.Config) -> list[str]:
    report = config.stash.get(_reported, None)
    return report.read_text().splitlines() if report is not None and report.exists() else []


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    lookout.finish()
    if _found(session.config) or lookout.told():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    budget.summarize(terminalreporter)
    found = _found(config)
    if found:
        terminalreporter.section("cached objects were changed in place", red=True)
        for line in dict.fromkeys(found):
            terminalreporter.line(line)
    if leaks := lookout.told():
        terminalreporter.section("secrets are in logs", red=True)
        for line in leaks:
            terminalreporter.line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    report = config.stash.get(_reported, None)
    if report is not None:
        report.unlink(missing_ok=True)
    lookout.forget()
