"""Sets of field paths, in the form that `fieldsV1` has on the wire.

A set is a dict from path element to the set below it, so that reading and writing managedFields costs nothing and sets
share their unchanged parts. Path elements are texts: `f:name` a field, `k:{"name":"x"}` a list item by its keys (sorted,
compact), `v:"x"` an item of a set by its value, `i:0` one by its index. An element whose dict is empty is a member; one
that has both children and membership says so with a `.` in its dict. The root is never a member, so that `{}` there is
the empty set. Sets are never changed after they are made.

:mod:`.typed` makes path elements from values; :mod:`.compare` makes sets from objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from remuda.kube.errors import go_quote

Fields = dict[str, Any]
Path = tuple[str, ...]

SELF = "."
MEMBER: Fields = {}
# Longer elements are not remembered: a client could fill the memory with them.
_LONG = 256
_PLAIN = re.compile(r"[A-Za-z0-9 _./:@+=,;-]*", re.ASCII)
_GO_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029", "\x08": "\\b", "\x0c": "\\f"}
)


class FieldsError(ValueError):
    """A value that is not a field set."""


# ---------------------------------------------------------------------------------------------------------------------
# Path elements


def scalar_text(value: Any) -> str:
    """A value as Go's JSON writes it inside of a path element."""
    if type(value) is str:
        if _PLAIN.fullmatch(value) is not None:
            return f'"{value}"'
        return _string_text(value)
    if value is True:
        return "true"
    if value is False:
        return "false"
    if value is None:
        return "null"
    if type(value) is float and value.is_integer() and abs(value) < 1e21:
        # 80 and 80.0 are the same key.
        return str(int(value))
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).translate(_GO_ESCAPES)
    return str(value)


def _string_text(value: str) -> str:
    text = json.dumps(value, ensure_ascii=False).translate(_GO_ESCAPES)
    return text.replace("\\b", "\\u0008").replace("\\f", "\\u000c") if "\\" in text else text


def key_element(keys: Iterable[tuple[str, Any]]) -> str:
    """The element of a list item with these key fields."""
    return "k:{" + ",".join(f"{scalar_text(name)}:{scalar_text(value)}" for name, value in sorted(keys)) + "}"


def value_element(value: Any) -> str:
    return "v:" + scalar_text(value)


def canonical_element(text: str) -> str | None:
    """The element as this package writes it; None for unknown kinds of elements."""
    return _canonical(text) if len(text) < _LONG else _canonical.__wrapped__(text)


@lru_cache(maxsize=8192)
def _canonical(text: str) -> str | None:
    if len(text) < 2:
        raise FieldsError("key must be 2 characters long:")
    if text[1] != ":":
        raise FieldsError(f"missing colon: {text}")
    kind, rest = text[0], text[2:]
    if kind == "f":
        return text
    if kind == "i":
        if re.fullmatch(r"[+-]?[0-9]{1,18}", rest, re.ASCII) is None:
            raise FieldsError(f"strconv.Atoi: parsing {go_quote(rest)}: invalid syntax")
        return f"i:{int(rest)}"
    if kind not in "kv":
        return None
    try:
        value = json.loads(rest)
    except (ValueError, RecursionError) as error:
        raise FieldsError(f"parsing key as path element: {error}") from None
    if kind == "v":
        return value_element(value)
    if not isinstance(value, dict):
        raise FieldsError("parsing key as path element: expect { or n")
    return key_element(value.items())


def element_text(element: str) -> str:
    """An element as conflicts show it: `.name`, `[name="x"]`, `[="x"]`, `[0]`."""
    return _element_text(element) if len(element) < _LONG else _element_text.__wrapped__(element)


@lru_cache(maxsize=4096)
def _element_text(element: str) -> str:
    rest = element[2:]
    if element[0] == "f":
        return "." + rest
    if element[0] == "i":
        return f"[{rest}]"
    value = json.loads(rest)
    if element[0] == "v":
        return f"[={_shown(value)}]"
    return "[" + ",".join(f"{name}={_shown(part)}" for name, part in value.items()) + "]"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return go_quote(value)
    if isinstance(value, list):
        return "[" + ",".join(_shown(item) for item in value) + "]"
    if isinstance(value, dict):
        return "".join(f"{name}={_shown(item)}" for name, item in value.items())
    return scalar_text(value)


def path_text(path: Path) -> str:
    return "".join(map(element_text, path))


def element_order(element: str) -> tuple[Any, ...]:
    """A sort key with Go's order: fields, items by key, items by value, indices; numbers by size."""
    kind, rest = element[0], element[2:]
    if kind == "f":
        return (0, rest)
    if kind == "i":
        return (3, int(rest))
    value = json.loads(rest)
    if kind == "v":
        return (2, _value_order(value))
    return (1, tuple((name, _value_order(part)) for name, part in value.items()))


def _value_order(value: Any) -> tuple[int, Any]:
    if isinstance(value, bool):
        return (2, value)
    if isinstance(value, int | float):
        return (0, value)
    if isinstance(value, str):
        return (1, value)
    return (3, scalar_text(value))


# ---------------------------------------------------------------------------------------------------------------------
# Reading


def parse(value: Any) -> Fields:
    """A set from decoded `fieldsV1`; elements of unknown kinds are dropped, as upstream does."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FieldsError(f"expected an object, got {type(value).__name__}")
    found = _parse(value)
    if SELF in found:
        del found[SELF]
    return found


def _parse(value: dict[str, Any]) -> Fields:
    found: Fields = {}
    for text, below in value.items():
        if text == SELF:
            found[SELF] = MEMBER
            continue
        element = canonical_element(text)
        if element is None:
            continue
        if below is None:
            below = MEMBER
        elif not isinstance(below, dict):
            raise FieldsError(f"expected an object below {text}")
        node = _parse(below) if below else MEMBER
        before = found.get(element)
        if before is not None:
            node = _union_nodes(before, node)
        found[element] = node
    if len(found) == 1 and SELF in found:
        return MEMBER.copy()
    return found


def of_paths(paths: Iterable[Sequence[str]]) -> Fields:
    """The set of the given field paths (`("metadata", "name")`)."""
    found: Fields = {}
    for path in paths:
        node: Fields = MEMBER
        for name in reversed(path):
            node = {f"f:{name}": node}
        found = union(found, node)
    return found


def ordered(fields: Fields) -> Fields:
    """The same set with its elements in a fixed order, for readers."""
    return {element: ordered(fields[element]) if fields[element] else MEMBER for element in sorted(fields)}


# ---------------------------------------------------------------------------------------------------------------------
# Operations


def union(left: Fields, right: Fields) -> Fields:
    if not right or left is right:
        return left
    if not left:
        return right
    result: Fields | None = None
    for element, node in right.items():
        mine = left.get(element)
        if mine is None:
            merged = node
        elif mine is node:
            continue
        else:
            merged = _union_nodes(mine, node)
            if merged is mine:
                continue
        if result is None:
            result = left.copy()
        result[element] = merged
    return left if result is None else result


def _union_nodes(left: Fields, right: Fields) -> Fields:
    if not left:
        return left if not right else _as_member(right)
    if not right:
        return _as_member(left)
    return union(left, right)


def _as_member(node: Fields) -> Fields:
    return node if SELF in node or not node else {SELF: MEMBER, **node}


def difference(left: Fields, right: Fields) -> Fields:
    """Members of `left` that are not members of `right`."""
    return _difference(left, right, False)


def recursive_difference(left: Fields, right: Fields) -> Fields:
    """Members of `left` that are neither in `right` nor below a member of `right`."""
    return _difference(left, right, True)


def _difference(left: Fields, right: Fields, recursive: bool) -> Fields:
    if not left or not right:
        return left
    result: Fields | None = None
    for element, other in right.items():
        mine = left.get(element)
        if mine is None or element == SELF:
            continue
        rest = _difference_nodes(mine, other, recursive)
        if rest is mine:
            continue
        if result is None:
            result = left.copy()
        if rest is None:
            del result[element]
        else:
            result[element] = rest
    return left if result is None else result


def _difference_nodes(mine: Fields, other: Fields, recursive: bool) -> Fields | None:
    """The remaining node, or None when nothing remains."""
    gone = not other or SELF in other
    if gone and recursive:
        return None
    if not mine:
        return None if gone else mine
    rest = _difference(mine, other, recursive) if other else mine
    if gone and SELF in rest:
        rest = {element: node for element, node in rest.items() if element != SELF}
    if rest is mine:
        return mine
    if len(rest) == 1 and SELF in rest:
        return MEMBER
    return rest or None


def intersection(left: Fields, right: Fields) -> Fields:
    if left is right:
        return left
    if len(right) < len(left):
        left, right = right, left
    result: Fields = {}
    for element, mine in left.items():
        other = right.get(element)
        if other is None or element == SELF:
            continue
        node = _intersection_nodes(mine, other)
        if node is not None:
            result[element] = node
    return result


def _intersection_nodes(mine: Fields, other: Fields) -> Fields | None:
    member = (not mine or SELF in mine) and (not other or SELF in other)
    if not mine or not other:
        return MEMBER if member else None
    below = intersection(mine, other)
    if not below:
        return MEMBER if member else None
    return {SELF: MEMBER, **below} if member else below


def has(fields: Fields, path: Path) -> bool:
    """True when the path itself is a member."""
    for element in path:
        found = fields.get(element)
        if found is None or element == SELF:
            return False
        fields = found
    return bool(path) and (not fields or SELF in fields)


def is_member(node: Fields) -> bool:
    return not node or SELF in node


def below(node: Fields) -> Fields:
    """The set below an element, without the element's own membership."""
    if SELF in node:
        return {element: child for element, child in node.items() if element != SELF}
    return node


def leaves(fields: Fields) -> Fields:
    """Only the members that have nothing below them."""
    return {element: leaves(node) if node else MEMBER for element, node in fields.items() if element != SELF}


def paths(fields: Fields, prefix: Path = ()) -> Iterator[Path]:
    """All members, in upstream's order: at each level first the members, then the members below each element."""
    elements = sorted((element for element in fields if element != SELF), key=element_order)
    for element in elements:
        if is_member(fields[element]):
            yield (*prefix, element)
    for element in elements:
        if fields[element]:
            yield from paths(fields[element], (*prefix, element))
