"""A reconcile in phases: one that fails does not keep the later ones from running, and the status is written in any case."""

from __future__ import annotations

from collections.abc import Awaitable

from remuda.kube.waits import Wait
from remuda.runtime import Result


class Phases:
    """Run phases with :meth:`run`, write the status, then end with :meth:`outcome`."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self._after: float | None = None
        self._waits: list[Wait] = []
        self._rest = 0.0

    @property
    def failed(self) -> bool:
        return bool(self.errors)

    async def run(self, phase: Awaitable[Result | None]) -> bool:
        """Whether it went well. The soonest `after` of all phases counts, the longest `rest`, and every wait."""
        try:
            self.add(await phase)
        except Exception as error:
            self.errors.append(error)
            return False
        return True

    def add(self, result: Result | None) -> None:
        if result is None:
            return
        if result.after is not None:
            self._after = result.after if self._after is None else min(self._after, result.after)
        self._waits += result.waits
        self._rest = max(self._rest, result.rest)

    def outcome(self) -> Result:
        """What came of it; raises what went wrong."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise ExceptionGroup("several phases failed", self.errors)
        return Result(self._after, tuple(self._waits), self._rest)
