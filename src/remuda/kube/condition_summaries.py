"""One condition out of many: Cluster API's summary (several of one object), aggregate (one of several objects) and mirror.

Other programs parse the messages, so the layout is exact. An issue is a condition in its bad state; unknown is worse than good
news and better than an issue. :mod:`.conditions` writes the results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from .conditions import ERROR, FALSE, INFO, LEGACY, TRUE, UNKNOWN, WARNING, conditions_of, get
from .objects import labels_of, name_of

Obj = dict[str, Any]

NOT_YET_REPORTED = "NotYetReported"
_CONTROL_PLANE_LABEL = "cluster.x-k8s.io/control-plane"
_GROUPS_SHOWN = _NAMES_SHOWN = 3


class _Weight(IntEnum):
    ISSUE = 0
    UNKNOWN = 1
    INFO = 2


class Reasons(NamedTuple):
    """The reason of the sum: when there are issues, when there are unknowns, when all is well."""

    issue: str = "IssuesReported"
    unknown: str = "UnknownReported"
    info: str = "InfoReported"


class Sum(NamedTuple):
    status: str
    reason: str
    message: str
    # The transition time, where the sum is a copy and has one.
    since: str = ""


class _Source(NamedTuple):
    kind: str
    name: str
    control_plane: bool
    condition: Obj


def _weight(condition: Obj, negative: Collection[str]) -> _Weight:
    status = condition.get("status")
    if status not in (TRUE, FALSE):
        return _Weight.UNKNOWN
    bad = TRUE if condition.get("type") in negative else FALSE
    return _Weight.ISSUE if status == bad else _Weight.INFO


def _outcome(weights: Collection[_Weight], reasons: Reasons, positive: bool) -> tuple[str, str]:
    worst = min(weights)
    if worst is _Weight.UNKNOWN:
        return UNKNOWN, reasons.unknown
    good = worst is _Weight.INFO
    return (TRUE if good is positive else FALSE), (reasons.info if good else reasons.issue)


def summary(
    obj: Obj,
    kinds: Sequence[str],
    *,
    negative: Collection[str] = (),
    optional: Collection[str] = (),
    reasons: Reasons = Reasons(),  # noqa: B008 - a constant
    override: Sequence[Obj] = (),
    calm: Callable[[Obj], bool] | None = None,
    arrange: Callable[[list[str]], list[str]] | None = None,
) -> Sum:
    """The conditions `kinds` of `obj` as one. A missing one counts as unknown, unless it is `optional`.

    A condition for which `calm` holds counts as good news, regardless of its status.
    """
    replaced = {condition["type"]: condition for condition in override}
    found = [replaced.get(each["type"], each) for each in conditions_of(obj) if each.get("type") in kinds]
    present = {condition["type"] for condition in found}
    found += [_missing(kind, "Condition not yet reported") for kind in kinds if kind not in present and kind not in optional]
    if not found:
        raise ValueError("a summary needs at least one condition")
    rank = {kind: number for number, kind in enumerate(kinds)}
    found.sort(key=lambda condition: (rank[condition["type"]], condition.get("lastTransitionTime") or ""))
    weights = [_Weight.INFO if calm is not None and calm(condition) else _weight(condition, negative) for condition in found]
    status, reason = _outcome(weights, reasons, True)
    lines: list[str] = []
    for condition, weight in zip(found, weights, strict=True):
        message = condition.get("message") or ""
        if weight is _Weight.INFO and (status != TRUE or not message):
            continue
        lines.append(f"* {condition['type']}:" + (_indented(message) if message else f" {condition.get('reason') or ''}"))
    return Sum(status, reason, "\n".join(arrange(lines) if arrange is not None else lines))


def _missing(kind: str, message: str) -> Obj:
    return {"type": kind, "status": UNKNOWN, "reason": NOT_YET_REPORTED, "message": message}


def aggregate(
    objs: Iterable[Obj],
    kind: str,
    *,
    negative: bool = False,
    target_negative: bool | None = None,
    reasons: Reasons = Reasons(),  # noqa: B008 - a constant
) -> Sum:
    """The condition `kind` of all `objs` as one, in a few lines that name the worst."""
    sources = [
        _Source(
            obj.get("kind") or "",
            name_of(obj),
            obj.get("kind") == "Machine" and _CONTROL_PLANE_LABEL in labels_of(obj),
            get(obj, kind) or _missing(kind, f"Condition {kind} not yet reported"),
        )
        for obj in objs
    ]
    if not sources:
        raise ValueError("an aggregate needs at least one object")
    bad = (kind,) if negative else ()
    weighed = [(_weight(source.condition, bad), source) for source in sources]
    positive = not (negative if target_negative is None else target_negative)
    status, reason = _outcome([weight for weight, _ in weighed], reasons, positive)
    shown = [pair for pair in weighed if pair[0] is not _Weight.INFO]
    if not shown:
        shown = [pair for pair in weighed if pair[1].condition.get("message")]
    return Sum(status, reason, "\n".join(_aggregate_lines(shown)))


_OTHERS = {
    _Weight.ISSUE: "with other issues",
    _Weight.UNKNOWN: "with status unknown",
    _Weight.INFO: "with additional info",
}


class _Group:
    """Objects of one kind with the same message."""

    def __init__(self) -> None:
        self.names: list[tuple[bool, str]] = []

    def line(self, kind: str, message: str) -> str:
        names = [name for _, name in sorted(self.names)]
        if len(names) == 1:
            who = f"{kind} {names[0]}"
        elif len(names) <= _NAMES_SHOWN:
            who = f"{_plural(kind)} {', '.join(names)}"
        else:
            who = f"{_plural(kind)} {', '.join(names[:_NAMES_SHOWN])}, ... ({len(names) - _NAMES_SHOWN} more)"
        return f"* {who}:" + _indented(message)


def _aggregate_lines(weighed: Sequence[tuple[_Weight, _Source]]) -> list[str]:
    # In order of time, so that names in a group, and with them ties between groups, have upstream's order.
    ordered = sorted(weighed, key=lambda pair: (pair[0], pair[1].condition.get("lastTransitionTime") or ""))
    groups: dict[str, dict[str, _Group]] = {}
    worst: dict[str, _Weight] = {}
    first: set[str] = set()
    for weight, source in ordered:
        message = source.condition.get("message") or ""
        group = groups.setdefault(source.kind, {}).setdefault(message, _Group())
        # A control plane's machine goes before the others.
        group.names.append((not source.control_plane, source.name))
        worst[message] = min(weight, worst.get(message, weight))
        if source.control_plane:
            first.add(message)
    lines: list[str] = []
    room = _GROUPS_SHOWN
    for kind in sorted(groups):
        left: dict[_Weight, int] = {}
        found = groups[kind]

        def rank(message: str, found: dict[str, _Group] = found) -> tuple[bool, _Weight, int, str]:
            names = found[message].names
            return message not in first, worst[message], -len(names), ",".join(name for _, name in names)

        for message in sorted(found, key=rank):
            if room:
                room -= 1
                lines.append(found[message].line(kind, message))
            else:
                left[worst[message]] = left.get(worst[message], 0) + len(found[message].names)
        for weight in _Weight:
            if count := left.get(weight, 0):
                lines.append(f"And {count} {kind if count == 1 else _plural(kind)} {_OTHERS[weight]}")
    return lines


def _plural(kind: str) -> str:
    if kind.endswith(("s", "x", "ch", "sh")):
        return kind + "es"
    if kind.endswith("y") and kind[-2:-1] not in "aeiou":
        return kind[:-1] + "ies"
    return kind + "s"


_BULLET = re.compile(r"\s*\*\s+")


def _indented(message: str) -> str:
    """On the same line if it is one; a message with lines or bullets of its own goes below, two spaces in."""
    if "\n" not in message and not _BULLET.search(message):
        return f" {message}"
    lines = message.split("\n")
    bulleted = [bool(_BULLET.search(line)) for line in lines]
    if all(bulleted):
        return "\n" + "\n".join(f"  {line}" for line in lines)
    return "\n" + "\n".join(f"    {line}" if has else f"  * {line}" for line, has in zip(lines, bulleted, strict=True))


# --- condition summaries v1beta1 ------------------------------------------------------------------------------------------
#
# One v1beta1 condition out of many, for clients that still read `status.deprecated.v1beta1.conditions`.
#
# The worst group counts: False with severity Error, Warning, Info; then True; then Unknown. The functions above do
# the same for today's conditions, by other rules.

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

    With `steps` the message counts the completed ones; with `steps_if_only` just when no other kinds are present.
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
    """The Ready conditions of several objects as one; `source` adds the reason's object after the reason."""
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
