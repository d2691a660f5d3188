"""Who owns which fields of the clones that a set makes.

A clone is made whole by one apply, of the manager :data:`MANAGER`. Its labels and annotations go on following the set, so they
are handed to a manager of their own, :data:`METADATA_MANAGER`: what the set no longer says then goes from the clone, while the
rest of it stays. These functions say which changes of `metadata.managedFields` do that, as JSON patches that are bound to the
entries they were computed from and not to a revision; so somebody else's write in between is no conflict.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.client.field_ownership import ENTRIES, Operations, entries_of, is_entry, without_leftovers
from remuda.kube.clock import rfc3339

Obj = dict[str, Any]

MANAGER, METADATA_MANAGER = "capi-machineset", "capi-machineset-metadata"
_HANDED = ("f:labels", "f:annotations")


def handing_over(obj: Obj, labels: Iterable[str], annotations: Iterable[str], now: float) -> Operations:
    """Labels and annotations from MANAGER to METADATA_MANAGER, of which it gets those that the set gave; none when it is done."""
    found = _giving_up(obj)
    if not found or _position(obj, METADATA_MANAGER) is not None:
        return found
    owned = {"f:labels": _members(labels), "f:annotations": _members(annotations)}
    entry = {
        "manager": METADATA_MANAGER,
        "operation": "Apply",
        "apiVersion": obj["apiVersion"],
        "time": rfc3339(now),
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {field: members for field, members in owned.items() if members}},
    }
    return [*found, {"op": "add", "path": f"{ENTRIES}/-", "value": entry}]


def putting_right(obj: Obj, manager: str) -> Operations:
    """After an apply of `manager`: nobody else who can't give them up may hold the same fields."""
    if manager == METADATA_MANAGER and (found := _giving_up(obj)):
        return found
    return without_leftovers(obj)


def _giving_up(obj: Obj) -> Operations:
    position = _position(obj, MANAGER)
    if position is None:
        return []
    owned = entries_of(obj)[position].get("fieldsV1", {}).get("f:metadata") or {}
    kept = {field: members for field, members in owned.items() if field not in _HANDED}
    if len(kept) == len(owned):
        return []
    path = f"{ENTRIES}/{position}/fieldsV1/f:metadata"
    change = {"op": "replace", "path": path, "value": kept} if kept else {"op": "remove", "path": path}
    return [is_entry(position, MANAGER), change]


def _position(obj: Obj, manager: str) -> int | None:
    for position, entry in enumerate(entries_of(obj)):
        if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"):
            return position
    return None


def _members(names: Iterable[str]) -> Obj:
    return {f"f:{name}": {} for name in names}
