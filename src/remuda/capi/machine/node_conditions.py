"""A Node's conditions as its Machine reports them: whether it is ready, and whether nothing at all is wrong with it.

Pure functions of a Node. :mod:`.status` decides whether there is a Node to speak of at all.
"""

from __future__ import annotations

from typing import Any

from remuda.kube.condition_summaries import Sum
from remuda.kube.condition_summaries_v1beta1 import LegacySum
from remuda.kube.conditions import FALSE, TRUE, UNKNOWN, WARNING
from remuda.kube.objects import dig

Obj = dict[str, Any]

_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_WATCHED = ("Ready", *_PRESSURES)
_READY_REASONS = {TRUE: "NodeReady", FALSE: "NodeNotReady", UNKNOWN: "NodeReadyUnknown"}


def _conditions(node: Obj) -> list[Obj]:
    return dig(node, "status", "conditions") or []


def _good(kind: str) -> str:
    return TRUE if kind == "Ready" else FALSE


def node_ready(node: Obj) -> Sum:
    """The Node's own Ready."""
    found = {condition.get("type"): condition for condition in _conditions(node)}.get("Ready")
    status = (found or {}).get("status")
    if found is None or status not in _READY_REASONS:
        return Sum(UNKNOWN, "NodeReadyUnknown", "* Node.Ready: Condition not yet reported")
    message = found.get("message") or ""
    told = f"* Node.Ready: {message}" if message and status != TRUE else ""
    return Sum(status, _READY_REASONS[status], told, found.get("lastTransitionTime") or "")


def node_health(node: Obj) -> Sum:
    """Ready and no pressure of any kind; the message names only what is not as it should be."""
    found = {condition.get("type"): condition for condition in _conditions(node)}
    bad = unknown = 0
    lines: list[str] = []
    texts: list[str] = []
    for kind in _WATCHED:
        condition = found.get(kind)
        if condition is None:
            lines.append(f"* Node.{kind}: Condition not yet reported")
            unknown += 1
            continue
        status = condition.get("status")
        if status == _good(kind):
            continue
        text = condition.get("message") or f"Condition is {status}"
        texts.append(text)
        lines.append(f"* Node.{kind}: {text}")
        if status == UNKNOWN:
            unknown += 1
        else:
            bad += 1
    if len(texts) > 1 and len(set(texts)) == 1:
        lines = [f"* Node.AllConditions: {texts[0]}"]
    message = "\n".join(lines)
    if bad:
        return Sum(FALSE, "NodeNotHealthy", message)
    if unknown:
        return Sum(UNKNOWN, "NodeHealthyUnknown", message)
    return Sum(TRUE, "NodeHealthy", "")


def legacy_node_health(node: Obj) -> LegacySum:
    """The same for the older conditions, by their own rule: unknown is only what is unknown altogether."""
    bad = unknown = 0
    told: list[str] = []
    for condition in _conditions(node):
        kind, status = condition.get("type") or "", condition.get("status")
        if kind not in _WATCHED or status == _good(kind):
            continue
        told.append(f"Node condition {kind} is {status}")
        if status == UNKNOWN:
            unknown += 1
        else:
            bad += 1
    if bad:
        return LegacySum(FALSE, "NodeConditionsFailed", ". ".join(told), WARNING)
    if unknown < len(_WATCHED):
        return LegacySum(TRUE)
    return LegacySum(UNKNOWN, "NodeConditionsFailed", ". ".join(told))
