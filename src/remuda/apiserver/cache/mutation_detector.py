"""A check for tests: shared objects of the cache must not be changed.

Watchers, controllers and verbs share the parsed objects of :mod:`remuda.apiserver.cache.entries`; a change in place would
affect all of them. With `REMUDA_CHECK_MUTATION` set, a checksum of each is taken when it is parsed and compared later: a few
old ones each time a new one is added, each one when it is dropped, and all when the cache stops. There is no timer and no
thread, so the checks are deterministic.

`REMUDA_CHECK_MUTATION=1` logs an error; any other value names a file to which the error is written as well, so that a test
session also sees errors of its child processes. Unset, the cost is one test of a global for each parsed object.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from typing import Any, Protocol
from zlib import crc32

from remuda.kube.encoding import jsonio

Obj = dict[str, Any]
logger = logging.getLogger(__name__)

# The number of older objects that are checked whenever a new one is added.
_EACH_TIME = 2


class Holder(Protocol):
    """An entry of the cache, or a substitute."""

    key: str
    revision: int

    def held(self) -> Obj | None:
        """The shared object; None after it was dropped."""


class Detector:
    def __init__(self, report: str = "") -> None:
        self._report = report
        self._watched: deque[tuple[Holder, Obj, int]] = deque()
        self.violations: list[str] = []

    @property
    def watched(self) -> int:
        return len(self._watched)

    def track(self, holder: Holder) -> None:
        obj = holder.held()
        if obj is None:
            return
        for _ in range(min(_EACH_TIME, len(self._watched))):
            self._look(*self._watched.popleft())
        self._watched.append((holder, obj, _sum(obj)))

    def verify(self) -> None:
        """Check all watched objects now."""
        for _ in range(len(self._watched)):
            self._look(*self._watched.popleft())

    def _look(self, holder: Holder, obj: Obj, expected: int) -> None:
        """Check one object; it stays watched while its entry holds it."""
        if _sum(obj) != expected:
            self._tell(f"the cached object {holder.key} at revision {holder.revision} was changed in place")
        elif holder.held() is obj:
            self._watched.append((holder, obj, expected))

    def _tell(self, what: str) -> None:
        self.violations.append(what)
        logger.error("%s", what)
        if self._report:
            with open(self._report, "a", encoding="utf-8") as report:  # noqa: PTH123
                report.write(what + "\n")


def _sum(obj: Obj) -> int:
    return crc32(jsonio.dumps(obj))


def _from_environment() -> Detector | None:
    given = os.environ.get("REMUDA_CHECK_MUTATION", "")
    return Detector("" if given == "1" else given) if given else None


DETECTOR = _from_environment()
