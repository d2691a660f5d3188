"""Which test belongs to which command.

`make test` runs all but the marks `live`, `hosts` and `replicated`. Of the tests with whole processes (`tests/e2e`) and with
programs of others (`tests/real`) it runs those marked `story`: a short one for each thing that Remuda can do. The others are
`live`, and belong to `make test-real`, which also asks the real kube-apiserver everything that `tests/api` compares.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.api.recording import MODE, RECORDED

_PROCESSES = ("tests/e2e/", "tests/real/")
_COMPARED = "tests/api"
_ELSEWHERE = ("story", "hosts", "replicated")


def mark(item: pytest.Item) -> None:
    if item.nodeid.startswith(_PROCESSES) and not any(map(item.get_closest_marker, _ELSEWHERE)):
        item.add_marker("live")


class OneTruth(LoadFileScheduling):
    """Workers get tests by the file; but one of them gets all that ask the real server, of which a run has one."""

    def _split_scope(self, nodeid: str) -> str:
        if MODE != RECORDED and nodeid.startswith(f"{_COMPARED}/"):
            return _COMPARED
        return str(super()._split_scope(nodeid))


def scheduler(config: pytest.Config, log: object) -> OneTruth | None:
    return OneTruth(config, log) if config.getoption("dist") == "loadfile" else None
