"""Field sets of the changes between two objects, and of all fields of an object.

`compare` runs on every write, so it visits only the differences: branches that are the same object, or equal, are
skipped at the speed of C. Merging is in :mod:`.merging`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from remuda.kube.encoding import go_format

from .field_set import MEMBER, SELF, Fields, recursive_difference, union
from .typed import ABSENT, EXPECTED, MAP, SCALAR, ListType, MapType, Type, TypedError, kind_for, scalar_problem


class Comparison(NamedTuple):
    added: Fields
    modified: Fields
    removed: Fields

    def without(self, ignored: Fields) -> Comparison:
        if not ignored:
            return self
        return Comparison(*(recursive_difference(fields, ignored) for fields in self))

    @property
    def written(self) -> Fields:
        """Fields that the new object adds or modifies."""
        return union(self.modified, self.added)


_Nodes = tuple[Fields | None, Fields | None, Fields | None]
_SAME: _Nodes = (None, None, None)
_MODIFIED: _Nodes = (None, MEMBER, None)


def compare(type_: Type, old: Any, new: Any) -> Comparison:
    """The changes from `old` to `new`; TypedError when a changed value does not fit its type."""
    if old is new:
        return Comparison({}, {}, {})
    added, modified, removed = _compare(type_, old, new)
    return Comparison(added or {}, modified or {}, removed or {})


def equal(type_: Type, old: Any, new: Any) -> bool:
    """Equality as upstream sees it: 1 is 1.0 but never true."""
    if old is new:
        return True
    if old != new:
        return False
    return not type_.loose or _alike(old, new)


def _alike(old: Any, new: Any) -> bool:
    """For values that are equal in Python: tells booleans from numbers."""
    if isinstance(old, dict):
        return all(_alike(value, new[key]) for key, value in old.items())
    if isinstance(old, list):
        return all(map(_alike, old, new))
    return isinstance(old, bool) is isinstance(new, bool)


def _compare(type_: Type, old: Any, new: Any) -> _Nodes:
    """Both are present. The nodes are those of the path itself, None for no change."""
    before, after = kind_for(type_, old), kind_for(type_, new)
    if before == after:
        return _compare_as(type_, after, old, new)
    return _united(_compare_as(type_, before, old, new), _compare_as(type_, after, old, new))


def _united(left: _Nodes, right: _Nodes) -> _Nodes:
    added, modified, removed = (
        b if a is None else a if b is None else _union_nodes(a, b) for a, b in zip(left, right, strict=True)
    )
    return added, modified, removed


def _union_nodes(left: Fields, right: Fields) -> Fields:
    if not left and not right:
        return MEMBER
    return union(left or {SELF: MEMBER}, right or {SELF: MEMBER})


def _compare_as(type_: Type, kind: int, old: Any, new: Any) -> _Nodes:
    if kind == SCALAR:
        first, second = scalar_problem(type_.scalar, old), scalar_problem(type_.scalar, new)
        if first and second:
            raise TypedError([("", f"lhs: {first}"), ("", f"rhs: {second}")])
        return _SAME if equal(type_, old, new) else _MODIFIED
    if kind == MAP:
        assert type_.map is not None
        left, right = (value if type(value) is dict else None for value in (old, new))
        if type_.map.atomic or not (left or right):
            return _SAME if equal(type_, old, new) else _MODIFIED
        return _compare_maps(type_.map, left or {}, right or {})
    assert type_.list is not None
    ours, theirs = (value if type(value) is list else None for value in (old, new))
    if type_.list.atomic or not (ours or theirs):
        return _SAME if equal(type_, old, new) else _MODIFIED
    return _compare_lists(type_.list, ours or [], theirs or [])


def _compare_maps(map_: MapType, old: dict[str, Any], new: dict[str, Any]) -> _Nodes:
    fields, element = map_.fields, map_.element
    added: Fields = {}
    modified: Fields = {}
    removed: Fields = {}
    for name, value in new.items():
        before = old.get(name, ABSENT)
        if before is value:
            continue
        member = fields.get(name, element)
        if member is None:
            raise TypedError([(f".{name}", "field not declared in schema")])
        if before is ABSENT:
            added[f"f:{name}"] = _everything(member, value, name)
        elif not equal(member, before, value):
            _put(f"f:{name}", _below(f".{name}", member, before, value), added, modified, removed)
    if len(old) > len(new) or any(name not in new for name in old):
        for name, before in old.items():
            if name not in new:
                member = fields.get(name, element)
                if member is None:
                    raise TypedError([(f".{name}", "field not declared in schema")])
                removed[f"f:{name}"] = _everything(member, before, name)
    return added or None, modified or None, removed or None


def _below(shown: str, member: Type, old: Any, new: Any) -> _Nodes:
    try:
        return _compare(member, old, new)
    except TypedError as error:
        raise TypedError([(shown + path, text) for path, text in error.problems]) from None


def _put(element: str, nodes: _Nodes, added: Fields, modified: Fields, removed: Fields) -> None:
    first, second, third = nodes
    if first is not None:
        added[element] = first
    if second is not None:
        modified[element] = second
    if third is not None:
        removed[element] = third


def _compare_lists(list_: ListType, old: list[Any], new: list[Any]) -> _Nodes:
    before, after = _by_element(list_, old), _by_element(list_, new)
    added: Fields = {}
    modified: Fields = {}
    removed: Fields = {}
    for element in {**before, **after}:
        ours, theirs = before.get(element, []), after.get(element, [])
        if len(ours) <= 1 and len(theirs) <= 1:
            if not ours:
                added[element] = everything(list_.element, theirs[0])
            elif not theirs:
                removed[element] = everything(list_.element, ours[0])
            elif not equal(list_.element, ours[0], theirs[0]):
                _put(element, _compare(list_.element, ours[0], theirs[0]), added, modified, removed)
        elif len(ours) >= 2 and len(theirs) >= 2:
            if len(ours) != len(theirs) or not all(equal(list_.element, a, b) for a, b in zip(ours, theirs, strict=True)):
                modified[element] = MEMBER
        elif len(ours) >= 2:
            removed[element] = MEMBER
            if theirs:
                added[element] = everything(list_.element, theirs[0])
        else:
            added[element] = MEMBER
            if ours:
                removed[element] = everything(list_.element, ours[0])
    return added or None, modified or None, removed or None


def _by_element(list_: ListType, items: list[Any], lenient: bool = False) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for index, item in enumerate(items):
        try:
            element = list_.element_of(item)
        except ValueError as error:
            if not lenient:
                raise TypedError([("", f"element {index}: {error}")]) from None
            element = ""
        found.setdefault(element, []).append(item)
    return found


def _everything(type_: Type, value: Any, name: str) -> Fields:
    if type(value) in EXPECTED[type_.scalar]:
        return MEMBER
    try:
        return everything(type_, value)
    except TypedError as error:
        raise TypedError([(f".{name}{path}", text) for path, text in error.problems]) from None


def everything(type_: Type, value: Any) -> Fields:
    """The node of a value that is entirely new (or removed): itself and all its contents."""
    kind = kind_for(type_, value)
    if kind == SCALAR:
        if problem := scalar_problem(type_.scalar, value):
            raise TypedError([("", problem)])
        return MEMBER
    if value is None:
        return MEMBER
    node: Fields
    if kind == MAP:
        map_ = type_.map
        assert map_ is not None
        if type(value) is not dict:
            raise TypedError([("", f"expected map, got &{{{go_format.shown(value)}}}")])
        if map_.atomic or not value:
            return MEMBER
        fields, element = map_.fields, map_.element
        node = {SELF: MEMBER}
        for name, child in value.items():
            member = fields.get(name, element)
            if member is None:
                raise TypedError([(f".{name}", "field not declared in schema")])
            node[f"f:{name}"] = _everything(member, child, name)
        return node
    list_ = type_.list
    assert list_ is not None
    if type(value) is not list:
        raise TypedError([("", f"expected list, got &{{{go_format.shown(value)}}}")])
    if list_.atomic or not value:
        return MEMBER
    node = {SELF: MEMBER}
    for key, items in _by_element(list_, value).items():
        node[key] = everything(list_.element, items[0]) if len(items) == 1 else MEMBER
    return node


# ---------------------------------------------------------------------------------------------------------------------


def to_fieldset(type_: Type, value: Any) -> Fields:
    """The fields that a configuration sets; a map with named fields is not itself one of them."""
    return _to_fieldset(type_, value) or {}


def _to_fieldset(type_: Type, value: Any) -> Fields | None:
    kind = kind_for(type_, value)
    if kind == SCALAR:
        return MEMBER
    found: Fields
    if kind == MAP:
        map_ = type_.map
        assert map_ is not None
        if map_.atomic:
            return MEMBER
        if type(value) is not dict:
            return None
        found = {}
        for name, child in value.items():
            member = map_.fields.get(name, map_.element)
            if member is not None and type(child) in EXPECTED[member.scalar]:
                found[f"f:{name}"] = MEMBER
                continue
            node = None if member is None else _to_fieldset(member, child)
            if child is None or child == {} or name not in map_.fields:
                node = _union_nodes(node, MEMBER) if node else MEMBER
            if node is not None:
                found[f"f:{name}"] = node
        return found or None
    list_ = type_.list
    assert list_ is not None
    if list_.atomic:
        return MEMBER
    if type(value) is not list:
        return None
    found = {}
    # Half-pruned objects have empty items: one element stands for all of those.
    for element, items in _by_element(list_, value, lenient=True).items():
        node = _to_fieldset(list_.element, items[0]) if len(items) == 1 else None
        found[element] = _union_nodes(node, MEMBER) if node else MEMBER
    return found or None


# ---------------------------------------------------------------------------------------------------------------------


def reconcile(type_: Type, fields: Fields) -> Fields:
    """The set after a schema change: fields that became atomic are owned as a whole. The same set when none did."""
    if not fields:
        return fields
    return _reconcile(type_, fields)


def _reconcile(type_: Type, node: Fields) -> Fields:
    map_ = type_.map
    if map_ is not None:
        if map_.untyped:
            return node
        if map_.atomic:
            return MEMBER
    elif type_.scalar or type_.list is None:
        return node
    elif type_.list.atomic:
        return MEMBER
    result = node
    for element, below in node.items():
        if not below:
            continue
        if map_ is not None:
            member = map_.fields.get(element[2:], map_.element) if element[0] == "f" else map_.element
        else:
            member = type_.list.element if type_.list is not None else None
        if member is None:
            continue
        new = _reconcile(member, below)
        if new is not below:
            result = node.copy() if result is node else result
            result[element] = new
    return result
