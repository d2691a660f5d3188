"""One v1beta1 condition out of many, for clients that still read `status.deprecated.v1beta1.conditions`.

The worst group counts: False with severity Error, Warning, Info; then True; then Unknown. :mod:`.condition_summaries` does the
same for conditions of today, by other rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from .conditions import ERROR, FALSE, INFO, LEGACY, TRUE, UNKNOWN, WARNING, conditions_of, get
from .objects import name_of

Obj = dict[str, Any]

_RANK = {(FALSE, ERROR): 0, (FALSE, WARNING): 1, (FALSE, INFO): 2}
_NEGATED = {TRUE: FALSE, FALSE: TRUE}


class LegacySum(NamedTuple):
    status: str
    reason: str = ""
    message: str = ""
    severity: str = ""


class _Part(NamedTuple):
    obj: Obj
    condition: Obj
    status: str

    @property
    def severity(self) -> str:
        return self.condition.get("severity") or ""

    @property
    def rank(self) -> int:
        if self.status == FALSE:
            return _RANK.get((FALSE, self.severity), 99)
        return {TRUE: 3, UNKNOWN: 4}.get(self.status, 99)


def legacy_summary(
    obj: Obj,
    kinds: Sequence[str] | None = None,
    *,
    negative: Collection[str] = (),
    steps: bool = False,
    steps_if_only: Sequence[str] | None = None,
) -> LegacySum | None:
    """The conditions of `obj` (all but Ready, or just `kinds`) as one; None when there are none.

    With `steps` the message counts what is done; with `steps_if_only` just when no other kinds are present.
    """
    parts = [
        _Part(
            obj, condition, _NEGATED.get(condition["status"], UNKNOWN) if condition["type"] in negative else condition["status"]
        )
        for condition in conditions_of(obj, LEGACY)
        if condition["type"] != "Ready" and (kinds is None or condition["type"] in kinds)
    ]
    total = len(parts) if kinds is None else len(kinds)
    if steps_if_only is not None:
        steps = steps and all(part.condition["type"] in steps_if_only for part in parts)
        total = len(steps_if_only)
    return _merged(parts, kinds or (), total if steps else None)


def legacy_aggregate(objs: Iterable[Obj], *, source: bool = False) -> LegacySum | None:
    """The Ready conditions of several objects as one; `source` puts whose reason it is after the reason."""
    found = list(objs)
    parts = [_Part(obj, ready, ready["status"]) for obj in found if (ready := get(obj, "Ready", LEGACY)) is not None]
    return _merged(parts, (), len(found), source)


def legacy_mirror(obj: Obj | None, fallback: LegacySum | None = None) -> LegacySum | None:
    """The Ready condition of another object as ours."""
    ready = get(obj, "Ready", LEGACY) if obj is not None else None
    if ready is None:
        return fallback
    return LegacySum(ready["status"], ready.get("reason") or "", ready.get("message") or "", ready.get("severity") or "")


def _merged(parts: list[_Part], order: Sequence[str], total: int | None, source: bool = False) -> LegacySum | None:
    if not parts:
        return None
    worst = min(parts, key=lambda part: part.rank)
    if worst.status == TRUE:
        return LegacySum(TRUE)
    top = [part for part in parts if part.status == worst.status and part.severity == worst.severity]
    top.sort(key=lambda part: (part.condition["type"] != "Ready", part.condition["type"], name_of(part.obj)))
    first = next((part for kind in order for part in top if part.condition["type"] == kind), top[0])
    reason, message = first.condition.get("reason") or "", first.condition.get("message") or ""
    if source and "@" not in reason:
        reason = f"{reason} @ {first.obj.get('kind')}/{name_of(first.obj)}"
    if total is not None:
        done = sum(1 for part in parts if part.status == TRUE and not part.severity)
        message = f"{done} of {total} completed"
    return LegacySum(worst.status, reason, message, worst.severity if worst.status == FALSE else "")
