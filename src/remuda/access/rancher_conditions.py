"""Conditions in the form of Rancher's kinds (docs/reference/objects.md#conditions), and writing a status with them.

They differ from those of :mod:`remuda.kube.conditions`: no generation, and two times, of which `lastUpdateTime` moves with any
change and `lastTransitionTime` with the status. The list is in the order in which conditions were first set. Most of the kinds
have no status subresource, so that a status is written as any other field; several controllers write into one list, so what
writes it is bound to the revision that it was computed from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda.client.interface import Client
from remuda.kube.clock import rfc3339
from remuda.kube.encoding.mergepatch import create_merge_patch
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig, name_of, namespace_of, resource_version_of, uid_of, with_path

Obj = dict[str, Any]

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
ERROR = "Error"
_STATE = ("status", "reason", "message")
# A cluster reports any message of any length, and every watcher of clusters would receive it.
_LONGEST_MESSAGE = 4096
_TRIES = 3


def conditions_of(obj: Obj) -> list[Obj]:
    found = dig(obj, "status", "conditions")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def condition_of(obj: Obj, kind: str) -> Obj | None:
    return next((each for each in conditions_of(obj) if each.get("type") == kind), None)


def is_true(obj: Obj, kind: str) -> bool:
    found = condition_of(obj, kind)
    return found is not None and found.get("status") == TRUE


def with_condition(obj: Obj, kind: str, status: str, reason: str = "", message: str = "", *, now: float) -> Obj:
    """`obj` with this condition; the same object if nothing differs."""
    before = conditions_of(obj)
    old = condition_of(obj, kind)
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[: _LONGEST_MESSAGE - 1]}…"
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


async def write_status(
    client: Client, resource: GroupVersionResource, before: Obj, after: Obj, *, subresource: str = "", field_manager: str = ""
) -> Obj | None:
    """Send the changed part of the status, if any; the result is the object as the server has it now. Raises a conflict when
    another writer changed the object since and conditions are among the changes."""
    patch: Obj = create_merge_patch({"status": before.get("status") or {}}, {"status": after.get("status") or {}})
    if not patch:
        return None
    if "conditions" in (patch["status"] or {}):
        patch["metadata"] = {"resourceVersion": resource_version_of(before)}
    return await client.patch(
        resource, name_of(before), patch, namespace_of(before), subresource=subresource, field_manager=field_manager
    )


async def tell_status(
    client: Client, resource: GroupVersionResource, obj: Obj, told: Callable[[Obj], Obj], *, field_manager: str = ""
) -> Obj | None:
    """Write the status that `told` makes of the object; after a conflict, of the object as another writer left it.

    For a status that does not depend on what others write: several controllers look at a new object at the same time, and
    starting again would cost each of them as much again.
    """
    latest = obj
    for attempt in range(_TRIES):
        try:
            return await write_status(client, resource, latest, told(latest), field_manager=field_manager)
        except ApiError as error:
            if not error.is_conflict or attempt == _TRIES - 1:
                raise
        latest = await client.get(resource, name_of(obj), namespace_of(obj))
        if uid_of(latest) != uid_of(obj):
            # Another object of the same name; its own event reports it.
            return None
    raise AssertionError("unreachable")
