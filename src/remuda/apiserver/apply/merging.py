"""Merges an applied configuration into an object, and removes fields from an object.

Merged lists keep the live order unless the configuration asks for another one. Results share unchanged parts.
:mod:`.updater` decides what to merge and what to remove.
"""

from __future__ import annotations

from typing import Any

from .field_set import SELF, Fields, below, element_text, is_member
from .typed import EXPECTED, MAP, SCALAR, ListType, MapType, Type, TypedError, kind_for


def merge(type_: Type, live: Any, config: Any) -> Any:
    """`live` with `config` merged into it; TypedError for items without a key and for duplicates."""
    kind = kind_for(type_, config)
    if kind == SCALAR:
        return config
    if kind == MAP:
        assert type_.map is not None
        ours = live if type(live) is dict else None
        theirs = config if type(config) is dict else None
        if type_.map.atomic or not (ours or theirs):
            return config
        return _merge_maps(type_.map, ours or {}, theirs or {}) if ours else theirs
    assert type_.list is not None
    before = live if type(live) is list else None
    after = config if type(config) is list else None
    if type_.list.atomic or not (before or after):
        return config
    if not before:
        return after
    return _merge_lists(type_.list, before, after or [])


def _merge_maps(map_: MapType, live: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    result = live
    for name, wanted in config.items():
        if name in live:
            current = live[name]
            if wanted is current:
                continue
            member = map_.fields.get(name, map_.element)
            if member is None or type(wanted) in EXPECTED[member.scalar]:
                value = wanted
            else:
                value = _merge_member(name, member, current, wanted)
            if value is current:
                continue
        else:
            value = wanted
        if result is live:
            result = dict(live)
        result[name] = value
    return result


def _merge_member(name: str, member: Type, current: Any, wanted: Any) -> Any:
    try:
        return merge(member, current, wanted)
    except TypedError as error:
        raise TypedError([(f".{name}{path}", text) for path, text in error.problems]) from None


def _merge_lists(list_: ListType, live: list[Any], config: list[Any]) -> list[Any]:
    wanted = _keyed(list_, config)
    wanted_by = dict(wanted)
    if len(wanted_by) != len(wanted):
        raise _duplicates(wanted)
    current = _keyed(list_, live)
    counts: dict[str, int] = {}
    for element, _ in current:
        counts[element] = counts.get(element, 0) + 1
    # A duplicate live item is replaced, not merged: it is ambiguous which of the two is meant.
    current_by = {element: item if counts[element] == 1 else None for element, item in current}
    merged = {
        element: merge(list_.element, current_by[element], item) if element in current_by else item for element, item in wanted
    }
    order = _merged_order([element for element, _ in current], [element for element, _ in wanted])
    return [merged[element] if element in merged else current[position][1] for element, position in order]


def _merged_order(live: list[str], config: list[str]) -> list[tuple[str, int]]:
    """The merged order of items; each with its position in the live list, or -1 where the configuration places it."""
    in_live, in_config = set(live), set(config)
    shared = [element for element in config if element in in_live]
    next_shared = 0
    done: set[str] = set()
    result: list[tuple[str, int]] = []
    left = right = 0
    while left < len(live) or right < len(config):
        if left < len(live) and right < len(config):
            element = live[left]
            if element == config[right]:
                done.add(element)
                result.append((element, left))
                left += 1
                right += 1
                next_shared += 1
                continue
            if element in in_config and next_shared < len(shared) and shared[next_shared] != element:
                left += 1
                continue
        if left < len(live):
            element = live[left]
            if element not in in_config:
                result.append((element, left))
                left += 1
                continue
            if element in done:
                left += 1
        if right < len(config):
            element = config[right]
            done.add(element)
            result.append((element, -1))
            right += 1
            if next_shared < len(shared) and shared[next_shared] == element:
                next_shared += 1
    return result


def _keyed(list_: ListType, items: list[Any]) -> list[tuple[str, Any]]:
    found = []
    for index, item in enumerate(items):
        try:
            found.append((list_.element_of(item), item))
        except ValueError as error:
            raise TypedError([("", f"element {index}: {error}")]) from None
    return found


def _duplicates(items: list[tuple[str, Any]]) -> TypedError:
    seen: set[str] = set()
    twice = [element for element, _ in items if element in seen or seen.add(element)]  # type: ignore[func-returns-value]
    return TypedError([("", f"duplicate entries for key {element_text(element)}") for element in twice])


# ---------------------------------------------------------------------------------------------------------------------


def _element(list_: ListType, item: Any) -> str:
    try:
        return list_.element_of(item)
    except ValueError:
        return ""


def remove_items(type_: Type, value: Any, fields: Fields) -> Any:
    """`value` without the members of the set; None when nothing is left of a map or list."""
    kind = kind_for(type_, value)
    if kind == SCALAR:
        return value
    if kind == MAP:
        assert type_.map is not None
        if type(value) is not dict or not value or type_.map.atomic:
            return None
        return _remove_members(type_.map, value, fields) or None
    assert type_.list is not None
    if type(value) is not list or not value or type_.list.atomic:
        return None
    items = []
    for item in value:
        node = fields.get(_element(type_.list, item))
        if node is None:
            items.append(item)
        elif not is_member(node):
            items.append(remove_items(type_.list.element, item, node))
    return items or None


def _remove_members(map_: MapType, value: dict[str, Any], fields: Fields) -> dict[str, Any]:
    result = {}
    for name, child in value.items():
        node = fields.get(f"f:{name}")
        if node is None:
            result[name] = child
        elif not is_member(node):
            member = map_.fields.get(name, map_.element)
            result[name] = None if member is None else remove_items(member, child, node)
    return result


def extract_items(type_: Type, value: Any, fields: Fields) -> Any:
    """Only the members of the set, and their parents."""
    kind = kind_for(type_, value)
    if kind == SCALAR:
        return value
    if kind == MAP:
        assert type_.map is not None
        if type(value) is not dict:
            return None
        if not value or type_.map.atomic:
            return value
        return _extract_members(type_.map, value, fields) or None
    assert type_.list is not None
    if type(value) is not list:
        return None
    if not value or type_.list.atomic:
        return value
    items = []
    for item in value:
        node = fields.get(_element(type_.list, item))
        if node is None:
            continue
        inside = below(node)
        items.append(extract_items(type_.list.element, item, inside) if inside else item)
    return items or None


def _extract_members(map_: MapType, value: dict[str, Any], fields: Fields) -> dict[str, Any]:
    result = {}
    for name, child in value.items():
        node = fields.get(f"f:{name}")
        member = map_.fields.get(name, map_.element)
        if node is None or member is None:
            continue
        inside = below(node)
        result[name] = extract_items(member, child, inside) if inside else child
    return result


def with_named_fields(type_: Type | None, fields: Fields) -> Fields:
    """The set in which every named field that leads to a member is a member too."""
    result: Fields = {}
    for element, node in fields.items():
        if not node:
            result[element] = node
            continue
        child: Type | None = None
        named = False
        if type_ is not None:
            if element[:1] == "f" and type_.map is not None:
                name = element[2:]
                named = name in type_.map.fields
                child = type_.map.fields.get(name, type_.map.element)
            elif element[:1] == "k" and type_.list is not None:
                child = type_.list.element
        made = with_named_fields(child, node)
        result[element] = {SELF: {}, **made} if named and SELF not in made else made
    return result
