"""Server-side apply that keeps the ownership of fields right where it was lost.

An object may lose its `metadata.managedFields`: a server drops them under some conditions, and users clear them. The next apply
then makes the server note all that is there as owned by `before-first-apply`, which never gives anything up, so that a field that
is wanted no more would stay for ever. Cluster API takes that entry away, and so does :func:`apply_owned`. An apply restores the
ownership of what it says; what was dropped before that apply has no owner, and stays.
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
    """Apply by force; the object as the server has it then."""
    found = await client.apply(resource, wanted, field_manager=field_manager, force=True)
    operations = without_leftovers(found)
    if not operations:
        return found
    try:
        return await client.patch(resource, name_of(found), operations, namespace_of(found), patch_type=JSON_PATCH)
    except ApiError as error:
        # Somebody wrote in between, so that the entries are others; the next apply finds it again.
        if not (error.is_conflict or error.is_not_found or error.code == 422):
            raise
        return found


def without_leftovers(obj: Obj) -> Operations:
    """The JSON patch that takes away what nobody could give up. It is bound to the entry, and not to a revision."""
    for position, entry in enumerate(entries_of(obj)):
        if entry.get("manager") == BEFORE_FIRST_APPLY and not entry.get("subresource"):
            return [is_entry(position, BEFORE_FIRST_APPLY), {"op": "remove", "path": f"{ENTRIES}/{position}"}]
    return []


def owns(obj: Obj, manager: str) -> bool:
    """Whether `manager` has applied to the object, and nobody holds its fields who can't give them up."""
    if without_leftovers(obj):
        return False
    return any(
        (each.get("manager"), each.get("operation"), each.get("subresource") or "") == (manager, "Apply", "")
        for each in entries_of(obj)
    )


def was_lost(new: Obj, old: Obj) -> bool:
    """Whether an object has lost the ownership of its fields."""
    return bool(entries_of(old)) and not entries_of(new)


def entries_of(obj: Obj) -> list[Obj]:
    return metadata(obj).get("managedFields") or []


def is_entry(position: int, manager: str) -> Obj:
    return {"op": "test", "path": f"{ENTRIES}/{position}/manager", "value": manager}
