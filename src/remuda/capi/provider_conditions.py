"""Conditions of providers' objects, in any of the forms that providers have used.

Current ones are metav1 conditions in `status.conditions`; objects in transition keep those in `status.v1beta2.conditions` and
the older kind in `status.conditions`. The older kind by itself is `status.deprecated.v1beta1.conditions` or, again,
`status.conditions`. Only a type and a status are needed. :mod:`remuda.kube.conditions` is for our own objects.
"""

from __future__ import annotations

import re
from typing import Any

from remuda.kube.clock import parse_rfc3339, rfc3339
from remuda.kube.condition_summaries import LegacySum, Sum
from remuda.kube.conditions import FALSE, TRUE, UNKNOWN
from remuda.kube.objects import dig, with_path

Obj = dict[str, Any]

NO_REASON = "NoReasonReported"
# The allowed form of our reasons; another text from a provider would make our own status unwritable.
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_LONGEST_REASON, _LONGEST_MESSAGE = 1024, 32768
_PATHS = (("status", "v1beta2", "conditions"), ("status", "conditions"))
_LEGACY_PATHS = (("status", "deprecated", "v1beta1", "conditions"), ("status", "conditions"))


class InvalidCondition(Exception):
    """A provider wrote an invalid condition; the text is the message for our own condition."""


def condition_of(obj: Obj, kind: str) -> Obj | None:
    """The condition of this type, complete and with a reason; raises InvalidCondition when any condition is invalid."""
    return next((condition for condition in conditions_of(obj) if condition["type"] == kind), None)


def conditions_of(obj: Obj) -> list[Obj]:
    """All of them. Raises InvalidCondition."""
    for path in _PATHS:
        found = dig(obj, *path)
        if not isinstance(found, list):
            continue
        try:
            return [_read(each) for each in found if isinstance(each, dict) and each]
        except InvalidCondition as error:
            where = ".".join(path)
            raise InvalidCondition(f"failed to convert {where} from {obj.get('kind')} to []metav1.Condition: {error}") from None
    return []


def _text(condition: Obj, field: str) -> str:
    found = condition.get(field)
    return found if isinstance(found, str) else ""


def _read(condition: Obj) -> Obj:
    kind, status, since = (_text(condition, field) for field in ("type", "status", "lastTransitionTime"))
    if since:
        try:
            since = rfc3339(parse_rfc3339(since))
        except ValueError:
            raise InvalidCondition(f"failed to unmarshal lastTransitionTime value: {since}: it is no time") from None
    if not kind:
        raise InvalidCondition("type must be set for all conditions")
    if not status:
        raise InvalidCondition(f"status must be set for the {kind} condition")
    if status not in (TRUE, FALSE, UNKNOWN):
        raise InvalidCondition(f"status for the {kind} condition must be one of {TRUE}, {FALSE}, {UNKNOWN}")
    reason, message = _text(condition, "reason"), _text(condition, "message")[:_LONGEST_MESSAGE]
    if len(reason) > _LONGEST_REASON or not _REASON.fullmatch(reason):
        reason = NO_REASON
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def mirrored(obj: Obj, kind: str, fallback: Sum, ready_reason: str) -> Sum:
    """A provider's condition as ours, with its time; `fallback` when it has none.

    One that is true without a reason is of the older kind and gets `ready_reason`. Raises InvalidCondition.
    """
    found = condition_of(obj, kind)
    if found is None:
        return fallback
    reason = found["reason"]
    if reason == NO_REASON and found["status"] == TRUE:
        reason = ready_reason
    return Sum(found["status"], reason, found["message"], found["lastTransitionTime"])


def legacy_mirrored(obj: Obj, fallback: LegacySum) -> LegacySum:
    """A provider's Ready as a condition of the older kind."""
    found = next((listed for path in _LEGACY_PATHS if isinstance(listed := dig(obj, *path), list)), ())
    for condition in found:
        if isinstance(condition, dict) and condition.get("type") == "Ready" and _text(condition, "status"):
            reason, message, severity = (_text(condition, field) for field in ("reason", "message", "severity"))
            return LegacySum(condition["status"], reason, message, severity)
    return fallback


def as_ours(obj: Obj) -> Obj:
    """A provider's object with its conditions at our own path, for sums over both; without invalid conditions."""
    try:
        return with_path(obj, ("status", "conditions"), conditions_of(obj))
    except InvalidCondition:
        return with_path(obj, ("status", "conditions"), [])
