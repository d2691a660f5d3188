"""What one step in an object's life changed: which fields, and which field managers say that they did it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

Obj = dict[str, Any]

CREATED, CHANGED, DELETED = "created", "changed", "deleted"
# As many fields are named; how many there are besides is said.
MOST_FIELDS = 20
# Of what changes with everything, or says nothing by itself.
_UNTOLD = frozenset((("metadata", "managedFields"), ("metadata", "resourceVersion"), ("metadata", "generation")))
_DEEPEST = 32
# What tells the items of a list apart, where they have it.
_NAMES = ("name", "type", "key", "uid", "ip", "id")


class Fields(NamedTuple):
    named: list[str]
    more: int


def changed_fields(old: Obj, new: Obj) -> Fields:
    """The paths at which two states differ, the deepest that tells it."""
    named: list[str] = []
    more = 0
    try:
        for path in _differences(old, new, ()):
            if len(named) < MOST_FIELDS:
                named.append(path)
            else:
                more += 1
    except RecursionError:
        # Nested deeper than two objects can be compared: that they differ is all that can be said.
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
        # Where only their order is another, that is the change.
        if left is not None and right is not None and (left.keys() != right.keys() or list(left) == list(right)):
            for name in [*left, *(each for each in right if each not in left)]:
                yield from _differences(left.get(name), right.get(name), (*path[:-1], f"{path[-1]}[{name}]"))
            return
    yield _text(path)


def _by_name(items: list[Any]) -> dict[str, Any] | None:
    """The items by what tells them apart; None when nothing does."""
    if not items:
        return {}
    for field in _NAMES:
        names = [item.get(field) if isinstance(item, dict) else None for item in items]
        if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
            return {str(name): item for name, item in zip(names, items, strict=True)}
    return None


def _text(path: tuple[str, ...]) -> str:
    """A key that has a dot in it is put in brackets."""
    text = ""
    for part in path:
        bare = part.partition("[")[0]
        text += f"[{part}]" if "." in bare or "/" in bare else f".{part}"
    return text.removeprefix(".")


def managers(old: Obj | None, new: Obj) -> list[str]:
    """Those whose entry in managedFields is new, or of another time: a manager that only lost a field keeps its time."""
    known = {_identity(entry): entry for entry in _managed(old)}
    found: dict[str, None] = {}
    for entry in _managed(new):
        before = known.get(_identity(entry))
        if before is None or before.get("time") != entry.get("time") or _gained(before, entry):
            found[str(entry.get("manager") or "")] = None
    return [name for name in found if name]


def _gained(before: Obj, after: Obj) -> bool:
    """Within one second the time does not tell."""
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
