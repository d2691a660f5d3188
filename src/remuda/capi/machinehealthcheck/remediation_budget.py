"""How many machines may be unhealthy at once before remediation stops: pure arithmetic.

If half of a cluster looks dead, it is more likely that something else is wrong, and that replacing machines makes it worse. What
counts against the budget are all machines that are not proven healthy, also those that are just starting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from remuda.kube.encoding.go_integers import IntegerError, atoi
from remuda.kube.errors import go_quote
from remuda.kube.objects import dig

Obj = dict[str, Any]

_EVERYTHING = "100%"
_RANGE = re.compile(r"\[([0-9]+)-([0-9]+)\]")


class BudgetError(ValueError):
    """What `spec.remediation.triggerIf` says can't be understood."""


@dataclass(frozen=True, slots=True)
class Budget:
    """`remaining`: how many more machines may become unhealthy. `message` says why it is not allowed."""

    allowed: bool
    remaining: int
    message: str = ""


def budget(health_check: Obj, *, total: int, healthy: int, unhealthy: int) -> Budget:
    """`unhealthy` machines are known to be; the rest of what is not healthy is starting, or can't be judged yet.

    Raises BudgetError.
    """
    trigger = dig(health_check, "spec", "remediation", "triggerIf") or {}
    missing = total - healthy
    between = trigger.get("unhealthyInRange")
    if between:
        lowest, highest = _range(between)
        if lowest <= missing <= highest:
            return Budget(True, highest - missing)
        why = f"does not fall within the range (total: {total}, unhealthy: {unhealthy}, unhealthyRange: {between})"
    else:
        wanted = trigger.get("unhealthyLessThanOrEqualTo")
        most = _EVERYTHING if wanted is None else wanted
        limit = _scaled(most, total)
        if missing <= limit:
            return Budget(True, limit - missing)
        why = f"exceeds maxUnhealthy (total: {total}, unhealthy: {unhealthy}, maxUnhealthy: {most})"
    return Budget(False, 0, f"Remediation is not allowed, the number of not started or unhealthy machines {why}")


def _range(text: str) -> tuple[int, int]:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise BudgetError(f"{go_quote(text)} is not a range of machines such as [1-3]")
    lowest, highest = int(found[1]), int(found[2])
    if highest < lowest:
        raise BudgetError(f"max value {highest} cannot be less than min value {lowest} for unhealthyRange")
    return lowest, highest


def _scaled(value: Any, total: int) -> int:
    """A number, or a percentage rounded down: a budget is never more than it says."""
    if isinstance(value, int):
        return value
    if not isinstance(value, str) or not value.endswith("%"):
        raise BudgetError("invalid value for IntOrString: invalid type: string is not a percentage")
    try:
        return atoi(value[:-1]) * total // 100
    except IntegerError as error:
        raise BudgetError(f"invalid value for IntOrString: invalid value {go_quote(value)}: {error}") from None
