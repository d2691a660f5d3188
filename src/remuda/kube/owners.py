"""Owner references and finalizers: an object's owners, and the parties that must finish before it is removed.

All functions return a new object that shares unchanged parts; the same object when there is nothing to do. Owners are matched
by group, kind and name, regardless of the version: an owner served in two versions is one owner.
"""

from __future__ import annotations

from typing import Any

from .objects import GroupVersion, Key, finalizers_of, is_being_deleted, metadata, owner_references_of, uid_of, with_metadata

Obj = dict[str, Any]


def reference(owner: Obj, *, controller: bool = False, block: bool | None = None) -> Obj:
    """A reference to `owner`; a controller's blocks its foreground deletion unless told otherwise."""
    meta = metadata(owner)
    made: Obj = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    if controller:
        made["controller"] = True
    if block is not None or controller:
        made["blockOwnerDeletion"] = controller if block is None else block
    return made


def same_owner(left: Obj, right: Obj) -> bool:
    return (
        left.get("kind") == right.get("kind")
        and left.get("name") == right.get("name")
        and GroupVersion.parse(left.get("apiVersion") or "").group == GroupVersion.parse(right.get("apiVersion") or "").group
    )


def is_owned_by(obj: Obj, owner: Obj) -> bool:
    """Compares uids: a new object of the same name is another owner."""
    uid = uid_of(owner)
    return any(found.get("uid") == uid for found in owner_references_of(obj))


def controller_of(obj: Obj) -> Obj | None:
    return next((found for found in owner_references_of(obj) if found.get("controller")), None)


class AlreadyControlled(Exception):
    """An object has at most one controller, and this one has another."""

    def __init__(self, obj: Obj, other: Obj) -> None:
        super().__init__(f"{obj.get('kind')} {Key.of(obj)} is controlled by {other.get('kind')} {other.get('name')}")


def with_owner(obj: Obj, wanted: Obj) -> Obj:
    """`obj` with this reference; an existing one of the same owner is updated (version, uid, flags), the others stay."""
    found = owner_references_of(obj)
    other = controller_of(obj)
    if wanted.get("controller") and other is not None and not same_owner(other, wanted):
        raise AlreadyControlled(obj, other)
    for position, present in enumerate(found):
        if same_owner(present, wanted):
            if present == wanted:
                return obj
            return with_metadata(obj, ownerReferences=[*found[:position], wanted, *found[position + 1 :]])
    return with_metadata(obj, ownerReferences=[*found, wanted])


def without_owner(obj: Obj, owner: Obj) -> Obj:
    found = owner_references_of(obj)
    kept = [present for present in found if not same_owner(present, owner)]
    return obj if len(kept) == len(found) else with_metadata(obj, ownerReferences=kept or None)


def has_finalizer(obj: Obj, name: str) -> bool:
    return name in finalizers_of(obj)


def with_finalizer(obj: Obj, name: str) -> Obj:
    """`obj` with the finalizer; unchanged while it is being deleted, since no server accepts a new one then."""
    if has_finalizer(obj, name) or is_being_deleted(obj):
        return obj
    return with_metadata(obj, finalizers=[*finalizers_of(obj), name])


def without_finalizer(obj: Obj, name: str) -> Obj:
    if not has_finalizer(obj, name):
        return obj
    return with_metadata(obj, finalizers=[each for each in finalizers_of(obj) if each != name] or None)
