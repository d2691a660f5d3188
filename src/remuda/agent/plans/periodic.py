"""When a periodic instruction is due, and what is known of it after it ran (protocols.md 1.10). Pure."""

from __future__ import annotations

from ..clock import elapsed, unix_date
from ..commands import Finished
from .outputs import PeriodicOutput
from .plan import Periodic

_FAILURE_STEP = 30
_MOST_STEPS = 6


def due(instruction: Periodic, known: PeriodicOutput | None, now: float, forced: bool) -> bool:
    """Whether it must run now; ``forced`` when the one-time instructions run in this pass."""
    if forced or known is None:
        return True
    if known.last_success and not elapsed(known.last_success, instruction.period_seconds, now):
        return False
    cooldown = _FAILURE_STEP * min(max(known.failures, 1), _MOST_STEPS)
    return not known.last_failure or elapsed(known.last_failure, cooldown, now)


def after(instruction: Periodic, known: PeriodicOutput | None, result: Finished, now: float) -> PeriodicOutput:
    """What is known after this run."""
    before = known or PeriodicOutput(instruction.name)
    ran = before._replace(
        name=instruction.name,
        stdout=result.stdout,
        stderr=result.stderr if instruction.save_stderr else b"",
        exit_code=result.exit_code,
    )
    if result.exit_code == 0:
        return ran._replace(last_success=unix_date(now), failures=0, last_failure="")
    return ran._replace(failures=before.failures + 1, last_failure=unix_date(now))
