"""The last plans that were applied, for whoever looks at a host afterwards (protocols.md 1.13)."""

from __future__ import annotations

import contextlib
import os

from ..clock import Clock, compact
from ..paths import read_or_none, write_atomically
from .plan import Plan, history_bytes

_SUFFIX = "-applied.plan"
KEEP = 64


class History:
    """The directory of applied plans; an empty one means none is kept."""

    def __init__(self, directory: str, clock: Clock) -> None:
        self.directory = directory
        self.clock = clock
        self._last = ""

    def record(self, plan: Plan) -> None:
        """Keep this plan unless it is the newest one already."""
        if not self.directory or plan.checksum == self._last:
            return
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        os.chmod(self.directory, 0o700)
        kept = self._kept()
        data = history_bytes(plan)
        if not kept or read_or_none(os.path.join(self.directory, kept[-1])) != data:
            name = compact(self.clock.now()) + _SUFFIX
            write_atomically(os.path.join(self.directory, name), data)
            for old in self._kept()[:-KEEP]:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.directory, old))
        self._last = plan.checksum

    def _kept(self) -> list[str]:
        return sorted(name for name in os.listdir(self.directory) if name.endswith(_SUFFIX))
