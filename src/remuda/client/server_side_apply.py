"""Server-side apply that is only sent when it would change something.

An apply is skipped when this process has sent the same before and the object in the cache still has all of it. So changes by
others are reverted, additions by others are left, and after a restart each object is applied once; or not even that, if the
object's own managed fields show that exactly this was applied before (`resumes`). An object that has lost the ownership of
its fields is applied again, so that fields no longer wanted can still be removed later.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, metadata, name_of, namespace_of, uid_of

from .interface import JSON_PATCH, Client

Obj = dict[str, Any]


class Applier:
    """One field manager's applies; `force`d, since its fields are its own. For caches that keep `managedFields`.

    `resumes`: applies of this process before a restart count.
    """

    def __init__(self, client: Client, field_manager: str, *, resumes: bool = False) -> None:
        self._client = client
        self._manager = field_manager
        self._resumes = resumes
        self._sent: dict[str, bytes] = {}

    async def apply(self, resource: GroupVersionResource, wanted: Obj, cached: Obj | None) -> Obj | None:
        """The object as the server has it now; None when nothing had to be sent. `cached` None creates."""
        said = _digest(wanted)
        if (
            cached is not None
            and self._sent.get(uid_of(cached)) == said
            and covers(cached, wanted)
            and owns(cached, self._manager)
        ):
            return None
        if (
            cached is not None
            and self._resumes
            and uid_of(cached) not in self._sent
            and was_applied(cached, wanted, self._manager)
        ):
            self._sent[uid_of(cached)] = said
            return None
        found = await apply_owned(self._client, resource, wanted, self._manager)
        self._sent[uid_of(found)] = said
        return found

    def remember(self, wanted: Obj) -> None:
        """Record `wanted` (with its uid) as applied, after a larger write that included it."""
        self._sent[uid_of(wanted)] = _digest(wanted)

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._sent.pop(uid, None)


def _digest(wanted: Obj) -> bytes:
    """A short digest of what is applied, since there are many objects. Finalizers are left out: others set them, and they are
    only repeated so that they don't get lost; a new one is no reason to apply again."""
    told = {name: value for name, value in wanted["metadata"].items() if name != "finalizers"}
    return blake2b(jsonio.dumps({**wanted, "metadata": told}), digest_size=16).digest()


def was_applied(found: Obj, wanted: Obj, manager: str) -> bool:
    """True if an object has all that is wanted, and `manager` has applied nothing else to it."""
    if not covers(found, wanted):
        return False
    for entry in found["metadata"].get("managedFields") or ():
        if (entry.get("manager"), entry.get("operation"), entry.get("subresource") or "") == (manager, "Apply", ""):
            return entry.get("apiVersion") == wanted["apiVersion"] and _nothing_else(entry.get("fieldsV1") or {}, wanted)
    return False


def _nothing_else(fields: Obj, wanted: Obj) -> bool:
    """True if a set of fields is part of what is wanted. The inside of lists, which have to be equal anyway, does not matter."""
    for field, inside in fields.items():
        name = field.removeprefix("f:")
        if field != "." and (name == field or name not in wanted):
            return False
        if isinstance(wanted.get(name), dict) and not _nothing_else(inside, wanted[name]):
            return False
    return True


def covers(found: Any, wanted: Any) -> bool:
    """True if `found` has all that is wanted, and maybe more; lists must be equal."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and covers(found[key], value) for key, value in wanted.items())
    return bool(found == wanted)


# --- ownership of fields --------------------------------------------------------------------------------------------------
#
# Server-side apply that restores the ownership of fields where it was lost.
#
# An object may lose its `metadata.managedFields`: a server drops them under some conditions, and users clear them. The next
# apply then makes the server record all existing fields as owned by `before-first-apply`, which never gives anything up, so a
# field that is no longer wanted would stay for ever. Cluster API removes that entry, and so does :func:`apply_owned`. An apply
# restores the ownership of its own fields; fields that were dropped before that apply have no owner, and stay.


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
