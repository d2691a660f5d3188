"""What the status of a role or binding says, in the fields that Rancher's have: a condition, a summary, the generation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remuda.client.interface import Client
from remuda.kube.clock import Clock, rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig, metadata, name_of, namespace_of

Obj = dict[str, Any]

COMPLETE, IN_PROGRESS, ERROR = "Complete", "InProgress", "Error"


def condition(kind: str, problems: Sequence[str]) -> Obj:
    """Without its time, which is when it was first seen to be so."""
    return {
        "type": kind,
        "status": "False" if problems else "True",
        "reason": "Failed" if problems else kind,
        "message": "; ".join(problems)[:2048],
    }


def summed(*parts: str) -> str:
    """One word of several: the worst."""
    if ERROR in parts:
        return ERROR
    return COMPLETE if all(part == COMPLETE for part in parts) else IN_PROGRESS


async def say(client: Client, clock: Clock, resource: GroupVersionResource, obj: Obj, said: Obj) -> None:
    """Write these fields of the status, if they say anything new. Values are conditions (as a list) or plain."""
    present = obj.get("status") or {}
    now = rfc3339(clock.time())
    patch: Obj = {}
    for field, value in said.items():
        if isinstance(value, list):
            value = [_timed(each, present.get(field), now) for each in value]
        if present.get(field) != value:
            patch[field] = value
    if not patch:
        return
    patch["lastUpdateTime"] = now
    try:
        await client.patch(resource, name_of(obj), {"status": patch}, namespace_of(obj), subresource="status")
    except ApiError as error:
        if not error.is_not_found:
            raise


def _timed(wanted: Obj, present: Any, now: str) -> Obj:
    for each in present if isinstance(present, list) else ():
        if all(each.get(field) == value for field, value in wanted.items()):
            return dict(each)
        if each.get("type") == wanted["type"] and each.get("status") == wanted["status"]:
            return {**wanted, "lastTransitionTime": each.get("lastTransitionTime") or now}
    return {**wanted, "lastTransitionTime": now}


def generation(obj: Obj) -> int:
    return int(metadata(obj).get("generation") or 0)


def summary(obj: Obj, field: str) -> str:
    return str(dig(obj, "status", field) or "")
