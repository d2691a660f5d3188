"""Local mode: apply plan files in a directory, and record the result beside each (docs/reference/agent.md#local-mode).

A plan is applied when its bytes differ from those last applied, even if that failed: there is no server to report to.
``x.plan.skip`` anywhere in the tree sets ``x.plan`` aside.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from typing import Any

from . import log
from .clock import Clock
from .errors import AgentError
from .paths import read_or_none, write_atomically
from .plans import probes
from .plans.apply import Engine
from .plans.plan import checksum_of, parse

PERIOD = 5.0


class Local:
    """Obeys the plans of a directory."""

    def __init__(self, engine: Engine, directory: str, clock: Clock, stop: threading.Event) -> None:
        self.engine = engine
        self.directory = directory
        self.clock = clock
        self.stop = stop
        self.prober = probes.Prober(clock, log.debug)

    def run(self) -> None:
        """Until stopped."""
        while not self.stop.is_set():
            self.step()
            self.clock.wait(self.stop, PERIOD)

    def step(self) -> None:
        """One pass over all plans; one that can't be applied does not keep the others waiting."""
        for path in plans_in(self.directory):
            try:
                self._apply(path)
            except (AgentError, OSError) as reason:
                log.error(f"can't apply {path}: {reason}")

    def _apply(self, path: str) -> None:
        data = read_or_none(path)
        if data is None:
            return
        plan = parse(data)
        position_path = path[: -len(".plan")] + ".pos"
        before = _position(position_path)
        needed = before.get("appliedChecksum") != plan.checksum
        journal = self.engine.journal("local-" + checksum_of(path.encode())[:16])
        result = self.engine.apply(
            plan,
            run_one_time=needed,
            attempt=0,
            known_one_time=_bytes(before.get("output")),
            known_periodic=_bytes(before.get("periodicOutput")),
            journal=journal,
            # The same plan may be put there again later: that is another run, an interrupted one is not.
            run_id=f"{path}/{os.stat(path).st_mtime_ns}/{plan.checksum}",
        )
        if result.why:
            log.error(f"plan {path} failed: {result.why}")
        known = {name: probes.status(item) for name, item in (before.get("probeStatus") or {}).items()}
        statuses = self.prober.ask_all(plan.probes, known, result.ran, self.stop)
        after = {
            "appliedChecksum": plan.checksum,
            "output": base64.b64encode(result.one_time).decode(),
            "probeStatus": {name: statuses[name].json() for name in sorted(statuses)},
            "periodicOutput": base64.b64encode(result.periodic).decode(),
        }
        content = json.dumps({key: value for key, value in after.items() if value}, separators=(",", ":")).encode()
        if read_or_none(position_path) != content:
            write_atomically(self.engine.layout.inside(position_path), content, 0o600)
        if result.ran:
            journal.close()


def plans_in(directory: str) -> list[str]:
    """Every plan file, sorted by path, those set aside left out."""
    found: list[str] = []
    skipped: set[str] = set()
    for where, _, names in os.walk(directory):
        for name in names:
            if name.endswith(".skip"):
                skipped.add(name[: -len(".skip")])
            elif name.endswith(".plan") and not name.startswith("."):
                found.append(os.path.join(where, name))
    return sorted(path for path in found if os.path.basename(path) not in skipped)


def _position(path: str) -> dict[str, Any]:
    try:
        value = json.loads(read_or_none(path) or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(value) if isinstance(value, str) else b""
    except ValueError:
        return b""
