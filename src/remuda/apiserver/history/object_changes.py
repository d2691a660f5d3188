"""The changes of one step in an object's life: the fields, and the field managers that made it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

Obj = dict[str, Any]

CREATED, CHANGED, DELETED = "created", "changed", "deleted"
# At most so many fields are named; the others are counted.
MOST_FIELDS = 20
# Fields that change with every write, or mean nothing by themselves.
_UNTOLD = frozenset((("metadata", "managedFields"), ("metadata", "resourceVersion"), ("metadata", "generation")))
_DEEPEST = 32
# Keys that identify the items of a list, where they have one.
_NAMES = ("name", "type", "key", "uid", "ip", "id")


class Fields(NamedTuple):
    named: list[str]
    more: int


def changed_fields(old: Obj, new: Obj) -> Fields:
    """The paths at which two states differ, as deep as possible."""
    named: list[str] = []
    more = 0
    try:
        for path in _differences(old, new, ()):
            if len(named) < MOST_FIELDS:
                named.append(path)
            else:
                more += 1
    except RecursionError:
        # Nested too deeply to compare: only the fact that they differ is known.
        more += 1
    return Fields(named, more)


def _differences(old: Any, new: Any, path: tuple[str, ...]) -> Iterator[str]:
    if old == new or path in _UNTOLD:
        return
    if isinstance(old, dict) and isinstance(new, dict) and len(path) < _DEEPEST:
        for key in sorted({*old, *new}):
            if key in old and key in new:
                yield from _differences(old[key], new[key], (*path, key))
            elif (*path, key) not in _UNTOLD:
                yield _text((*path, key))
        return
    if isinstance(old, list) and isinstance(new, list) and path:
        left, right = _by_name(old), _by_name(new)
        # If only their order differs, the order is the change.
        if left is not None and right is not None and (left.keys() != right.keys() or list(left) == list(right)):
            for name in [*left, *(each for each in right if each not in left)]:
                yield from _differences(left.get(name), right.get(name), (*path[:-1], f"{path[-1]}[{name}]"))
            return
    yield _text(path)


def _by_name(items: list[Any]) -> dict[str, Any] | None:
    """The items by their identifying key; None when they have none."""
    if not items:
        return {}
    for field in _NAMES:
        names = [item.get(field) if isinstance(item, dict) else None for item in items]
        if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
            return {str(name): item for name, item in zip(names, items, strict=True)}
    return None


def _text(path: tuple[str, ...]) -> str:
    """The path as text; a key with a dot in it is put in brackets."""
    text = ""
    for part in path:
        bare = part.partition("[")[0]
        text += f"[{part}]" if "." in bare or "/" in bare else f".{part}"
    return text.removeprefix(".")


def managers(old: Obj | None, new: Obj) -> list[str]:
    """The managers whose entry in managedFields is new or has a new time: a manager that only lost a field keeps its time."""
    known = {_identity(entry): entry for entry in _managed(old)}
    found: dict[str, None] = {}
    for entry in _managed(new):
        before = known.get(_identity(entry))
        if before is None or before.get("time") != entry.get("time") or _gained(before, entry):
            found[str(entry.get("manager") or "")] = None
    return [name for name in found if name]


def _gained(before: Obj, after: Obj) -> bool:
    """The manager owns more fields: two writes within one second have the same time."""
    try:
        return _has_new(before.get("fieldsV1") or {}, after.get("fieldsV1") or {})
    except RecursionError:
        return True


def _has_new(before: Any, after: Any) -> bool:
    if not isinstance(after, dict) or not isinstance(before, dict):
        return False
    return any(key not in before or _has_new(before[key], value) for key, value in after.items())


def _managed(obj: Obj | None) -> list[Obj]:
    return ((obj or {}).get("metadata") or {}).get("managedFields") or []


def _identity(entry: Obj) -> tuple[str, ...]:
    return tuple(str(entry.get(field) or "") for field in ("manager", "operation", "apiVersion", "subresource"))
