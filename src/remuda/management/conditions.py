"""Conditions as Rancher's kinds have them (capr.md §0.4), and how a status with them is written.

They differ from those of :mod:`remuda.kube.conditions`: no generation, and two times, of which `lastUpdateTime` moves with any
change and `lastTransitionTime` with the status. The list is in the order in which conditions were first set. Most of the kinds
have no status subresource, so that a status is written as any other field; several controllers write into one list, so what
writes it is bound to the revision that it was computed from.
"""

from __future__ import annotations

from typing import Any

from remuda.client.api import Client
from remuda.kube.clock import rfc3339
from remuda.kube.mergepatch import create_merge_patch
from remuda.kube.objects import GroupVersionResource, dig, name_of, namespace_of, resource_version_of, with_path

Obj = dict[str, Any]

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
ERROR = "Error"
_STATE = ("status", "reason", "message")


def conditions_of(obj: Obj) -> list[Obj]:
    found = dig(obj, "status", "conditions")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def condition_of(obj: Obj, kind: str) -> Obj | None:
    return next((each for each in conditions_of(obj) if each.get("type") == kind), None)


def is_true(obj: Obj, kind: str) -> bool:
    found = condition_of(obj, kind)
    return found is not None and found.get("status") == TRUE


def with_condition(obj: Obj, kind: str, status: str, reason: str = "", message: str = "", *, now: float) -> Obj:
    """`obj` with this condition; the same object when it says so already."""
    before = conditions_of(obj)
    old = condition_of(obj, kind)
    wanted = {"type": kind, "status": status, "reason": reason, "message": message}
    wanted = {field: value for field, value in wanted.items() if value}
    if old is not None and all((old.get(field) or "") == (wanted.get(field) or "") for field in _STATE):
        return obj
    moment = rfc3339(now)
    moved = old is None or old.get("status") != status or not old.get("lastTransitionTime")
    since = moment if moved or old is None else old["lastTransitionTime"]
    fresh = {**wanted, "lastUpdateTime": moment, "lastTransitionTime": since}
    after = [fresh if each is old else each for each in before] if old is not None else [*before, fresh]
    return with_path(obj, ("status", "conditions"), after)


def without_condition(obj: Obj, kind: str) -> Obj:
    kept = [each for each in conditions_of(obj) if each.get("type") != kind]
    return obj if len(kept) == len(conditions_of(obj)) else with_path(obj, ("status", "conditions"), kept)


async def write_status(
    client: Client, resource: GroupVersionResource, before: Obj, after: Obj, *, subresource: str = "", field_manager: str = ""
) -> Obj | None:
    """Send what differs of the status, if anything does; the object as the server has it now. Raises a conflict when somebody
    else changed the object since and conditions are among what differs."""
    patch: Obj = create_merge_patch({"status": before.get("status") or {}}, {"status": after.get("status") or {}})
    if not patch:
        return None
    if "conditions" in (patch["status"] or {}):
        patch["metadata"] = {"resourceVersion": resource_version_of(before)}
    return await client.patch(
        resource, name_of(before), patch, namespace_of(before), subresource=subresource, field_manager=field_manager
    )
