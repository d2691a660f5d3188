"""Server-side apply that restores the ownership of fields where it was lost.

An object may lose its `metadata.managedFields`: a server drops them under some conditions, and users clear them. The next apply
then makes the server record all existing fields as owned by `before-first-apply`, which never gives anything up, so a field that
is no longer wanted would stay for ever. Cluster API removes that entry, and so does :func:`apply_owned`. An apply restores the
ownership of its own fields; fields that were dropped before that apply have no owner, and stay.
"""

from __future__ import annotations

from typing import Any

from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, metadata, name_of, namespace_of

from .interface import JSON_PATCH, Client

Obj = dict[str, Any]
Operations = list[Obj]

BEFORE_FIRST_APPLY = "before-first-apply"
ENTRIES = "/metadata/managedFields"


async def apply_owned(client: Client, resource: GroupVersionResource, wanted: Obj, field_manager: str) -> Obj:
    """Apply by force; the object as the server has it afterwards."""
    found = await client.apply(resource, wanted, field_manager=field_manager, force=True)
    operations = without_leftovers(found)
    if not operations:
        return found
    try:
        return await client.patch(resource, name_of(found), operations, namespace_of(found), patch_type=JSON_PATCH)
    except ApiError as error:
        # Another client wrote in between and changed the entries; the next apply finds it again.
        if not (error.is_conflict or error.is_not_found or error.code == 422):
            raise
        return found


def without_leftovers(obj: Obj) -> Operations:
    """The JSON patch that removes field ownership which no manager can give up. It is bound to the entry, not to a revision."""
    for position, entry in enumerate(entries_of(obj)):
        if entry.get("manager") == BEFORE_FIRST_APPLY and not entry.get("subresource"):
            return [is_entry(position, BEFORE_FIRST_APPLY), {"op": "remove", "path": f"{ENTRIES}/{position}"}]
    return []


def owns(obj: Obj, manager: str) -> bool:
    """True if `manager` has applied to the object, and no manager that can't give up fields owns any."""
    if without_leftovers(obj):
        return False
    return any(
        (each.get("manager"), each.get("operation"), each.get("subresource") or "") == (manager, "Apply", "")
        for each in entries_of(obj)
    )


def was_lost(new: Obj, old: Obj) -> bool:
    """True if an object has lost the ownership of its fields."""
    return bool(entries_of(old)) and not entries_of(new)


def entries_of(obj: Obj) -> list[Obj]:
    return metadata(obj).get("managedFields") or []


def is_entry(position: int, manager: str) -> Obj:
    return {"op": "test", "path": f"{ENTRIES}/{position}/manager", "value": manager}
